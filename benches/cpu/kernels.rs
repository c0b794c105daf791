//! The kernels in all forms, and the same work as loops of one thread and of rayon's.
//!
//! The work itself is written once, in functions that every form inlines.
#![expect(unsafe_code, reason = "declares device code")]
#![allow(clippy::many_single_char_names, reason = "the names that formulas have")]

use rayon::prelude::*;
use wakegraph::Local;

/// Elements that a work-group adds up.
pub(crate) const GROUP: usize = 256;

/// Elements in each dimension of a tile of the matrix product.
pub(crate) const TILE: usize = 16;

/// The least elements that rayon gives to a thread: as many as it takes to be worth it.
const LEAST: usize = 1024;

const BINS: usize = 256;

wakegraph::kernel! {
    /// y = a * x + y
    pub(crate) fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
        each: |i, a, x, y| *y += a * x[i],
        // SAFETY: a work-item uses the elements with its index, which is below the shortest length.
        c: unsafe { "KERNEL(saxpy, (float a, SLICE(const float, x), SLICE(float, y))) {
                         y[GLOBAL_ID(0)] += a * x[GLOBAL_ID(0)];
                     }" },
    }
    pub(crate) fn saxpy_item(a: f32, x: &[f32], y: &mut [f32]) {
        item: |i, a, x, y| y[i] += a * x[i],
    }

    /// Much work for each element.
    pub(crate) fn madds(x: &[f32], y: &mut [f32]) {
        each: |i, x, y| *y = multiply_adds(x[i]),
        // SAFETY: as above.
        c: unsafe { "KERNEL(madds, (SLICE(const float, x), SLICE(float, y))) {
                         float v = x[GLOBAL_ID(0)];
                         for (int k = 0; k < 64; k++) v = v * 1.0001f + 0.5f;
                         y[GLOBAL_ID(0)] = v;
                     }" },
    }
    pub(crate) fn madds_item(x: &[f32], y: &mut [f32]) {
        item: |i, x, y| y[i] = multiply_adds(x[i]),
    }

    /// The mean of a pixel and the four beside it.
    pub(crate) fn blur(width: u32, x: &[f32], y: &mut [f32]) {
        range: |width, x, y| [width as usize, x.len().min(y.len()) / width.max(1) as usize],
        each: |[column, row], width, x, y| *y = blurred(column, row, width as usize, x),
        // SAFETY: the bound keeps the column below the width and the row below the number of whole rows
        // of both slices, and those beside them are kept there.
        c: unsafe { "KERNEL(blur, (u32 width, SLICE(const float, x), SLICE(float, y))) {
                         int w = (int)width, h = (int)((LEN(x) < LEN(y) ? LEN(x) : LEN(y)) / width);
                         int c = (int)GLOBAL_ID(0), r = (int)GLOBAL_ID(1);
                         float sum = x[r * w + c];
                         sum += x[r * w + (c > 0 ? c - 1 : 0)];
                         sum += x[r * w + (c + 1 < w ? c + 1 : w - 1)];
                         sum += x[(r > 0 ? r - 1 : 0) * w + c];
                         sum += x[(r + 1 < h ? r + 1 : h - 1) * w + c];
                         y[r * w + c] = sum / 5.0f;
                     }" },
    }
    pub(crate) fn blur_item(width: u32, x: &[f32], y: &mut [f32]) {
        range: |width, x, y| [width as usize, x.len().min(y.len()) / width.max(1) as usize],
        item: |[column, row], width, x, y| {
            y[row * width as usize + column] = blurred(column, row, width as usize, x);
        },
    }

    /// Multiply-adds that go on for a while.
    pub(crate) fn long(rounds: u32, x: &mut [f32]) {
        each: |_, rounds, x| for _ in 0..rounds { *x = *x * 1.0001 + 0.5 },
    }

    /// The sum of each work-group's elements, in a tree.
    pub(crate) fn reduction(x: &[f32], tile: Local<f32>, sums: &mut [f32]) {
        range: |x, _, _| [x.len()],
        group: |group, x, tile, sums| {
            let x = &x[group.offset()[0]..][..group.count()];
            let (Ok(x), Ok(tile)) = (x.try_into(), tile.try_into()) else { panic!("a group of other size") };
            sums[0] = sum(x, tile);
        },
        // SAFETY: the bound keeps the index below the length of `x`; others are compared with the lengths.
        // All work-items of a group compare the same, so all reach the barriers or none.
        c: unsafe { "KERNEL(reduction, (SLICE(const float, x), LOCAL_SLICE(float, tile),
                                        SLICE(float, sums))) {
                         u64 i = LOCAL_ID(0);
                         if (LEN(tile) < LOCAL_SIZE(0) || GROUP_ID(0) >= LEN(sums)) return;
                         tile[i] = x[GLOBAL_ID(0)];
                         for (u64 step = LOCAL_SIZE(0) / 2; step > 0; step /= 2) {
                             BARRIER();
                             if (i < step) tile[i] += tile[i + step];
                         }
                         if (i == 0) sums[GROUP_ID(0)] = tile[0];
                     }" },
    }
    /// A work-item adds up what is a work-group's above.
    pub(crate) fn reduction_item(x: &[f32], sums: &mut [f32]) {
        range: |_, sums| [sums.len()],
        item: |i, x, sums| sums[i] = sum(&x.as_chunks().0[i], &mut [0.0; GROUP]),
    }

    /// c = a * b, for square matrices with rows of `n` elements.
    pub(crate) fn product(
        n: u32, a: &[f32], b: &[f32], tile_a: Local<f32>, tile_b: Local<f32>, c: &mut [f32],
    ) {
        range: |n, a, b, _, _, c| {
            let n = n as usize;
            let least = a.len().min(b.len()).min(c.len());
            [if n.is_multiple_of(TILE) && n * n <= least { n } else { 0 }; 2]
        },
        group: |group, n, a, b, tile_a, tile_b, c| {
            let [x, y, _] = group.offset();
            let sums = product_of_tiles(n as usize, a, b, [x, y], tile_a, tile_b);
            for (row, sums) in sums.iter().enumerate() {
                c.row(row, 0).copy_from_slice(sums);
            }
        },
        // SAFETY: the bound ensures whole tiles in matrices of `n` rows, and is 0 otherwise; the sizes of the
        // work-group and of its tiles are compared, by all its work-items alike.
        c: unsafe { "KERNEL(product, (u32 n, SLICE(const float, a), SLICE(const float, b),
                                      LOCAL_SLICE(float, tile_a), LOCAL_SLICE(float, tile_b),
                                      SLICE(float, c))) {
                         u64 i = LOCAL_ID(0), j = LOCAL_ID(1), x = GLOBAL_ID(0), y = GLOBAL_ID(1);
                         if (LOCAL_SIZE(0) != 16 || LOCAL_SIZE(1) != 16) return;
                         if (LEN(tile_a) < 256 || LEN(tile_b) < 256) return;
                         float sum = 0.0f;
                         for (u64 k = 0; k < n; k += 16) {
                             tile_a[j * 16 + i] = a[y * n + k + i];
                             tile_b[j * 16 + i] = b[(k + j) * n + x];
                             BARRIER();
                             for (int m = 0; m < 16; m++) sum += tile_a[j * 16 + m] * tile_b[m * 16 + i];
                             BARRIER();
                         }
                         c[y * n + x] = sum;
                     }" },
    }
    /// A work-item computes what is a work-group's above.
    pub(crate) fn product_item(n: u32, a: &[f32], b: &[f32], c: &mut [f32]) {
        range: |n, _, _, _| [n as usize / TILE; 2],
        item: |[x, y], n, a, b, c| {
            let (n, [x, y]) = (n as usize, [x * TILE, y * TILE]);
            product_at([x, y], n, a, b, &mut c[y * n..]);
        },
    }

    /// How many elements have each value.
    pub(crate) fn histogram(x: &[u32], bins: &mut [u32]) {
        range: |x, _| [x.len()],
        host: |range, x, bins| count(&x[range.offset()[0]..][..range.count()], bins),
        // SAFETY: the bound keeps the index below the length of `x`; the additions are atomic.
        c: unsafe { "KERNEL(histogram, (SLICE(const u32, x), SLICE(u32, bins))) {
                         u32 bin = x[GLOBAL_ID(0)] % 256;
                         if (bin < LEN(bins)) ATOMIC_ADD(&bins[bin], 1u);
                     }" },
    }

    /// Work that is over at once.
    pub(crate) fn tiny(x: &mut [u32]) {
        each: |_, x| *x = x.wrapping_add(1),
    }
}

#[inline(always)]
fn multiply_adds(mut v: f32) -> f32 {
    for _ in 0..64 {
        v = v * 1.0001 + 0.5;
    }
    v
}

#[inline(always)]
fn blurred(column: usize, row: usize, width: usize, x: &[f32]) -> f32 {
    let (last_column, last_row) = (width - 1, x.len() / width - 1);
    let line = |row: usize| &x[row.min(last_row) * width..][..width];
    let (above, here, below) = (line(row.saturating_sub(1)), line(row), line(row + 1));
    let [left, at, right] =
        [column.saturating_sub(1), column, column + 1].map(|column| column.min(last_column));
    (here[at] + here[left] + here[right] + above[at] + below[at]) / 5.0
}

/// The sum in the order of the tree.
#[inline(always)]
fn sum(x: &[f32; GROUP], tile: &mut [f32; GROUP]) -> f32 {
    *tile = *x;
    let mut half = GROUP / 2;
    while half > 0 {
        let (low, high) = tile.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
        half /= 2;
    }
    tile[0]
}

/// The tile of the product that begins at these coordinates.
#[inline(always)]
fn product_of_tiles(
    n: usize,
    a: &[f32],
    b: &[f32],
    [x, y]: [usize; 2],
    tile_a: &mut [f32],
    tile_b: &mut [f32],
) -> [[f32; TILE]; TILE] {
    let mut sums = [[0.0; TILE]; TILE];
    for k in (0..n).step_by(TILE) {
        for row in 0..TILE {
            tile_a[row * TILE..][..TILE].copy_from_slice(&a[(y + row) * n + k..][..TILE]);
            tile_b[row * TILE..][..TILE].copy_from_slice(&b[(k + row) * n + x..][..TILE]);
        }
        for (sums, of_a) in sums.iter_mut().zip(tile_a.chunks_exact(TILE)) {
            for (a, of_b) in of_a.iter().zip(tile_b.chunks_exact(TILE)) {
                sums.iter_mut().zip(of_b).for_each(|(sum, b)| *sum += a * b);
            }
        }
    }
    sums
}

/// Writes that tile to the rows of `c`, which begin with the tile's first.
#[inline(always)]
fn product_at([x, y]: [usize; 2], n: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    let (mut tile_a, mut tile_b) = ([0.0; TILE * TILE], [0.0; TILE * TILE]);
    let sums = product_of_tiles(n, a, b, [x, y], &mut tile_a, &mut tile_b);
    for (row, sums) in sums.iter().enumerate() {
        c[row * n + x..][..TILE].copy_from_slice(sums);
    }
}

#[inline(always)]
fn count(x: &[u32], bins: &mut [u32]) {
    for x in x {
        bins[*x as usize % BINS] += 1;
    }
}

/// Loops of one thread, as one writes them by hand.
pub(crate) mod plain {
    use super::*;

    #[inline(never)]
    pub(crate) fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
        for i in 0..y.len() {
            y[i] += a * x[i];
        }
    }

    #[inline(never)]
    pub(crate) fn madds(x: &[f32], y: &mut [f32]) {
        for i in 0..y.len() {
            y[i] = multiply_adds(x[i]);
        }
    }

    #[inline(never)]
    pub(crate) fn blur(width: usize, x: &[f32], y: &mut [f32]) {
        for row in 0..y.len() / width {
            for column in 0..width {
                y[row * width + column] = blurred(column, row, width, x);
            }
        }
    }

    #[inline(never)]
    pub(crate) fn reduction(x: &[f32], sums: &mut [f32]) {
        for (x, sum_of_group) in x.as_chunks().0.iter().zip(sums) {
            *sum_of_group = sum(x, &mut [0.0; GROUP]);
        }
    }

    #[inline(never)]
    pub(crate) fn product(n: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
        for y in (0..n).step_by(TILE) {
            for x in (0..n).step_by(TILE) {
                product_at([x, y], n, a, b, &mut c[y * n..]);
            }
        }
    }

    #[inline(never)]
    pub(crate) fn histogram(x: &[u32], bins: &mut [u32]) {
        count(x, bins);
    }
}

/// The same loops, of parts of what is written, on rayon's threads.
pub(crate) mod parallel {
    use super::*;

    pub(crate) fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
        let parts = y.par_chunks_mut(LEAST).zip(x.par_chunks(LEAST));
        parts.for_each(|(y, x)| y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x));
    }

    pub(crate) fn madds(x: &[f32], y: &mut [f32]) {
        let parts = y.par_chunks_mut(LEAST).zip(x.par_chunks(LEAST));
        parts.for_each(|(y, x)| y.iter_mut().zip(x).for_each(|(y, x)| *y = multiply_adds(*x)));
    }

    pub(crate) fn blur(width: usize, x: &[f32], y: &mut [f32]) {
        let rows = y.par_chunks_exact_mut(width).with_min_len(LEAST.div_ceil(width)).enumerate();
        rows.for_each(|(row, y)| {
            y.iter_mut().enumerate().for_each(|(column, y)| *y = blurred(column, row, width, x));
        });
    }

    pub(crate) fn reduction(x: &[f32], sums: &mut [f32]) {
        let groups = x.as_chunks().0.par_iter().with_min_len(LEAST / GROUP);
        groups.zip(sums).for_each(|(x, sum_of_group)| *sum_of_group = sum(x, &mut [0.0; GROUP]));
    }

    pub(crate) fn product(n: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
        c.par_chunks_exact_mut(n * TILE).enumerate().for_each(|(row, c)| {
            for x in (0..n).step_by(TILE) {
                product_at([x, row * TILE], n, a, b, c);
            }
        });
    }

    pub(crate) fn histogram(x: &[u32], bins: &mut [u32]) {
        let counted = x.par_chunks(LEAST).fold(
            || [0; BINS],
            |mut bins, x| {
                count(x, &mut bins);
                bins
            },
        );
        let all = counted.reduce(|| [0; BINS], |one, other| std::array::from_fn(|bin| one[bin] + other[bin]));
        bins.iter_mut().zip(all).for_each(|(bin, counted)| *bin += counted);
    }
}
