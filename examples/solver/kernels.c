// The kernels of kernels.rs in the portable C dialect. Sums run in the same order as there, and have the same bits.
#pragma STDC FP_CONTRACT OFF

FUNCTION float sum(SLICE(const float, parts)) {
    float total = 0;
    for (u64 i = 0; i < LEN(parts); i++) {
        total += parts[i];
    }
    return total;
}

KERNEL(laplace, (u32 n, SLICE(const float, p), SLICE(float, q))) {
    const u64 x = GLOBAL_ID(0), y = GLOBAL_ID(1), i = y * n + x;
    float neighbours = 0;
    if (y > 0) neighbours += p[i - n];
    if (x > 0) neighbours += p[i - 1];
    if (x + 1 < n) neighbours += p[i + 1];
    if (y + 1 < n) neighbours += p[i + n];
    q[i] = 4 * p[i] - neighbours;
}

KERNEL(dot_parts, (SLICE(const float, x), SLICE(const float, y), SLICE(float, parts))) {
    const u64 len = LEN(x) < LEN(y) ? LEN(x) : LEN(y);
    float total = 0;
    for (u64 i = GLOBAL_ID(0); i < len; i += LEN(parts)) {
        total += x[i] * y[i];
    }
    parts[GLOBAL_ID(0)] = total;
}

KERNEL(begin, (SLICE(const float, parts), SLICE(float, rr), SLICE(float, first), SLICE(u32, count),
               SLICE(u32, more))) {
    rr[0] = sum(parts, LEN(parts));
    first[0] = rr[0];
    count[0] = 0;
    more[0] = rr[0] > 0;
}

KERNEL(step_length, (SLICE(const float, parts), SLICE(const float, rr), SLICE(float, alpha))) {
    alpha[0] = rr[0] / sum(parts, LEN(parts));
}

KERNEL(advance, (SLICE(const float, alpha), SLICE(const float, p), SLICE(const float, q), SLICE(float, u),
                 SLICE(float, r))) {
    const u64 i = GLOBAL_ID(0);
    u[i] += alpha[0] * p[i];
    r[i] -= alpha[0] * q[i];
}

KERNEL(finish, (float tolerance, SLICE(const float, parts), SLICE(const float, first), SLICE(float, rr),
                SLICE(float, beta), SLICE(float, history), SLICE(u32, count), SLICE(u32, more))) {
    const float now = sum(parts, LEN(parts));
    beta[0] = now / rr[0];
    rr[0] = now;
    if (count[0] < LEN(history)) {
        history[count[0]] = now / first[0];
        count[0] += 1;
    }
    more[0] = now > tolerance * tolerance * first[0] && count[0] < LEN(history);
}

KERNEL(turn, (SLICE(const float, beta), SLICE(const float, r), SLICE(float, p))) {
    const u64 i = GLOBAL_ID(0);
    p[i] = r[i] + beta[0] * p[i];
}
