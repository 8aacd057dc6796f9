"""The emulator itself: what the thread model allows, what it forbids, and the conversions of half precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kvassay_emulator import CompilerMissing, Emulator, LaunchFailed, build, compiler
from kvassay_emulator.build import cache
from kvassay_kernels.sources import Module

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
PROBES = r"""
#include "common.cuh"
extern "C" __global__ void fill(int* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x + 100 * blockIdx.x; }
extern "C" __global__ void divergent_barrier(int* x) { if (threadIdx.x < 32) __syncthreads(); x[threadIdx.x] = 1; }
extern "C" __global__ void mask_without_lane(int* x) { x[threadIdx.x] = __shfl_xor_sync(1u, x[threadIdx.x], 0); }
extern "C" __global__ void lane_has_returned(int* x) {
    if (threadIdx.x == 5) return;
    x[threadIdx.x] = __shfl_xor_sync(WHOLE_WARP, x[threadIdx.x], 1);
}
extern "C" __global__ void lanes_never_meet(int* x) {
    if (threadIdx.x == 5) __syncthreads();
    x[threadIdx.x] = __shfl_xor_sync(WHOLE_WARP, x[threadIdx.x], 1);
    if (threadIdx.x != 5) __syncthreads();
}
extern "C" __global__ void different_functions(int* x) {
    if (threadIdx.x % 2) __syncwarp(); else x[threadIdx.x] = __ballot_sync(WHOLE_WARP, 1);
}
extern "C" __global__ void too_much_shared(int* x) {
    SHARED(float, a, 12000);
    SHARED(float, b, 1000);
    x[threadIdx.x] = a[0] > b[0];
}
extern "C" __global__ void unwritten(float* x) {
    SHARED(float, a, 64);
    DYNAMIC_SHARED(float, b);
    x[threadIdx.x] = a[threadIdx.x];
    x[threadIdx.x + 64] = b[threadIdx.x];
    a[threadIdx.x] = 1.f;
}
extern "C" __global__ void shuffles(int* x) {
    const int lane = threadIdx.x, given = 10 * lane;
    x[lane] = __shfl_sync(WHOLE_WARP, given, 7);
    x[lane + 32] = __shfl_xor_sync(WHOLE_WARP, given, 5);
    x[lane + 64] = __shfl_up_sync(WHOLE_WARP, given, 3);
    x[lane + 96] = __shfl_down_sync(WHOLE_WARP, given, 3, 8);
    x[lane + 128] = __shfl_sync(WHOLE_WARP, given, 2, 8);
    x[lane + 160] = int(__ballot_sync(WHOLE_WARP, lane % 3 == 0));
    x[lane + 192] = __any_sync(WHOLE_WARP, lane == 31) + 2 * __all_sync(WHOLE_WARP, lane < 31);
}
// Half of a warp has met more often than the other before all meet.
extern "C" __global__ void halves(int* x) {
    int found = threadIdx.x;
    if (threadIdx.x < 16) found = __shfl_xor_sync(0xffffu, found, 1);
    x[threadIdx.x] = __shfl_sync(WHOLE_WARP, found, 31 - threadIdx.x);
}
extern "C" __global__ void long_values(double* x) {
    x[threadIdx.x] = __shfl_xor_sync(WHOLE_WARP, x[threadIdx.x], 1);
}
extern "C" __global__ void histogram(const int* x, int* counts, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(counts + x[i], 1);
}
extern "C" __global__ void neighbours(int* x) {
    SHARED(int, room, 128);
    room[threadIdx.x] = threadIdx.x;
    BARRIER;
    x[threadIdx.x] = room[(threadIdx.x + 33) % 128];
}
extern "C" __global__ void from_half(const __half* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = to_float(x[i]);
}
extern "C" __global__ void from_bfloat16(const __nv_bfloat16* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = to_float(x[i]);
}
extern "C" __global__ void to_half(const float* x, __half* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = from_float<__half>(x[i]);
}
extern "C" __global__ void to_bfloat16(const float* x, __nv_bfloat16* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = from_float<__nv_bfloat16>(x[i]);
}
extern "C" __global__ void sums(float* x) {
    float y[16];
    for (int i = 0; i < 16; ++i) y[i] = float(threadIdx.x * 100 + i);
    sum_over_eight_lanes(y, threadIdx.x);
    x[2 * threadIdx.x] = y[0];
    x[2 * threadIdx.x + 1] = y[1];
}
"""
MODULE = Module("probes.cu", (("BARRIER", "__syncthreads()"),))


def launch(kernel: str, *arguments: Any, grid: int = 1, block: int = 32, schedule: int = 0, **more: Any) -> None:
    module = more.pop("module", MODULE)
    Emulator(schedule, texts={"probes.cu": PROBES}).launch(module, kernel, (grid,), block, arguments, **more)


@pytest.mark.parametrize("schedule", range(6))
def test_every_thread_of_every_block_runs_once(schedule: int) -> None:
    found = np.zeros(3 * 70, np.int32)
    launch("fill", found, grid=3, block=70, schedule=schedule)
    assert found.tolist() == [thread + 100 * block for block in range(3) for thread in range(70)]


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ("divergent_barrier", "__syncthreads is not reached by every thread"),
        ("mask_without_lane", "a mask that does not hold it"),
        ("lane_has_returned", "names a lane that has returned"),
        ("lanes_never_meet", "lanes of a mask never meet"),
        ("different_functions", "meet in different warp functions"),
        ("too_much_shared", "more than 48 KiB"),
    ],
)
@pytest.mark.parametrize("schedule", [0, 1, 3])
def test_what_the_thread_model_forbids_is_named(kernel: str, says: str, schedule: int) -> None:
    with pytest.raises(LaunchFailed, match=says):
        launch(kernel, np.zeros(64, np.int32), block=64 if kernel == "divergent_barrier" else 32, schedule=schedule)
    test_every_thread_of_every_block_runs_once(schedule)  # a failed launch leaves nothing behind


def test_a_mask_names_lanes_that_exist() -> None:
    with pytest.raises(LaunchFailed, match="does not exist"):
        launch("shuffles", np.zeros(224, np.int32), block=31)


def test_shared_memory_is_not_a_number_until_it_is_written() -> None:
    found = np.zeros(128, np.float32)
    launch("unwritten", found, grid=2, block=64, shared_bytes=256)
    assert np.isnan(found).all()


def test_shuffles_and_votes() -> None:
    found = np.zeros(224, np.int32)
    launch("shuffles", found)
    lanes = np.arange(32)
    expected = [
        np.full(32, 70),
        10 * (lanes ^ 5),
        10 * np.where(lanes < 3, lanes, lanes - 3),
        10 * np.where(lanes % 8 < 5, lanes + 3, lanes),
        10 * (lanes // 8 * 8 + 2),
        np.full(32, sum(1 << lane for lane in range(0, 32, 3))).astype(np.int32),
        np.full(32, 1),
    ]
    assert (found.reshape(7, 32) == np.stack(expected)).all()


@pytest.mark.parametrize("schedule", range(4))
def test_lanes_may_have_met_before_all_meet(schedule: int) -> None:
    found = np.zeros(32, np.int32)
    launch("halves", found, schedule=schedule)
    assert found.tolist() == [*range(31, 15, -1), *(lane ^ 1 for lane in range(15, -1, -1))]


def test_eight_bytes_are_shuffled() -> None:
    found = np.arange(32) * 1e300
    launch("long_values", found)
    assert (found == (np.arange(32) ^ 1) * 1e300).all()


def test_sums_over_eight_lanes() -> None:
    found = np.zeros(64, np.float32)
    launch("sums", found)
    group = np.arange(32) // 8
    first = 8 * group * 8 * 100 + 2800 + 16 * (np.arange(32) % 8)
    assert (found.reshape(32, 2) == np.stack([first, first + 8], axis=1)).all()


def test_atomic_additions() -> None:
    values = np.random.default_rng(0).integers(0, 7, 5000).astype(np.int32)
    found = np.zeros(7, np.int32)
    launch("histogram", values, found, np.int32(values.size), grid=3, block=64)
    assert (found == np.bincount(values, minlength=7)).all()


def test_a_barrier_that_is_missing_shows_in_some_order() -> None:
    right = (np.arange(128) + 33) % 128
    without = Module("probes.cu", (("BARRIER", ""),))
    seen = []
    for schedule in range(4):
        found = np.zeros(128, np.int32)
        launch("neighbours", found, block=128, schedule=schedule)
        assert (found == right).all()
        launch("neighbours", found, block=128, schedule=schedule, module=without)
        seen.append(bool((found == right).all()))
    assert not all(seen)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_number_of_half_precision_is_converted(dtype: Any) -> None:
    name = "half" if dtype == np.float16 else "bfloat16"
    numbers = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    found = np.zeros(1 << 16, np.float32)
    launch(f"from_{name}", numbers, found, grid=256, block=256)
    np.testing.assert_array_equal(found, numbers.astype(np.float32))
    back = np.zeros(1 << 16, dtype)
    launch(f"to_{name}", found, back, grid=256, block=256)
    np.testing.assert_array_equal(back.astype(np.float32), numbers.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_numbers_are_rounded_to_nearest_even(dtype: Any) -> None:
    name = "half" if dtype == np.float16 else "bfloat16"
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    finite = np.sort(every[np.isfinite(every)])
    with np.errstate(over="ignore"):
        middles = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
        numbers = np.concatenate([np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)] + [middles])
        right = numbers.astype(dtype)
    numbers.resize(-(-numbers.size // 256) * 256)
    found = np.zeros(numbers.size, dtype)
    launch(f"to_{name}", numbers, found, grid=numbers.size // 256, block=256)
    np.testing.assert_array_equal(found[: right.size].astype(np.float32), right.astype(np.float32))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "0 arguments, the kernel takes 1"),
        ((np.int32(1),), "argument 0 has 4 bytes, the kernel takes 8"),
        ((7,), "neither an array nor a NumPy scalar"),
    ],
)
def test_arguments_have_the_sizes_of_the_kernel(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(LaunchFailed, match=says):
        launch("fill", *arguments)


@pytest.mark.parametrize(("grid", "block"), [(0, 32), (1, 0), (1, 1025)])
def test_a_launch_has_a_legal_shape(grid: int, block: int) -> None:
    with pytest.raises(LaunchFailed, match=r"a block has|no legal grid"):
        launch("fill", np.zeros(2000, np.int32), grid=grid, block=block)


def test_a_library_is_built_once_for_each_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASSAY_EMULATOR_CACHE", str(tmp_path))
    assert cache() == tmp_path
    text = 'extern "C" __global__ void nothing(int* x) {}\n'
    first = build.build(Module("nothing.cu"), text=text)
    monkeypatch.setattr(build.subprocess, "run", None)
    assert build.build(Module("nothing.cu"), text=text) == first
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_what_the_compiler_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASSAY_EMULATOR_CACHE", str(tmp_path))
    with pytest.raises(CompilerMissing, match=r"wrong\.cu: .*nonsense"):
        build.build(Module("wrong.cu"), text="nonsense;")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CompilerMissing) as missing:
        build.build(MODULE, text=PROBES)
    assert str(missing.value) == "the emulated kernels need a C++ compiler: install g++, or name one in CXX"
