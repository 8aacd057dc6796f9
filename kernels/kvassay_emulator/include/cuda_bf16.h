// bfloat16 for the emulator: storage and conversions, rounded to nearest even, without NVIDIA's headers.
#pragma once

struct __nv_bfloat16 {
    unsigned short bits;
};

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    const unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<unsigned short>(bits >> 16 | 0x40u)};  // NaN
    return {static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}
