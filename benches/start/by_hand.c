// The photo pipeline as one writes it for one language; `work.rs` puts macros before it for CUDA or OpenCL.

FUNCTION int nearest(int at, int size) {
    return at < 0 ? 0 : at < size ? at : size - 1;
}

KERNEL grayscale(GLOBAL const uchar *rgb, GLOBAL uchar *gray, int size) {
    const int i = ID(0);
    if (i >= size) return;
    gray[i] = (uchar)((2126u * rgb[3 * i] + 7152u * rgb[3 * i + 1] + 722u * rgb[3 * i + 2]) / 10000u);
}

KERNEL blur_rows(GLOBAL const float *taps, int count, GLOBAL const uchar *image, GLOBAL uchar *blurred, int width) {
    const int i = ID(0), x = i % width, y = i / width;
    if (y >= width) return;
    float sum = 0;
    for (int tap = 0; tap < count; tap++) {
        sum += taps[tap] * (float)image[y * width + nearest(x - count / 2 + tap, width)];
    }
    blurred[i] = (uchar)sum;
}

KERNEL blur_columns(GLOBAL const float *taps, int count, GLOBAL const uchar *image, GLOBAL uchar *blurred, int width) {
    const int i = ID(0), x = i % width, y = i / width;
    if (y >= width) return;
    float sum = 0;
    for (int tap = 0; tap < count; tap++) {
        sum += taps[tap] * (float)image[nearest(y - count / 2 + tap, width) * width + x];
    }
    blurred[i] = (uchar)sum;
}

KERNEL sobel(GLOBAL const uchar *image, GLOBAL uchar *gradient, int width) {
    const int at = ID(0), x = at % width, y = at / width;
    if (y >= width) return;
    const int left = nearest(x - 1, width), right = nearest(x + 1, width);
    const int above = nearest(y - 1, width) * width, here = y * width, below = nearest(y + 1, width) * width;
    const int a = image[above + left], b = image[above + x], c = image[above + right];
    const int d = image[here + left], f = image[here + right];
    const int g = image[below + left], h = image[below + x], i = image[below + right];
    const int rise_x = (c + 2 * f + i) - (a + 2 * d + g), rise_y = (g + 2 * h + i) - (a + 2 * b + c);
    const int square = rise_x * rise_x + rise_y * rise_y;
    int root = square < 255 * 255 ? (int)sqrt((float)square) : 255;
    root += (root + 1) * (root + 1) <= square && root < 255;
    root -= root * root > square;
    gradient[at] = (uchar)root;
}

KERNEL histogram(GLOBAL const uchar *image, GLOBAL uint *bins, int size) {
    const int i = ID(0);
    if (i < size) ADD(&bins[image[i]]);
}

KERNEL threshold(uchar level, GLOBAL const uchar *image, GLOBAL uchar *white, int size) {
    const int i = ID(0);
    if (i < size) white[i] = image[i] > level ? 255 : 0;
}
