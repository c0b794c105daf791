// The kernels of kernels.rs in the portable C dialect.

// The bytes of the photo, if they all lie in the buffer.
FUNCTION i64 photo_len(SLICE(const u32, size), u64 buffer) {
    const u64 len = (u64)size[0] * size[1];
    return len > buffer ? 0 : (i64)len;
}

KERNEL(sharpen, (SLICE(const u32, size), SLICE(const u8, photo), SLICE(u8, sharp))) {
    const i64 at = (i64)GLOBAL_ID(0), row = size[0], len = photo_len(size, LEN(size), LEN(photo));
    if (at >= len) return;
    i32 sum = 0;
    for (i64 dy = -row; dy <= row; dy += row) {
        for (i64 dx = -3; dx <= 3; dx += 3) {
            const i64 x = at % row + dx, y = at + dy;
            const i64 column = x < 0 || x >= row ? 0 : dx, line = y < 0 || y >= len ? 0 : dy;
            sum += photo[at + line + column];
        }
    }
    const i32 value = (17 * photo[at] - sum) / 8;
    sharp[at] = (u8)(value < 0 ? 0 : value > 255 ? 255 : value);
}

KERNEL(histogram, (SLICE(const u32, size), SLICE(const u8, photo), SLICE(u32, bins))) {
    const i64 at = 3 * (i64)GLOBAL_ID(0);
    if (at + 2 >= photo_len(size, LEN(size), LEN(photo))) return;
    const u32 luma = (2126u * photo[at] + 7152u * photo[at + 1] + 722u * photo[at + 2]) / 10000u;
    ATOMIC_ADD(&bins[luma], 1u);
}

KERNEL(apply, (SLICE(const u32, size), SLICE(const u8, curves), SLICE(const u8, photo), SLICE(u8, toned))) {
    const i64 at = (i64)GLOBAL_ID(0);
    if (at >= photo_len(size, LEN(size), LEN(photo))) return;
    toned[at] = curves[256 * (at % 3) + photo[at]];
}
