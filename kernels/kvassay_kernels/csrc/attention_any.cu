// Partial attention for any number of channels: what attention.cu does, without its speed. One warp serves one query head
// of one sequence over one split of the rows; a lane forms the score of a row, and then sums channels of its own.
//
// Compiled for ELEMENT. The arguments are those of attention.cu, and the channels of a row of K and of V.
#include "rows.cuh"

constexpr int LANES = 32;

extern "C" __global__ void __launch_bounds__(LANES, 16) attention_partial_any(
    const ELEMENT* __restrict__ q, const ELEMENT* __restrict__ k, const ELEMENT* __restrict__ v,
    const int* __restrict__ tiles,  // [query_heads, 3]: a K/V head, a list, and a query head
    const int* __restrict__ table, const int* __restrict__ lengths, const int64* __restrict__ positions,
    const unsigned char* __restrict__ mask, float* __restrict__ m, float* __restrict__ l, float* __restrict__ u,
    int query_heads, float scale, int row_begin, int row_end, int rows_per_split, int page_rows, int table_sequence,
    int table_list, int lengths_sequence, int lengths_list, int64 first_position, int64 least, int64 greatest,
    int64 k_sequence, int64 k_page, int64 k_row, int64 k_head, int64 v_sequence, int64 v_page, int64 v_row,
    int64 v_head, int channels, int value_channels) {
    DYNAMIC_SHARED(float, memory);
    float* const query = memory;                // [channels]
    float* const sum = memory + channels;       // [value_channels]
    float* const weights = sum + value_channels;  // [LANES]
    SHARED(int2, places, LANES);
    const int split = blockIdx.x, sequence = blockIdx.z, lane = threadIdx.x;
    const int* tile = tiles + blockIdx.y * 3;
    const int head = tile[0], list = tile[1], member = tile[2];
    const Rows rows = {table ? table + int64(sequence) * table_sequence + list * table_list : table,
                       page_rows, k_page, k_row, v_page, v_row};
    const Legal legal = {positions, mask, first_position, least, greatest};
    k += sequence * k_sequence + head * k_head;
    v += sequence * v_sequence + head * v_head;
    const int end_of_rows = lengths ? min(row_end, lengths[sequence * lengths_sequence + list * lengths_list]) : row_end;
    const int begin = row_begin + split * rows_per_split, end = min(end_of_rows, begin + rows_per_split);
    const int64 state = (int64(split) * gridDim.z + sequence) * query_heads + member;

    for (int c = lane; c < channels; c += LANES)
        query[c] = scale * to_float(q[(int64(sequence) * query_heads + member) * channels + c]);
    for (int c = lane; c < value_channels; c += LANES) sum[c] = 0.f;
    __syncwarp();
    float running_m = MINUS_INFINITY, running_l = 0.f;
    for (int start = begin; start < end; start += LANES) {
        const int2 at = locate(rows, legal, start + lane, end);
        float score = MINUS_INFINITY;
        if (at.x >= 0) {
            const ELEMENT* from = k + at.x * rows.page_stride_k + at.y * rows.row_stride_k;
            score = 0.f;
            for (int c = 0; c < channels; ++c) score = fmaf(query[c], to_float(from[c]), score);
        }
        const float most = fmaxf(running_m, lanes_max(score));
        const float base = most == MINUS_INFINITY ? 0.f : most;
        const float shrink = __expf(running_m - base), weight = __expf(score - base);
        running_l = running_l * shrink + lanes_sum(weight);
        running_m = most;
        weights[lane] = weight;
        places[lane] = at;
        __syncwarp();
        for (int c = lane; c < value_channels; c += LANES) {
            float into = sum[c] * shrink;
            for (int r = 0; r < LANES; ++r) {
                if (places[r].x < 0) continue;
                const ELEMENT* from = v + places[r].x * rows.page_stride_v + places[r].y * rows.row_stride_v;
                into = fmaf(weights[r], to_float(from[c]), into);
            }
            sum[c] = into;
        }
        __syncwarp();
    }
    for (int c = lane; c < value_channels; c += LANES) u[state * value_channels + c] = sum[c];
    if (lane == 0) {
        m[state] = running_m;
        l[state] = running_l;
    }
}
