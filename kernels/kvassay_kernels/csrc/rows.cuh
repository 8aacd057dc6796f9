// Where the rows of a history lie and which of them a query may see; shared by the kernels of attention.
#pragma once

#include "common.cuh"

// Rows are in place, behind a page table, or named by a list. All strides are in elements.
struct Rows {
    const int* table;  // pages of a history, or physical rows; null for rows in place
    int page_rows;     // rows of a page; 0 where `table` names rows
    int64 page_stride_k, row_stride_k, page_stride_v, row_stride_v;
};

// Which rows are legal: by position, where `least` <= position <= `greatest`, and by a mask where there is one. Row i has
// the position `positions[i]`, or `first_position` + i.
struct Legal {
    const int64* positions;
    const unsigned char* mask;
    int64 first_position, least, greatest;

    __device__ __forceinline__ bool sees(int row) const {
        const int64 position = positions ? positions[row] : first_position + row;
        return position >= least && position <= greatest && (!mask || mask[row]);
    }
};

// Page and place in it, of the i-th row of a history; page -1 where the query may not see it.
__device__ __forceinline__ int2 locate(const Rows& rows, const Legal& legal, int i, int end) {
    if (i >= end) return make_int2(-1, 0);
    const bool listed = rows.table && !rows.page_rows;
    const int row = listed ? rows.table[i] : i;
    if (row < 0 || !legal.sees(row)) return make_int2(-1, 0);
    if (!rows.table || listed) return make_int2(0, row);
    return make_int2(rows.table[i / rows.page_rows], i % rows.page_rows);
}
