// Signatures of rows by random planes, and in how many tables a key's signature is that of a query: MagicPIG.
//
// Signatures of ROWS rows are made at once, so that a plane is read once for them: a lane holds its share of a plane and
// of every row, and the sums meet in few shuffles. Matches are counted with eight keys to an access. A signature has up to
// 16 bits; signatures lie table by table. Compiled for ELEMENT, GROUP (1, 2, 4, 8) and WIDE, eight keys or one.
#include "common.cuh"

constexpr int LANES = 32, WARPS = 4, ROWS = 16, TABLES = 8;  // rows and tables of a block
constexpr int G = GROUP, VECTOR = WIDE ? 8 : 1;

extern "C" __global__ void __launch_bounds__(WARPS * LANES, 4) signatures(
    const ELEMENT* __restrict__ x,       // [rows, channels]
    const ELEMENT* __restrict__ planes,  // [tables, bits, channels]
    unsigned short* __restrict__ codes,  // [tables, rows]
    int rows, int channels, int tables, int bits, int64 row_stride) {
    DYNAMIC_SHARED(float, row);  // [ROWS, channels]
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, first = blockIdx.x * ROWS;
    for (int i = threadIdx.x; i < ROWS * channels; i += blockDim.x) {
        const int r = first + i / channels;
        row[i] = r < rows ? to_float(x[r * row_stride + i % channels]) : 0.f;
    }
    __syncthreads();
    const int end = min(tables, int(blockIdx.y + 1) * TABLES);
    for (int t = blockIdx.y * TABLES + warp; t < end; t += WARPS) {
        int code[ROWS / 8] = {};
        for (int bit = 0; bit < bits; ++bit) {
            const ELEMENT* plane = planes + (int64(t) * bits + bit) * channels;
            float sums[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) sums[r] = 0.f;
            for (int c = lane; c < channels; c += LANES) {
                const float y = to_float(plane[c]);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) sums[r] = fmaf(row[r * channels + c], y, sums[r]);
            }
            sum_over_eight_lanes(sums, lane);
#pragma unroll
            for (int i = 0; i < ROWS / 8; ++i) code[i] |= (lanes_sum(sums[i], 8) > 0.f) << bit;
        }
        if (lane >= 8) continue;
#pragma unroll
        for (int i = 0; i < ROWS / 8; ++i) {
            const int r = first + lane * (ROWS / 8) + i;
            if (r < rows) codes[int64(t) * rows + r] = static_cast<unsigned short>(code[i]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) count_matches(
    const unsigned short* __restrict__ keys,     // [heads, tables, rows], at the strides below
    const unsigned short* __restrict__ queries,  // [query_heads, tables]
    const int* __restrict__ tiles,               // [tiles, 2 + G]: a K/V head, unused, and query heads, -1 for none
    int* __restrict__ counts,                    // [query_heads, rows]
    int rows, int tables, int64 head_stride, int64 table_stride) {
    DYNAMIC_SHARED(int, wanted);  // [tables, G]
    const int* tile = tiles + blockIdx.y * (2 + G);
    const int* members = tile + 2;
    for (int i = threadIdx.x; i < tables * G; i += blockDim.x) {
        const int member = members[i % G];
        wanted[i] = member < 0 ? -1 : queries[int64(member) * tables + i / G];
    }
    __syncthreads();
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
    if (first >= rows) return;
    const unsigned short* from = keys + tile[0] * head_stride + first;
    int found[G][VECTOR];
#pragma unroll
    for (int g = 0; g < G; ++g)
#pragma unroll
        for (int e = 0; e < VECTOR; ++e) found[g][e] = 0;
#pragma unroll 4
    for (int t = 0; t < tables; ++t) {
        int code[VECTOR];
#if WIDE
        const uint4 bits = load_16_bytes(from + t * table_stride);
#pragma unroll
        for (int e = 0; e < VECTOR; ++e) code[e] = word(bits, e / 2) >> e % 2 * 16 & 0xffff;
#else
        code[0] = from[t * table_stride];
#endif
#pragma unroll
        for (int g = 0; g < G; ++g)
#pragma unroll
            for (int e = 0; e < VECTOR; ++e) found[g][e] += code[e] == wanted[t * G + g];
    }
#pragma unroll
    for (int g = 0; g < G; ++g) {
        if (members[g] < 0) continue;
        int* const to = counts + int64(members[g]) * rows + first;
#if WIDE  // rows end with an access
#pragma unroll
        for (int e = 0; e < VECTOR; e += 4)
            *reinterpret_cast<uint4*>(to + e) =
                make_uint4(found[g][e], found[g][e + 1], found[g][e + 2], found[g][e + 3]);
#else
        *to = found[g][0];
#endif
    }
}
