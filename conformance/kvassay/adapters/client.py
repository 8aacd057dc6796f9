"""An engine in another process, reached by the wire protocol: the worker, or any program.

Whatever the engine does costs the call at hand: it is answered with :class:`~kvassay.core.engine.Broken`, the process
group is killed, and the next case gets a new process.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.engine import Broken, Late, NotSupported, Reply
from ..core.model import EngineDescription
from .base import Pending
from .errors import AdapterError
from .inbox import Incoming
from .local import poll_until
from .process import Child
from .values import RecipeCache
from .wire import EDITION, PROTOCOL, RECIPES, TooLarge, encode

HELLO_S = 60.0
OPEN_S = 60.0
GRACE_S = 5.0
"""How long a closing engine may take before it is killed."""
MAX_LATE = 64
"""Second answers that are set aside before the engine counts as flooding."""
RESTARTS = 3
"""Failed starts in a row after which no more are tried."""


class Subprocess:
    """An :class:`~kvassay.core.engine.Engine` in a process of its own.

    A second answer to an earlier case is set aside for ``late()`` and harms nothing else; any other output that no
    message asked for costs the case at hand.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        label: str,
        env: Mapping[str, str] | None = None,
        hello_s: float = HELLO_S,
        open_s: float = OPEN_S,
        grace_s: float = GRACE_S,
        edition: str = EDITION,
        cleanup: Callable[[], None] | None = None,
    ) -> None:
        self._command = command
        self._label = label
        self._env = env
        self._hello_s = hello_s
        self._open_s = open_s
        self._grace_s = grace_s
        self._edition = edition
        self._cleanup = cleanup
        self._child: Child | None = None
        self._down = ""
        self._failed_starts = 0
        self._next_id = 1
        self._first_id_of_process = 1
        self._openings = [self._next_id]
        """The first message id of each case that was opened, and of what went before."""
        self._late: list[Late] = []
        self._recipes: RecipeCache | None = None
        try:
            self._description = self._start()
        except BaseException:
            self._finish()
            raise

    @property
    def description(self) -> EngineDescription:
        """What the engine's last ``hello`` declared."""
        return self._description

    def _start(self) -> EngineDescription:
        child = Child(self._command, self._env)
        try:
            child.send(encode({"hello": {"protocol": [PROTOCOL], "edition": self._edition}}, frames=False))
            answer = child.receive(time.monotonic() + self._hello_s)
            hello = self._hello_of(answer, child)
        except BaseException:
            child.kill()
            raise
        self._child = child
        self._first_id_of_process = self._next_id
        self._frames = hello.get("frames", False)
        self._opens = hello.get("open", True)
        takes_recipes = set(RECIPES) <= set(hello.get("recipes", ()))
        self._recipes = None if takes_recipes else self._recipes or RecipeCache()
        self._failed_starts = 0
        return describe(hello)

    def _hello_of(self, answer: Incoming | Broken, child: Child) -> Mapping[str, Any]:
        if isinstance(answer, Broken):
            problem = answer.detail.partition("\n")[0]
            if answer.kind == "timeout":
                problem = f"no answer to hello within {self._hello_s:g} s"
            elif answer.kind == "malformed":
                problem += "; standard output belongs to the protocol, logs to standard error"
        elif answer.kind == "failed":
            problem = answer.body["error"]["detail"]
        elif answer.kind != "hello":
            problem = f"it answered hello with a message of kind {answer.kind}"
        elif (protocol := answer.body["hello"]["protocol"]) != PROTOCOL:
            problem = f"it chose protocol {protocol}; offered was {PROTOCOL}"
        elif (edition := answer.body["hello"].get("edition", self._edition)) != self._edition:
            problem = f"it wants edition {edition} of the corpus; this is edition {self._edition}"
        else:
            hello: Mapping[str, Any] = answer.body["hello"]
            return hello
        child.kill()
        raise AdapterError(f"{self._label}: {problem}", child.stderr_tail())

    def open(self) -> Broken | None:
        """Begin a case: a running process, told to forget the case before."""
        self._openings.append(self._next_id)
        child = self._child
        if child is not None:
            child.drain()
            problem = self._unasked(child)
            if problem is not None:
                self._fail(problem)
                if self._next_id == self._first_id_of_process:
                    return problem
                self._late.append(Late(problem, 1))
                child = None
        if child is None and (broken := self._restart()) is not None:
            return broken
        if not self._opens:
            return None
        assert self._child is not None
        self._child.send(encode({"open": {}}, frames=False))
        answer = self._receive(self._child, time.monotonic() + self._open_s)
        if isinstance(answer, Broken):
            return self._fail(answer)
        if answer.kind == "opened":
            return None
        if answer.kind == "failed":
            return Broken("exception", answer.body["error"]["detail"])
        return self._fail(Broken("malformed", f"it answered open with a message of kind {answer.kind}"))

    def _restart(self) -> Broken | None:
        if self._failed_starts >= RESTARTS:
            return Broken("crash", f"not started again after {RESTARTS} failures; the last: {self._down}")
        try:
            self._description = self._start()
        except AdapterError as error:
            self._failed_starts += 1
            self._down = str(error)
            return Broken("crash", f"the engine could not be started again: {error}")
        return None

    def call(self, op: str, request: Mapping[str, Any], deadline_s: float) -> Reply:
        """Do one op; poll a pending ticket until the deadline."""
        deadline = time.monotonic() + deadline_s
        reply = self._ask({"call": op, "request": request}, deadline)
        return poll_until(deadline, reply, lambda ticket: self._ask({"poll": ticket}, deadline), op, deadline_s)

    def _ask(self, message: Mapping[str, Any], deadline: float) -> Reply | Pending:
        """One message and its reply."""
        child = self._child
        if child is None:
            return Broken("crash", f"the engine is down since {self._down}")
        child.drain()
        problem = self._unasked(child)
        if problem is not None:
            return self._fail(problem)
        number = self._next_id
        self._next_id += 1
        try:
            chunks = encode({**message, "id": number}, frames=self._frames, recipes=self._recipes)
        except TooLarge as error:
            return NotSupported(str(error))
        child.send(chunks)
        answer = self._receive(child, deadline)
        if isinstance(answer, Broken):
            return self._fail(answer)
        if answer.id != number:
            own = answer.id is not None and self._openings[-1] <= answer.id < number
            return self._fail(self._stray(answer) if own else _mistaken(answer, number))
        if child.unread:
            return self._fail(Broken("malformed", "it answered before it had read the whole request"))
        problem = self._unasked(child)
        if problem is not None:
            return self._fail(problem)
        assert answer.reply is not None
        return answer.reply

    def _receive(self, child: Child, deadline: float) -> Incoming | Broken:
        """The next message that is not a second answer to an earlier case."""
        while True:
            message = child.receive(deadline)
            if not self._set_aside(message):
                return message

    def _unasked(self, child: Child) -> Broken | None:
        """What lies in the inbox although nothing was asked, second answers to earlier cases set aside."""
        while len(child.inbox):
            message = child.inbox.take()
            if message is None:
                return Broken("malformed", f"output that no message asked for: {child.inbox.excerpt()}")
            if not self._set_aside(message):
                return self._stray(message)
        return None

    def _set_aside(self, message: Incoming | Broken) -> bool:
        """Keep a second answer to an earlier case for :meth:`late`; it does no harm to the case at hand."""
        if isinstance(message, Broken) or message.id is None or len(self._late) >= MAX_LATE:
            return False
        if not self._first_id_of_process <= message.id < self._openings[-1]:
            return False
        cases_ago = len(self._openings) - bisect_right(self._openings, message.id)
        self._late.append(Late(self._stray(message), cases_ago))
        return True

    def _stray(self, message: Incoming | Broken) -> Broken:
        """What unasked output is called."""
        if isinstance(message, Broken):
            return Broken(message.kind, f"output that no message asked for: {message.detail}")
        if message.id is None or not self._first_id_of_process <= message.id < self._next_id:
            return Broken("wrong-id", f"a message of kind {message.kind} that nothing asked for")
        return Broken("answered-twice", f"a second answer ({message.kind}) to message {message.id}")

    def _fail(self, problem: Broken) -> Broken:
        self._down = f"{problem.kind}: {problem.detail}"
        if self._child is not None:
            self._child.kill()
            self._child = None
        return problem

    def late(self) -> tuple[Late, ...]:
        """Second answers to earlier cases, each told once."""
        late, self._late = tuple(self._late), []
        return late

    def close(self) -> None:
        """Ask the engine to end, wait a little, kill what is left of its process group."""
        child, self._child = self._child, None
        if child is not None:
            child.send(encode({"close": {}}, frames=False))
            child.wait(self._grace_s)
        self._finish()

    def _finish(self) -> None:
        if self._cleanup is not None:
            self._cleanup()
            self._cleanup = None


def _mistaken(answer: Incoming, number: int) -> Broken:
    if answer.id is None:
        return Broken("malformed", f"a message of kind {answer.kind} where the answer to message {number} belongs")
    return Broken("wrong-id", f"an answer to message {answer.id}, which was never sent; asked was {number}")


def describe(hello: Mapping[str, Any]) -> EngineDescription:
    """A hello reply that met its schema, as the judge reads it."""
    engine, profiles = hello["engine"], hello.get("profiles")
    return EngineDescription(
        name=engine["name"],
        version=engine["version"],
        homepage=engine.get("homepage", ""),
        language=engine.get("language", ""),
        notes=engine.get("notes", ""),
        ops=frozenset(hello["ops"]),
        profiles=None if profiles is None else frozenset(profiles),
        states=tuple(hello.get("states", ())),
        variants=frozenset(hello.get("variants", ())),
        capabilities=dict(hello.get("capabilities", {})),
    )
