// A number for each row and query head: the product with the row, or the bound that two rows of extrema give.
//
// Eight lanes share a row and STEPS rows are read before the first is used, so that GROUP x STEPS sums are reduced in few
// shuffles; each row is read once for all query heads of its K/V head. Rows are [rows, heads, channels] at any stride of
// rows and heads, of a multiple of 8 accesses of channels; `any_scores` takes any number of channels, a thread a number.
// Compiled for ELEMENT, GROUP (1, 2, 4, 8) and BOUNDS (0, 1).
#include "common.cuh"

constexpr int G = GROUP, WARPS = 4, LANES = 32, VECTOR = Elements<ELEMENT>::COUNT;
constexpr int ROW_LANES = 8, ROWS = LANES / ROW_LANES;  // lanes to a row, rows to an instruction
constexpr int STEPS = 4, TILE = ROWS * STEPS;           // rows of a warp
constexpr int SUMS = at_least(8, G * STEPS);

// What a channel adds to a bound: the greater of q minimum and q maximum, by the sign of q.
__device__ __forceinline__ float add(float q, float low, float high, float sum) {
    return BOUNDS ? fmaf(q, q > 0.f ? high : low, sum) : fmaf(q, low, sum);
}

extern "C" __global__ void __launch_bounds__(WARPS * LANES, 3) row_scores(
    const ELEMENT* __restrict__ q,     // [query_heads, channels]
    const ELEMENT* __restrict__ low,   // rows, or the minima of pages
    const ELEMENT* __restrict__ high,  // the maxima of pages; not read for products
    const int* __restrict__ tiles,     // [tiles, 2 + G]: a K/V head, unused, and query heads, -1 for none
    float* __restrict__ scores,        // [query_heads, rows]
    float scale, int rows, int channels, int rows_per_block, int64 row_stride, int64 head_stride) {
    DYNAMIC_SHARED(float, query);  // [G, channels]
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int* tile = tiles + blockIdx.y * (2 + G);
    const int* members = tile + 2;
    low += tile[0] * head_stride;
    high += tile[0] * head_stride;
    for (int i = threadIdx.x; i < G * channels; i += blockDim.x) {
        const int member = members[i / channels];
        query[i] = member < 0 ? 0.f : scale * to_float(q[int64(member) * channels + i % channels]);
    }
    __syncthreads();
    const int end = min(rows, int(blockIdx.x + 1) * rows_per_block);
    for (int start = blockIdx.x * rows_per_block + warp * TILE; start < end; start += WARPS * TILE) {
        float sums[SUMS];
#pragma unroll
        for (int i = 0; i < SUMS; ++i) sums[i] = 0.f;
        for (int first = lane % ROW_LANES * VECTOR; first < channels; first += ROW_LANES * VECTOR) {
            uint4 lows[STEPS], highs[STEPS];
#pragma unroll
            for (int s = 0; s < STEPS; ++s) {
                const int row = start + s * ROWS + lane / ROW_LANES;
                const int64 at = min(row, rows - 1) * row_stride + first;
                lows[s] = load_16_bytes(low + at);
                if (BOUNDS) highs[s] = load_16_bytes(high + at);
            }
            float least[STEPS][VECTOR], most[STEPS][VECTOR];
#pragma unroll
            for (int s = 0; s < STEPS; ++s) {
                Elements<ELEMENT>::unpack(lows[s], least[s]);
                if (BOUNDS) Elements<ELEMENT>::unpack(highs[s], most[s]);
            }
#pragma unroll
            for (int piece = 0; piece < VECTOR; piece += 4) {
#pragma unroll
                for (int g = 0; g < G; ++g) {
                    const float4 x = *reinterpret_cast<const float4*>(query + g * channels + first + piece);
#pragma unroll
                    for (int s = 0; s < STEPS; ++s) {
                        float& sum = sums[s * G + g];
                        sum = add(x.x, least[s][piece], BOUNDS ? most[s][piece] : 0.f, sum);
                        sum = add(x.y, least[s][piece + 1], BOUNDS ? most[s][piece + 1] : 0.f, sum);
                        sum = add(x.z, least[s][piece + 2], BOUNDS ? most[s][piece + 2] : 0.f, sum);
                        sum = add(x.w, least[s][piece + 3], BOUNDS ? most[s][piece + 3] : 0.f, sum);
                    }
                }
            }
        }
        sum_over_eight_lanes(sums, lane);
#pragma unroll
        for (int i = 0; i < SUMS / 8; ++i) {
            const int which = lane % ROW_LANES * (SUMS / 8) + i;
            const int row = start + which / G * ROWS + lane / ROW_LANES;
            if (which < G * STEPS && row < end && members[which % G] >= 0)
                scores[int64(members[which % G]) * rows + row] = sums[i];
        }
    }
}

extern "C" __global__ void __launch_bounds__(128, 8) any_scores(
    const ELEMENT* __restrict__ q, const ELEMENT* __restrict__ low, const ELEMENT* __restrict__ high,
    const int* __restrict__ kv_head_of,  // [query_heads]
    float* __restrict__ scores, float scale, int rows, int channels, int64 row_stride, int64 head_stride) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x, member = blockIdx.y;
    if (row >= rows) return;
    const int64 at = row * row_stride + kv_head_of[member] * head_stride;
    float sum = 0.f;
    for (int c = 0; c < channels; ++c) {
        const float x = scale * to_float(q[int64(member) * channels + c]);
        sum = add(x, to_float(low[at + c]), BOUNDS ? to_float(high[at + c]) : 0.f, sum);
    }
    scores[int64(member) * rows + row] = sum;
}
