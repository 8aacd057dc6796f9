"""An adapter in this very process: for speed, for debuggers, and inside the worker."""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..core.engine import Broken, Late, NotSupported, Refused, Reply, Returned
from ..core.model import EngineDescription
from .base import EngineAdapter, Pending, Rejected, Unsupported
from .errors import AdapterError
from .values import DETAIL_CHARACTERS, RecipeCache, UnfitValue, expanded, normalised, shortened

OWN_FOLDER = str(Path(__file__).parent)
FIRST_PAUSE_S, LAST_PAUSE_S = 20e-6, 0.05
"""Between two polls of a ticket."""
IMPORTLIB = str(Path(importlib.__file__).parent)


class InProcess:
    """An :class:`~kvassay.core.engine.Engine` over an adapter class.

    A deadline cannot interrupt a call that hangs here; it bounds the polling of pending tickets only. Engines that run
    one after the other may share the large inputs that they expand from recipes.
    """

    def __init__(self, adapter_class: type[EngineAdapter], recipes: RecipeCache | None = None) -> None:
        try:
            self._adapter = adapter_class()
            self._adapter.setup()
            self._description = self._adapter.describe()
        except (Exception, SystemExit) as error:
            raise AdapterError(f"{adapter_class.__name__}: {summary(error)}") from error
        self.needs_open = adapter_class.open is not EngineAdapter.open
        self._recipes = RecipeCache() if recipes is None else recipes
        self._closed = False

    @property
    def description(self) -> EngineDescription:
        """What the adapter's ``describe`` returned after ``setup``."""
        return self._description

    def open(self) -> Broken | None:
        """Call the adapter's ``open``."""
        if self.needs_open:
            try:
                self._adapter.open()
            except (Exception, SystemExit) as error:
                return Broken("exception", explain(error))
        return None

    def call(self, op: str, request: Mapping[str, Any], deadline_s: float) -> Reply:
        """Call the op's method; poll a pending ticket until the deadline."""
        deadline = time.monotonic() + deadline_s
        return poll_until(deadline, self.answer(op, request), self.resume, op, deadline_s)

    def answer(self, op: str, request: Mapping[str, Any]) -> Reply | Pending:
        """The adapter's own first answer, which may be a ticket."""
        if op not in self._description.ops:
            return NotSupported(f"the adapter defines no method for {op}")
        method = getattr(self._adapter, op.replace(".", "_", 1), None)
        if method is None:
            return Broken("exception", f"the adapter declares {op} and defines no method for it")
        return self._reply(lambda: method(expanded(request, self._recipes)))

    def resume(self, ticket: str) -> Reply | Pending:
        """The adapter's answer to one poll."""
        return self._reply(lambda: self._adapter.poll(ticket))

    def _reply(self, ask: Callable[[], Any]) -> Reply | Pending:
        try:
            value = ask()
        except Rejected as rejection:
            if not isinstance(rejection.reason, str | None):
                return Broken("malformed", f"a rejection whose reason is {rejection.reason!r}")
            return Refused(rejection.reason, shortened(str(rejection.detail)))
        except Unsupported as unsupported:
            return NotSupported(shortened(str(unsupported)))
        except (Exception, SystemExit) as error:
            return Broken("exception", explain(error))
        if isinstance(value, Pending):
            return value
        if not isinstance(value, Mapping):
            return Broken("malformed", f"the result is {type(value).__name__}, not a mapping")
        try:
            return Returned(normalised(value))
        except UnfitValue as error:
            return Broken("malformed", f"the result cannot be sent: {error}")

    def late(self) -> tuple[Late, ...]:
        """Always empty: a method cannot return twice."""
        return ()

    def close(self) -> None:
        """Call the adapter's ``teardown`` once; what it raises is printed, for no verdict hangs on it."""
        if self._closed:
            return
        self._closed = True
        try:
            self._adapter.teardown()
        except (Exception, SystemExit):
            traceback.print_exc()


def poll_until(
    deadline: float, reply: Reply | Pending, poll: Callable[[str], Reply | Pending], op: str, deadline_s: float
) -> Reply:
    """Poll a ticket until there is a reply or the (monotonic) deadline, after pauses that double.

    An engine that is about to answer is not waited for; one that takes long is asked 20 times a second.
    """
    pause = FIRST_PAUSE_S
    while isinstance(reply, Pending):
        if time.monotonic() + pause > deadline:
            return Broken("timeout", f"{op} still pending after {deadline_s:g} s")
        time.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE_S)
        reply = poll(reply.ticket)
    return reply


def summary(error: BaseException) -> str:
    """An exception in one line, with the place that raised it."""
    line = shortened(" ".join(traceback.format_exception_only(error)[-1].split()))[: DETAIL_CHARACTERS // 2]
    frames = _foreign_frames(error)
    if not frames:
        return line
    last = frames[-1]
    return f"{line} ({last.filename.rpartition('/')[2]}, line {last.lineno}, in {last.name})"


def explain(error: BaseException) -> str:
    """The summary, and below it the traceback as far as it fits."""
    trace = "".join(traceback.format_list(_foreign_frames(error))).rstrip()
    return f"{summary(error)}\n{trace[1 - DETAIL_CHARACTERS // 2 :]}" if trace else summary(error)


def _foreign_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames that are the adapter's or its engine's: not this package's, not those of the import system."""
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((OWN_FOLDER, "<frozen importlib", IMPORTLIB))
    ]
