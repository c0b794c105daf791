//! The kernels. Vectors have an element for each point of the grid, row by row. Scalars are slices of
//! one element, which stay on the device.
#![expect(unsafe_code, reason = "declares device code")]

const SOURCE: &str = include_str!("kernels.c");

wakegraph::kernel! {
    /// q = A p: each of the `n` x `n` points four times, less its neighbours. Points outside are 0.
    pub(crate) fn laplace(n: u32, p: &[f32], q: &mut [f32]) {
        range: |n, p, q| match n as usize {
            n if n.checked_mul(n).is_some_and(|points| points <= p.len().min(q.len())) => [n, n],
            _ => [0, 0],
        },
        item: |[x, y], n, p, q| q[y * n as usize + x] = stencil(n as usize, x, y, p),
        // SAFETY: a work-item writes its point and reads that and those beside it, which it compares
        // with the sides. The bound keeps points on the grid, and the grid in both slices.
        c: unsafe { SOURCE },
    }

    /// `parts` become partial sums of the products of `x` and `y`.
    pub(crate) fn dot_parts(x: &[f32], y: &[f32], parts: &mut [f32]) {
        range: |_x, _y, parts| [parts.len()],
        item: |i, x, y, parts| {
            let places = (i..x.len().min(y.len())).step_by(parts.len());
            parts[i] = places.fold(0.0, |sum, at| sum + x[at] * y[at]);
        },
        // SAFETY: a work-item writes the part with its index, which the bound keeps below their
        // number, and compares what it reads with the shorter length.
        c: unsafe { SOURCE },
    }

    /// Before the first iteration: r.r, also as the first one, and whether there is anything to do.
    pub(crate) fn begin(
        parts: &[f32],
        rr: &mut [f32],
        first: &mut [f32],
        count: &mut [u32],
        more: &mut [u32]
    ) {
        range: |_parts, rr, first, count, more| {
            [1.min(rr.len()).min(first.len()).min(count.len()).min(more.len())]
        },
        item: |_i, parts, rr, first, count, more| {
            rr[0] = sum(parts);
            first[0] = rr[0];
            count[0] = 0;
            more[0] = u32::from(rr[0] > 0.0);
        },
        // SAFETY: there is one work-item; it uses the first elements, which the bound says are there,
        // and the parts below their number.
        c: unsafe { SOURCE },
    }

    /// How far to go: alpha = r.r / p.q
    pub(crate) fn step_length(parts: &[f32], rr: &[f32], alpha: &mut [f32]) {
        range: |_parts, rr, alpha| [1.min(rr.len()).min(alpha.len())],
        item: |_i, parts, rr, alpha| alpha[0] = rr[0] / sum(parts),
        // SAFETY: as for `begin`.
        c: unsafe { SOURCE },
    }

    /// u = u + alpha p, and r = r - alpha q
    pub(crate) fn advance(alpha: &[f32], p: &[f32], q: &[f32], u: &mut [f32], r: &mut [f32]) {
        range: |alpha, p, q, u, r| match alpha.len() {
            0 => [0],
            _ => [p.len().min(q.len()).min(u.len()).min(r.len())],
        },
        item: |i, alpha, p, q, u, r| {
            u[i] += alpha[0] * p[i];
            r[i] -= alpha[0] * q[i];
        },
        // SAFETY: a work-item uses the elements with its index, which the bound keeps below all
        // lengths, and the first of `alpha`, without which the bound is 0.
        c: unsafe { SOURCE },
    }

    /// After an iteration: beta = r.r / (the r.r before), the history of r.r / (the first r.r), and whether
    /// to go on.
    pub(crate) fn finish(
        tolerance: f32,
        parts: &[f32],
        first: &[f32],
        rr: &mut [f32],
        beta: &mut [f32],
        history: &mut [f32],
        count: &mut [u32],
        more: &mut [u32]
    ) {
        range: |_tolerance, _parts, first, rr, beta, _history, count, more| {
            [1.min(first.len()).min(rr.len()).min(beta.len()).min(count.len()).min(more.len())]
        },
        item: |_i, tolerance, parts, first, rr, beta, history, count, more| {
            let now = sum(parts);
            beta[0] = now / rr[0];
            rr[0] = now;
            if let Some(entry) = history.get_mut(count[0] as usize) {
                *entry = now / first[0];
                count[0] += 1;
            }
            let is_large = now > tolerance * tolerance * first[0];
            more[0] = u32::from(is_large && (count[0] as usize) < history.len());
        },
        // SAFETY: as for `begin`; the index into the history is compared with its length.
        c: unsafe { SOURCE },
    }

    /// The next direction: p = r + beta p
    pub(crate) fn turn(beta: &[f32], r: &[f32], p: &mut [f32]) {
        range: |beta, r, p| match beta.len() {
            0 => [0],
            _ => [r.len().min(p.len())],
        },
        item: |i, beta, r, p| p[i] = r[i] + beta[0] * p[i],
        // SAFETY: as for `advance`.
        c: unsafe { SOURCE },
    }
}

fn stencil(n: usize, x: usize, y: usize, p: &[f32]) -> f32 {
    let at = |x: usize, y: usize| p[y * n + x];
    let mut neighbours = 0.0;
    if y > 0 {
        neighbours += at(x, y - 1);
    }
    if x > 0 {
        neighbours += at(x - 1, y);
    }
    if x + 1 < n {
        neighbours += at(x + 1, y);
    }
    if y + 1 < n {
        neighbours += at(x, y + 1);
    }
    4.0 * at(x, y) - neighbours
}

fn sum(parts: &[f32]) -> f32 {
    parts.iter().fold(0.0, |sum, part| sum + part)
}
