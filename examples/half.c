KERNEL(axpy, (float a, SLICE(const f16, x), SLICE(f16, y))) {
    u64 i = GLOBAL_ID(0);
    y[i] = FLOAT_TO_F16(a * F16_TO_FLOAT(x[i]) + F16_TO_FLOAT(y[i]));
}

KERNEL(widen, (SLICE(const bf16, weights), SLICE(float, out))) {
    out[GLOBAL_ID(0)] = BF16_TO_FLOAT(weights[GLOBAL_ID(0)]);
}
