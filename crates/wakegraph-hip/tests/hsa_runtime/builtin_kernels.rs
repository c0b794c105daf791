//! The kernels that HIP brings along for fills and copies. They differ between versions: parameters
//! are found by their names.

use crate::kernels::Kernel;
use crate::packets::Dispatch;
use crate::settings::abort;
use crate::{memory, raw};

/// Runs a kernel of HIP's own; false for any other.
pub(crate) fn run(kernel: &Kernel, packet: &Dispatch) -> bool {
    let Some(name) = kernel.name.strip_prefix("__amd_rocclr_") else { return false };
    let segment = packet.arguments;
    let done = match name {
        "fillBufferAligned" => fill_chunks(kernel, segment).or_else(|| fill_elements(kernel, segment)),
        "fillBufferAligned2D" => fill_rows(kernel, segment),
        "copyBuffer" | "copyBufferAligned" => copy(kernel, segment),
        "copyBufferRect" | "copyBufferRectAligned" => copy_rows(kernel, segment),
        "streamOpsWrite" => stream_write(kernel, segment),
        // Memory for `malloc` in kernels, which no kernel here uses.
        "initHeap" => Some(()),
        _ => None,
    };
    if done.is_none() {
        abort(format_args!("kernel {} is not known with the parameters {:?}", kernel.name, kernel.arguments));
    }
    true
}

fn checked_copy(kernel: &Kernel, to: u64, from: u64, bytes: u64) {
    let (to, from, bytes) = (to as usize, from as usize, bytes as usize);
    memory::require(to, bytes, &kernel.name);
    memory::require(from, bytes, &kernel.name);
    raw::copy(to, from, bytes);
}

/// Since 6.0: chunks of `pattern_size` elements of `alignment` bytes, up to an address.
fn fill_chunks(kernel: &Kernel, segment: usize) -> Option<()> {
    let value = |name| kernel.value(segment, name);
    let (buffer, pattern, end) = (value("buf")?, value("pattern")?, value("end_ptr")?);
    let chunk = value("pattern_size")? * value("alignment")?;
    let mut to = buffer;
    while to < end {
        checked_copy(kernel, to, pattern, chunk);
        to += chunk;
    }
    Some(())
}

/// The buffer, by the size of its elements: one of four parameters is not null.
fn elements(kernel: &Kernel, segment: usize) -> Option<(u64, u64)> {
    let buffers = [("bufULong", 8), ("bufUInt", 4), ("bufUShort", 2), ("bufUChar", 1)];
    buffers
        .iter()
        .find_map(|&(name, size)| Some((kernel.value(segment, name).filter(|&buffer| buffer != 0)?, size)))
}

/// Up to 5.7: `size` patterns of `patternSize` elements.
fn fill_elements(kernel: &Kernel, segment: usize) -> Option<()> {
    let value = |name| kernel.value(segment, name);
    let (buffer, element) = elements(kernel, segment)?;
    let pattern = value("pattern")?;
    let bytes = value("patternSize")? * element;
    let first = buffer + value("offset")? * element;
    for index in 0..value("size")? {
        checked_copy(kernel, first + index * bytes, pattern, bytes);
    }
    Some(())
}

fn fill_rows(kernel: &Kernel, segment: usize) -> Option<()> {
    let value = |name| kernel.value(segment, name);
    let (buffer, element) = elements(kernel, segment)?;
    let (pattern, bytes) = (value("pattern")?, value("patternSize")? * element);
    let first = buffer + value("offset").or_else(|| value("origin"))? * element;
    for row in 0..value("height")? {
        for column in 0..value("width")? {
            let at = row * value("pitch")? + column;
            checked_copy(kernel, first + at * element, pattern, bytes);
        }
    }
    Some(())
}

fn copy(kernel: &Kernel, segment: usize) -> Option<()> {
    let value = |name| kernel.value(segment, name);
    let size = value("size")?;
    if let (Some(from), Some(to), Some(remain)) = (value("srcI"), value("dstI"), value("remain")) {
        // Up to 5.7: bytes; or words of four and, by the last work-item, what remains.
        let at = |base, origin| Some(base + value(origin)?);
        let bytes = if remain == 8 { size } else { (size - 1) * 4 + remain };
        checked_copy(kernel, at(to, "dstOrigin")?, at(from, "srcOrigin")?, bytes);
        return Some(());
    }
    let (from, to) = (value("src")?, value("dst")?);
    match value("alignment") {
        Some(element) => {
            let at = |base, origin| Some(base + value(origin)? * element);
            checked_copy(kernel, at(to, "dstOrigin")?, at(from, "srcOrigin")?, size * element);
        }
        None => checked_copy(kernel, to, from, size),
    }
    Some(())
}

/// Pitch, slice and start at each end, and the width are in elements, whose size is the fourth
/// number of the size.
fn copy_rows(kernel: &Kernel, segment: usize) -> Option<()> {
    let (from, to) = (kernel.value(segment, "src")?, kernel.value(segment, "dst")?);
    let values = |name| kernel.values(segment, name);
    let ([width, rows, slices, element], source, target) =
        (values("size")?, values("srcRect")?, values("dstRect")?);
    let element = if kernel.name.ends_with("Aligned") { element } else { 1 };
    for (slice, row) in (0..slices).flat_map(|slice| (0..rows).map(move |row| (slice, row))) {
        let at =
            |base, [pitch, plane, start, _]: [u64; 4]| base + (start + slice * plane + row * pitch) * element;
        checked_copy(kernel, at(to, target), at(from, source), width * element);
    }
    Some(())
}

fn stream_write(kernel: &Kernel, segment: usize) -> Option<()> {
    let value = kernel.value(segment, "value")?;
    for (name, bytes) in [("ptrInt", 4), ("ptrUlong", 8)] {
        if let Some(to) = kernel.value(segment, name).filter(|&to| to != 0) {
            memory::require(to as usize, bytes, &kernel.name);
            raw::copy(to as usize, &raw const value as usize, bytes);
        }
    }
    Some(())
}
