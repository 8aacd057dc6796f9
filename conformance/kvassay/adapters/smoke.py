"""Before the judging: is it the adapter that is broken, or the engine that does not conform?

What is found here would turn into dozens of misleading verdicts. So nothing is judged until the adapter declares only
what the corpus knows, opens, and says *unsupported* of an op that it does not have.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from ..core.engine import Broken, Engine, NotSupported
from ..core.model import EngineDescription
from ..corpus import Corpus, schemas
from ..corpus.ops import ops
from .worker import declaration

NO_OP = "smoke.no_such_op"
DEADLINE_S = 30.0


def smoke(engine: Engine, corpus: Corpus) -> list[str]:
    """What is wrong with the adapter, a sentence each; empty when judging can begin."""
    return [*_undeclarable(engine.description, corpus), *_misbehaviour(engine)]


def _undeclarable(description: EngineDescription, corpus: Corpus) -> Iterator[str]:
    found = schemas.problem(declaration(description), "urn:kvassay:engine")
    if found is not None:
        yield f"the description is not valid: {found[0] or '/'}: {found[1]}"
    for op in sorted(description.ops):
        if op not in ops():
            yield f"it declares the op {op}, which no contract has{_near(op, ops())}"
    for name in sorted(description.profiles or ()):
        if name not in corpus.profiles:
            yield f"it claims the profile {name}, which does not exist{_near(name, corpus.profiles)}"
    for name in sorted(description.variants):
        if name not in corpus.variants:
            yield f"it names the variant {name}, which does not exist{_near(name, corpus.variants)}"
    for name, value in sorted(description.capabilities.items()):
        capability = corpus.capabilities.get(name)
        if capability is None:
            yield f"it declares the capability {name}, which does not exist{_near(name, corpus.capabilities)}"
        elif not any(value == known and type(value) is type(known) for known in capability.values):
            values = ", ".join(map(str, capability.values))
            yield f"it declares the capability {name} as {value!r}, which is none of {values}"
    stateful = description.ops & {"attention.partial", "attention.merge"}
    if stateful and not description.states:
        yield f"it declares {', '.join(sorted(stateful))} and names no state schema in states"


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(set(known)), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _misbehaviour(engine: Engine) -> Iterator[str]:
    broken = engine.open()
    if broken is not None:
        yield f"it does not open: {broken.kind}: {broken.detail}"
        return
    reply = engine.call(NO_OP, {}, DEADLINE_S)
    if not isinstance(reply, NotSupported):
        answer = f"{reply.kind}: {reply.detail}" if isinstance(reply, Broken) else type(reply).__name__.lower()
        yield f"an op that it does not have should be answered unsupported; the answer was {answer}"
    broken = engine.open()
    if broken is not None:
        yield f"it does not open a second time: {broken.kind}: {broken.detail}"
    for late in engine.late():
        yield f"it spoke out of turn: {late.problem.kind}: {late.problem.detail}"
