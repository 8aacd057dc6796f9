"""Fuzzing: steps a second, and what one step of a script costs beside its bare call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from kvassay.adapters.local import InProcess
from kvassay.core.judge import judge
from kvassay.corpus import load
from kvassay.engines.reference import Reference
from kvassay.fuzz.contract import CONTRACTS
from kvassay.fuzz.run import Fuzzer, Options
from kvassay.monitors import watch

from .timing import Line, median_s

EXAMPLES = 150
LEAST_PER_S = 2000


def lines() -> Iterator[Line]:
    """Per contract the cost of one fuzzed step, in process; then that of a scripted one."""
    for contract in CONTRACTS:
        fuzz(contract, 10)
        seconds = fuzz(contract, EXAMPLES)
        yield Line(
            f"fuzzing {contract}, in process, a step ({1 / seconds:.0f} a second)",
            seconds * 1e3,
            "ms",
            f"{LEAST_PER_S} a second",
            1e3 / LEAST_PER_S,
            1.0,
        )
    yield scripted()


def fuzz(contract: str, examples: int) -> float:
    """Seconds of processor time of one call, with all that choosing and judging it costs."""
    started = time.process_time()
    summary = Fuzzer(InProcess(Reference), load(), Options(contract, examples=examples)).run()
    return (time.process_time() - started) / summary.calls


def scripted() -> Line:
    """The longest script of residency, judged and watched, against its bare calls."""
    corpus, engine = load(), InProcess(Reference)
    case = max((one for one in corpus.cases if one.contract == "residency"), key=lambda one: len(one.steps))
    rules = corpus.rules()
    guarded = replace(rules, watch=watch)
    watched = median_s(lambda: judge(case, engine, guarded), number=20) / len(case.steps)
    plain = median_s(lambda: judge(case, engine, rules), number=20) / len(case.steps)
    return Line("a step of a script, watched", watched * 1e3, "ms", "the same step, not watched", plain * 1e3, 2.0)
