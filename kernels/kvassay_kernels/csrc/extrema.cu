// Least and greatest value of each channel in each page of keys: Quest's metadata, built or brought up to date.
//
// A thread serves one access of a page: it reads that access of every new row of the page, and neighbours read on. Page p
// holds the positions p page_rows to (p + 1) page_rows; where rows stood there before, what they left is the start.
// Compiled for ELEMENT and WIDE, which is 1 where rows are read by 16 bytes.
#include "common.cuh"

constexpr int VECTOR = WIDE ? Elements<ELEMENT>::COUNT : 1;

// A number that is none stays: it is neither hidden by a comparison nor lost on the way.
__device__ __forceinline__ float lesser(float a, float b) { return a != a || a < b ? a : b; }
__device__ __forceinline__ float greater(float a, float b) { return a != a || a > b ? a : b; }

__device__ __forceinline__ void read(const ELEMENT* from, float (&to)[VECTOR]) {
#if WIDE
    Elements<ELEMENT>::unpack(load_16_bytes(from), to);
#else
    to[0] = to_float(*from);
#endif
}

__device__ __forceinline__ void write(ELEMENT* to, const float (&from)[VECTOR]) {
#if WIDE
    *reinterpret_cast<uint4*>(to) = Elements<ELEMENT>::pack(from);
#else
    *to = from_float<ELEMENT>(from[0]);
#endif
}

extern "C" __global__ void __launch_bounds__(256, 4) page_extrema(
    const ELEMENT* __restrict__ k,  // [new_rows, width]
    ELEMENT* minimum,               // [pages, width]
    ELEMENT* maximum,               // the same
    int old_rows, int new_rows, int page_rows, int width, int64 row_stride) {
    const int accesses = width / VECTOR, first_page = old_rows / page_rows;
    const int pages = (old_rows + new_rows + page_rows - 1) / page_rows - first_page;
    const int64 i = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= int64(pages) * accesses) return;
    const int page = first_page + int(i / accesses), column = int(i % accesses) * VECTOR;
    int begin = max(0, page * page_rows - old_rows);
    const int end = min(new_rows, (page + 1) * page_rows - old_rows);
    ELEMENT* const low_at = minimum + int64(page) * width + column;
    ELEMENT* const high_at = maximum + int64(page) * width + column;
    float low[VECTOR], high[VECTOR];
    if (page * page_rows < old_rows) {
        read(low_at, low);
        read(high_at, high);
    } else {
        read(k + begin * row_stride + column, low);
#pragma unroll
        for (int e = 0; e < VECTOR; ++e) high[e] = low[e];
        ++begin;
    }
#pragma unroll 8
    for (int row = begin; row < end; ++row) {
        float key[VECTOR];
        read(k + row * row_stride + column, key);
#pragma unroll
        for (int e = 0; e < VECTOR; ++e) {
            low[e] = lesser(low[e], key[e]);
            high[e] = greater(high[e], key[e]);
        }
    }
    write(low_at, low);
    write(high_at, high);
}
