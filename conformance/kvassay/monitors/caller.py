"""The caller's side of residency: which calls an engine need not withstand.

One account for whoever makes calls: the fuzzer proposes nothing else, shrinking keeps to it, and a script that breaks
it is not applicable to an engine. What is allowed follows from what has happened and from what the engine claims.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..core.engine import Reply
from ..core.expect import Outcome
from ..core.model import EngineDescription
from .residency import ResidencyMonitor, State, Transaction, digest

Request = Mapping[str, Any]
PLAIN_KEY = re.compile(r"[a-z0-9-]{1,32}")
OVER = (None, State.REFUSED)
"""States of a transaction whose completion the caller has already made; ``None`` for one that was never begun."""


def illegal(
    op: str, request: Request, monitor: ResidencyMonitor, capabilities: Mapping[str, Any], probe: bool = False
) -> str | None:
    """Why a caller may not make this call now; ``None`` when it may.

    ``capabilities`` are those that the engine declares, by their full names. A caller that probes uses handles of
    transactions that are over, and completes copies that are short, whatever the engine claims.
    """
    return _Caller(monitor, capabilities, probe).objection(op, request)


class Residency(ResidencyMonitor):
    """The rules of residency with the caller's side of them."""

    def __init__(self, description: EngineDescription, probe: bool = False) -> None:
        super().__init__(description)
        self.declared = description.capabilities
        self.probe = probe
        self.read: set[tuple[str, str]] = set()
        """Tenants and keys that were read, of an engine whose leases linger."""

    def observe(self, op: str, request: Request, reply: Reply) -> Outcome:
        """Take note of one call, and of what was read."""
        if self.claims("lease_lingers"):
            names = request.get("keys", ()) if request.get("mode") == "load" else ()
            names = [request["key"]] if op == "residency.get" else names
            self.read |= {(request.get("tenant", ""), name) for name in names}
        return super().observe(op, request, reply)

    def bars(self, op: str, request: Request) -> str | None:
        """What an engine with these capabilities need not withstand; a control is not a call of it."""
        if op not in RULES:
            return None
        return self.lingering(op, request) or illegal(op, request, self, self.declared, self.probe)

    def lingering(self, op: str, request: Request) -> str | None:
        """Whether a removal may meet the lease of a read that is over."""
        asked = {(request.get("tenant", ""), name) for name in request.get("keys", ())}
        if op == "residency.remove" and not request.get("force") and not self.read.isdisjoint(asked):
            return "the lease of an earlier read may linger"
        return None


class _Caller:
    def __init__(self, monitor: ResidencyMonitor, capabilities: Mapping[str, Any], probe: bool) -> None:
        self.monitor = monitor
        self.capabilities = capabilities
        self.probe = probe

    def claims(self, name: str) -> bool:
        return bool(self.capabilities.get(f"residency.{name}"))

    def objection(self, op: str, request: Request) -> str | None:
        """The first thing that is not allowed."""
        if (op == "residency.open") is bool(self.monitor.slot_bytes):
            return "the store is open" if self.monitor.slot_bytes else "the store is not open yet"
        rule = RULES.get(op)
        return next(iter([*self.names(request), *(rule(self, request) if rule else ())]), None)

    def names(self, request: Request) -> Iterable[str]:
        """Keys and tenant are such as the engine knows."""
        if "tenant" in request and not self.claims("tenants"):
            yield "the engine knows no tenants"
        if not self.claims("opaque_keys"):
            keys = request.get("keys", [request["key"]] if "key" in request else [])
            if not all(PLAIN_KEY.fullmatch(key) for key in keys):
                yield "keys are up to 32 lower-case letters, digits and hyphens"

    def open(self, request: Request) -> Iterable[str]:
        for mode in ("write", "read"):
            if f"{mode}_ttl_ms" in request and not self.claims(f"expiry_{mode}"):
                yield f"the engine ends no {mode} reservation"

    def put(self, request: Request) -> Iterable[str]:
        yield from self.rows(request, request["key"], request["data"])

    def rows(self, request: Request, key: str, data: Any) -> Iterable[str]:
        """Rows fill a slot, and a key that stands for its content has one for ever."""
        if isinstance(data, Mapping):  # a digest, as traces have it
            return
        if data.nbytes != self.monitor.slot_bytes:
            yield f"rows have {data.nbytes} bytes and slots {self.monitor.slot_bytes}"
        if self.claims("content_addressed"):
            once = self.monitor.known((request.get("tenant", ""), key)).once
            if once and digest(data) not in once:
                yield "a key stands for its content"

    def remove(self, request: Request) -> Iterable[str]:
        if "tier" in request and not self.claims("authority"):
            yield "the engine keeps no account of tiers"
        if request.get("force") and not self.fences() and any(self.held(request, key) for key in request["keys"]):
            yield "the caller's own transaction is under way"

    def held(self, request: Request, key: str) -> bool:
        """Whether a transaction of the key is under way."""
        return bool(self.monitor.live((request.get("tenant", ""), key)))

    def reserve(self, request: Request) -> Iterable[str]:
        data = request.get("data")
        if (request["mode"] == "store") is not (data is not None):
            yield "a store has rows and a load has none"
        elif data is not None and len(data) != len(request["keys"]):
            yield "each key has its rows"
        else:
            for key, rows in zip(request["keys"], data or (), strict=False):
                yield from self.rows(request, key, rows)

    def copy(self, request: Request) -> Iterable[str]:
        yield from self.handle(request)

    def complete(self, request: Request) -> Iterable[str]:
        yield from self.handle(request)
        transaction = self.monitor.transactions.get(request["txn"])
        if transaction is None:
            return
        moving = {grant.key[1] for grant in transaction.moving}
        failed = set(request.get("failed", ()))
        if failed:
            how = self.capabilities.get("residency.job_failure", "none")
            if not failed <= moving or how == "none":
                yield "what cannot have failed, or cannot be told"
            elif how == "job" and failed != moving:
                yield "a job fails as a whole"
        if "receipt" in request and (not self.claims("receipts") or not request["receipt"].keys() <= moving):
            yield "the engine takes no such receipt"
        if not self.probe and self.short(transaction) and moving - failed and not self.claims("validates_length"):
            yield "the copy is not whole"

    def short(self, transaction: Transaction) -> bool:
        """Whether it has copied less than the rows that it is completed for; to give it up is to cancel it."""
        return transaction.copied < self.monitor.slot_bytes

    def cancel(self, request: Request) -> Iterable[str]:
        yield from self.handle(request)
        transaction = self.monitor.transactions.get(request["txn"])
        if transaction is None:
            return
        if not self.claims("cancel" if transaction.mode == "store" else "cancel_load"):
            yield f"a {transaction.mode} cannot be cancelled"
        if transaction.state is State.QUARANTINED and not self.fences():
            yield "the transaction was cancelled"

    def handle(self, request: Request) -> Iterable[str]:
        """A completion comes once; what was cancelled, cut off or has expired may still be copied and completed."""
        transaction = self.monitor.transactions.get(request["txn"])
        state = None if transaction is None else transaction.state
        if state in OVER and not self.fences():
            yield "the transaction is over"

    def fences(self) -> bool:
        """Whether handles of what is over may be used."""
        return self.probe or self.claims("txn_ids")


RULES: dict[str, Callable[[_Caller, Request], Iterable[str]]] = {
    f"residency.{one.__name__}": one
    for one in (
        _Caller.open,
        _Caller.put,
        _Caller.remove,
        _Caller.reserve,
        _Caller.copy,
        _Caller.complete,
        _Caller.cancel,
    )
}
"""Op to what is not allowed in its request."""
