// Products of queries and keys over a few channels, for SparQ: the channels of each K/V head are its own.
//
// A thread serves VECTOR neighbouring rows: where keys lie channel by channel, it reads 16 bytes of each chosen channel,
// and only those channels are read at all. Where they lie row by row, VECTOR is 1 and every sector of 32 bytes that holds
// a chosen channel is read. Compiled for ELEMENT, GROUP (1, 2, 4, 8) and WIDE.
#include "common.cuh"

constexpr int G = GROUP, VECTOR = WIDE ? Elements<ELEMENT>::COUNT : 1;
constexpr int MOST_CHANNELS = 256;

extern "C" __global__ void __launch_bounds__(128, 4) sliced_scores(
    const ELEMENT* __restrict__ q,           // [query_heads, channels]
    const ELEMENT* __restrict__ k,           // element (row, head, channel) at the strides below
    const int* __restrict__ chosen,          // [heads, count]
    const float* __restrict__ temperatures,  // [query_heads]; a product is divided by it, and 0 where it is 0
    const int* __restrict__ tiles,           // [tiles, 2 + G]: a K/V head, unused, and query heads, -1 for none
    float* __restrict__ scores,              // [query_heads, rows]
    int rows, int channels, int count, int64 row_stride, int64 head_stride, int64 channel_stride) {
    SHARED(float, query, G * MOST_CHANNELS);
    SHARED(int, channel, MOST_CHANNELS);
    const int* tile = tiles + blockIdx.y * (2 + G);
    const int* members = tile + 2;
    for (int i = threadIdx.x; i < count; i += blockDim.x) channel[i] = chosen[tile[0] * count + i];
    for (int i = threadIdx.x; i < G * count; i += blockDim.x) {
        const int member = members[i / count];
        query[i] = member < 0 ? 0.f : to_float(q[int64(member) * channels + chosen[tile[0] * count + i % count]]);
    }
    __syncthreads();
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
    if (first >= rows) return;
    const ELEMENT* from = k + tile[0] * head_stride + first * row_stride;
    float sums[G][VECTOR];
#pragma unroll
    for (int g = 0; g < G; ++g)
#pragma unroll
        for (int e = 0; e < VECTOR; ++e) sums[g][e] = 0.f;
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
        float key[VECTOR];
#if WIDE
        Elements<ELEMENT>::unpack(load_16_bytes(from + channel[i] * channel_stride), key);
#else
        key[0] = to_float(from[channel[i] * channel_stride]);
#endif
#pragma unroll
        for (int g = 0; g < G; ++g)
#pragma unroll
            for (int e = 0; e < VECTOR; ++e) sums[g][e] = fmaf(query[g * count + i], key[e], sums[g][e]);
    }
#pragma unroll
    for (int g = 0; g < G; ++g) {
        if (members[g] < 0) continue;
        const float divisor = temperatures[members[g]];
#pragma unroll
        for (int e = 0; e < VECTOR; ++e) sums[g][e] = divisor > 0.f ? sums[g][e] / divisor : 0.f;
        float* const to = scores + int64(members[g]) * rows + first;
#if WIDE  // rows end with an access
#pragma unroll
        for (int e = 0; e < VECTOR; e += 4)
            *reinterpret_cast<float4*>(to + e) = make_float4(sums[g][e], sums[g][e + 1], sums[g][e + 2], sums[g][e + 3]);
#else
        *to = sums[g][0];
#endif
    }
}
