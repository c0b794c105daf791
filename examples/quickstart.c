KERNEL(saxpy, (float a, GLOBAL const float *x, GLOBAL float *y)) {
    y[GLOBAL_ID(0)] += a * x[GLOBAL_ID(0)];
}

KERNEL(square, (GLOBAL float *x)) {
    x[GLOBAL_ID(0)] *= x[GLOBAL_ID(0)];
}
