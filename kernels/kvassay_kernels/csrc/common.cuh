// What the kernels share: elements and 16-byte accesses, reductions over a warp, shared memory.
//
// Every kernel says in its launch bounds how many of its blocks a multiprocessor is to hold. Where that is left open, the
// compiler guesses, and its guess varies: the same text then spills on one day and not on the next.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define WHOLE_WARP 0xffffffffu
#define MINUS_INFINITY __int_as_float(int(0xff800000u))  // NVRTC has no INFINITY

#ifndef SHARED  // the emulator of the tests brings its own
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
#endif

typedef long long int64;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) { return x; }
template <>
__device__ __forceinline__ __half from_float<__half>(float x) { return __float2half_rn(x); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

// Sixteen bytes that nobody writes while the kernel runs; the address is a multiple of 16.
__device__ __forceinline__ uint4 load_16_bytes(const void* from) { return __ldg(static_cast<const uint4*>(from)); }

__device__ __forceinline__ unsigned word(const uint4& bits, int i) {
    return i == 0 ? bits.x : i == 1 ? bits.y : i == 2 ? bits.z : bits.w;
}
template <typename T>
__device__ __forceinline__ float half_word(unsigned bits, bool upper);
template <>
__device__ __forceinline__ float half_word<__half>(unsigned bits, bool upper) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(upper ? bits >> 16 : bits & 0xffffu)));
}
template <>
__device__ __forceinline__ float half_word<__nv_bfloat16>(unsigned bits, bool upper) {
    return __uint_as_float(upper ? bits & 0xffff0000u : bits << 16);
}
// The elements of sixteen bytes as floats: four, or eight of half the size.
__device__ __forceinline__ unsigned half_bits(__half x) { return __half_as_ushort(x); }
__device__ __forceinline__ unsigned half_bits(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }

template <typename T>
struct Elements {
    static constexpr int COUNT = 8;
    static __device__ __forceinline__ uint4 pack(const float (&from)[8]) {
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            words[i] = half_bits(from_float<T>(from[2 * i])) | half_bits(from_float<T>(from[2 * i + 1])) << 16;
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
    static __device__ __forceinline__ void unpack(const uint4& bits, float (&to)[8]) {
#pragma unroll
        for (int i = 0; i < 8; ++i) to[i] = half_word<T>(word(bits, i / 2), i % 2);
    }
};
template <>
struct Elements<float> {
    static constexpr int COUNT = 4;
    static __device__ __forceinline__ uint4 pack(const float (&from)[4]) {
        return make_uint4(__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]),
                          __float_as_uint(from[3]));
    }
    static __device__ __forceinline__ void unpack(const uint4& bits, float (&to)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(word(bits, i));
    }
};

// Reductions over the lanes that differ in the bits from `least` up to and without `end`; all get the result.
__device__ __forceinline__ float lanes_max(float x, int least = 1, int end = 32) {
#pragma unroll
    for (int bit = end / 2; bit >= least; bit /= 2) x = fmaxf(x, __shfl_xor_sync(WHOLE_WARP, x, bit));
    return x;
}
__device__ __forceinline__ float lanes_sum(float x, int least = 1, int end = 32) {
#pragma unroll
    for (int bit = end / 2; bit >= least; bit /= 2) x += __shfl_xor_sync(WHOLE_WARP, x, bit);
    return x;
}

// Sums N numbers over groups of eight neighbouring lanes in N - N / 8 shuffles, where a sum of each alone takes 3 N: a
// lane keeps half of what it has and gives the other half away, three times. Lane j of a group ends with the totals of
// the numbers j N / 8 to (j + 1) N / 8, in the first places of x.
template <int LEFT, int BIT, int N>
__device__ __forceinline__ void keep_half(float (&x)[N], int lane) {
    const bool upper = lane & BIT;
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
        const float low = x[i], high = x[i + LEFT];  // chosen as numbers: a choice of places would need memory
        x[i] = (upper ? high : low) + __shfl_xor_sync(WHOLE_WARP, upper ? low : high, BIT);
    }
}
template <int N>
__device__ __forceinline__ void sum_over_eight_lanes(float (&x)[N], int lane) {
    static_assert(N % 8 == 0, "a multiple of the lanes");
    keep_half<N / 2, 4>(x, lane);
    keep_half<N / 4, 2>(x, lane);
    keep_half<N / 8, 1>(x, lane);
}

__host__ __device__ constexpr int at_least(int least, int x) { return x < least ? least : x; }
__host__ __device__ constexpr int at_most(int most, int x) { return x > most ? most : x; }
