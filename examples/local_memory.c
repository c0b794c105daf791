// As in local_memory.rs.
#define TILE 16

KERNEL(product, (u32 n, SLICE(const float, a), SLICE(const float, b),
                 LOCAL_SLICE(float, tile_a), LOCAL_SLICE(float, tile_b), SLICE(float, c))) {
    u64 x = LOCAL_ID(0), y = LOCAL_ID(1);
    if (LOCAL_SIZE(0) != TILE || LOCAL_SIZE(1) != TILE || LOCAL_SIZE(2) != 1) return;
    if (LEN(tile_a) < TILE * TILE || LEN(tile_b) < TILE * TILE) return;
    float sum = 0;
    for (u64 k = 0; k < n; k += TILE) {
        tile_a[y * TILE + x] = a[GLOBAL_ID(1) * n + k + x];
        tile_b[y * TILE + x] = b[(k + y) * n + GLOBAL_ID(0)];
        BARRIER(); // the tiles are complete
        for (u32 i = 0; i < TILE; i++) sum += tile_a[y * TILE + i] * tile_b[i * TILE + x];
        BARRIER(); // all have read them
    }
    c[GLOBAL_ID(1) * n + GLOBAL_ID(0)] = sum;
}

KERNEL(sum_groups, (SLICE(const float, x), LOCAL_SLICE(float, tile), SLICE(float, sums))) {
    u64 i = LOCAL_ID(0);
    if (LEN(tile) < LOCAL_SIZE(0) || GROUP_ID(0) >= LEN(sums)) return;
    tile[i] = x[GLOBAL_ID(0)];
    for (u64 step = LOCAL_SIZE(0) / 2; step > 0; step /= 2) {
        BARRIER();
        if (i < step) tile[i] += tile[i + step];
    }
    if (i == 0) sums[GROUP_ID(0)] = tile[0];
}
