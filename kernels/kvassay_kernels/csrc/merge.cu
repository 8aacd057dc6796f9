// States of disjoint sets of rows become the state of their union, or its output and log-sum-exp.
//
// A block serves one query head and takes the states in their order, up to BATCH factors at a time. A state without rows
// has the factor 0, whatever its u holds. Compiled for OUTPUT, the dtype of an output.
#include "common.cuh"

constexpr int THREADS = 128, BATCH = 128, LANES = 32;

// Where the parts of the i-th state lie: at equal distances, or by a list of addresses.
struct Spaced {
    const float *m_first, *l_first, *u_first;
    int64 heads;
    int channels;
    __device__ __forceinline__ const float* m(int i) const { return m_first + i * heads; }
    __device__ __forceinline__ const float* l(int i) const { return l_first + i * heads; }
    __device__ __forceinline__ const float* u(int i) const { return u_first + i * heads * channels; }
};
struct Listed {
    const int64* addresses;  // [3, states]
    int states;
    __device__ __forceinline__ const float* at(int i) const { return reinterpret_cast<const float*>(addresses[i]); }
    __device__ __forceinline__ const float* m(int i) const { return at(i); }
    __device__ __forceinline__ const float* l(int i) const { return at(states + i); }
    __device__ __forceinline__ const float* u(int i) const { return at(2 * states + i); }
};

__device__ __forceinline__ float block_max(float x, float* room) {
    x = lanes_max(x);
    __syncthreads();
    if (threadIdx.x % LANES == 0) room[threadIdx.x / LANES] = x;
    __syncthreads();
    return fmaxf(fmaxf(room[0], room[1]), fmaxf(room[2], room[3]));
}

template <class States>
__device__ __forceinline__ void merge(const States& states, int count, int channels, float* m, float* l, float* u,
                                      OUTPUT* out, float* lse, float* factors, float* room) {
    const int head = blockIdx.x;
    float most = MINUS_INFINITY;
    for (int i = threadIdx.x; i < count; i += THREADS) most = fmaxf(most, states.m(i)[head]);
    most = block_max(most, room);
    const float base = most == MINUS_INFINITY ? 0.f : most;
    for (int first = 0; first < channels; first += THREADS) {
        const int channel = first + threadIdx.x;
        float mass = 0.f, sum = 0.f;
        for (int start = 0; start < count; start += BATCH) {
            const int here = min(BATCH, count - start);
            __syncthreads();
            for (int i = threadIdx.x; i < here; i += THREADS)
                factors[i] = __expf(states.m(start + i)[head] - base);
            __syncthreads();
#pragma unroll 4
            for (int i = 0; i < here; ++i) {
                if (factors[i] == 0.f) continue;
                mass = fmaf(factors[i], states.l(start + i)[head], mass);
                if (channel < channels)
                    sum = fmaf(factors[i], states.u(start + i)[int64(head) * channels + channel], sum);
            }
        }
        if (channel < channels) {
            if (u) u[int64(head) * channels + channel] = sum;
            if (out) out[int64(head) * channels + channel] = from_float<OUTPUT>(mass > 0.f ? sum / mass : 0.f);
        }
        if (channel == 0) {
            if (m) m[head] = most;
            if (l) l[head] = mass;
            if (lse) lse[head] = mass > 0.f ? most + logf(mass) : MINUS_INFINITY;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 8) merge_spaced(
    const float* __restrict__ m_in,  // [states, heads]
    const float* __restrict__ l_in,  // the same
    const float* __restrict__ u_in,  // [states, heads, channels]
    float* m, float* l, float* u,    // [heads] and [heads, channels]; null for what is not wanted
    OUTPUT* out, float* lse,         // [heads, channels] and [heads]; the same
    int states, int channels) {
    SHARED(float, factors, BATCH);
    SHARED(float, room, THREADS / LANES);
    merge(Spaced{m_in, l_in, u_in, gridDim.x, channels}, states, channels, m, l, u, out, lse, factors, room);
}

extern "C" __global__ void __launch_bounds__(THREADS, 8) merge_listed(
    const int64* __restrict__ addresses,  // [3, states]: of m, of l and of u of each state
    float* m, float* l, float* u, OUTPUT* out, float* lse, int states, int channels) {
    SHARED(float, factors, BATCH);
    SHARED(float, room, THREADS / LANES);
    merge(Listed{addresses, states}, states, channels, m, l, u, out, lse, factors, room);
}
