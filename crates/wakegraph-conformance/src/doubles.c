// The kernels of the tests that need doubles, apart from the others because some GPUs have none.

struct DoubleParams {
    double scale;
    i32 shift;
    u32 pad;
};

KERNEL(affine_doubles, (struct DoubleParams params, u8 flag, SLICE(const double, x), SLICE(double, y))) {
    y[GLOBAL_ID(0)] = params.scale * x[GLOBAL_ID(0)] + params.shift + flag;
}
