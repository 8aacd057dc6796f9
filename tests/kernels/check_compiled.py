"""NVRTC takes every specialisation for every architecture, and none takes more than the committed ceilings."""

from __future__ import annotations

import re

import pytest
from kvassay_kernels import sources
from kvassay_kernels.sources import Module

from . import ceilings, nvrtc

MODULES = {module.name: module for module in sources.specialisations()}


def test_the_compiler_is_of_the_pinned_series() -> None:
    found = nvrtc.version()
    assert found is not None, "pip install -r requirements/kernels.txt"
    assert found.startswith(f"{nvrtc.SERIES}.")


def test_the_ceilings_are_those_of_the_specialisations() -> None:
    assert list(ceilings.committed()) == list(MODULES)
    assert all(list(rows) == list(nvrtc.ARCHITECTURES) for rows in ceilings.committed().values())


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("name", MODULES)
def test_a_module_stays_below_its_ceilings(name: str, architecture: str) -> None:
    found, most = ceilings.measure(MODULES[name], architecture), ceilings.committed()[name][architecture]
    assert sorted(found) == sorted(MODULES[name].kernels) == sorted(most)
    for kernel, used in found.items():
        assert all(one <= limit for one, limit in zip(used, most[kernel], strict=True)), (kernel, used, most[kernel])
        assert used[1:3] == [0, 0], f"{kernel} keeps something in local memory"


def test_a_kernel_that_takes_more_is_seen(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    right = sources.read("attention.cu")
    wrong = re.sub(r"WARPS = 4", "WARPS = 8", right)
    assert wrong != right
    monkeypatch.setattr(Module, "text", property(lambda self: wrong))
    module = sources.attention("bfloat16", 128, 4)
    found = ceilings.measure(module, "sm_90")["attention_partial"]
    most = ceilings.committed()[module.name]["sm_90"]["attention_partial"]
    assert any(one > limit for one, limit in zip(found, most, strict=True))
