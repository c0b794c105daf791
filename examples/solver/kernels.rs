//! The kernels. Vectors have an element for each point of the grid, row by row. Scalars are slices of
//! one element, which stay on the device.
//!
//! On the CPU a work-item mostly owns an element of what it writes (`each:`). Partial sums are written by
//! work-groups (`group:`), because a loop over the parts of a group takes vector instructions, and
//! `finish`, too: the only group owns the whole history.
#![expect(unsafe_code, reason = "declares device code")]

/// Sums are made in two steps: this many partial ones at a time, then one of these.
pub(crate) const PARTS: usize = 256;

const SOURCE: &str = include_str!("kernels.c");

wakegraph::kernel! {
    /// q = A p: each of the `n` x `n` points four times, less its neighbours. Points outside are 0.
    pub(crate) fn laplace(n: u32, p: &[f32], q: &mut [f32]) {
        range: |n, p, q| match n as usize {
            n if n.checked_mul(n).is_some_and(|points| points <= p.len().min(q.len())) => [n, n],
            _ => [0, 0],
        },
        each: |[x, y], n, p, q| *q = stencil(n as usize, x, y, p),
        // SAFETY: a work-item writes its point and reads that and those beside it, which it compares
        // with the sides. The bound keeps points on the grid, and the grid in both slices.
        c: unsafe { SOURCE },
    }

    /// The `PARTS` parts become partial sums of the products of `x` and `y`: one has every `PARTS`th.
    pub(crate) fn dot_parts(x: &[f32], y: &[f32], parts: &mut [f32]) {
        range: |_x, _y, parts| [if parts.len() == PARTS { PARTS } else { 0 }],
        group: |group, x, y, parts| {
            let parts = parts.row(0, 0);
            parts.fill(0.0);
            let len = x.len().min(y.len());
            for first in (group.offset()[0]..len).step_by(PARTS) {
                for ((part, x), y) in parts.iter_mut().zip(&x[first..len]).zip(&y[first..len]) {
                    *part += x * y;
                }
            }
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
        range: |_parts, _rr, _first, _count, _more| [1],
        each: |_, parts, rr, first, count, more| {
            *rr = sum(parts);
            *first = *rr;
            *count = 0;
            *more = u32::from(*rr > 0.0);
        },
        // SAFETY: there is one work-item; it uses the only element of what it writes, and the parts below
        // their number.
        c: unsafe { SOURCE },
    }

    /// How far to go: alpha = r.r / p.q
    pub(crate) fn step_length(parts: &[f32], rr: &[f32], alpha: &mut [f32]) {
        range: |_parts, rr, _alpha| [1.min(rr.len())],
        each: |_, parts, rr, alpha| *alpha = rr[0] / sum(parts),
        // SAFETY: as for `begin`; the bound says that there is an element of `rr`.
        c: unsafe { SOURCE },
    }

    /// u = u + alpha p, and r = r - alpha q
    pub(crate) fn advance(alpha: &[f32], p: &[f32], q: &[f32], u: &mut [f32], r: &mut [f32]) {
        range: |alpha, p, q, _u, _r| match alpha.len() {
            0 => [0],
            _ => [p.len().min(q.len())],
        },
        each: |i, alpha, p, q, u, r| {
            *u += alpha[0] * p[i];
            *r -= alpha[0] * q[i];
        },
        // SAFETY: a work-item uses the elements with its index, which the bound keeps below the lengths
        // of what it reads, and the first of `alpha`, without which the bound is 0.
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
        group: |_, tolerance, parts, first, rr, beta, history, count, more| {
            let now = sum(parts);
            beta[0] = now / rr[0];
            rr[0] = now;
            if (count[0] as usize) < history.len() {
                history[count[0] as usize] = now / first[0];
                count[0] += 1;
            }
            let is_large = now > tolerance * tolerance * first[0];
            more[0] = u32::from(is_large && (count[0] as usize) < history.len());
        },
        // SAFETY: there is one work-item; it uses the first elements, which the bound says are there, and
        // compares the indices of parts and history with their lengths.
        c: unsafe { SOURCE },
    }

    /// The next direction: p = r + beta p
    pub(crate) fn turn(beta: &[f32], r: &[f32], p: &mut [f32]) {
        range: |beta, r, _p| match beta.len() {
            0 => [0],
            _ => [r.len()],
        },
        each: |i, beta, r, p| *p = r[i] + beta[0] * *p,
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
