// The kernels of kernels.rs in the portable C dialect: one work-item a row, in work-groups of GROUP rows. Sums and products
// wrap around, as those of Rust's side do, so they are taken in numbers without a sign.
#define GROUP 256 // as in kernels.rs

#define AMOUNT(price, discount) ((i64)((u64)(price) * (100 - (u64)(discount))))

KERNEL(tally, (i64 limit, SLICE(const i64, price), SLICE(const i64, discount), SLICE(i64, tallies))) {
    LOCAL_ARRAY i64 rows[GROUP];
    LOCAL_ARRAY u64 sums[GROUP];
    const u64 i = LOCAL_ID(0), row = GLOBAL_ID(0), group = GROUP_ID(0);
    if (LOCAL_SIZE(0) != GROUP || LEN(tallies) < 2 * (group + 1)) return;
    const u32 is_kept = row < LEN(price) && row < LEN(discount) && price[row] > limit;
    rows[i] = is_kept;
    sums[i] = is_kept ? (u64)AMOUNT(price[row], discount[row]) : 0;
    for (u64 step = GROUP / 2; step > 0; step /= 2) {
        BARRIER();
        if (i < step) {
            rows[i] += rows[i + step];
            sums[i] += sums[i + step];
        }
    }
    if (i == 0) {
        tallies[2 * group] = rows[0];
        tallies[2 * group + 1] = (i64)sums[0];
    }
}

// One work-group: each work-item adds up a part of the tallies, and then knows where its part begins.
KERNEL(scan, (SLICE(const i64, tallies), SLICE(i64, starts), SLICE(i64, totals))) {
    LOCAL_ARRAY i64 rows[GROUP];
    LOCAL_ARRAY u64 sums[GROUP];
    const u64 i = LOCAL_ID(0), groups = LEN(starts), part = (groups + GROUP - 1) / GROUP;
    if (LOCAL_SIZE(0) != GROUP || GROUP_ID(0) > 0 || LEN(tallies) < 2 * groups || LEN(totals) < 2) return;
    const u64 first = i * part, end = first + part < groups ? first + part : groups;
    rows[i] = 0;
    sums[i] = 0;
    for (u64 group = first; group < end; group++) {
        rows[i] += tallies[2 * group];
        sums[i] += (u64)tallies[2 * group + 1];
    }
    BARRIER();
    i64 start = 0;
    u64 sum = 0;
    for (u64 other = 0; other < GROUP; other++) {
        if (other < i) start += rows[other];
        sum += sums[other];
    }
    for (u64 group = first; group < end; group++) {
        starts[group] = start;
        start += tallies[2 * group];
    }
    if (i == GROUP - 1) {
        totals[0] = start;
        totals[1] = (i64)sum;
    }
}

KERNEL(compact, (i64 limit, SLICE(const i64, price), SLICE(const i64, discount), SLICE(const i64, starts),
                 SLICE(i64, kept), SLICE(i64, amounts))) {
    LOCAL_ARRAY u32 ranks[GROUP];
    const u64 i = LOCAL_ID(0), row = GLOBAL_ID(0), group = GROUP_ID(0);
    if (LOCAL_SIZE(0) != GROUP || group >= LEN(starts)) return;
    const u32 is_kept = row < LEN(price) && row < LEN(discount) && price[row] > limit;
    ranks[i] = is_kept;
    for (u64 step = 1; step < GROUP; step *= 2) {
        BARRIER();
        const u32 before = i >= step ? ranks[i - step] : 0;
        BARRIER();
        ranks[i] += before;
    }
    const u64 at = (u64)starts[group] + ranks[i] - is_kept;
    if (is_kept && at < LEN(kept) && at < LEN(amounts)) {
        kept[at] = price[row];
        amounts[at] = AMOUNT(price[row], discount[row]);
    }
}
