// The kernels of kernels.rs in the portable C dialect: one work-item a pixel. Sums run in the same order as there, and
// the square root is put right in integers, so the results are the same to the byte.
#pragma STDC FP_CONTRACT OFF

// The pixel of a work-item, and the size of the image: that of the range. A third dimension counts as more rows, so that
// no two work-items have one pixel.
#define X ((i64)(GLOBAL_ID(0) - GLOBAL_OFFSET(0)))
#define Y ((i64)(GLOBAL_ID(1) - GLOBAL_OFFSET(1) + (GLOBAL_ID(2) - GLOBAL_OFFSET(2)) * GLOBAL_SIZE(1)))
#define WIDTH ((i64)GLOBAL_SIZE(0))
#define HEIGHT ((i64)(GLOBAL_SIZE(1) * GLOBAL_SIZE(2)))

// The place of pixel (x, y).
#define AT(x, y) ((y) * WIDTH + (x))

// The index among `size` that is nearest to `at`.
FUNCTION i64 nearest(i64 at, i64 size) {
    return at < 0 ? 0 : at < size ? at : size - 1;
}

KERNEL(grayscale, (SLICE(const u8, rgb), SLICE(u8, gray))) {
    const u64 i = GLOBAL_ID(0);
    gray[i] = (u8)((2126u * rgb[3 * i] + 7152u * rgb[3 * i + 1] + 722u * rgb[3 * i + 2]) / 10000u);
}

KERNEL(blur_rows, (SLICE(const float, taps), SLICE(const u8, image), SLICE(u8, blurred))) {
    const i64 x = X, y = Y, taps_len = (i64)LEN(taps), left = x - taps_len / 2;
    float sum = 0;
    for (i64 tap = 0; tap < taps_len; tap++) {
        sum += taps[tap] * (float)image[AT(nearest(left + tap, WIDTH), y)];
    }
    blurred[AT(x, y)] = (u8)sum;
}

KERNEL(blur_columns, (SLICE(const float, taps), SLICE(const u8, image), SLICE(u8, blurred))) {
    const i64 x = X, y = Y, taps_len = (i64)LEN(taps), above = y - taps_len / 2;
    float sum = 0;
    for (i64 tap = 0; tap < taps_len; tap++) {
        sum += taps[tap] * (float)image[AT(x, nearest(above + tap, HEIGHT))];
    }
    blurred[AT(x, y)] = (u8)sum;
}

KERNEL(sobel, (SLICE(const u8, image), SLICE(u8, gradient))) {
    const i64 x = X, y = Y;
    const i64 left = nearest(x - 1, WIDTH), right = nearest(x + 1, WIDTH);
    const i64 above = nearest(y - 1, HEIGHT), below = nearest(y + 1, HEIGHT);
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
    ATOMIC_ADD(&bins[image[AT(X, Y)]], 1u);
}

KERNEL(threshold, (SLICE(const u8, level), SLICE(const u8, image), SLICE(u8, white))) {
    const u64 i = GLOBAL_ID(0);
    white[i] = image[i] > level[0] ? 255 : 0;
}
