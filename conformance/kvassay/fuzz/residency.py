"""Fuzzing of the contract residency: a few keys, fewer slots, and everything that a caller may do in any order.

:mod:`kvassay.monitors.residency` says which reply is wrong, :mod:`kvassay.monitors.caller` which call may be made.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.engine import Reply, Returned
from ..core.expect import Outcome
from ..core.model import EngineDescription, Json
from ..core.tensors import write
from ..corpus.data import root
from ..corpus.registries import capabilities
from ..monitors import keeping, residency
from ..monitors.caller import Residency, illegal
from ..monitors.keeping import Keeping
from ..monitors.residency import State, digest
from .contract import Draw, Illegal, Make, Rule, Step
from .replayed import Replayed, reason
from .residency_names import TENANTS, families
from .residency_patterns import PATTERNS
from .residency_plans import DOCUMENTS, PLANS
from .residency_words import Telling

Request = dict[str, Any]
OWNERS = ("r1", "r2")
MOVES, PLAN, MANIFEST = "residency", "residency-plan", "residency-manifest"
"""What a sequence is about: a store, plans, documents."""
STATELESS = PLANS.keys() | DOCUMENTS.keys()
RULES = frozenset({*residency.Rule, *keeping.Fault})
TTL_MS = 10
MANY = 18
"""Slots of a sequence about many keys: more than tables and rings of sixteen have."""
MOST_ALTERNATIVES = 32


@dataclass
class Handle:
    """A transaction as its caller knows it."""

    bound: str
    """Name under which later steps have its handle."""
    name: str
    """The handle itself."""
    request: Request
    grants: list[Mapping[str, Any]]
    data: list[NDArray[np.uint8]] = field(default_factory=list)

    @property
    def moving(self) -> list[int]:
        """Places of the keys that are copied."""
        return [index for index, grant in enumerate(self.grants) if grant["outcome"] == "granted"]


class ResidencyScene:
    """One opening."""

    def __init__(self, description: EngineDescription, make: Make) -> None:
        self.account = Residency(description)
        self.keeping = Keeping(description, self.account)
        self.make = make
        self.ops = description.ops
        self.capabilities = {**defaults(), **description.capabilities}
        self.handles: list[Handle] = []
        self.stored: dict[tuple[str, str], NDArray[np.uint8]] = {}
        """The latest rows that were brought for a key."""
        self.rows: dict[str, NDArray[np.uint8]] = {}
        """Digest to rows."""
        self.serial = 0
        self.keys: tuple[str, ...] = ()
        self.tenants: tuple[str, ...] = ()
        self.slot_bytes = 0
        self.slots: int | None = None
        self.replayed = Replayed(description)
        self.profiles = claimed(description)
        self.theme = ""
        """What the sequence is about, once it has begun."""
        self._moves = self._rules()

    def claims(self, name: str) -> bool:
        """Whether the engine declares a capability."""
        return bool(self.capabilities[f"residency.{name}"])

    @property
    def rules(self) -> Mapping[str, tuple[int, Rule]]:
        """Of what the sequence is about; all of them before it has begun."""
        others: dict[str, dict[str, tuple[int, Rule]]] = {
            PLAN: {"plan": (1, self.plan)},
            MANIFEST: {"document": (1, self.document)},
        }
        if self.theme:
            return others.get(self.theme, self._moves)
        return {**self._moves, **others[PLAN], **others[MANIFEST]}

    # --- the account ----------------------------------------------------------------------------------------------

    def illegal(self, op: str, request: Mapping[str, Json], *, probe: bool) -> str | None:
        """What the caller's contract says; and no call of an op that the engine lacks."""
        if op not in self.ops:
            return f"the engine has no op {op}"
        if op in STATELESS:
            return None
        lingering = self.account.lingering(op, request)
        return lingering or illegal(op, request, self.account, self.capabilities, probe)

    def needs(self, op: str, request: Mapping[str, Json]) -> frozenset[str]:
        """Capabilities of residency, each of which this call needs."""
        found: set[str] = set()
        if op in STATELESS:
            return frozenset()
        for name, default in defaults().items():
            if self.capabilities[name] != default:
                denied = {**self.capabilities, name: default}
                if illegal(op, request, self.account, denied) and not illegal(
                    op, request, self.account, self.capabilities
                ):
                    found.add(name)
        return frozenset(found)

    def observe(self, op: str, request: Mapping[str, Json], reply: Reply) -> Outcome:
        """Ask the monitor, and what the engine must have kept; of plans, the reference."""
        if op in STATELESS:
            return self.replayed.observe(op, request, reply)[0]
        return self.keeping.observe(op, request, reply)

    def expect(self, op: str, request: Mapping[str, Any]) -> Mapping[str, Json]:
        """What a read may return, and what is demanded of an outcome; the rest is for the monitor to judge."""
        if op in STATELESS:
            return self.replayed.expect(op, request)
        for data in (
            request.get("data", ()) if op == "residency.reserve" else [request["data"]] if "data" in request else ()
        ):
            self.rows[digest(data)] = data
        demand = self.keeping.demand(op, request)
        allowed = {at: list(values) for at, (_, values) in demand.members.items()}
        tenant = request.get("tenant", "")
        rows: list[Request] = []
        if op == "residency.get":
            key = (tenant, request["key"])
            entry = self.account.known(key)
            allowed.setdefault("/outcome", [*self._states(key), *(["hit"] if entry.serves or entry.doubtful else [])])
            if len(entry.serves) == 1 and not entry.doubtful:
                rows = [{"at": "/data", "value": write(self.rows[min(entry.serves)]), "optional": True}]
        elif op == "residency.lookup":
            for index, name in enumerate(request["keys"]):
                key = (tenant, name)
                ready = ["ready"] if self.account.known(key).serves else []
                allowed.setdefault(f"/states/{index}", [*self._states(key), *ready])
        may = {"may_reject": True} if demand.may_refuse else {}
        return {**any_of(allowed, rows), **may}

    def _states(self, key: tuple[str, str]) -> list[str]:
        """What a key may be that is not there."""
        return ["miss", *(["pending"] if key in self.account.by_key or self.claims("async") else [])]

    # --- rules ----------------------------------------------------------------------------------------------------

    def begin(self, draw: Draw) -> None:
        """A store of one to three slots, or plans or documents without one."""
        themes = [MOVES] * 7 + [PLAN] + [MANIFEST] * 2
        self.theme = draw.pick([theme for theme in themes if theme in self.profiles])
        if self.theme == MOVES:
            self.open(draw)

    def plan(self, draw: Draw) -> None:
        """Any of the plans."""
        op = draw.pick([op for op in PLANS if op in self.ops])
        self.make(Step(op, PLANS[op](draw)))

    def document(self, draw: Draw) -> None:
        """A directory, or the inputs of a step."""
        op = draw.pick([op for op in DOCUMENTS if op in self.ops])
        self.make(Step(op, {"document": DOCUMENTS[op].draw(draw)}))

    def open(self, draw: Draw) -> None:
        """An empty store."""
        names = draw.pick(families(opaque=self.claims("opaque_keys"), tenants=self.claims("tenants")))
        self.keys = names.keys[: draw.pick((2, 2, 1, 3))]
        self.tenants = names.tenants or (draw.pick(TENANTS) if self.claims("tenants") and draw.chance(40) else ())
        self.slot_bytes = 8 if draw.chance(90) else 520
        request: Request = {"slots": MANY if draw.chance(4) else draw.pick((2, 3, 1, 2)), "slot_bytes": self.slot_bytes}
        for mode in ("write", "read"):
            if self.claims(f"expiry_{mode}") and draw.chance(50):
                request[f"{mode}_ttl_ms"] = draw.pick((TTL_MS, 2 * TTL_MS))
        reply = self.make(Step("residency.open", request))
        if isinstance(reply, Returned):
            self.slots = reply.value["slots"]

    def _rules(self) -> dict[str, tuple[int, Rule]]:
        """Rules whose ops the engine has, and whose calls it can be asked."""
        moves = {"residency.reserve", "residency.copy", "residency.complete"} <= self.ops
        have = self.ops.__contains__
        cancels = have("residency.cancel") and (self.claims("cancel") or self.claims("cancel_load"))
        found: dict[str, tuple[int, Rule, bool]] = {
            "put": (4, self.put, have("residency.put")),
            "get": (4, self.get, have("residency.get")),
            "look": (7, self.look, have("residency.lookup") or have("residency.get")),
            "remove": (3, self.remove, have("residency.remove")),
            "remove-tier": (2, self.remove_tier, have("residency.remove") and self.claims("authority")),
            "reset": (1, self.reset, have("residency.reset")),
            "store": (5, self.store, moves),
            "load": (5, self.load, moves),
            "store-all": (4, self.store_all, moves),
            "load-all": (3, self.load_all, moves),
            "copy": (6, self.copy, moves),
            "complete": (6, self.complete, moves),
            "cancel": (3, self.cancel, moves and cancels),
            "over": (2, self.over, moves),
            "retry": (3, self.retry, moves),
            "tick": (2, self.tick, have("control.advance_clock")),
            "damage": (1, self.damage, have("control.inject")),
            "fill": (2, self.fill, have("residency.put") or moves),
            "between": (8, self.between, moves),
            "join": (3, self.join, moves and self.claims("joins")),
        }
        for pattern in PATTERNS if moves else ():
            fits = all(self.claims(name) for name in pattern.needs)
            found[pattern.name] = (pattern.weight, functools.partial(self.act_out, pattern.words), fits)
        return {name: (weight, rule) for name, (weight, rule, fits) in found.items() if fits}

    def act_out(self, words: str, draw: Draw) -> None:
        """A pattern."""
        Telling(self, draw).tell(words)

    def put(self, draw: Draw) -> None:
        """Rows of a key in one call."""
        where = self.somewhere(draw)
        key = draw.pick(self.keys)
        self.make(Step("residency.put", {"key": key, **where, "data": self.fresh(draw, where, key)}))

    def get(self, draw: Draw) -> None:
        """Read a key."""
        self.make(Step("residency.get", {"key": draw.pick(self.keys), **self.somewhere(draw)}))

    def look(self, draw: Draw) -> None:
        """Look at all keys, and read them."""
        where = self.somewhere(draw)
        if "residency.lookup" in self.ops and draw.chance(60):
            keys = self.some(draw, ["nobody"])
            self.make(Step("residency.lookup", {"keys": keys, **where}))
        for key in self.keys if "residency.get" in self.ops else ():
            self.make(Step("residency.get", {"key": key, **where}))

    def remove(self, draw: Draw) -> None:
        """Give keys up, seldom by force."""
        force = {"force": True} if draw.chance(25) else {}
        self.make(Step("residency.remove", {"keys": self.some(draw), **self.somewhere(draw), **force}))

    def remove_tier(self, draw: Draw) -> None:
        """Give up the replicas of one tier."""
        tier = draw.pick(("device", "host", "device", "host", "secondary", "remote"))
        force = {"force": True} if draw.chance(20) else {}
        self.make(Step("residency.remove", {"keys": self.some(draw), **self.somewhere(draw), "tier": tier, **force}))

    def reset(self, draw: Draw) -> None:
        """Forget everything."""
        self.make(Step("residency.reset", {}))

    def store(self, draw: Draw) -> None:
        """Begin a store."""
        self.reserve("store", self.some(draw), draw.pick(OWNERS), self.somewhere(draw), draw)

    def load(self, draw: Draw) -> None:
        """Begin a load."""
        self.reserve("load", self.some(draw), draw.pick(OWNERS), self.somewhere(draw), draw)

    def store_all(self, draw: Draw) -> None:
        """A store from its beginning to its end."""
        self.through(self.reserve("store", self.some(draw), draw.pick(OWNERS), self.somewhere(draw), draw))

    def load_all(self, draw: Draw) -> None:
        """A load from its beginning to its end."""
        self.through(self.reserve("load", self.some(draw), draw.pick(OWNERS), self.somewhere(draw), draw))

    def copy(self, draw: Draw) -> None:
        """Move all, some or none of what is left."""
        handle = self.open_handle(draw)
        half = self.slot_bytes // 2
        count = draw.pick((None, None, None, half, half, 1, 0, self.slot_bytes - 1, self.slot_bytes + 1))
        self.make(Step("residency.copy", {"txn": self.bound(handle), **({} if count is None else {"bytes": count})}))

    def complete(self, draw: Draw) -> None:
        """End a transaction: as it was, with keys that failed, or with a receipt that is right or wrong."""
        handle = self.open_handle(draw)
        if draw.chance(50):
            self.move(handle, None)
        self.finish(draw, handle)

    def finish(self, draw: Draw, handle: Handle) -> None:
        """Complete a transaction."""
        request: Request = {"txn": self.bound(handle)}
        moving = [handle.request["keys"][index] for index in handle.moving]
        how = self.capabilities["residency.job_failure"]
        if moving and how != "none" and draw.chance(20):
            request["failed"] = moving if how == "job" else draw.pick([moving[:1], moving, moving[-1:]])
        step = Step("residency.complete", request)
        if moving and self.claims("receipts") and draw.chance(40):
            step = self.with_receipt(draw, handle, request)
        self.try_(step)

    def with_receipt(self, draw: Draw, handle: Handle, request: Request) -> Step:
        """A receipt of each key that is copied, with seldom one that is wrong in one member."""
        receipts = {}
        for index in handle.moving:
            receipts[handle.request["keys"][index]] = self.receipt(handle, index)
        if draw.chance(70):
            key = draw.pick(list(receipts))
            name = draw.pick(("bytes", "slot", "generation", "owner", "checksum"))
            grant = handle.grants[handle.request["keys"].index(key)]
            true = receipts[key]["checksum"]
            wrong: Request = {
                "bytes": draw.pick((self.slot_bytes - 1, self.slot_bytes + 1, 0, self.slot_bytes // 2)),
                "slot": draw.pick((grant.get("slot", 0) + 1, 0, 7)),
                "generation": draw.pick((grant.get("generation", 0) + 1, 0, 9)),
                "owner": draw.pick(("r1", "r2", "r3")),
                "checksum": draw.pick(["5" * 64, true[:-1] + other_digit(true[-1]), *sorted(self.rows)]),
            }
            if len(receipts) > 1 and draw.chance(25):
                receipts = dict(zip(receipts, reversed(receipts.values()), strict=True))
            else:
                receipts[key] = {**receipts[key], name: wrong[name]}
        return Step("residency.complete", {**request, "receipt": receipts})

    def receipt(self, handle: Handle, index: int) -> Request:
        """What a worker says that it copied."""
        place = {
            name: {"$bind": f"{handle.bound}_{name}_{index}"} if name in handle.grants[index] else 0
            for name in ("slot", "generation")
        }
        if handle.data:
            checksum = digest(handle.data[index])
        else:
            key = (handle.request.get("tenant", ""), handle.request["keys"][index])
            checksum = min(self.account.known(key).serves, default="5" * 64)
        return {"bytes": self.slot_bytes, **place, "owner": handle.request["owner"], "checksum": checksum}

    def cancel(self, draw: Draw) -> None:
        """The owner goes away."""
        self.make(Step("residency.cancel", {"txn": self.bound(self.open_handle(draw))}))

    def over(self, draw: Draw) -> None:
        """Use the handle of a transaction that is over, or one that never was."""
        over = [handle for handle in self.handles if not self.is_open(handle)]
        handle = self.bound(draw.pick(over)) if over and not draw.chance(12) else "no-such-transaction"
        op = draw.pick(("copy", "complete", "complete", "cancel"))
        self.make(Step(f"residency.{op}", {"txn": handle}))

    def retry(self, draw: Draw) -> None:
        """The same transaction once more: same keys and owner, of a store other rows."""
        if not self.handles:
            raise Illegal("nothing to try again")
        before = draw.pick(self.handles[-3:]).request
        where = {"tenant": before["tenant"]} if "tenant" in before else {}
        handle = self.reserve(before["mode"], before["keys"], before["owner"], where, draw)
        if draw.chance(50):
            self.through(handle)

    def between(self, draw: Draw) -> None:
        """A transaction in which something comes in between: it ends late, short, cancelled, or as it should."""
        mode = draw.pick(("store", "load"))
        keys, where = self.some(draw), self.somewhere(draw)
        for key in keys if mode == "load" else ():
            if not self.account.known((where.get("tenant", ""), key)).serves:
                self.bring(draw, where, key)
        owner = draw.pick(OWNERS)
        handle = self.reserve(mode, keys, owner, where, draw)
        if handle is None:
            return
        if draw.chance(40):
            self.move(handle, draw.pick((None, self.slot_bytes // 2, self.slot_bytes - 1)))
        if draw.chance(25):
            self.try_(Step("residency.cancel", {"txn": self.bound(handle)}))
        later = None
        for _ in range(draw.integer(0, 2)):
            self.disturb(draw, where, draw.pick(keys))
        if draw.chance(30):
            later = self.reserve(mode, keys, owner, where, draw)
            if later is not None and draw.chance(50):
                self.move(later, draw.pick((None, self.slot_bytes // 2)))
        if draw.chance(80):
            self.move(handle, None if draw.chance(85) else self.slot_bytes // 2)
        if draw.chance(80):
            self.finish(draw, handle)
        if later is not None and draw.chance(80):
            self.move(later, None)
            self.finish(draw, later)
        if draw.chance(70):
            self.look(draw)

    def join(self, draw: Draw) -> None:
        """Several loads of one key, which go, fail, end and are cancelled in any order."""
        where, key = self.somewhere(draw), draw.pick(self.keys)
        if not self.account.known((where.get("tenant", ""), key)).serves:
            self.bring(draw, where, key, moves=True)
        made = [self.reserve("load", [key], draw.pick(OWNERS), where, draw) for _ in range(draw.integer(2, 3))]
        handles = [handle for handle in made if handle is not None]
        for _ in range(draw.integer(1, 5) if handles else 0):
            handle = draw.pick(handles)
            what = draw.pick(("cancel", "copy", "copy", "complete", "complete", "disturb"))
            if what == "copy":
                self.move(handle, None if draw.chance(70) else self.slot_bytes // 2)
            elif what == "complete":
                self.finish(draw, handle)
            elif what == "cancel":
                self.try_(Step("residency.cancel", {"txn": self.bound(handle)}))
            elif draw.chance(40):
                self.disturb(draw, where, key)
        for handle in handles if draw.chance(60) else ():
            self.move(handle, None)
            self.finish(draw, handle)
        if draw.chance(50):
            self.try_(Step("residency.remove", {"keys": [key], **where}))
        self.look(draw)

    def disturb(self, draw: Draw, where: Request, key: str) -> None:
        """Something that happens to a key while a transaction names it."""
        what = draw.pick(
            ("put", "remove", "force", "store", "load", "other", "fill", "time", "reset", "damage", "begin")
        )
        if what in ("put", "store"):
            self.bring(draw, where, key, moves=what == "store")
        elif what == "load":
            self.through(self.reserve("load", [key], draw.pick(OWNERS), where, draw))
        elif what == "other":
            self.bring(draw, where, draw.pick(self.keys))
        elif what == "begin":
            handle = self.reserve(draw.pick(("store", "load")), [key], draw.pick(OWNERS), where, draw)
            if handle is not None and draw.chance(50):
                self.move(handle, draw.pick((self.slot_bytes // 2, None)))
        elif what == "fill":
            self.fill(draw)
        elif what == "time":
            self.try_(
                Step("control.advance_clock", {"by_ms": draw.pick((TTL_MS, TTL_MS - 1, TTL_MS // 2, 2 * TTL_MS))})
            )
        elif what == "damage":
            fault = draw.pick(("corrupt", "truncate", "drop", "evict"))
            self.try_(Step("control.inject", {"key": key, **where, "fault": fault}))
        elif what == "reset":
            self.try_(Step("residency.reset", {}))
        else:
            force = {"force": True} if what == "force" else {}
            self.try_(Step("residency.remove", {"keys": [key], **where, **force}))

    def bring(self, draw: Draw, where: Request, key: str, *, moves: bool | None = None) -> None:
        """Rows for a key, by a put or by a store from its beginning to its end."""
        puts = "residency.put" in self.ops and (draw.chance(50) if moves is None else not moves)
        if puts:
            self.make(Step("residency.put", {"key": key, **where, "data": self.fresh(draw, where, key)}))
        else:
            self.through(self.reserve("store", [key], draw.pick(OWNERS), where, draw))

    def move(self, handle: Handle, count: int | None) -> None:
        """Copy, if that is still allowed."""
        self.try_(Step("residency.copy", {"txn": self.bound(handle), **({} if count is None else {"bytes": count})}))

    def try_(self, step: Step) -> None:
        """A step that is left out where it is not legal."""
        with suppress(Illegal):
            self.make(step)

    def tick(self, draw: Draw) -> None:
        """Time passes: short of a limit, up to it, or past it."""
        self.make(
            Step(
                "control.advance_clock",
                {"by_ms": draw.pick((TTL_MS, 1, TTL_MS // 2, TTL_MS - 1, TTL_MS + 1, 2 * TTL_MS))},
            )
        )

    def damage(self, draw: Draw) -> None:
        """Something happens to rows below the engine."""
        fault = draw.pick(("corrupt", "truncate", "drop", "evict"))
        self.make(Step("control.inject", {"key": draw.pick(self.keys), **self.somewhere(draw), "fault": fault}))

    def fill(self, draw: Draw) -> None:
        """As many keys as there are slots, or one more, so that something is evicted or refused; they may be read."""
        puts = "residency.put" in self.ops and draw.chance(50)
        keys = [f"x{index}" for index in range((self.slots or 2) + draw.integer(0, 1))]
        for key in keys:
            if puts:
                self.make(Step("residency.put", {"key": key, "data": self.fresh(draw, {}, key)}))
            else:
                self.through(self.reserve("store", [key], "r1", {}, draw))
        if draw.chance(70 if self.slots == MANY else 15):
            self.try_(Step("residency.lookup", {"keys": keys}))
            for key in keys:
                self.try_(Step("residency.get", {"key": key}))

    # --- what they share ------------------------------------------------------------------------------------------

    def somewhere(self, draw: Draw) -> Request:
        """One of the tenants, or none; in most examples there are none."""
        return {"tenant": draw.pick(self.tenants)} if self.tenants and draw.chance(70) else {}

    def some(self, draw: Draw, more: Sequence[str] = ()) -> list[str]:
        """One key, or several in any order."""
        keys = [*self.keys, *more]
        chosen = [keys.pop(draw.integer(0, len(keys) - 1))]
        while keys and draw.chance(35):
            chosen.append(keys.pop(draw.integer(0, len(keys) - 1)))
        return chosen

    def fresh(self, draw: Draw, where: Request, key: str, *, same: bool | None = None) -> NDArray[np.uint8]:
        """Rows that nobody brought before; of a key that has some, seldom the same again where none is said."""
        whose = (where.get("tenant", ""), key)
        known = self.stored.get(whose)
        if known is not None and (self.claims("content_addressed") or (draw.chance(15) if same is None else same)):
            return known
        self.serial += 1
        data = rows_of(self.serial, self.slot_bytes)
        self.stored[whose] = self.rows[digest(data)] = data
        return data

    def reserve(
        self,
        mode: str,
        keys: Sequence[str],
        owner: str,
        where: Request,
        draw: Draw,
        *,
        same: bool | None = None,
    ) -> Handle | None:
        """Begin a transaction; its handle, if there is one. ``same`` says whether a store brings the rows again."""
        name = f"t{len(self.handles) + 1}"
        request: Request = {"mode": mode, "keys": list(keys), **where, "owner": owner}
        data = [self.fresh(draw, where, key, same=same) for key in keys] if mode == "store" else []
        bind = {name: "/txn"}
        for index in range(len(keys)) if self.claims("receipts") else ():
            bind |= {f"{name}_{part}_{index}": f"/grants/{index}/{part}" for part in ("slot", "generation")}
        reply = self.make(Step("residency.reserve", {**request, **({"data": data} if data else {})}, bind))
        if not isinstance(reply, Returned) or reply.value["txn"] is None:
            return None
        self.handles.append(Handle(name, reply.value["txn"], request, list(reply.value["grants"]), data))
        return self.handles[-1]

    def through(self, handle: Handle | None) -> None:
        """Copy and complete."""
        if handle is not None:
            self.make(Step("residency.copy", {"txn": self.bound(handle)}))
            self.make(Step("residency.complete", {"txn": self.bound(handle)}))

    def is_open(self, handle: Handle) -> bool:
        """Whether its completion has not come."""
        transaction = self.account.transactions.get(handle.name)
        return transaction is not None and transaction.state is not State.REFUSED

    def open_handle(self, draw: Draw) -> Handle:
        """Of a transaction whose completion has not come."""
        open_ones = [handle for handle in self.handles if self.is_open(handle)]
        if not open_ones:
            raise Illegal("no transaction is open")
        return draw.pick(open_ones[::-1])

    def bound(self, handle: Handle) -> Json:
        """A handle as a step has it."""
        return {"$bind": handle.bound}


def claimed(description: EngineDescription) -> frozenset[str]:
    """What the engine can be fuzzed on: a store of its own, plans, documents."""
    ops, own = description.ops, description.profiles
    moves = {"residency.reserve", "residency.copy", "residency.complete"} <= ops
    found = {MOVES} if "residency.open" in ops and (moves or {"residency.put", "residency.get"} <= ops) else set()
    for name, needed in ((PLAN, PLANS), (MANIFEST, DOCUMENTS)):
        if (own is None and needed.keys() <= ops) or (own is not None and name in own and not ops.isdisjoint(needed)):
            found.add(name)
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def rows_of(serial: int, size: int) -> NDArray[np.uint8]:
    """Rows of which any two differ in every byte."""
    rows = ((np.arange(size) * 31 + serial * 7) % 251).astype(np.uint8)
    rows.flags.writeable = False
    return rows


def other_digit(digit: str) -> str:
    """A hexadecimal digit that is another one."""
    return "0" if digit != "0" else "1"


@functools.cache
def defaults() -> dict[str, Json]:
    """Capability of residency to what an engine that declares nothing has."""
    known = capabilities(root())
    return {name: one.default for name, one in known.items() if one.contract == "residency"}


def any_of(allowed: Mapping[str, Sequence[Json]], hit: Sequence[Json]) -> dict[str, Json]:
    """An expectation of allowed values by pointer; with a hit go its rows. Of too many it says nothing."""
    ways = list(
        itertools.product(*([{"at": at, "value": value} for value in values] for at, values in allowed.items()))
    )
    found = [[*way, *(hit if any(row["value"] == "hit" for row in way) else ())] for way in ways]
    if not allowed or not 0 < len(found) <= MOST_ALTERNATIVES:
        return {"accepts": True}
    return {"equals": found[0]} if len(found) == 1 else {"any_of": found}


class ResidencyContract:
    """The contract, for the fuzzer."""

    name = "residency"
    account = "kvassay.monitors.residency"
    atomic = frozenset(DOCUMENTS)

    def unfit(self, description: EngineDescription) -> str | None:
        """It needs a store that can be written and read, or one of the profiles without one."""
        if claimed(description):
            return None
        return "it has neither residency.open, put and get nor residency.open, reserve, copy and complete"

    def profile(self, ops: frozenset[str], description: EngineDescription) -> str:
        """The profile that has the ops."""
        if ops <= STATELESS:
            return PLAN if ops <= PLANS.keys() else MANIFEST
        return "transaction" if "residency.reserve" in ops else "store"

    def scene(self, description: EngineDescription, make: Make) -> ResidencyScene:
        """A scene of nothing."""
        return ResidencyScene(description, make)

    def reason(self, outcome: Outcome) -> str:
        """The rule that is broken; of plans and documents, what differs."""
        assert outcome.finding is not None
        rule = outcome.finding.message.partition(":")[0]
        return rule if rule in RULES else reason(outcome)

    def written(self, step: Step) -> Mapping[str, Json]:
        """As it is, with rows as JSON, and a document as a patch on its base."""
        if step.op in DOCUMENTS:
            return {"document": DOCUMENTS[step.op].written(step.request["document"])}
        request: Mapping[str, Json] = write(step.request)
        return request


CONTRACT = ResidencyContract()
