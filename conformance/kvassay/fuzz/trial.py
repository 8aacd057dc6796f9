"""One engine and the steps made on it: legality before each call, the account after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.engine import Broken, Engine, NotSupported, Reply, Returned
from ..core.model import Finding, Json, Verdict
from ..core.pointers import Missing, resolve
from ..core.template import bound_names, substitute
from ..core.tensors import write
from ..corpus.build import expand
from ..corpus.data import root
from ..corpus.ops import check_result, find
from ..corpus.schemas import problem
from .contract import Contract, Illegal, Step

DEADLINE_S = 10.0


@dataclass(frozen=True)
class Wrong:
    """What a reply contradicts."""

    reason: str
    """Kind of defect and op: two findings of one reason are taken for the same."""
    op: str
    verdict: Verdict
    finding: Finding


class Found(AssertionError):
    """A wrong reply; the steps that led to it are those of the trial."""

    def __init__(self, wrong: Wrong) -> None:
        super().__init__(f"{wrong.reason}: {wrong.finding.message}")
        self.wrong = wrong


class Trial:
    """Steps on one engine. Every sequence begins with :meth:`open`."""

    def __init__(self, engine: Engine, contract: Contract, *, probe: bool = False, deadline_s: float = DEADLINE_S):
        self.engine = engine
        self.contract = contract
        self.probe = probe
        self.deadline_s = deadline_s
        self.calls = 0
        """Over all sequences."""
        self.refused: set[str] = set()
        """Ops that the engine declares and called unsupported."""
        self.strict = False
        """Whether requests are held against their schemas before they are sent."""
        self.explain = False
        """Whether what each step expects is kept, for a case file."""

    def open(self) -> None:
        """A fresh engine and a fresh account; raises :class:`Found` when the engine does not open."""
        self.steps: list[Step] = []
        self.expected: list[Mapping[str, Json]] = []
        self.needs: set[str] = set()
        self.bound: dict[str, Json] = {}
        broken = self.engine.open()
        if broken is not None:
            raise Found(self._broken(broken, "open"))
        self.scene = self.contract.scene(self.engine.description, self.make)

    def run(self, steps: Sequence[Step]) -> Wrong | None:
        """Make a whole sequence anew; raises :class:`Illegal`."""
        try:
            self.open()
            for step in steps:
                self.make(step)
        except Found as found:
            return found.wrong
        return None

    def make(self, step: Step) -> Reply:
        """One call; raises :class:`Illegal` before and :class:`Found` after it."""
        request = self._request(step)
        why = self.scene.illegal(step.op, request, probe=self.probe)
        if why is not None:
            raise Illegal(why)
        if self.explain:
            self.expected.append(self.scene.expect(step.op, request))
            self.needs |= self.scene.needs(step.op, request)
        reply = self.engine.call(step.op, request, self.deadline_s)
        self.calls += 1
        self.steps.append(step)
        self._judge(step, request, reply)
        if isinstance(reply, Returned):
            for name, pointer in step.bind.items():
                try:
                    self.bound[name] = resolve(reply.value, pointer)
                except Missing:
                    self.bound.pop(name, None)
        return reply

    def _request(self, step: Step) -> Mapping[str, Json]:
        request = step.request
        if any(self.bound.get(name) is None for name in bound_names(request)):
            raise Illegal("it uses what no step bound")
        if self.bound:
            request = substitute(request, self.bound, self.engine.description.states)
        if self.strict and step.op not in self.contract.atomic:
            found = problem(write(expand(request, root())), find(step.op).request)
            if found is not None:
                raise Illegal(f"{found[0]}: {found[1]}")
        return request

    def _judge(self, step: Step, request: Mapping[str, Json], reply: Reply) -> None:
        if isinstance(reply, Broken):
            beyond = self.probe and self.scene.illegal(step.op, request, probe=False) is not None
            if beyond and reply.kind == "exception":
                return
            raise Found(self._broken(reply, step.op))
        if isinstance(reply, NotSupported):
            self.refused.add(step.op)
            return
        if isinstance(reply, Returned):
            problem_found = check_result(step.op, reply.value)
            if problem_found is not None:
                finding = Finding(None, "", problem_found, "a result of the op's schema", reply.value)
                raise Found(Wrong(f"malformed result of {step.op}", step.op, Verdict.FAIL, finding))
        outcome = self.scene.observe(step.op, request, reply)
        if outcome.verdict in (Verdict.FAIL, Verdict.WRONG_REASON):
            assert outcome.finding is not None
            reason = f"{self.contract.reason(outcome)} in {step.op}"
            raise Found(Wrong(reason, step.op, outcome.verdict, outcome.finding))

    def _broken(self, broken: Broken, op: str) -> Wrong:
        first = broken.detail.partition("\n")[0]
        kind = first.partition(":")[0] if broken.kind == "exception" else broken.kind
        finding = Finding(None, "", f"{broken.kind}: {first}")
        return Wrong(f"{kind or broken.kind} in {op}", op, Verdict.ERROR, finding)
