//! The kernels. A photo is rows of bytes: red, green and blue of one pixel after the other. Its
//! size, `[bytes per row, rows]`, is read from memory, because slots have room for the largest.
#![expect(unsafe_code, reason = "declares device code")]

const SOURCE: &str = include_str!("kernels.c");

wakegraph::kernel! {
    /// Makes each byte differ more from the mean of those around it.
    pub(crate) fn sharpen(size: &[u32], photo: &[u8], sharp: &mut [u8]) {
        range: |size, photo, sharp| if size.len() < 2 { 0 } else { photo.len().min(sharp.len()) },
        each: |at, size, photo, sharp| if at < len(size) {
            *sharp = sharpened(photo, at, size[0] as usize, len(size));
        },
        // SAFETY: a work-item writes its byte of `sharp`, and reads bytes of the photo, all of
        // which lie in the buffer.
        c: unsafe { SOURCE },
    }

    /// Counts the pixels of each brightness.
    pub(crate) fn histogram(size: &[u32], photo: &[u8], bins: &mut [u32]) {
        range: |size, photo, bins| if size.len() < 2 || bins.len() < 256 { 0 } else { photo.len() / 3 },
        item: |pixel, size, photo, bins| if 3 * pixel < len(size) {
            bins[luma(&photo[3 * pixel..])] += 1;
        },
        // SAFETY: a work-item reads its pixel, if it lies in the buffer; brightness is below 256;
        // the additions are atomic.
        c: unsafe { SOURCE },
    }

    /// Replaces each byte by what the curve of its colour says. Each of the three curves has 256
    /// bytes.
    pub(crate) fn apply(size: &[u32], curves: &[u8], photo: &[u8], toned: &mut [u8]) {
        range: |size, curves, photo, toned| match size.len() < 2 || curves.len() < 3 * 256 {
            true => 0,
            false => photo.len().min(toned.len()),
        },
        each: |at, size, curves, photo, toned| if at < len(size) {
            *toned = curves[256 * (at % 3) + usize::from(photo[at])];
        },
        // SAFETY: a work-item uses its bytes of `photo` and `toned`; there are three curves.
        c: unsafe { SOURCE },
    }
}

/// The bytes of a photo.
fn len(size: &[u32]) -> usize {
    size[0] as usize * size[1] as usize
}

fn sharpened(photo: &[u8], at: usize, row: usize, len: usize) -> u8 {
    let column = at % row;
    let columns = [if column < 3 { at } else { at - 3 }, at, if column + 3 < row { at + 3 } else { at }];
    let sum: i32 = columns
        .iter()
        .map(|&at| {
            let above = if at < row { at } else { at - row };
            let below = if at + row < len { at + row } else { at };
            i32::from(photo[above]) + i32::from(photo[at]) + i32::from(photo[below])
        })
        .sum();
    ((17 * i32::from(photo[at]) - sum) / 8).clamp(0, 255) as u8
}

/// Rec. 709, in integers.
fn luma(rgb: &[u8]) -> usize {
    (2126 * usize::from(rgb[0]) + 7152 * usize::from(rgb[1]) + 722 * usize::from(rgb[2])) / 10_000
}
