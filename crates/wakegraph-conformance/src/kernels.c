// The kernels of the tests, in the portable C dialect. Those that `kernels.rs` and `graph/` declare stay inside their
// slices for every range within their bounds. The others are launched through `hal`, where who enqueues vouches for it.

KERNEL(add, (u32 n, SLICE(u32, x))) {
    x[GLOBAL_ID(0)] += n;
}

KERNEL(raise, (u32 n, SLICE(u32, x))) {
    x[GLOBAL_ID(0)] += n;
}

KERNEL(axpy, (u32 a, SLICE(const u32, x), SLICE(u32, y))) {
    y[GLOBAL_ID(0)] += a * x[GLOBAL_ID(0)];
}

KERNEL(meet, (SLICE(u32, x))) {
    BARRIER();
    x[GLOBAL_ID(0)] += 1;
}

KERNEL(mix, (u32 n, SLICE(u32, x))) {
    x[GLOBAL_ID(0)] = 31 * x[GLOBAL_ID(0)] + n;
}

// One work-item does it all.
KERNEL(fold, (SLICE(const u32, x), SLICE(u32, y))) {
    u32 sum = 0;
    for (u64 i = 0; i < LEN(x); i++) sum += x[i];
    for (u64 i = 0; i < LEN(y); i++) y[i] = 31 * y[i] + sum;
}

// What `LEN` gives for slices of different elements.
KERNEL(lengths, (SLICE(const u8, bytes), u32 before, SLICE(const u64, numbers), LOCAL_SLICE(u16, tile), SLICE(u64, out))) {
    const u64 all[4] = {LEN(bytes), LEN(numbers), LEN(tile), LEN(out) + before};
    for (u64 i = 0; i < 4 && i < LEN(out); i++) out[i] = all[i];
}

// Helper functions take slices with the same words.
FUNCTION u32 last(SLICE(const u32, x)) {
    return x[LEN(x) - 1];
}

KERNEL(add_last, (SLICE(const u32, x), SLICE(u32, y))) {
    y[GLOBAL_ID(0)] += last(x, LEN(x));
}

KERNEL(count_pixels, (u32 width, SLICE(u32, image))) {
    image[GLOBAL_ID(1) * width + GLOBAL_ID(0)] += 1;
}

KERNEL(count_cells, (SLICE(u32, x))) {
    const u64 width = GLOBAL_OFFSET(0) + GLOBAL_SIZE(0), height = GLOBAL_OFFSET(1) + GLOBAL_SIZE(1);
    x[(GLOBAL_ID(2) * height + GLOBAL_ID(1)) * width + GLOBAL_ID(0)] += 1;
}

KERNEL(indices, (SLICE(u64, out))) {
    const u64 x = GLOBAL_ID(0), y = GLOBAL_ID(1), z = GLOBAL_ID(2);
    const u64 row = (z - GLOBAL_OFFSET(2)) * GLOBAL_SIZE(1) + y - GLOBAL_OFFSET(1);
    const u64 place = row * GLOBAL_SIZE(0) + x - GLOBAL_OFFSET(0);
    if (place < LEN(out)) out[place] = x | y << 16 | z << 32;
}

struct Params {
    u64 scale;
    i32 shift;
    u32 pad;
};

KERNEL(affine, (struct Params params, u8 flag, SLICE(const u64, x), SLICE(u64, y))) {
    y[GLOBAL_ID(0)] = params.scale * x[GLOBAL_ID(0)] + (u64)(i64)params.shift + flag;
}

// Every work-item tells its neighbours its number through local memory; `sums` gets the sum over the work-group.
KERNEL(share, (LOCAL_SLICE(u32, numbers), SLICE(u32, sums))) {
    if (LOCAL_ID(0) < LEN(numbers)) numbers[LOCAL_ID(0)] = (u32)GLOBAL_ID(0);
    BARRIER();
    u32 sum = 0;
    for (u64 i = 0; i < LOCAL_SIZE(0) && i < LEN(numbers); i++) sum += numbers[i];
    sums[GLOBAL_ID(0)] = sum;
}

// Each command has a slot of its own and reads those of the commands that it follows.
KERNEL(stamp, (u32 n, SLICE(const u32, a), SLICE(const u32, b), SLICE(const u32, c), SLICE(u32, own))) {
    own[0] = 31 * own[0] + 2 * a[0] + 3 * b[0] + 5 * c[0] + n;
}

// Takes a while, so that what should come after it and does not is seen.
KERNEL(grind, (u32 rounds, SLICE(u32, x))) {
    u32 value = x[0];
    for (u32 i = 0; i < rounds; i++) value = 1664525 * value + 1013904223;
    x[0] = value;
}

// Counts who is inside, the most that ever were, and how many have left.
KERNEL(enter, (SLICE(u32, counts))) {
    const u32 inside = ATOMIC_ADD(&counts[0], 1) + 1;
    if (inside > counts[1]) counts[1] = inside;
}

KERNEL(leave, (SLICE(u32, counts))) {
    ATOMIC_ADD(&counts[0], (u32)-1);
    ATOMIC_ADD(&counts[2], 1);
}

// Writes down the launch: which kernel, its number, the numbers so far, its sizes and offset.
#define RECORD(kernel)                                                                                             \
    ATOMIC_ADD(items, 1);                                                                                          \
    if (GLOBAL_ID(0) != GLOBAL_OFFSET(0) || GLOBAL_ID(1) != GLOBAL_OFFSET(1) || GLOBAL_ID(2) != GLOBAL_OFFSET(2))  \
        return;                                                                                                    \
    seen[0] = kernel;                                                                                              \
    seen[1] = number;                                                                                              \
    seen[2] = (u32)(31 * seen[2] + number);                                                                             \
    for (int d = 0; d < 3; d++) {                                                                                  \
        seen[3 + d] = GLOBAL_SIZE(d);                                                                              \
        seen[6 + d] = GLOBAL_OFFSET(d);                                                                            \
        seen[9 + d] = LOCAL_SIZE(d);                                                                               \
    }

KERNEL(record, (u32 number, SLICE(u32, items), SLICE(u64, seen))) {
    RECORD(1)
}

KERNEL(record_too, (u32 number, SLICE(u32, items), SLICE(u64, seen))) {
    RECORD(2)
}

KERNEL(add_bytes, (u32 n, SLICE(const u8, x), SLICE(u8, y))) {
    y[GLOBAL_ID(0)] = (u8)(x[GLOBAL_ID(0)] + n);
}

KERNEL(double_bytes, (SLICE(u8, x))) {
    x[GLOBAL_ID(0)] = (u8)(2 * x[GLOBAL_ID(0)]);
}

// Values of sizes that no type of the language has.
#define VALUE(size)                                                                                                \
    struct Value##size {                                                                                           \
        u8 bytes[size];                                                                                            \
    };                                                                                                             \
    KERNEL(value##size, (struct Value##size value, SLICE(u8, out))) {                                              \
        for (int i = 0; i < size; i++) out[i] = value.bytes[i];                                                    \
    }

VALUE(1)
VALUE(3)
VALUE(12)
VALUE(16)
VALUE(17)
VALUE(200)

KERNEL(many, (u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, SLICE(u8, u), SLICE(u8, v), SLICE(u8, w), SLICE(u8, x),
              SLICE(u8, y), SLICE(u8, z))) {
    const u64 i = GLOBAL_ID(0);
    u[i] = (u8)a;
    v[i] = (u8)b;
    w[i] = (u8)c;
    x[i] = (u8)d;
    y[i] = (u8)e;
    z[i] = (u8)f;
}

// Addresses as numbers: of memory that the test uses meanwhile, and that orders nothing.

// The first number counts who has arrived, the second says how many may go on.
KERNEL(hold, (u64 turnstile)) {
    GLOBAL u32 *state = (GLOBAL u32 *)turnstile;
    const u32 turn = ATOMIC_ADD(&state[0], 1);
    while (ATOMIC_ADD(&state[1], 0) <= turn) {
    }
}

// A list of who has run, behind its length; there is room for that many.
KERNEL(note, (u64 list, u32 room, u32 id)) {
    GLOBAL u32 *ids = (GLOBAL u32 *)list;
    const u32 place = ATOMIC_ADD(&ids[0], 1);
    if (place < room) ids[1 + place] = id;
}

typedef struct { u8 red, green, blue, alpha; } Pixel;

KERNEL(tint, (SLICE(const u8, weights), SLICE(Pixel, pixels), SLICE(u32, sums))) {
    u64 x = GLOBAL_ID(0), y = GLOBAL_ID(1), place = y * 5 + x;
    if (place >= LEN(pixels) || place >= LEN(sums) || x >= LEN(weights)) return;
    Pixel pixel;
    pixel.red = (u8)x, pixel.green = (u8)y, pixel.blue = pixels[place].red, pixel.alpha = weights[x];
    pixels[place] = pixel;
    sums[place] += (u32)x;
}

KERNEL(flip_tiles, (LOCAL_SLICE(u32, tile), SLICE(const u32, x), SLICE(u32, y), SLICE(u32, moved))) {
    u64 i = LOCAL_ID(0), j = LOCAL_ID(1), width = LOCAL_SIZE(0), place = GLOBAL_ID(1) * 12 + GLOBAL_ID(0);
    u64 own = j * width + i, other = i * width + j;
    if (own < LEN(tile) && place < LEN(x)) tile[own] = x[place];
    BARRIER();
    if (other < LEN(tile) && place < LEN(y)) y[place] = tile[other];
    u64 share = 2 * ((GLOBAL_ID(1) / LOCAL_SIZE(1)) * (12 / width) + GLOBAL_ID(0) / width);
    if (own == 0 && share + 1 < LEN(moved)) {
        moved[share] = (u32)(width * LOCAL_SIZE(1));
        moved[share + 1] += 1;
    }
}

KERNEL(f16_to_float, (SLICE(const f16, x), SLICE(float, y))) {
    y[GLOBAL_ID(0)] = F16_TO_FLOAT(x[GLOBAL_ID(0)]);
}

KERNEL(float_to_f16, (SLICE(const float, x), SLICE(f16, y))) {
    y[GLOBAL_ID(0)] = FLOAT_TO_F16(x[GLOBAL_ID(0)]);
}

KERNEL(bf16_to_float, (SLICE(const bf16, x), SLICE(float, y))) {
    y[GLOBAL_ID(0)] = BF16_TO_FLOAT(x[GLOBAL_ID(0)]);
}

KERNEL(float_to_bf16, (SLICE(const float, x), SLICE(bf16, y))) {
    y[GLOBAL_ID(0)] = FLOAT_TO_BF16(x[GLOBAL_ID(0)]);
}

// y = a * x + y in `float`, where products of two such numbers are exact.
KERNEL(axpy_f16, (f16 a, SLICE(const f16, x), SLICE(f16, y))) {
    y[GLOBAL_ID(0)] = FLOAT_TO_F16(F16_TO_FLOAT(a) * F16_TO_FLOAT(x[GLOBAL_ID(0)]) + F16_TO_FLOAT(y[GLOBAL_ID(0)]));
}

KERNEL(axpy_bf16, (bf16 a, SLICE(const bf16, x), LOCAL_SLICE(bf16, tile), SLICE(bf16, y))) {
    tile[LOCAL_ID(0)] = x[GLOBAL_ID(0)];
    BARRIER();
    y[GLOBAL_ID(0)] = FLOAT_TO_BF16(BF16_TO_FLOAT(a) * BF16_TO_FLOAT(tile[LOCAL_ID(0)]) + BF16_TO_FLOAT(y[GLOBAL_ID(0)]));
}
