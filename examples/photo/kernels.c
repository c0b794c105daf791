// The kernels of kernels.rs in the portable C dialect: one work-item a pixel. Sums run in the same order as there, and
// the square root is put right in integers, so the results are the same to the byte.

// The place of pixel (x, y).
#define AT(x, y) ((size_t)(y) * GLOBAL_SIZE(0) + (x))

// The index among `size` that is nearest to `at`.
FUNCTION i32 nearest(i32 at, i32 size) {
    return at < 0 ? 0 : at < size ? at : size - 1;
}

KERNEL(grayscale, (SLICE(const u8, rgb), SLICE(u8, gray))) {
    const size_t i = AT(GLOBAL_ID(0), GLOBAL_ID(1));
    gray[i] = (u8)((2126u * rgb[3 * i] + 7152u * rgb[3 * i + 1] + 722u * rgb[3 * i + 2]) / 10000u);
}

KERNEL(blur_rows, (i32 radius, SLICE(const float, taps), SLICE(const u8, image), SLICE(u8, blurred))) {
    const i32 x = (i32)GLOBAL_ID(0), y = (i32)GLOBAL_ID(1);
    float sum = 0;
    for (i32 tap = -radius; tap <= radius; tap++) {
        sum += taps[tap + radius] * (float)image[AT(nearest(x + tap, (i32)GLOBAL_SIZE(0)), y)];
    }
    blurred[AT(x, y)] = (u8)sum;
}

KERNEL(blur_columns, (i32 radius, SLICE(const float, taps), SLICE(const u8, image), SLICE(u8, blurred))) {
    const i32 x = (i32)GLOBAL_ID(0), y = (i32)GLOBAL_ID(1);
    float sum = 0;
    for (i32 tap = -radius; tap <= radius; tap++) {
        sum += taps[tap + radius] * (float)image[AT(x, nearest(y + tap, (i32)GLOBAL_SIZE(1)))];
    }
    blurred[AT(x, y)] = (u8)sum;
}

KERNEL(sobel, (SLICE(const u8, image), SLICE(u8, gradient))) {
    const i32 x = (i32)GLOBAL_ID(0), y = (i32)GLOBAL_ID(1);
    const i32 left = nearest(x - 1, (i32)GLOBAL_SIZE(0)), right = nearest(x + 1, (i32)GLOBAL_SIZE(0));
    const i32 above = nearest(y - 1, (i32)GLOBAL_SIZE(1)), below = nearest(y + 1, (i32)GLOBAL_SIZE(1));
    const i32 a = image[AT(left, above)], b = image[AT(x, above)], c = image[AT(right, above)];
    const i32 d = image[AT(left, y)], f = image[AT(right, y)];
    const i32 g = image[AT(left, below)], h = image[AT(x, below)], i = image[AT(right, below)];
    const i32 rise_x = (c + 2 * f + i) - (a + 2 * d + g);
    const i32 rise_y = (g + 2 * h + i) - (a + 2 * b + c);
    const i32 square = rise_x * rise_x + rise_y * rise_y;
    // The largest byte whose square is not above it; devices may round their roots up or down.
    i32 root = square < 255 * 255 ? (i32)sqrt((float)square) : 255;
    root += (root + 1) * (root + 1) <= square && root < 255;
    root -= root * root > square;
    gradient[AT(x, y)] = (u8)root;
}

KERNEL(histogram, (SLICE(const u8, image), SLICE(u32, bins))) {
    ATOMIC_ADD(&bins[image[AT(GLOBAL_ID(0), GLOBAL_ID(1))]], 1u);
}

KERNEL(threshold, (SLICE(const u8, level), SLICE(const u8, image), SLICE(u8, white))) {
    const size_t i = AT(GLOBAL_ID(0), GLOBAL_ID(1));
    white[i] = image[i] > level[0] ? 255 : 0;
}
