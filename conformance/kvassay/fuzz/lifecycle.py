"""Fuzzing of the contract lifecycle: sessions through legal and illegal events, plans, and pause documents.

Every request has one right reply, which the built-in reference gives: :mod:`kvassay.monitors.replay`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.engine import Refused, Reply, Returned
from ..core.expect import Outcome
from ..core.model import EngineDescription, Json
from ..corpus.data import fixture_module
from .contract import Draw, Illegal, Make, Rule, Step
from .documents import Document, Documents
from .lifecycle_plans import PLANS
from .replayed import Replayed, reason

Request = dict[str, Any]
ADMIT = "lifecycle.admit"
MACHINE, PLAN, MANIFEST = "lifecycle", "lifecycle-plan", "lifecycle-manifest"
"""Profiles: of the ops that move sessions, of plans, and of pause documents."""
OWNERS = ("me", "you")
CALLS = ("c1", "c2")
TOKENS = ((901,), (901, 902), ())
UNTOUCHED = ("ILLEGAL_TRANSITION", "UNKNOWN_SESSION")
"""Reasons for which an attempt to resume is refused and goes on."""
ACTIONS = ("turn", "preserve", "swap", "discard")


def tokens_sha256(tokens: Iterable[int]) -> str:
    """SHA-256 of token ids, eight big-endian bytes each."""
    return hashlib.sha256(b"".join(token.to_bytes(8, "big") for token in tokens)).hexdigest()


@dataclass
class Session:
    """What a caller remembers of a session: how it began, and what the last right reply said."""

    begun: Request
    status: Mapping[str, Any]
    call_id: str = "c1"
    pause_epoch: int = 0
    leases: list[int] = field(default_factory=list)
    """Layers that are still being read."""
    resuming: bool = False
    results: list[Request] = field(default_factory=list)
    """Results that were delivered."""

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.begun["session"])

    def took(self, op: str, request: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """A call was right."""
        self.status = status
        if op == "lifecycle.begin":
            self.pause_epoch = request["lifecycle_epoch"]
        elif op == "lifecycle.pause":
            self.pause_epoch, self.call_id = status["lifecycle_epoch"], request.get("call_id", self.call_id)
        elif op == "lifecycle.event" and request["event"] == "lease_closed":
            self.leases.remove(request["layer"])
        elif op == "lifecycle.result":
            self.results.append({key: value for key, value in request.items() if key != "session"})
        elif op in ("lifecycle.resume", "lifecycle.fail", "lifecycle.commit"):
            self.resuming = op == "lifecycle.resume"


class LifecycleScene:
    """One opening, with the reference beside it."""

    def __init__(self, description: EngineDescription, make: Make) -> None:
        self.account = Replayed(description)
        self.make = make
        self.sessions: dict[str, Session] = {}
        self.last: Step | None = None
        self.ops = description.ops
        self.profiles = claimed(description)
        self.theme = ""
        """What the sequence is about, once it has begun."""

    def begin(self, draw: Draw) -> None:
        """Choose what the sequence is about: sessions, plans or documents."""
        themes = [MACHINE] * 4 + [PLAN] * 3 + [MANIFEST] * 3
        self.theme = draw.pick([theme for theme in themes if theme in self.profiles])

    @property
    def rules(self) -> Mapping[str, tuple[int, Rule]]:
        """Of what the sequence is about; all of them before it has begun."""
        themes: dict[str, dict[str, tuple[int, Rule]]] = {
            MACHINE: {
                "begin": (1, self.start),
                "onward": (10, self.onward),
                "toward": (3, self.toward),
                "spoiled": (5, self.spoiled),
                "any": (3, self.any),
                "again": (2, self.again),
                "crash": (1, self.crash),
            },
            PLAN: {"plan": (1, self.plan)},
            MANIFEST: {"document": (1, self.document)},
        }
        return (
            themes[self.theme]
            if self.theme
            else {name: one for rules in themes.values() for name, one in rules.items()}
        )

    # --- the account ----------------------------------------------------------------------------------------------

    def illegal(self, op: str, request: Mapping[str, Json], *, probe: bool) -> str | None:
        """Every call may be made: what is wrong with it has a reason of its own."""
        return None if op in self.ops else f"the engine has no op {op}"

    def needs(self, op: str, request: Mapping[str, Json]) -> frozenset[str]:
        """None."""
        return frozenset()

    def expect(self, op: str, request: Mapping[str, Json]) -> Mapping[str, Json]:
        """The reference's answer."""
        return self.account.expect(op, request)

    def observe(self, op: str, request: Mapping[str, Json], reply: Reply) -> Outcome:
        """Compare with the reference, and remember what it said."""
        outcome, right = self.account.observe(op, request, reply)
        self._remember(op, request, right)
        return outcome

    def _remember(self, op: str, request: Mapping[str, Any], right: Reply) -> None:
        if op == "lifecycle.crash":
            for session in self.sessions.values():
                session.leases, session.resuming = [], False
        if isinstance(right, Returned) and "session" in request:
            if op == "lifecycle.begin":
                begun = dict(request)
                self.sessions[request["session"]] = Session(begun, right.value, leases=list(begun["leases"]))
            self.sessions[request["session"]].took(op, request, right.value)
        elif isinstance(right, Refused) and op == "lifecycle.ready" and right.reason not in UNTOUCHED:
            self.sessions[request["session"]].resuming = False

    # --- rules ----------------------------------------------------------------------------------------------------

    def call(self, op: str, request: Request) -> None:
        """Make a call; a session is looked at after one that was refused, for that may have moved it."""
        self.last = Step(op, request)
        if isinstance(self.make(self.last), Refused) and request.get("session") in self.sessions:
            self.make(Step("lifecycle.inspect", {"session": request["session"]}))

    def plan(self, draw: Draw) -> None:
        """Any of the plans."""
        op = draw.pick([op for op in PLANS if op in self.ops])
        self.call(op, PLANS[op](draw))

    def document(self, draw: Draw) -> None:
        """A pause document."""
        self.call(ADMIT, {"document": PAUSES.draw(draw)})

    def start(self, draw: Draw) -> None:
        """A session, small in every way."""
        layers = draw.integer(1, 2)
        epoch = draw.integer(0, 4)
        self.call(
            "lifecycle.begin",
            {
                "session": draw.pick(("s", "s", "t")),
                "owner": draw.pick(OWNERS),
                "layers": layers,
                "token_bytes": draw.integer(1, 2) * 4,
                "cache_generation": draw.pick((epoch, epoch + 1, epoch + 2, 9)),
                "lifecycle_epoch": epoch,
                "arrival_ms": draw.pick((0, 1200)),
                "tokens": [11, 12, 13][: draw.integer(0, 3)],
                "speculative": [77] if draw.chance(30) else [],
                "leases": [layer for layer in range(layers) if draw.chance(20)],
                "dma": [layer for layer in range(layers) if draw.chance(20)],
            },
        )

    def some(self, draw: Draw) -> Session:
        """One of the sessions; the first call begins one."""
        if not self.sessions:
            self.start(draw)
        if not self.sessions:
            raise Illegal("there is no session")
        return draw.pick(list(self.sessions.values()))

    def onward(self, draw: Draw) -> None:
        """What comes next in the life of a session."""
        session = self.some(draw)
        name = draw.pick(onward(session))
        self.call(f"lifecycle.{name}", self.truth(draw, session, name))

    def toward(self, draw: Draw) -> None:
        """Go on undisturbed up to an op, and ask for that as it is right or spoiled."""
        session, goal = self.some(draw), draw.pick(GOALS)
        for _ in range(FARTHEST):
            names = onward(session)
            if goal == names[0] or (goal in names and goal != "publish"):
                request = self.truth(draw, session, goal)
                self.call(f"lifecycle.{goal}", spoil(draw, session, goal, request) if draw.chance(70) else request)
                return
            request = self.truth(draw, session, names[0])
            if names[0] == "pause" and goal == "publish":
                request = {"session": session.name, "action": "turn"}
            self.call(f"lifecycle.{names[0]}", request)

    def any(self, draw: Draw) -> None:
        """Any op, asked as it would be right at its time."""
        session = self.some(draw)
        name = draw.pick(NAMES)
        self.call(f"lifecycle.{name}", self.truth(draw, session, name))

    def spoiled(self, draw: Draw) -> None:
        """What comes next, with one member that is not right."""
        session = self.some(draw)
        name = draw.pick(onward(session) if draw.chance(80) else NAMES)
        request = self.truth(draw, session, name)
        self.call(f"lifecycle.{name}", spoil(draw, session, name, request))

    def again(self, draw: Draw) -> None:
        """The same call once more, or a result that was delivered before."""
        session = self.some(draw)
        if session.results and draw.chance(60):
            self.call("lifecycle.result", {"session": session.name, **draw.pick(session.results)})
        elif self.last is not None:
            self.call(self.last.op, dict(self.last.request))

    def crash(self, draw: Draw) -> None:
        """A restart, after which every session is looked at."""
        self.call("lifecycle.crash", {})
        for name in list(self.sessions):
            self.call("lifecycle.inspect", {"session": name})

    def truth(self, draw: Draw, session: Session, name: str) -> Request:
        """A request that is right where the op is."""
        members = MEMBERS.get(name)
        return {"session": session.name, **(members(draw, session) if members else {})}


def claimed(description: EngineDescription) -> frozenset[str]:
    """Profiles of the contract that the engine claims or has all ops of."""
    own = {
        MACHINE: {f"lifecycle.{name}" for name in ("begin", *NAMES)},
        PLAN: set(PLANS),
        MANIFEST: {ADMIT},
    }
    if description.profiles is not None:
        return description.profiles & own.keys()
    return frozenset(name for name, ops in own.items() if ops <= description.ops)


# --- requests -----------------------------------------------------------------------------------------------------


GOALS = ("publish", "publish", "ready", "ready", "result", "resume", "prefill", "commit", "apply", "release", "revise")
FARTHEST = 14
"""Calls that are made on the way to an op."""


def onward(session: Session) -> list[str]:
    """Ops by which a session goes on from its state, the one that leads farthest first, usual ones more than once."""
    status = session.status
    state, receipt = status["state"], status["receipt"]
    waiting = ["result"] if receipt in ("UNSEEN", "RETRYABLE") else []
    busy = ["event"] if status["copying"] or session.leases else []
    if state == "RUNNING":
        return ["pause", "pause", "pause", "decode"]
    if state == "QUIESCING":
        return ["quiesce", "quiesce", *busy, *waiting]
    if state in ("SAVING", "SWAPPING_OUT"):
        whole = len(status["copied"]) == session.begun["layers"]
        if whole:
            return ["publish", "publish", "publish", *waiting]
        return [*(("event", "snapshot") if busy else ("snapshot", "event")), *waiting, "publish"]
    if state in ("PAUSED_HOST", "PAUSED_GPU", "TOKEN_ONLY"):
        step = "ready" if session.resuming else "resume"
        return [*(waiting * 3 or [step] * 4), "release", "revise", "event"]
    if state in ("RESTORING", "SWAPPING_IN", "RECOMPUTING"):
        return ["ready", "ready", "ready", "fail", "release"]
    if state == "RESUME_READY":
        return ["prefill", "prefill", "prefill", "fail", "release"]
    if receipt == "RESULT_APPEND_COMMITTED":
        return ["apply", "apply", "fail"]
    return ["commit", "commit", "commit", "fail"]


def _copy(draw: Draw, session: Session, end: str) -> Request:
    """What a right copy says of the rows that there are, or of some of them."""
    tokens = session.status["tokens"]
    most = session.status["snapshot_rows"] if end == "valid_end" else None
    rows = len(tokens) if most is None else most
    rows = draw.integer(0, rows) if draw.chance(30) else rows
    return {
        "generation": session.begun["cache_generation"],
        "owner": session.begun["owner"],
        "first_position": 0,
        end: rows,
        "tokens_sha256": tokens_sha256(tokens[:rows]),
    }


def _decode(draw: Draw, session: Session) -> Request:
    return {"tokens": [draw.integer(14, 15)]}


def _pause(draw: Draw, session: Session) -> Request:
    action = draw.pick(ACTIONS)
    return {"action": action} if action == "turn" else {"action": action, "call_id": draw.pick(CALLS)}


def _event(draw: Draw, session: Session) -> Request:
    copying = session.status["copying"]
    if session.leases and (not copying or draw.chance(60)):
        return {"event": "lease_closed", "layer": draw.pick(session.leases)}
    return {"event": "dma_done", "layer": draw.pick(copying or list(range(session.begun["layers"])))}


def _revise(draw: Draw, session: Session) -> Request:
    return {"action": draw.pick(("swap", "discard", "discard", "preserve", "turn"))}


def _snapshot(draw: Draw, session: Session) -> Request:
    taken = {*session.status["copying"], *session.status["copied"]}
    layers = [layer for layer in range(session.begun["layers"]) if layer not in taken]
    return {"layer": draw.pick(layers or [0])}


def _publish(draw: Draw, session: Session) -> Request:
    copied = _copy(draw, session, "end_position")
    return {**copied, "bytes": copied["end_position"] * session.begun["token_bytes"]}


def _result(draw: Draw, session: Session) -> Request:
    if session.results and session.status["receipt"] == "RETRYABLE":
        return dict(session.results[-1])
    tokens = list(draw.pick(TOKENS))
    return {
        "call_id": session.call_id,
        "pause_epoch": session.pause_epoch,
        "result_id": "r1",
        "tokens": tokens,
        "tokens_sha256": tokens_sha256(tokens),
    }


def _resume(draw: Draw, session: Session) -> Request:
    return {"resume_epoch": session.pause_epoch + 1}


def _ready(draw: Draw, session: Session) -> Request:
    if session.status["state"] == "RECOMPUTING" or draw.chance(5):
        return {}
    replica = _copy(draw, session, "valid_end")
    whole = replica["valid_end"] == len(session.status["tokens"])
    return {"replica": replica} if whole else {"replica": replica, "recompute_from": replica["valid_end"]}


def _prefill(draw: Draw, session: Session) -> Request:
    return {"tokens": [501]} if session.status["receipt"] is None else {}


MEMBERS: dict[str, Callable[[Draw, Session], Request]] = {
    "decode": _decode,
    "pause": _pause,
    "event": _event,
    "revise": _revise,
    "snapshot": _snapshot,
    "publish": _publish,
    "result": _result,
    "resume": _resume,
    "ready": _ready,
    "prefill": _prefill,
}
"""Op to its members but the session, as they are right."""
NAMES = (*MEMBERS, "quiesce", "release", "commit", "apply", "fail", "inspect")


OPTIONAL: dict[str, dict[str, Callable[[Draw, Session], Any]]] = {
    "pause": {"call_id": lambda draw, session: draw.pick(CALLS)},
    "prefill": {"tokens": lambda draw, session: [502]},
    "ready": {
        "replica": lambda draw, session: _copy(draw, session, "valid_end"),
        "recompute_from": lambda draw, session: draw.integer(0, 3),
    },
}
"""Members that a request of an op may have or lack."""


def spoil(draw: Draw, session: Session, op: str, request: Request) -> Request:
    """The request with one member changed to a value that stands near, or an optional member more or less."""
    made = copy.deepcopy(request)
    optional = OPTIONAL.get(op)
    if optional and draw.chance(25):
        name = draw.pick(list(optional))
        if made.pop(name, None) is None:
            made[name] = optional[name](draw, session)
        return made
    places = [(made, name) for name in made if name not in ("replica", "session")] * 2 + [(made, "session")]
    if "replica" in made:
        places += [(made["replica"], name) for name in made["replica"]] * 2
    node, name = draw.pick(places)
    node[name] = draw.pick(near(session, name, node))
    if name in ("end_position", "valid_end") and draw.chance(70):
        tokens = session.status["tokens"]
        node["tokens_sha256"] = tokens_sha256(tokens[: node[name]])
        if "bytes" in node:
            node["bytes"] = node[name] * session.begun["token_bytes"]
    if name == "tokens" and "tokens_sha256" in node and draw.chance(60):
        node["tokens_sha256"] = tokens_sha256(node["tokens"])
    return made


def near(session: Session, name: str, node: Request) -> list[Any]:
    """Values that one member may be mistaken for."""
    value, status = node[name], session.status
    if name in ("action", "event", "owner", "session", "call_id", "result_id"):
        words = {"action": ACTIONS, "event": ("dma_done", "lease_closed"), "owner": (*OWNERS, session.name)}
        return list(words.get(name, {"session": ("s", "t", "u"), "call_id": (*CALLS, "c3")}.get(name, ("r1", "r2"))))
    if name == "tokens_sha256":
        return ["5" * 64, *(tokens_sha256(status["tokens"][:end]) for end in range(len(status["tokens"]) + 1))]
    if name == "tokens":
        return [[901], [902], [], [901, 902]]
    counters = [status["lifecycle_epoch"], session.pause_epoch, session.begun["cache_generation"]]
    return [value + 1, max(0, value - 1), 0, value + 2, *counters]


def completed_turn(document: Document) -> Document:
    """A turn that was completed, of the document of an interruption."""
    states = ["RUNNING", "QUIESCING", "SAVING", "PAUSED_HOST", "RESTORING", "RESUME_READY", "PREFILL_NEW_TURN"]
    document["pause"] |= {"action": "turn", "call_id": None, "states": [*states, "RUNNING"]}
    document["result"] = document["receipt"] = None
    document["telemetry"] |= {"attempted_action": "turn", "decisions": ["turn"], "published_action": "turn"}
    return document


def sealed(document: Document, keep: str) -> Document:
    """The document itself with its two digests derived anew, but for the one at ``keep``."""
    oracle = fixture_module("lifecycle.oracle")
    if keep != "/pause_sha256":
        document["pause_sha256"] = oracle.pause_digest(document)
    if keep != "/result/tokens_sha256" and document["result"]:
        document["result"]["tokens_sha256"] = oracle.tokens_sha256(document["result"]["tokens"])
    return document


PAUSES = Documents("urn:kvassay:lifecycle/pause", "lifecycle/base", others=[completed_turn], seal=sealed)


class Lifecycle:
    """The contract, for the fuzzer."""

    name = "lifecycle"
    account = "kvassay.monitors.replay"
    atomic = frozenset({ADMIT})

    def unfit(self, description: EngineDescription) -> str | None:
        """It needs one of the profiles."""
        if claimed(description):
            return None
        return "it claims none of the profiles lifecycle, lifecycle-plan and lifecycle-manifest"

    def profile(self, ops: frozenset[str], description: EngineDescription) -> str:
        """The profile that has the ops."""
        return PLAN if ops <= PLANS.keys() else MANIFEST if ops == {ADMIT} else MACHINE

    def scene(self, description: EngineDescription, make: Make) -> LifecycleScene:
        """A scene with no session."""
        return LifecycleScene(description, make)

    def reason(self, outcome: Outcome) -> str:
        """What was accepted or rejected against its reason, or the member that differs."""
        return reason(outcome)

    def written(self, step: Step) -> Mapping[str, Json]:
        """A document as a patch on its base."""
        return step.request if step.op != ADMIT else {"document": PAUSES.written(step.request["document"])}


CONTRACT = Lifecycle()
