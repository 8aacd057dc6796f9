// Split-K partial attention of one query row for each sequence, grouped queries: states m, l, u of each split.
//
// A block serves one tile, that is up to GROUP query heads of one K/V head, of one sequence, over one split of its rows.
// Its warps share nothing until the end: each reads every fourth tile of TILE rows and keeps a running maximum. Eight
// lanes share a row of K, so that a warp reads four rows with one instruction and GROUP x STEPS products are summed in
// few shuffles; as many lanes as the row has 16-byte vectors share a row of V. All loads of a tile are issued before the
// first is used.
//
// Compiled for ELEMENT (float, __half, __nv_bfloat16), CHANNELS (64, 128, 256) and GROUP (1, 2, 4, 8, 16).
#include "rows.cuh"

constexpr int D = CHANNELS, G = GROUP;
constexpr int WARPS = 4, LANES = 32;
constexpr int VECTOR = Elements<ELEMENT>::COUNT;                 // elements of one access
constexpr int K_LANES = 8, K_ROWS = LANES / K_LANES;             // lanes to a row of K, rows to an instruction
constexpr int K_VECTORS = D / (VECTOR * K_LANES);                // accesses of a lane for one row
constexpr int STEPS = at_least(1, (G > 8 ? 4 : 8) / K_VECTORS);  // rows of a lane in one tile
constexpr int TILE = K_ROWS * STEPS;                             // rows of a warp in one tile
constexpr int V_LANES = at_most(LANES, D / VECTOR), V_ROWS = LANES / V_LANES;
constexpr int V_VECTORS = D / (VECTOR * V_LANES), V_STEPS = TILE / V_ROWS;
constexpr int PIECES = VECTOR / 4;                     // of four floats each, that the elements of one access become
constexpr int SCORES = at_least(1, G * TILE / LANES);  // scores of a tile that one lane turns into weights
constexpr int SUMS = at_least(8, G * STEPS);
constexpr int BLOCKS = G > 4 ? 2 : 3;  // of a multiprocessor; grids.py counts on as many

// Place in shared memory of a channel of the query: what eight lanes read at once lies side by side.
__device__ __forceinline__ int query_place(int channel) {
    const int access = channel / VECTOR, piece = channel % VECTOR / 4;
    return (((access / K_LANES) * PIECES + piece) * K_LANES + access % K_LANES) * 4 + channel % 4;
}

extern "C" __global__ void __launch_bounds__(WARPS * LANES, BLOCKS) attention_partial(
    const ELEMENT* __restrict__ q,      // [sequences, query_heads, D]
    const ELEMENT* __restrict__ k,      // rows of D elements, at the strides below
    const ELEMENT* __restrict__ v,      // the same
    const int* __restrict__ tiles,      // [tiles, 2 + G]: a K/V head, a list, and query heads, -1 for none
    const int* __restrict__ table,      // pages, or rows, of each sequence (and list); null for rows in place
    const int* __restrict__ lengths,    // rows of each sequence (and list); null where all have `row_end`
    const int64* __restrict__ positions,     // position of each row; null where row i has `first_position` + i
    const unsigned char* __restrict__ mask,  // legal rows; null where all are
    float* __restrict__ m,              // [splits, sequences, query_heads]
    float* __restrict__ l,              // the same
    float* __restrict__ u,              // [splits, sequences, query_heads, D]
    int query_heads, float scale, int row_begin, int row_end, int rows_per_split, int page_rows, int table_sequence,
    int table_list, int lengths_sequence, int lengths_list, int64 first_position, int64 least, int64 greatest,
    int64 k_sequence, int64 k_page, int64 k_row, int64 k_head, int64 v_sequence, int64 v_page, int64 v_row,
    int64 v_head) {
    SHARED(float, query, G * D);  // at the end the sum of the warps' u
    SHARED(float, weights, WARPS * G * TILE);
    SHARED(int2, places, WARPS * TILE);
    SHARED(float, warp_m, WARPS * G);
    SHARED(float, warp_l, WARPS * G);
    const int split = blockIdx.x, sequence = blockIdx.z, lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int* tile = tiles + blockIdx.y * (2 + G);
    const int head = tile[0], list = tile[1];
    const int* members = tile + 2;
    const Rows rows = {table ? table + int64(sequence) * table_sequence + list * table_list : table,
                       page_rows, k_page, k_row, v_page, v_row};
    const Legal legal = {positions, mask, first_position, least, greatest};
    k += sequence * k_sequence + head * k_head;
    v += sequence * v_sequence + head * v_head;
    const int end_of_rows = lengths ? min(row_end, lengths[sequence * lengths_sequence + list * lengths_list]) : row_end;
    const int begin = row_begin + split * rows_per_split, end = min(end_of_rows, begin + rows_per_split);

    for (int i = threadIdx.x; i < G * D; i += blockDim.x) {
        const int member = members[i / D];
        const float x = member < 0 ? 0.f : to_float(q[(int64(sequence) * query_heads + member) * D + i % D]);
        query[i / D * D + query_place(i % D)] = x * scale;
    }
    __syncthreads();

    float running_m = MINUS_INFINITY, running_l = 0.f;  // of head lane % G; l of this lane's rows alone
    float sum[V_VECTORS][G][VECTOR];
#pragma unroll
    for (int c = 0; c < V_VECTORS; ++c)
#pragma unroll
        for (int g = 0; g < G; ++g)
#pragma unroll
            for (int e = 0; e < VECTOR; ++e) sum[c][g][e] = 0.f;
    float* const score = weights + warp * G * TILE;  // [TILE, G]
    int2* const place = places + warp * TILE;

    int2 next = locate(rows, legal, begin + warp * TILE + lane % TILE, end);
    for (int start = begin + warp * TILE; start < end; start += WARPS * TILE) {
        const unsigned live = __ballot_sync(WHOLE_WARP, lane < TILE && next.x >= 0);
        if (lane < TILE) place[lane] = next;
        next = locate(rows, legal, start + WARPS * TILE + lane % TILE, end);
        __syncwarp();
        if (!live) continue;

        uint4 keys[STEPS][K_VECTORS], values[V_STEPS][V_VECTORS];
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const int2 at = place[s * K_ROWS + lane / K_LANES];
            const ELEMENT* from = k + at.x * rows.page_stride_k + at.y * rows.row_stride_k + lane % K_LANES * VECTOR;
#pragma unroll
            for (int c = 0; c < K_VECTORS; ++c)
                keys[s][c] = at.x < 0 ? make_uint4(0, 0, 0, 0) : load_16_bytes(from + c * K_LANES * VECTOR);
        }
#pragma unroll
        for (int s = 0; s < V_STEPS; ++s) {
            const int2 at = place[s * V_ROWS + lane / V_LANES];
            const ELEMENT* from = v + at.x * rows.page_stride_v + at.y * rows.row_stride_v + lane % V_LANES * VECTOR;
#pragma unroll
            for (int c = 0; c < V_VECTORS; ++c)
                values[s][c] = at.x < 0 ? make_uint4(0, 0, 0, 0) : load_16_bytes(from + c * V_LANES * VECTOR);
        }

        float product[SUMS];
#pragma unroll
        for (int i = 0; i < SUMS; ++i) product[i] = 0.f;
#pragma unroll
        for (int c = 0; c < K_VECTORS; ++c) {
            float key[STEPS][VECTOR];
#pragma unroll
            for (int s = 0; s < STEPS; ++s) Elements<ELEMENT>::unpack(keys[s][c], key[s]);
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
#pragma unroll
                for (int g = 0; g < G; ++g) {
                    const float4 x = *reinterpret_cast<const float4*>(
                        query + g * D + ((c * PIECES + piece) * K_LANES + lane % K_LANES) * 4);
#pragma unroll
                    for (int s = 0; s < STEPS; ++s) {
                        float& into = product[s * G + g];
                        into = fmaf(x.x, key[s][4 * piece], into);
                        into = fmaf(x.y, key[s][4 * piece + 1], into);
                        into = fmaf(x.z, key[s][4 * piece + 2], into);
                        into = fmaf(x.w, key[s][4 * piece + 3], into);
                    }
                }
            }
        }
        sum_over_eight_lanes(product, lane);
#pragma unroll
        for (int i = 0; i < SUMS / 8; ++i) {
            const int which = lane % K_LANES * (SUMS / 8) + i;
            if (which < G * STEPS) score[(which / G * K_ROWS + lane / K_LANES) * G + which % G] = product[i];
        }
        __syncwarp();

        float found[SCORES], most = MINUS_INFINITY;
#pragma unroll
        for (int i = 0; i < SCORES; ++i) {
            const int which = lane + LANES * i;
            found[i] = which < G * TILE && (live >> (which / G) & 1) ? score[which] : MINUS_INFINITY;
            most = fmaxf(most, found[i]);
        }
        most = fmaxf(running_m, lanes_max(most, G));
        // Over no rows the maximum is minus infinity, and minus infinity less itself is no number.
        const float base = most == MINUS_INFINITY ? 0.f : most;
        const float shrink = __expf(running_m - base);
        running_l *= shrink;
#pragma unroll
        for (int i = 0; i < SCORES; ++i) {
            const int which = lane + LANES * i;
            const float weight = __expf(found[i] - base);
            running_l += weight;
            if (which < G * TILE) score[which] = weight;
        }
        running_m = most;
        if (__any_sync(WHOLE_WARP, shrink != 1.f)) {
#pragma unroll
            for (int g = 0; g < G; ++g) {
                const float factor = __shfl_sync(WHOLE_WARP, shrink, g);
#pragma unroll
                for (int c = 0; c < V_VECTORS; ++c)
#pragma unroll
                    for (int e = 0; e < VECTOR; ++e) sum[c][g][e] *= factor;
            }
        }
        __syncwarp();

#pragma unroll
        for (int s = 0; s < V_STEPS; ++s) {
            float weight[G];
#pragma unroll
            for (int g = 0; g < G; ++g) weight[g] = score[(s * V_ROWS + lane / V_LANES) * G + g];
#pragma unroll
            for (int c = 0; c < V_VECTORS; ++c) {
                float value[VECTOR];
                Elements<ELEMENT>::unpack(values[s][c], value);
#pragma unroll
                for (int g = 0; g < G; ++g)
#pragma unroll
                    for (int e = 0; e < VECTOR; ++e) sum[c][g][e] = fmaf(weight[g], value[e], sum[c][g][e]);
            }
        }
    }

    // The warps' states become one, in the order of the warps.
    running_l = lanes_sum(running_l, G);
    if (lane < G) {
        warp_m[warp * G + lane] = running_m;
        warp_l[warp * G + lane] = running_l;
    }
    __syncthreads();
    float factor[G];
#pragma unroll
    for (int g = 0; g < G; ++g) {
        float most = MINUS_INFINITY;
        for (int w = 0; w < WARPS; ++w) most = fmaxf(most, warp_m[w * G + g]);
        factor[g] = __expf(warp_m[warp * G + g] - (most == MINUS_INFINITY ? 0.f : most));
    }
    for (int w = 0; w < WARPS; ++w) {
#pragma unroll
        for (int c = 0; c < V_VECTORS; ++c)
#pragma unroll
            for (int g = 0; g < G; ++g)
#pragma unroll
                for (int e = 0; e < VECTOR; ++e) {
                    if (w != warp) continue;
                    const float whole = factor[g] * lanes_sum(sum[c][g][e], V_LANES);
                    float& into = query[g * D + (c * V_LANES + lane % V_LANES) * VECTOR + e];
                    if (lane < V_LANES) into = w ? into + whole : whole;
                }
        __syncthreads();
    }
    const int64 state = (int64(split) * gridDim.z + sequence) * query_heads;
    for (int i = threadIdx.x; i < G * D; i += blockDim.x) {
        const int member = members[i / D];
        if (member >= 0) u[(state + member) * D + i % D] = query[i];
    }
    if (threadIdx.x < G && members[threadIdx.x] >= 0) {
        const int g = threadIdx.x;
        float most = MINUS_INFINITY, mass = 0.f;
        for (int w = 0; w < WARPS; ++w) most = fmaxf(most, warp_m[w * G + g]);
        for (int w = 0; w < WARPS; ++w)
            mass += warp_l[w * G + g] * __expf(warp_m[w * G + g] - (most == MINUS_INFINITY ? 0.f : most));
        m[state + members[g]] = most;
        l[state + members[g]] = mass;
    }
}
