KERNEL(saxpy, (float a, SLICE(const float, x), SLICE(float, y))) {
    y[GLOBAL_ID(0)] += a * x[GLOBAL_ID(0)];
}

KERNEL(square, (SLICE(float, x))) {
    x[GLOBAL_ID(0)] *= x[GLOBAL_ID(0)];
}
