// Product quantisation: tables of the products of a query's parts with centroids, and sums of look-ups.
//
// A block keeps the tables of QUERIES heads of one K/V head in shared memory, the entries of one code side by side, so
// that a code is read once and one access serves all its heads. Compiled for ELEMENT, the dtype of centroids and queries,
// BITS of a code (4 or 8), QUERIES (1, 2, 4) and ACCESS, the bytes of codes that are read at once (1, 4, 16).
#include "common.cuh"

constexpr int CODES = ACCESS * 8 / BITS;  // of one access

extern "C" __global__ void __launch_bounds__(256, 4) pq_tables(
    const ELEMENT* __restrict__ q,          // [query_heads, parts * size]
    const ELEMENT* __restrict__ centroids,  // [heads, parts, count, size]
    const int* __restrict__ kv_head_of,     // [query_heads]
    float* __restrict__ tables,             // [query_heads, parts, count]
    int parts, int count, int size) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, query = blockIdx.y;
    if (i >= parts * count) return;
    const ELEMENT* x = q + int64(query) * parts * size + i / count * size;
    const ELEMENT* y = centroids + (int64(kv_head_of[query]) * parts * count + i) * size;
    float sum = 0.f;
    for (int c = 0; c < size; ++c) sum = fmaf(to_float(x[c]), to_float(y[c]), sum);
    tables[int64(query) * parts * count + i] = sum;
}

__device__ __forceinline__ void read_codes(const unsigned char* from, unsigned (&words)[(ACCESS + 3) / 4]) {
#if ACCESS == 16
    const uint4 bits = load_16_bytes(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = word(bits, i);
#elif ACCESS == 4
    words[0] = __ldg(reinterpret_cast<const unsigned*>(from));
#else
    words[0] = from[0];
#endif
}

extern "C" __global__ void __launch_bounds__(256, 4) pq_scores(
    const float* __restrict__ tables,         // [query_heads, parts, count]
    const unsigned char* __restrict__ codes,  // rows of `row_bytes`, the first part in the lowest bits
    const int* __restrict__ tiles,            // [tiles, 2 + QUERIES]: a K/V head, unused, and query heads, -1 for none
    float* __restrict__ scores,               // [query_heads, rows]
    int rows, int parts, int count, int row_bytes, int rows_per_block, int64 head_bytes) {
    DYNAMIC_SHARED(float, table);  // [parts, count, QUERIES]
    const int* tile = tiles + blockIdx.y * (2 + QUERIES);
    const int* members = tile + 2;
    const int entries = parts * count;
    for (int i = threadIdx.x; i < entries * QUERIES; i += blockDim.x) {
        const int member = members[i / entries];
        table[i % entries * QUERIES + i / entries] = member < 0 ? 0.f : tables[int64(member) * entries + i % entries];
    }
    __syncthreads();
    const int end = min(rows, int(blockIdx.x + 1) * rows_per_block);
    for (int row = blockIdx.x * rows_per_block + threadIdx.x; row < end; row += blockDim.x) {
        const unsigned char* from = codes + tile[0] * head_bytes + int64(row) * row_bytes;
        float sums[QUERIES];
#pragma unroll
        for (int g = 0; g < QUERIES; ++g) sums[g] = 0.f;
#pragma unroll 2
        for (int byte = 0; byte < row_bytes; byte += ACCESS) {
            unsigned words[(ACCESS + 3) / 4];
            read_codes(from + byte, words);
#pragma unroll
            for (int i = 0; i < CODES; ++i) {
                const int part = byte * 8 / BITS + i;
                if (part >= parts) break;
                const int code = words[i * BITS / 32] >> i * BITS % 32 & ((1 << BITS) - 1);
                const float* entry = table + (part * count + code) * QUERIES;
#pragma unroll
                for (int g = 0; g < QUERIES; ++g) sums[g] += entry[g];
            }
        }
#pragma unroll
        for (int g = 0; g < QUERIES; ++g)
            if (members[g] >= 0) scores[int64(members[g]) * rows + row] = sums[g];
    }
}
