"""Recording: an engine that writes down what it is asked and what it answers.

``recording(engine, path)`` is an engine like the one that it holds; whoever drives an engine can hand it on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..adapters.smoke import NO_OP
from ..core.engine import Broken, Engine, Late, NotSupported, Refused, Reply, Returned
from ..core.model import EngineDescription
from ..core.tensors import dtype_name, to_bytes, write
from ..corpus.errors import CorpusError
from . import FORMAT

BY_ROWS = ("identity.put", "identity.get")
"""Ops whose tensors are told row by row, so that a prefix is recognised."""


class Writer:
    """A trace that is being written to a stream; :meth:`close` gives it its end, and leaves the stream open."""

    def __init__(self, stream: TextIO, *, process: str = "") -> None:
        self.own = {"process": process} if process else {}
        self.events = 0
        self._stream: TextIO | None = stream

    def header(self, description: EngineDescription, **context: Any) -> None:
        """The first line."""
        header = {
            "trace": FORMAT,
            "engine": {"name": description.name, "version": description.version},
            "capabilities": dict(description.capabilities),
            "variants": sorted(description.variants),
            "states": list(description.states),
            **self.own,
        }
        self._line({**header, "context": context} if context else header)

    def opened(self, case: str = "") -> None:
        """A fresh engine."""
        self._event({"event": "trace.open", **({"case": case} if case else {})})

    def exchange(self, op: str, request: Mapping[str, Any], reply: Reply) -> None:
        """One call and what came of it."""
        rows = op in BY_ROWS
        self._event({"event": op, "request": plain(request, rows=rows), **outcome(reply, rows=rows)})

    def close(self) -> None:
        """Write the end; what comes later is not recorded."""
        if self._stream is not None:
            self._line({"event": "trace.end", "events": self.events, **self.own})
            self._stream.flush()
            self._stream = None

    def _event(self, value: dict[str, Any]) -> None:
        self._line({**value, **self.own, "seq": self.events})
        self.events += 1

    def _line(self, value: dict[str, Any]) -> None:
        if self._stream is not None:
            self._stream.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


class Recording:
    """An engine whose exchanges are written down."""

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self.engine = engine
        self.writer = writer
        self.case = ""
        """The case that begins with the next opening, where there is one."""
        writer.header(engine.description)

    @property
    def description(self) -> EngineDescription:
        """The engine's own."""
        return self.engine.description

    def open(self) -> Broken | None:
        """A fresh engine."""
        self.writer.opened(self.case)
        self.case = ""
        return self.engine.open()

    def call(self, op: str, request: Mapping[str, Any], deadline_s: float) -> Reply:
        """Do one op, and write it down."""
        reply = self.engine.call(op, request, deadline_s)
        if op != NO_OP:  # the smoke check's own question, which no engine was asked in service
            self.writer.exchange(op, request, reply)
        return reply

    def late(self) -> tuple[Late, ...]:
        """The engine's own."""
        return self.engine.late()

    def close(self) -> None:
        """End the engine and the trace."""
        try:
            self.engine.close()
        finally:
            self.writer.close()


class FileRecording(Recording):
    """A recording that owns its file."""

    def __init__(self, engine: Engine, stream: TextIO, *, process: str = "") -> None:
        super().__init__(engine, Writer(stream, process=process))
        self._own = stream

    def close(self) -> None:
        """End the engine, the trace and the file."""
        try:
            super().close()
        finally:
            self._own.close()


def recording(engine: Engine, path: Path, *, process: str = "") -> FileRecording:
    """The engine, its exchanges written to a file; raises :class:`CorpusError` for one that cannot be written.

    A report can be made again from the same run; a trace may be the only witness of what an engine did, so that one is
    never written over another. What is no file, such as a pipe, is written to.
    """
    try:
        if path.is_file() and path.stat().st_size:
            raise CorpusError("it is there already, and a trace replaces no file", file=str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("w", encoding="utf-8", errors="replace")
    except OSError as problem:
        raise CorpusError(f"cannot be written: {problem.strerror or problem}", file=str(path)) from None
    return FileRecording(engine, stream, process=process)


def outcome(reply: Reply, *, rows: bool = False) -> dict[str, Any]:
    """What came of a call, as a line has it."""
    if isinstance(reply, Returned):
        return {"result": plain(reply.value, rows=rows)}
    if isinstance(reply, Refused):
        return {"rejected": {"reason": reply.reason, **({"detail": reply.detail} if reply.detail else {})}}
    if isinstance(reply, NotSupported):
        return {"unsupported": reply.detail}
    return {"error": {"kind": reply.kind, "detail": reply.detail}}


def plain(value: Any, *, rows: bool = False) -> Any:
    """A value as JSON, arrays as digests."""
    if isinstance(value, np.ndarray):
        return digest(value, rows=rows)
    if isinstance(value, Mapping):
        return {str(name): plain(item, rows=rows) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, rows=rows) for item in value]
    return write(value)


def digest(array: np.ndarray[Any, Any], *, rows: bool = False) -> dict[str, Any]:
    """An array as a trace has it."""
    found: dict[str, Any] = {
        "dtype": dtype_name(array),
        "shape": list(array.shape),
        "sha256": hashlib.sha256(to_bytes(array)).hexdigest(),
    }
    if rows and array.ndim > 1:
        found["rows_sha256"] = [hashlib.sha256(to_bytes(row)).hexdigest() for row in array]
    return found
