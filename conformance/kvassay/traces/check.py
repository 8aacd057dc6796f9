"""Judging a trace: each process by itself, each contract by its monitor, one line at a time.

The monitors are those that judge cases and fuzzed runs. Memory holds what they call live, and the latest lines, from
which a finding quotes what led to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.engine import Broken, NotSupported, Refused, Reply, Returned
from ..core.expect import PASS, Outcome
from ..core.model import Case, EngineDescription, Verdict
from ..core.monitor import Monitor
from ..monitors import watch
from ..monitors.identity import IdentityMonitor
from ..monitors.replay import REPLAYED, replay
from ..monitors.requirements import requirements
from . import FORMAT, form
from .again import Playback, again, find
from .errors import CutLine, TraceError
from .lines import parse
from .past import Past
from .rules import Rule

CONTROL = "control"
QUOTED = 100
"""Offences for which the past is searched."""
BEGINS = "residency.open"
"""The op that makes a new store within a fresh engine, or in the place of another."""
AFTER = "an event after the end of the trace"
UNKNOWN_NAMES = 100
"""How many names of unknown events are counted apart."""
OFFENCES = (Verdict.FAIL, Verdict.WRONG_REASON)


@dataclass(frozen=True)
class Offence:
    """A line that contradicts a rule, or what is wrong with the trace as a whole."""

    rule: str
    sentence: str
    line: int | None = None
    process: str = ""
    event: str = ""
    at: str = ""
    """JSON pointer into the line."""
    requirements: tuple[str, ...] = ()
    led_to_it: tuple[tuple[int, str], ...] = ()
    """The latest lines about the same keys, transactions or sessions, and each in brief."""
    expected: Any = None
    returned: Any = None


@dataclass
class Counts:
    """What a trace held."""

    lines: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    unjudged: int = 0
    """Events of ops without rules over sequences, and of those that show nothing."""
    processes: set[str] = field(default_factory=set)

    @property
    def events(self) -> int:
        """All events that were judged or passed over."""
        return sum(self.kinds.values()) + sum(self.unknown.values())


def traced(contract: str, description: EngineDescription) -> Monitor | None:
    """The monitor that judges the events of a contract; ``None`` where there are no rules over sequences."""
    if contract == "identity":
        return IdentityMonitor(description)
    return watch(contract, description) or replay(contract, description, partial=True)


class Account:
    """One process: what it has told so far."""

    def __init__(self, description: EngineDescription, *, judged: bool) -> None:
        self.description = description
        self.judged = judged
        self.events = 0
        self.ended = False
        self.seq: int | None = None
        self.time_ms: float | None = None
        self.monitors: dict[str, Monitor | None] = {}
        self.since = 0
        """Line at which the engine was fresh."""
        self.case: Case | None = None
        """The case that is under way, where a run was recorded."""
        self.playback = Playback(description)

    def fresh(self, line: int, case: str = "") -> None:
        """Nothing is stored any more."""
        self.monitors, self.since = {}, line
        self.case, self.playback = find(case) if case else None, Playback(self.description)

    def monitor(self, contract: str) -> Monitor | None:
        """The monitor of a contract, made when its first event comes."""
        if contract not in self.monitors:
            self.monitors[contract] = traced(contract, self.description)
        return self.monitors[contract]

    def control(self, name: str, request: Mapping[str, Any], reply: Reply) -> Outcome | None:
        """Tell every monitor of a control; ``None`` where there are none."""
        found = None
        for monitor in self.monitors.values():
            if monitor is not None:
                outcome = monitor.observe(name, request, reply)
                found = outcome if found is None or found.holds else found
        return found

    def passed(self, time_ms: float) -> None:
        """Time went by on the process's own clock; reservations with a limit may expire."""
        before, self.time_ms = self.time_ms, max(time_ms, self.time_ms or 0)
        monitor = self.monitors.get("residency")
        if before is not None and monitor is not None and getattr(monitor, "ttl_ms", None):
            # Whole milliseconds; the rest is kept for the next event.
            by_ms = int(self.time_ms) - int(before)
            if by_ms > 0:
                monitor.observe("control.advance_clock", {"by_ms": by_ms}, Returned({"now_ms": int(self.time_ms)}))


class Checker:
    """Takes the lines of one trace and says what they contradict."""

    def __init__(self, *, only: str | None = None, strict: bool = False) -> None:
        self.only = only
        self.strict = strict
        self.counts = Counts()
        self.accounts: dict[str, Account] = {}
        self.headers: dict[str, EngineDescription] = {}
        self.past = Past()
        self.kinds: dict[str, form.Kind] = {}
        self.total: int | None = None
        """Events that the end of the whole trace counts, once it has come."""
        self._quoted = 0

    def offences(self, numbered: Iterable[tuple[int, bytes]]) -> Iterator[Offence]:
        """Every offence in turn; raises :class:`TraceError` for a line that cannot be read."""
        try:
            line, counts = self.line, self.counts
            for number, raw in numbered:
                counts.lines = number
                found = line(number, raw)
                if found:
                    yield from found
        except CutLine as cut:
            yield Offence(Rule.TRUNCATED, f"{cut}; the trace was cut", cut.line)
            return
        yield from self.finish()

    def line(self, number: int, raw: bytes) -> Iterable[Offence]:
        """Judge one line."""
        value = parse(number, raw)
        name = value.get("event")
        kind = self.kinds.get(name) if type(name) is str else None
        if kind is None:
            if name is None or name == "trace.open" or name == "trace.end":
                return self._frame(number, value)
            kind = self._kind(number, value)
            if not kind.contract:
                return self._event(number, raw, value, kind)
        if kind.fits(value):
            return self._event(number, raw, value, kind)
        return self._unfit(number, raw, value, kind)

    def _event(self, number: int, raw: bytes, value: dict[str, Any], kind: form.Kind) -> Iterable[Offence]:
        process = value.get("process", "")
        account = self.accounts.get(process) or self._account(number, process)
        if account.ended:
            raise TraceError(number, "", AFTER)
        account.events += 1
        if not account.judged:
            return ()
        found: tuple[Offence, ...] = ()
        if "seq" in value:
            seq = value["seq"]
            if account.seq is not None and seq != account.seq + 1:
                found = (self._misnumbered(number, value, account.seq),)
            account.seq = seq
        name, contract, counts = kind.name, kind.contract, self.counts
        if not contract:
            self._unknown(value["event"])
            return found
        counts.kinds[name] = counts.kinds.get(name, 0) + 1
        reply = Returned(value["result"]) if "result" in value else reply_of(value)
        try:
            if "time_ms" in value:
                account.passed(value["time_ms"])
            if contract == CONTROL:
                outcome = account.control(name, value["request"], reply)
            else:
                if name == BEGINS:
                    account.monitors.pop(contract, None)
                monitor = account.monitors.get(contract) or account.monitor(contract)
                outcome = None if monitor is None else monitor.observe(name, value["request"], reply)
        except (LookupError, TypeError, ValueError, ArithmeticError) as problem:
            # Each member is legal by itself; together they are not, such as two keys with the rows of one.
            reason = f"the members do not belong together: {type(problem).__name__}: {problem}"
            raise TraceError(number, "", " ".join(reason.split())[:400]) from None
        if account.case is not None:
            account.playback.replies.append((number, name, reply))
        if outcome is not PASS:
            if outcome is None or outcome.verdict not in OFFENCES:
                counts.unjudged += outcome is None or not outcome.holds
            else:
                found = (*found, self._offence(number, value, kind, account, outcome))
        past = self.past
        past.kept.append((number, raw))
        past.held += len(raw)
        if past.held > past.limit:
            past.shorten()
        return found

    def finish(self) -> Iterator[Offence]:
        """What is missing at the end."""
        if self.only is not None and self.only not in self.accounts:
            known = ", ".join(sorted(filter(None, self.accounts))) or "none has a name"
            yield Offence(
                Rule.EMPTY, f"the trace holds no event of the process {self.only}; of processes, it names {known}"
            )
        elif not self.events:
            yield Offence(Rule.EMPTY, "the trace holds no event")
        elif self.total is None:
            open_ones = sorted(name for name, account in self.accounts.items() if not account.ended)
            if open_ones and self.only in (None, *open_ones):
                whose = (
                    ""
                    if open_ones == [""]
                    else f" of {', '.join(name or 'lines without a process' for name in open_ones)}"
                )
                yield Offence(Rule.TRUNCATED, f"the end{whose} is missing; the trace was cut", self.counts.lines)

    @property
    def events(self) -> int:
        """Events since the header, of all processes."""
        return sum(account.events for account in self.accounts.values())

    @property
    def held(self) -> Counter[str]:
        """What the monitors hold, summed over processes."""
        found: Counter[str] = Counter()
        for account in self.accounts.values():
            for monitor in account.monitors.values():
                found.update(getattr(monitor, "held", {}))
        return found

    # --- lines that are no exchange ------------------------------------------------------------------------------

    def _frame(self, number: int, value: dict[str, Any]) -> Iterable[Offence]:
        uri = {"trace.open": form.OPEN, "trace.end": form.END}.get(value.get("event", ""), form.HEADER)
        wrong = form.problem(form.line(uri), value)
        if wrong is not None:
            raise TraceError(number, *wrong)
        if uri == form.HEADER:
            return self._header(number, value)
        process = value.get("process", "")
        if uri == form.END:
            return self._end(number, value, process)
        account = self.accounts.get(process) or self._account(number, process)
        account.events += 1
        found: tuple[Offence, ...] = ()
        seq = value.get("seq")
        if account.judged:
            if seq is not None and account.seq is not None and seq != account.seq + 1:
                found = (self._misnumbered(number, value, account.seq),)
            account.seq = seq if seq is not None else account.seq
            self.counts.kinds["trace.open"] += 1
        found = (*found, *self._over(account, process))
        account.fresh(number, value.get("case", ""))
        return found

    def _header(self, number: int, value: Mapping[str, Any]) -> Iterable[Offence]:
        found: tuple[Offence, ...] = ()
        process = value.get("process", "")
        if process in self.headers:
            before = self.accounts.get(process)
            if self.total is None and not (process and before is not None and before.ended):
                found = (
                    Offence(Rule.TRUNCATED, "another trace begins, and the end of the one before is missing", number),
                )
            if process:
                self.accounts.pop(process, None)
            else:
                self.accounts, self.headers = {}, {}
            self.total = None
        engine = value["engine"]
        self.headers[process] = EngineDescription(
            engine["name"],
            engine["version"],
            form.known_events(),
            capabilities=value.get("capabilities", {}),
            variants=frozenset(value.get("variants", ())),
            states=tuple(value.get("states", ())),
        )
        return found

    def _end(self, number: int, value: Mapping[str, Any], process: str) -> Iterable[Offence]:
        if process:
            account = self.accounts.get(process) or self._account(number, process)
            told, seen, ending = value["events"], account.events, {process: account}
        else:
            self.total = told = value["events"]
            seen, ending = self.events, self.accounts
        found: list[Offence] = []
        for name, account in ending.items():
            account.ended = True
            found += self._over(account, name)
        if told != seen and self.only in (None, process):
            sentence = f"the end counts {told} events and there are {seen}"
            found.append(Offence(Rule.COUNT_DIFFERS, sentence, number, process))
        return found

    def _over(self, account: Account, process: str) -> Iterator[Offence]:
        """The case that was under way is over: what its expectations say."""
        if account.case is None or not account.judged:
            return
        failed = again(account.case, account.playback, strict=self.strict)
        account.case = None
        if failed is not None:
            finding = failed.finding
            yield Offence(
                rule=Rule.CASE_FAILS,
                sentence=f"{failed.case.id}: {finding.message}",
                line=failed.line,
                process=process,
                event=failed.op,
                at=f"/result{finding.at}" if finding.at.startswith("/") else "",
                requirements=failed.case.requirements,
                expected=finding.expected,
                returned=finding.returned,
            )

    def _account(self, number: int, process: str) -> Account:
        description = self.headers.get(process) or self.headers.get("")
        if description is None:
            raise TraceError(number, "", f'no header: the first line says {{"trace": "{FORMAT}", "engine": ...}}')
        if self.total is not None:
            raise TraceError(number, "", AFTER)
        account = self.accounts[process] = Account(description, judged=self.only in (None, process))
        self.counts.processes.add(process)
        return account

    # --- what single lines come to -------------------------------------------------------------------------------

    def _kind(self, number: int, value: Mapping[str, Any]) -> form.Kind:
        name = value["event"]
        if not isinstance(name, str) or name not in form.known_events():
            wrong = form.problem(form.unknown().validator, value)
            if wrong is not None:
                raise TraceError(number, *wrong)
            return form.unknown()
        self.kinds[name] = form.kind(name)
        return self.kinds[name]

    def _unknown(self, name: str) -> None:
        unknown = self.counts.unknown
        unknown[name if name in unknown or len(unknown) < UNKNOWN_NAMES else "others"] += 1

    def _unfit(self, number: int, raw: bytes, value: dict[str, Any], kind: form.Kind) -> Iterable[Offence]:
        """A line that is not of its op's form: a request may be wrong where it was refused, a result never.

        A case may send what is wrong on purpose; then its expectations say what should have come of it.
        """
        wrong = form.problem(form.line(form.EXCHANGE), value)
        if wrong is not None:
            raise TraceError(number, *wrong)
        pointer, reason = kind.problem(value) or ("", "")
        if pointer.startswith("/request") and kind.contract in REPLAYED:
            before = self.counts.unjudged
            found = self._event(number, raw, value, kind)
            if "result" in value and not found and self.counts.unjudged > before:
                raise TraceError(number, pointer, reason)
            return found
        process = value.get("process", "")
        account = self.accounts.get(process) or self._account(number, process)
        meant = pointer.startswith("/request") and ("result" not in value or account.case is not None)
        if not meant and not pointer.startswith("/result"):
            raise TraceError(number, pointer, reason)
        account.events += 1
        account.seq = value.get("seq", account.seq)
        self.counts.kinds[kind.name] += 1
        if account.case is not None:
            reply = Returned(value["result"]) if "result" in value else reply_of(value)
            account.playback.replies.append((number, kind.name, reply))
        if not account.judged or pointer.startswith("/request"):
            self.counts.unjudged += 1
            return ()
        sentence = f"the result does not meet the op's schema: {reason}"
        return (Offence(Rule.RESULT_SCHEMA, sentence, number, process, kind.name, pointer),)

    def _misnumbered(self, number: int, value: Mapping[str, Any], before: int) -> Offence:
        told = f"{value['seq']} follows {before}"
        what = f"lines were lost: {told}" if value["seq"] > before else f"lines came twice or out of order: {told}"
        return Offence(Rule.SEQUENCE, what, number, value.get("process", ""), value["event"], "/seq")

    def _offence(
        self, number: int, value: dict[str, Any], kind: form.Kind, account: Account, outcome: Outcome
    ) -> Offence:
        finding = outcome.finding
        assert finding is not None
        rule, _, sentence = finding.message.partition(": ")
        if not (rule.isupper() and sentence):
            rule, sentence = Rule.REPLY_DIFFERS, finding.message
        process = value.get("process", "")
        member = "result" if "result" in value else "rejected"
        return Offence(
            rule=rule,
            sentence=sentence,
            line=number,
            process=process,
            event=kind.name,
            at=f"/{member}{finding.at}",
            requirements=requirements(kind.contract, kind.name, rule, finding),
            led_to_it=self._led_to(value, account),
            expected=finding.expected,
            returned=finding.returned,
        )

    def _led_to(self, value: dict[str, Any], account: Account) -> tuple[tuple[int, str], ...]:
        """What the past has to say, for as many offences as anybody reads."""
        self._quoted += 1
        return tuple(self.past.before(value, account.since)) if self._quoted <= QUOTED else ()


def reply_of(value: Mapping[str, Any]) -> Reply:
    """What came of a call that returned nothing, as monitors take it."""
    if "rejected" in value:
        return Refused(value["rejected"]["reason"], value["rejected"].get("detail", ""))
    if "unsupported" in value:
        return NotSupported(value["unsupported"])
    return Broken(value["error"]["kind"], value["error"].get("detail", ""))
