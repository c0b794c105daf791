
// Numbers of 16 bits, for storage: `f16` is IEEE's binary16, `bf16` the upper half of a `float`. As structs, so that no
// source computes with their bits by mistake. To `float` is exact; back rounds to the nearest, ties to even. Infinities
// stay, a NaN stays one, and what is too large becomes an infinity. No compiler needs an extension or a header for it.
typedef struct wg_f16 { u16 wg_bits; } f16;
typedef struct wg_bf16 { u16 wg_bits; } bf16;

#define F16_TO_FLOAT(x) wg_f16_to_float(x)
#define FLOAT_TO_F16(x) wg_float_to_f16(x)
#define BF16_TO_FLOAT(x) wg_bf16_to_float(x)
#define FLOAT_TO_BF16(x) wg_float_to_bf16(x)

// Drops the lowest bits, one of which at least is there, and rounds.
FUNCTION u32 wg_round(u32 bits, u32 dropped) {
    u32 half_way = 1u << (dropped - 1), kept = bits >> dropped, rest = bits & (2 * half_way - 1);
    return kept + (rest > half_way || (rest == half_way && (kept & 1)));
}

FUNCTION float wg_bf16_to_float(bf16 x) {
    u32 bits = x.wg_bits;
    // A NaN is quiet.
    return WG_AS_FLOAT((bits & 0x7FFF) > 0x7F80 ? (bits | 0x40) << 16 : bits << 16);
}

FUNCTION bf16 wg_float_to_bf16(float x) {
    u32 bits = WG_AS_BITS(x);
    bf16 y;
    y.wg_bits = (u16)((bits & 0x7FFFFFFF) > 0x7F800000 ? bits >> 16 | 0x40 : wg_round(bits, 16));
    return y;
}

#ifdef __CUDA_ARCH__
FUNCTION float wg_f16_to_float(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.wg_bits));
    return y;
}

FUNCTION f16 wg_float_to_f16(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.wg_bits) : "f"(x));
    return y;
}
#else
FUNCTION float wg_f16_to_float(f16 x) {
    u32 sign = (u32)(x.wg_bits & 0x8000) << 16, exponent = x.wg_bits & 0x7C00, digits = x.wg_bits & 0x3FF;
    if (exponent == 0x7C00) return WG_AS_FLOAT(sign | 0x7F800000 | digits << 13 | (digits ? 0x400000 : 0));
    // A subnormal is a multiple of 2^-24, which no `float` of them is.
    if (exponent == 0) return WG_AS_FLOAT(sign | WG_AS_BITS((float)digits * 5.9604644775390625e-8f));
    return WG_AS_FLOAT(sign | ((exponent | digits) << 13) + (112u << 23));
}

FUNCTION f16 wg_float_to_f16(float x) {
    u32 bits = WG_AS_BITS(x) & 0x7FFFFFFF, exponent = bits >> 23, magnitude;
    if (bits > 0x7F800000) magnitude = 0x7E00 | (bits >> 13 & 0x3FF);
    else if (exponent >= 143) magnitude = 0x7C00;
    else if (exponent >= 113) magnitude = wg_round(bits - (112u << 23), 13);
    // Of a subnormal, the more digits go the smaller it is. Half of the smallest, or less, is 0.
    else if (exponent >= 102) magnitude = wg_round((bits & 0x7FFFFF) | 0x800000, 126 - exponent);
    else magnitude = 0;
    f16 y;
    y.wg_bits = (u16)((WG_AS_BITS(x) >> 16 & 0x8000) | magnitude);
    return y;
}
#endif
