"""What a caller meets before anything runs: imports without CUDA, errors in one line, grids, sources."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvassay_kernels import KernelError, attention, grids, rows, runtime, sources
from kvassay_reference.attention import Mask, State

from . import defects
from .conftest import Device, inward

WITHOUT_CUDA = """
import sys
sys.modules["cupy"] = None  # as where it is not installed
import numpy as np
import kvassay_kernels
from kvassay_kernels import attention, magicpig, pq, quest, rows, sparq, squeezed
for call in (
    lambda: rows.take(np.zeros((2, 2)), [0]),
    lambda: quest.metadata(np.zeros((2, 1, 2)), 1),
    lambda: attention.merge([(np.zeros(1), np.zeros(1), np.zeros((1, 1)))]),
):
    try:
        call()
    except kvassay_kernels.KernelError as error:
        print(error)
    except AttributeError as error:
        print("not a state", error)
"""


def test_the_package_imports_without_cuda_and_a_call_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_CUDA], capture_output=True, text=True, check=True)
    says = "the kernels take CuPy arrays on a CUDA device, not numpy.ndarray; CuPy comes with pip install"
    lines = done.stdout.splitlines()
    assert [line.startswith(says) for line in lines[:2]] == [True, True]
    assert len(lines) == 3


def test_an_emulator_takes_the_place_of_a_device_and_leaves_it() -> None:
    class Nothing:
        def owns(self, array: Any) -> bool:
            return True

    nothing: Any = Nothing()
    with runtime.instead(nothing):
        assert runtime.runtime_of(np.zeros(1)) is nothing
    with pytest.raises(KernelError, match=r"not numpy\.ndarray"):
        runtime.runtime_of(np.zeros(1))


def partial(device: Device, **changed: Any) -> State:
    q, k = np.zeros((2, 64), np.float32), np.zeros((8, 1, 64), np.float32)
    arguments = {"q": q, "k": k, "v": k, "scale": 1.0, "kv_head_of": [0, 0], "positions": range(8)}
    arguments |= {"q_position": 9, "mask": Mask(True)} | changed
    sent = {name: device.inward(one) if isinstance(one, np.ndarray) else one for name, one in arguments.items()}
    return attention.partial(**sent)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"positions": range(0, 16, 2)}, "has step 1, not 2"),
        ({"positions": np.arange(8, dtype=np.int32)}, "positions are int64, not int32"),
        ({"q": np.zeros((64, 2), np.float32).T}, "q of shape .* is not contiguous"),
        ({"k": np.zeros((8, 64, 1), np.float32).transpose(0, 2, 1)[:, :, ::2]}, "SHAPE_MISMATCH"),
        ({"k": np.zeros((8, 1, 128), np.float32)[:, :, ::2]}, "the last axis of k and v is contiguous"),
        ({name: np.zeros((2, 1, 4) if name != "q" else (2, 4)) for name in "qkv"} | {"positions": range(2)}, "float64"),
        ({"legal": np.ones(7, bool)}, "SHAPE_MISMATCH"),
        ({"legal": np.ones(8, np.int32)}, "SHAPE_MISMATCH"),
    ],
)
def test_what_no_kernel_takes_is_refused_in_a_line(device: Device, changed: dict[str, Any], says: str) -> None:
    if type(device).__name__ == "Cuda" and any(
        isinstance(one, np.ndarray) and not one.flags.c_contiguous for one in changed.values()
    ):
        pytest.skip("arrays are made contiguous on their way")
    with pytest.raises(ValueError, match=says) as error:
        partial(device, **changed)
    assert "\n" not in str(error.value)


def test_an_array_that_is_not_aligned_is_read_all_the_same(device: Device) -> None:
    rng = np.random.default_rng(0)
    whole = device.inward(rng.standard_normal(8 * 64 + 1).astype(np.float32))
    q = device.inward(rng.standard_normal((2, 64)).astype(np.float32))
    k = whole[1:].reshape(8, 1, 64)
    found = partial(device, q=q, k=k, v=k)
    even = partial(device, q=q, k=device.inward(device.outward(k).copy()), v=device.inward(device.outward(k).copy()))
    for a, b in zip(found, even, strict=True):
        np.testing.assert_allclose(device.outward(a), device.outward(b), rtol=2e-6, atol=2e-6)


def test_no_query_head_and_no_head_to_merge(device: Device) -> None:
    nothing = partial(device, q=np.zeros((0, 64), np.float32), kv_head_of=[])
    assert [tuple(part.shape) for part in nothing] == [(0,), (0,), (0, 64)]
    assert [tuple(part.shape) for part in attention.merge([nothing, nothing])] == [(0,), (0,), (0, 64)]


def test_inputs_are_left_as_they_are(device: Device) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in ((2, 64), (40, 1, 64), (40, 1, 64))]
    sent = inward(device, *(one.copy() for one in arrays))
    partial(device, q=sent[0], k=sent[1], v=sent[2], positions=range(40))
    rows.top(device.inward(np.zeros(5, np.float32)), 2)
    assert all((device.outward(one) == before).all() for one, before in zip(sent, arrays, strict=True))


@given(
    rows_=st.integers(0, 1 << 20),
    blocks=st.integers(1, 600),
    group=st.sampled_from(sources.GROUPS),
    processors=st.sampled_from([1, 20, 108, 132, 148]),
)
def test_splits_cover_the_rows_once(rows_: int, blocks: int, group: int, processors: int) -> None:
    count, per_split = grids.splits(rows_, blocks, group, processors)
    assert per_split % grids.ROW_STEP == 0
    assert (count - 1) * per_split < max(rows_, 1) <= count * per_split
    assert count == 1 or per_split >= grids.LEAST_ROWS


def test_splits_of_the_sizes_that_are_measured() -> None:
    assert grids.splits(8192, 64 * 8, 4, 132) == (3, 2752)
    assert grids.splits(32768, 8, 4, 132) == (47, 704)


@given(size=st.integers(0, 1 << 24), count=st.integers(1, 1 << 20))
def test_every_part_of_a_row_holds_what_is_selected_from_it(size: int, count: int) -> None:
    parts = grids.parts(size, count)
    assert parts == 1 or size // parts >= 2 * count


def test_every_kernel_is_compiled_for_something() -> None:
    files = {module.file for module in sources.specialisations()}
    assert files == {path.name for path in sources.CSRC.glob("*.cu")}
    assert all(module.kernels for module in sources.specialisations())
    names = [module.name for module in sources.specialisations()]
    assert len(names) == len(set(names))


def test_a_digest_of_all_texts_is_an_option_so_that_a_cache_sees_headers() -> None:
    assert f"-DTEXTS={sources.texts_digest()}" in sources.merge().options


def test_the_documentation_lists_the_kernels_and_their_defects() -> None:
    assert defects.PAGE.read_text(encoding="utf-8") == defects.page()
    index = defects.PAGE.with_name("index.md").read_text(encoding="utf-8")
    for path in sources.CSRC.glob("*.cu"):
        assert f"`{path.name}`" in index, path.name
    pages = {path.stem for path in defects.PAGE.parent.glob("*.md")} - {"index"}
    assert pages == set(index.partition(":hidden:")[2].partition("```")[0].split())
