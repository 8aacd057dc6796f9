// The largest numbers of each row: deterministic, of equal numbers the one at the lower position.
//
// A block finds the count-th largest of its part of a row digit by digit, four digits of eight bits, and then writes all
// that are larger and, in the order of their positions, as many of those that are equal as are still wanted. A row of many
// numbers has several parts; a second launch takes the best of what the parts left, which lies in the order of positions.
// What is no number counts as less than any, and the two zeros as equal.
#include "common.cuh"

constexpr int THREADS = 512, LANES = 32, WARPS = THREADS / LANES, DIGITS = 256;

// Numbers in the order of their keys as integers.
__device__ __forceinline__ unsigned key_of(float x) {
    if (x != x) return 0;
    const unsigned bits = __float_as_uint(x + 0.f);  // -0 + 0 is 0
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Of this thread's flag: how many threads before it have theirs set. `total` becomes that of the block.
__device__ __forceinline__ int rank_in_block(bool flag, int* room, int& total) {
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned votes = __ballot_sync(WHOLE_WARP, flag);
    __syncthreads();
    if (lane == 0) room[warp] = __popc(votes);
    __syncthreads();
    int before = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        if (w < warp) before += room[w];
        total += room[w];
    }
    return before + __popc(votes & ((1u << lane) - 1));
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) top_k(
    const float* __restrict__ scores,  // [rows, size]
    const int* __restrict__ ids,       // [rows, size]; null where a number's id is its position
    int* __restrict__ best,            // [rows, parts, count]: ids in the order of positions
    float* __restrict__ best_scores,   // the same
    int size, int count) {
    SHARED(int, histogram, DIGITS);
    SHARED(int, room, WARPS);
    SHARED(int, chosen, 2);
    const int part = blockIdx.x, parts = gridDim.x, lane = threadIdx.x % LANES;
    const int begin = int(int64(size) * part / parts), end = int(int64(size) * (part + 1) / parts);
    scores += int64(blockIdx.y) * size;
    if (ids) ids += int64(blockIdx.y) * size;
    const int64 into = (int64(blockIdx.y) * parts + part) * count;

    unsigned least = 0;    // the digits found so far
    int wanted = count;    // of the numbers that begin with them
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < DIGITS; i += THREADS) histogram[i] = 0;
        __syncthreads();
        const unsigned found = shift == 24 ? 0u : ~0u << (shift + 8);
        for (int i = begin + threadIdx.x; i < end; i += THREADS) {
            const unsigned key = key_of(scores[i]);
            if ((key & found) == least) atomicAdd(&histogram[key >> shift & 0xffu], 1);
        }
        __syncthreads();
        if (threadIdx.x < LANES) {  // a lane sums eight digits, the first lane the largest ones
            int sum = 0;
            for (int i = 0; i < 8; ++i) sum += histogram[DIGITS - 1 - lane * 8 - i];
            int upto = sum;
            for (int by = 1; by < LANES; by *= 2) {
                const int other = __shfl_up_sync(WHOLE_WARP, upto, by);
                if (lane >= by) upto += other;
            }
            if (upto >= wanted && upto - sum < wanted) {
                int left = wanted - (upto - sum), digit = DIGITS - 1 - lane * 8;
                while (histogram[digit] < left) left -= histogram[digit--];
                chosen[0] = digit;
                chosen[1] = left;
            }
        }
        __syncthreads();
        least |= unsigned(chosen[0]) << shift;
        wanted = chosen[1];
        __syncthreads();
    }

    int equal = 0, written = 0;
    for (int start = begin; start < end; start += THREADS) {
        const int i = start + threadIdx.x;
        const unsigned key = i < end ? key_of(scores[i]) : 0u;
        int total;
        const int rank = equal + rank_in_block(i < end && key == least, room, total);
        equal += total;
        const bool taken = i < end && (key > least || (key == least && rank < wanted));
        const int place = written + rank_in_block(taken, room, total);
        written += total;
        if (taken) {
            best[into + place] = ids ? ids[i] : i;
            best_scores[into + place] = scores[i];
        }
    }
}

// The order of a row by number, largest first, equal ones by their place: a thread counts what comes before its own.
extern "C" __global__ void __launch_bounds__(THREADS, 2) by_score(
    const float* __restrict__ scores,  // [rows, count]
    const int* __restrict__ ids,       // [rows, count]
    int* __restrict__ sorted,          // [rows, count]
    int count) {
    SHARED(unsigned, keys, THREADS);
    const int i = blockIdx.x * THREADS + threadIdx.x;
    const int64 row = int64(blockIdx.y) * count;
    const unsigned mine = i < count ? key_of(scores[row + i]) : 0u;
    int before = 0;
    for (int start = 0; start < count; start += THREADS) {
        __syncthreads();
        if (start + threadIdx.x < count) keys[threadIdx.x] = key_of(scores[row + start + threadIdx.x]);
        __syncthreads();
        for (int j = 0; j < THREADS && start + j < count; ++j)
            before += keys[j] > mine || (keys[j] == mine && start + j < i);
    }
    if (i < count) sorted[row + before] = ids[row + i];
}
