// Half precision for the emulator: storage and conversions, rounded to nearest even, without NVIDIA's headers.
#pragma once

struct __half {
    unsigned short bits;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline float __half2float(__half x) {
    const unsigned sign = (x.bits & 0x8000u) << 16, rest = (x.bits & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) return __uint_as_float(sign | rest | 0x7f800000u);  // infinity and NaN
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest) * 0x1p112f));
}
inline __half __float2half_rn(float x) {
    const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    unsigned found;
    if (rest > 0x7f800000u) {
        found = 0x7e00u;  // NaN
    } else if (rest >= 0x477ff000u) {
        found = 0x7c00u;  // rounds to infinity
    } else if (rest < 0x38800000u) {
        // The unit of 0.5f is that of a subnormal half: adding it rounds.
        found = __float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000u;
    } else {
        found = (rest + 0xfffu + (rest >> 13 & 1) - 0x38000000u) >> 13;
    }
    return {static_cast<unsigned short>(sign | found)};
}
