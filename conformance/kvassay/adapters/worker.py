"""``python -m kvassay.adapters.worker module:Class``: an adapter served on stdin and stdout.

The adapter gets stderr for its stdout and an empty stdin, so that nothing that it prints or reads can disturb the
protocol. This module and what it imports stay small: a worker starts for every run and after every crash.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

from ..core.engine import Broken, NotSupported, Refused, Reply, Returned
from ..core.model import EngineDescription
from .base import EngineAdapter, Pending
from .errors import AdapterError
from .local import InProcess, explain, summary
from .wire import PROTOCOL, RECIPES, WireError, encode, frame_lengths, parse_line, unpack


class Streams:
    """The two pipes of the protocol, out of the adapter's reach."""

    def __init__(self) -> None:
        self.reader: BinaryIO = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
        self._out = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)

    def read(self) -> tuple[dict[str, Any], list[bytes]] | None:
        """The next message and its frames; ``None`` when the judge has gone."""
        line = self.reader.readline()
        if not line:
            return None
        body = parse_line(line)
        frames = [self.reader.read(length) for length in frame_lengths(body)]
        return body, frames

    def write(self, body: Mapping[str, Any]) -> None:
        """Send one message, all of it or none."""
        chunks = encode(body, frames=True)
        data = memoryview(b"".join(chunks) if len(chunks) > 1 else chunks[0])
        while data:
            data = data[os.write(self._out, data) :]


def load(name: str) -> type[EngineAdapter]:
    """The adapter class that ``module:Class`` names; raises :class:`AdapterError` in words."""
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise AdapterError(f"cannot import {module_name}: {summary(error)}") from error
    found: Any = module
    for part in class_name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, EngineAdapter):
        kind = "no such name" if found is None else "not a subclass of kvassay.EngineAdapter"
        raise AdapterError(f"{class_name} in {module_name}: {kind}")
    return found


def declaration(description: EngineDescription) -> dict[str, Any]:
    """A description in the form of ``schemas/engine.json``."""
    engine = {key: getattr(description, key) for key in ("name", "version", "homepage", "language", "notes")}
    return {
        "engine": engine,
        "ops": sorted(description.ops),
        "profiles": None if description.profiles is None else sorted(description.profiles),
        "states": list(description.states),
        "variants": sorted(description.variants),
        "capabilities": dict(description.capabilities),
    }


def serve(name: str) -> int:
    """Answer messages until ``close`` or the end of stdin."""
    streams = Streams()
    engine: InProcess | None = None
    try:
        while (message := streams.read()) is not None:
            body, frames = message
            if "hello" in body:
                try:
                    engine = InProcess(load(name))
                    streams.write(_hello(body, engine))
                except (AdapterError, ValueError, TypeError, AttributeError) as error:
                    print(explain(error.__cause__ or error).partition("\n")[2], file=sys.stderr, flush=True)
                    detail = error.message if isinstance(error, AdapterError) else summary(error)
                    streams.write({"error": {"detail": detail}})
                    return 1
            elif "close" in body:
                return 0
            elif engine is None:
                raise WireError("the first message is not hello")
            else:
                streams.write(_answer(engine, body, frames))
        return 0
    except BrokenPipeError:
        return 0
    finally:
        if engine is not None:
            engine.close()


def _hello(body: Mapping[str, Any], engine: InProcess) -> dict[str, Any]:
    if PROTOCOL not in body["hello"]["protocol"]:
        raise AdapterError(f"this worker speaks protocol {PROTOCOL}, the judge {body['hello']['protocol']}")
    hello = {"protocol": PROTOCOL, **declaration(engine.description)}
    return {"hello": {**hello, "frames": True, "recipes": list(RECIPES), "open": engine.needs_open}}


def _answer(engine: InProcess, body: Mapping[str, Any], frames: list[bytes]) -> dict[str, Any]:
    if "open" in body:
        broken = engine.open()
        return {"opened": {}} if broken is None else {"error": {"detail": broken.detail}}
    if "poll" in body:
        return {"id": body["id"], **message(engine.resume(body["poll"]))}
    request = unpack(body["request"], frames, recipes=True)
    return {"id": body["id"], **message(engine.answer(body["call"], request))}


def message(reply: Reply | Pending) -> dict[str, Any]:
    """A reply as members of a message."""
    match reply:
        case Returned(value):
            return {"result": value}
        case Refused(reason, detail):
            return {"rejected": {"reason": reason, "detail": detail}}
        case NotSupported(detail):
            return {"unsupported": {"detail": detail}}
        case Broken(_, detail):
            return {"error": {"detail": detail}}
        case Pending(ticket):
            return {"pending": {"ticket": ticket}}


if __name__ == "__main__":
    if len(sys.argv) != 2 or ":" not in sys.argv[1]:
        sys.exit("usage: python -m kvassay.adapters.worker module:Class")
    sys.exit(serve(sys.argv[1]))
