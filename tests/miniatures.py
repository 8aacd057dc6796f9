"""Adapters of a few lines that misbehave when the scale of a request is 13, and answer properly otherwise.

Each costs one verdict and never the run. Programs that break the protocol itself stand in ``miniature_programs.py``.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import kvassay
import numpy as np
from kvassay import EngineAdapter, EngineInfo, Pending, Rejected, Unsupported

BAD = 13


class Good(EngineAdapter):
    """Answers every request with one number."""

    engine = EngineInfo("miniature", "1")
    profiles = frozenset({"dense"})

    def attention_dense(self, request):
        return self._bad(request) if request["scale"] == BAD else self._answer()

    def _answer(self):
        return {"out": np.ones((1, 1), dtype=np.float32)}

    def _bad(self, request):
        return self._answer()


class Raises(Good):
    """An exception in the adapter."""

    def _bad(self, request):
        raise ZeroDivisionError("no such luck")


class Exits(Good):
    """The process ends."""

    def _bad(self, request):
        print("last words", file=sys.stderr)
        os._exit(7)


class ExitsPolitely(Good):
    """``sys.exit``, as argument parsers do."""

    def _bad(self, request):
        sys.exit(2)


class Segfaults(Good):
    """The signal that a wild pointer ends in."""

    def _bad(self, request):
        os.kill(os.getpid(), signal.SIGSEGV)


class Hangs(Good):
    """No answer, ever."""

    def _bad(self, request):
        time.sleep(600)


class Daemon(Good):
    """Leaves a grandchild that holds the pipes open, then dies."""

    def _bad(self, request):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(f"grandchild {child.pid}", file=sys.stderr, flush=True)
        os._exit(1)


class Unserialisable(Good):
    """A value that JSON has no word for."""

    def _bad(self, request):
        return {"out": {1, 2, 3}}


class NotAMapping(Good):
    """The array itself instead of a result object."""

    def _bad(self, request):
        return np.ones((1, 1), dtype=np.float32)


class Complex(Good):
    """A dtype that the protocol has no name for."""

    def _bad(self, request):
        return {"out": np.ones((1, 1), dtype=np.complex64)}


class HugeInteger(Good):
    """An integer beyond what other languages can read."""

    def _bad(self, request):
        return {"out": 2**64}


class Endless(Good):
    """A result that contains itself."""

    def _bad(self, request):
        result = {}
        result["out"] = result
        return result


class OddReason(Good):
    """A rejection whose reason is no text."""

    def _bad(self, request):
        raise Rejected(404)


class NotANumber(Good):
    """NaN everywhere: a legal reply and a wrong result."""

    def _bad(self, request):
        return {"out": np.full((1, 1), np.nan, dtype=np.float32)}


class Prints(Good):
    """Prints to stdout, which is not an adapter's to use, and reads stdin, which is not either: both harmless."""

    def _bad(self, request):
        print("computing ...", flush=True)
        os.write(1, b"[1, 2, 3]\n")
        assert sys.stdin.read() == ""
        return self._answer()


class Chatty(Good):
    """Writes megabytes to stderr: harmless."""

    def _bad(self, request):
        for _ in range(64):
            os.write(2, b"x" * 65535 + b"\n")
        return self._answer()


class Vandal(Good):
    """Changes its request: harmless, for it is a copy, and its arrays are read-only."""

    def _bad(self, request):
        assert not request["q"].flags.writeable
        request["kv_head_of"].append(5)
        request.clear()
        return self._answer()


class Reuses(Good):
    """Returns one buffer again and again: harmless, for a result is copied."""

    buffer = np.zeros((1, 1), dtype=np.float32)

    def _answer(self):
        self.buffer += 1
        return {"out": self.buffer}


class Asynchronous(Good):
    """Answers after three polls."""

    def _bad(self, request):
        self.polls = 0
        return Pending("job-1")

    def poll(self, ticket):
        assert ticket == "job-1"
        self.polls += 1
        return self._answer() if self.polls == 3 else Pending(ticket)


class NeverReady(Asynchronous):
    """Polls go on for ever."""

    def poll(self, ticket):
        return Pending(ticket)


class Ticketless(Good):
    """Returns a ticket and has no ``poll``."""

    def _bad(self, request):
        return Pending("job-1")


class Declines(Good):
    """Cannot take this request."""

    def _bad(self, request):
        raise Unsupported("no such scale")


class NeverOpens(Good):
    """``open`` raises."""

    def open(self):
        raise RuntimeError("no fresh engine to be had")


class Remembers(Good):
    """Counts its calls since ``open``."""

    def open(self):
        self.calls = 0

    def _answer(self):
        self.calls += 1
        return {"out": np.full((1, 1), self.calls, dtype=np.float32)}


class Where(Good):
    """Says in its notes where it got the suite from, and what else lies there."""

    def describe(self):
        folder = Path(kvassay.__file__).parents[1]
        notes = {"folder": str(folder), "names": sorted(path.name for path in folder.iterdir())}
        return replace(super().describe(), notes=json.dumps(notes))


class SlowToClose(Good):
    """``teardown`` takes for ever."""

    def teardown(self):
        time.sleep(600)


class NoSetup(Good):
    """``setup`` fails."""

    def setup(self):
        raise OSError("no device")


class OddOps(Good):
    """A helper that looks like an op, an unknown profile, and capabilities that do not exist."""

    profiles = frozenset({"dence"})
    capabilities: ClassVar = {"attention.pagd": True, "attention.paged": "perhaps"}

    def attention_dens(self, request):
        return {}


NotAnAdapter = 5
