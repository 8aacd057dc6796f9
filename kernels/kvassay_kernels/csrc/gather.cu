// Rows by a list of ids, of one or more heads, into one piece. An id that names no row gives zeros.
//
// A thread moves four units before it waits for the first. Compiled for UNIT, what is moved at once: uint4 where rows begin
// at multiples of 16 bytes, else unsigned, unsigned short or unsigned char.
#include "common.cuh"

constexpr int THREADS = 256, EACH = 4;
typedef UNIT Unit;

extern "C" __global__ void __launch_bounds__(THREADS, 4) gather_rows(
    const Unit* __restrict__ from,  // units, at the strides below
    const int* __restrict__ ids,    // [heads, count]
    Unit* __restrict__ to,          // [heads, count, units]
    int rows, int count, int units, int64 row_stride, int64 head_stride) {
    const int64 here = int64(count) * units, start = int64(blockIdx.x) * THREADS * EACH + threadIdx.x;
    to += blockIdx.y * here;
    Unit moved[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int64 at = start + i * THREADS;
        moved[i] = Unit{};
        if (at >= here) continue;
        const int row = ids[int64(blockIdx.y) * count + at / units];
        if (row >= 0 && row < rows) moved[i] = __ldg(from + blockIdx.y * head_stride + row * row_stride + at % units);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int64 at = start + i * THREADS;
        if (at < here) to[at] = moved[i];
    }
}
