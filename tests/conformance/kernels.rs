//! The kernels of the graph tests, declared once with all variants that a backend may take.
#![expect(unsafe_code, reason = "declares device code")]

use wakegraph::{Range, kernel};

use crate::watch;

/// All of them, and those of `graph/kernels.rs`.
pub(crate) const SOURCE: &str = include_str!("kernels.c");

kernel! {
    /// x = x + n
    pub(crate) fn add(n: u32, x: &mut [u32]) {
        host: |_, n, x| x.iter_mut().for_each(|x| *x = x.wrapping_add(n)),
        // SAFETY: each work-item of a launch over the buffers' lengths uses the elements with its index.
        c: unsafe { SOURCE },
    }
    /// y = a * x + y
    pub(crate) fn axpy(a: u32, x: &[u32], y: &mut [u32]) {
        host: |_, a, x, y| y.iter_mut().zip(x).for_each(|(y, x)| *y = y.wrapping_add(a.wrapping_mul(*x))),
        // SAFETY: each work-item of a launch over the buffers' lengths uses the elements with its index.
        c: unsafe { SOURCE },
    }
    /// x = 31 * x + n: the order of two of them shows in the result.
    pub(crate) fn mix(n: u32, x: &mut [u32]) {
        host: |_, n, x| x.iter_mut().for_each(|x| *x = x.wrapping_mul(31).wrapping_add(n)),
        // SAFETY: each work-item of a launch over the buffers' lengths uses the elements with its index.
        c: unsafe { SOURCE },
    }
    /// y = 31 * y + sum of x: reads one buffer, changes another, both of `count` elements, as one work-item.
    pub(crate) fn fold(count: u32, x: &[u32], y: &mut [u32]) {
        host: |_, count, x, y| {
            assert_eq!((x.len(), y.len()), (count as usize, count as usize));
            let sum = x.iter().fold(0u32, |sum, x| sum.wrapping_add(*x));
            y.iter_mut().for_each(|y| *y = y.wrapping_mul(31).wrapping_add(sum));
        },
        // SAFETY: a launch is one work-item, which uses the first `count` elements of both.
        c: unsafe { SOURCE },
    }
    /// Writes each work-item's three indices, packed, at its linear index.
    pub(crate) fn indices(out: &mut [u64]) {
        host: |range, out| write_indices(range, out),
        // SAFETY: as many elements as work-items; each writes the one at its linear index.
        c: unsafe { SOURCE },
    }
    /// Waits at a [`Gate`](watch::Gate).
    pub(crate) fn hold(gate: u64) {
        host: |_, gate| watch::hold(gate),
        // SAFETY: the gate is never freed.
        c: unsafe { SOURCE },
    }
    /// Adds a number to a [`List`](watch::List).
    pub(crate) fn note(list: u64, id: u32) {
        host: |_, list, id| watch::note(list, id),
        // SAFETY: the list lives as long as the test and has room.
        c: unsafe { SOURCE },
    }
}

fn write_indices(range: &Range, out: &mut [u64]) {
    let ([width, height, depth], [x0, y0, z0]) = (range.global_size(), range.global_offset());
    let items = (0..depth).flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| (x, y, z))));
    for (out, (x, y, z)) in out.iter_mut().zip(items) {
        *out = pack([x + x0, y + y0, z + z0]);
    }
}

/// Three indices in one number.
pub(crate) fn pack([x, y, z]: [usize; 3]) -> u64 {
    (x | y << 16 | z << 32) as u64
}
