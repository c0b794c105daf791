KERNEL(smooth, (u32 width, SLICE(const u32, from), SLICE(u32, to))) {
    const u64 x = GLOBAL_ID(0), y = GLOBAL_ID(1), i = y * width + x;
    const u32 left = x > 0 ? from[i - 1] : from[i];
    const u32 right = x + 1 < width ? from[i + 1] : from[i];
    const u32 above = y > 0 ? from[i - width] : from[i];
    const u32 below = i + width < LEN(from) ? from[i + width] : from[i];
    to[i] = (left + right + above + below) / 4;
}

KERNEL(count_down, (SLICE(u32, left))) {
    left[GLOBAL_ID(0)] -= 1;
}
