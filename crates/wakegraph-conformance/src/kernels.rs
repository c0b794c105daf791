//! The kernels of the graph tests, declared once with all variants that a backend may take.
#![expect(unsafe_code, reason = "declares device code")]

use wakegraph::kernel::{KernelCall, RangeBound};
use wakegraph::{Local, Range, kernel};

use crate::watch::{self, List, Turnstile};

/// All of them, and those of `graph/kernels.rs`.
pub(crate) const SOURCE: &str = include_str!("kernels.c");

kernel! {
    /// x = x + n
    pub(crate) fn add(n: u32, x: &mut [u32]) {
        item: |i, n, x| x[i] = x[i].wrapping_add(n),
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { SOURCE },
    }
    /// Adds `n` to each element, by work-items that own them.
    pub(crate) fn raise(n: u32, x: &mut [u32]) {
        each: |_, n, x| *x = x.wrapping_add(n),
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { SOURCE },
    }
    /// y = a * x + y
    pub(crate) fn axpy(a: u32, x: &[u32], y: &mut [u32]) {
        item: |i, a, x, y| y[i] = y[i].wrapping_add(a.wrapping_mul(x[i])),
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { SOURCE },
    }
    /// x = 31 * x + n: the order of two of them shows in the result.
    pub(crate) fn mix(n: u32, x: &mut [u32]) {
        item: |i, n, x| x[i] = x[i].wrapping_mul(31).wrapping_add(n),
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { SOURCE },
    }
    /// y = 31 * y + sum of x: reads one buffer, changes another, as one work-item.
    pub(crate) fn fold(x: &[u32], y: &mut [u32]) {
        range: |_, _| 1,
        host: |_, x, y| {
            let sum = x.iter().fold(0u32, |sum, x| sum.wrapping_add(*x));
            y.iter_mut().for_each(|y| *y = y.wrapping_mul(31).wrapping_add(sum));
        },
        // SAFETY: the bound is one work-item, which compares its indices with the lengths.
        c: unsafe { SOURCE },
    }
    /// Writes the lengths of all slices, as the device code sees them: of the last one with `before` added.
    pub(crate) fn lengths(bytes: &[u8], before: u32, numbers: &[u64], tile: Local<u16>, out: &mut [u64]) {
        range: |_, _, _, _, _| 1,
        host: |_, bytes, before, numbers, tile, out| {
            let all = [bytes.len(), numbers.len(), tile.len(), out.len() + before as usize];
            out.iter_mut().zip(all).for_each(|(out, len)| *out = len as u64);
        },
        // SAFETY: as above.
        c: unsafe { SOURCE },
    }
    /// x = x + 1, behind a barrier.
    pub(crate) fn meet(x: &mut [u32]) {
        item: |i, x| x[i] += 1,
        // SAFETY: every work-item reaches the barrier, and uses the element with its index, which the
        // shortest slice bounds.
        c: unsafe { SOURCE },
    }
    /// y = y + the last of x
    pub(crate) fn add_last(x: &[u32], y: &mut [u32]) {
        item: |i, x, y| y[i] += x.last().copied().unwrap_or(0),
        // SAFETY: a work-item changes the element with its index; the bound is the length of the
        // shortest slice, so that `x` has a last one.
        c: unsafe { SOURCE },
    }
    /// Counts the work-items at each pixel of an image of whole rows.
    pub(crate) fn count_pixels(width: u32, image: &mut [u32]) {
        range: |width, image| [width as usize, image.len() / width.max(1) as usize],
        item: |[x, y], width, image| image[y * width as usize + x] += 1,
        // SAFETY: the bound keeps one index below the width, the other below the number of rows.
        c: unsafe { SOURCE },
    }
    /// Counts the work-items at each of the range's places, those before its offset included.
    pub(crate) fn count_cells(x: &mut [u32]) {
        range: |x| x.len(),
        host: |range, x| {
            let ends = [0, 1].map(|d| range.offset()[d] + range.global_size()[d]);
            range.items().for_each(|[i, j, k]| x[(k * ends[1] + j) * ends[0] + i] += 1);
        },
        // SAFETY: a work-item changes one place of as many as the ends of the range multiplied,
        // which are bounded; no two have the same.
        c: unsafe { SOURCE },
    }
    /// Writes each work-item's three indices, packed, at its linear index.
    pub(crate) fn indices(out: &mut [u64]) {
        range: |_| RangeBound::ANY,
        host: |range, out| write_indices(range, out),
        // SAFETY: each work-item writes the element at its linear index, if there is one; no two
        // have the same.
        c: unsafe { SOURCE },
    }
}

/// Kernels that get addresses as numbers. Only the functions below call them, with addresses that are good.
mod with_addresses {
    use super::{SOURCE, kernel, watch};

    kernel! {
        pub(super) fn hold(turnstile: u64) {
            host: |_, turnstile| watch::hold(turnstile),
            // SAFETY: `super::hold` gives it a turnstile's address, and turnstiles are never freed.
            c: unsafe { SOURCE },
        }
        pub(super) fn note(list: u64, room: u32, id: u32) {
            host: |_, list, room, id| watch::note(list, room, id),
            // SAFETY: `super::note` gives it a list's address and length, and the list outlives the
            // test's kernels.
            c: unsafe { SOURCE },
        }
    }
}

/// Waits at a turnstile.
pub(crate) fn hold(turnstile: &Turnstile) -> KernelCall {
    with_addresses::hold(turnstile.address())
}

/// Adds a number to a list, while there is room.
pub(crate) fn note(list: &List, id: u32) -> KernelCall {
    with_addresses::note(list.address(), list.room(), id)
}

fn write_indices(range: &Range, out: &mut [u64]) {
    let ([width, height, depth], [x0, y0, z0]) = (range.global_size(), range.offset());
    let items = (0..depth).flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| (x, y, z))));
    for (out, (x, y, z)) in out.iter_mut().zip(items) {
        *out = pack([x + x0, y + y0, z + z0]);
    }
}

/// Three indices in one number.
pub(crate) fn pack([x, y, z]: [usize; 3]) -> u64 {
    (x | y << 16 | z << 32) as u64
}
