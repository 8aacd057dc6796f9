// The attention share of one row of each cluster, from the products of queries with centroids: SqueezedAttention.
//
// A cluster of N rows stands for N logits at its centroid, so it enters the denominator N times.
#include "common.cuh"

constexpr int THREADS = 256, LANES = 32, WARPS = THREADS / LANES;

// A block serves one query: the largest product of its counted clusters, and their mass.
extern "C" __global__ void __launch_bounds__(THREADS, 4) cluster_mass(
    const float* __restrict__ z,      // [queries, clusters]
    const float* __restrict__ sizes,  // [clusters]; a cluster of size 0 is not counted
    float* __restrict__ m,            // [queries]
    float* __restrict__ mass,         // [queries]
    int clusters) {
    SHARED(float, room, WARPS);
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    z += int64(blockIdx.x) * clusters;
    float most = MINUS_INFINITY;
    for (int i = threadIdx.x; i < clusters; i += THREADS)
        if (sizes[i] > 0.f) most = fmaxf(most, z[i]);
    most = lanes_max(most);
    if (lane == 0) room[warp] = most;
    __syncthreads();
    for (int w = 0; w < WARPS; ++w) most = fmaxf(most, room[w]);
    __syncthreads();
    float sum = 0.f;
    for (int i = threadIdx.x; i < clusters; i += THREADS)
        if (sizes[i] > 0.f) sum = fmaf(sizes[i], __expf(z[i] - most), sum);
    sum = lanes_sum(sum);
    if (lane == 0) room[warp] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    sum = 0.f;
    for (int w = 0; w < WARPS; ++w) sum += room[w];
    m[blockIdx.x] = most;
    mass[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) cluster_shares(
    const float* __restrict__ z, const float* __restrict__ m, const float* __restrict__ mass,
    float* __restrict__ shares,  // [clusters], the mean over the queries
    int queries, int clusters) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= clusters) return;
    float sum = 0.f;
#pragma unroll 4
    for (int q = 0; q < queries; ++q)
        if (mass[q] > 0.f) sum += expf(z[int64(q) * clusters + i] - m[q]) / mass[q];
    shares[i] = sum / queries;
}
