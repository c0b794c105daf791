// The kernels of the graph tests, in the portable C dialect.

KERNEL(add, (u32 n, GLOBAL u32 *x)) {
    x[GLOBAL_ID(0)] += n;
}

KERNEL(axpy, (u32 a, GLOBAL const u32 *x, GLOBAL u32 *y)) {
    y[GLOBAL_ID(0)] += a * x[GLOBAL_ID(0)];
}

KERNEL(mix, (u32 n, GLOBAL u32 *x)) {
    x[GLOBAL_ID(0)] = 31 * x[GLOBAL_ID(0)] + n;
}

// One work-item does it all.
KERNEL(fold, (u32 count, GLOBAL const u32 *x, GLOBAL u32 *y)) {
    u32 sum = 0;
    for (u32 i = 0; i < count; i++) sum += x[i];
    for (u32 i = 0; i < count; i++) y[i] = 31 * y[i] + sum;
}

KERNEL(indices, (GLOBAL u64 *out)) {
    const u64 x = GLOBAL_ID(0), y = GLOBAL_ID(1), z = GLOBAL_ID(2);
    const u64 row = (z - GLOBAL_OFFSET(2)) * GLOBAL_SIZE(1) + y - GLOBAL_OFFSET(1);
    out[row * GLOBAL_SIZE(0) + x - GLOBAL_OFFSET(0)] = x | y << 16 | z << 32;
}

struct Params {
    double scale;
    i32 shift;
    u32 pad;
};

KERNEL(affine, (struct Params params, u8 flag, GLOBAL const double *x, GLOBAL double *y)) {
    y[GLOBAL_ID(0)] = params.scale * x[GLOBAL_ID(0)] + params.shift + flag;
}

// Every work-item tells its neighbours its number through local memory; `sums` gets the sum over the work-group.
KERNEL(share, (LOCAL u32 *numbers, GLOBAL u32 *sums)) {
    numbers[LOCAL_ID(0)] = (u32)GLOBAL_ID(0);
    BARRIER();
    u32 sum = 0;
    for (u32 i = 0; i < LOCAL_SIZE(0); i++) sum += numbers[i];
    sums[GLOBAL_ID(0)] = sum;
}
