"""Traces that were recorded of vLLM are read back without it: clean ones are clean, and findings are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kvassay import cli
from kvassay.corpus.data import root

ENGINES = root() / "fixtures" / "traces" / "engines"
CLEAN = (
    "vllm-offload-cpu",
    "vllm-offload-cpu-arc",
    "vllm-offload-cpu-each",
    "vllm-scheduler",
    "vllm-scheduler-prefix-caching",
    "vllm-offloading-connector",
    "vllm-simple-cpu-offload",
)
OFFENDING = {"vllm-offload-file": "PUBLISHED_UNVALIDATED", "vllm-example-connector": "summary"}
"""Recorded engine to a word of the first offence: files outlive a reset, and names of adapters are in no key."""


def checked(name: str, capsys: Any) -> tuple[int, str]:
    path: Path = ENGINES / f"{name}.jsonl"
    status = cli.status(["trace", "check", str(path)])
    return status, capsys.readouterr().out


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_run_is_clean(name: str, capsys: Any) -> None:
    status, out = checked(name, capsys)
    assert (status, "no offence" in out) == (0, True)


@pytest.mark.parametrize("name", OFFENDING)
def test_a_finding_of_the_engine_is_in_its_trace(name: str, capsys: Any) -> None:
    status, out = checked(name, capsys)
    assert (status, OFFENDING[name] in out) == (1, True)
