//! What callers of C functions give by pointer. A null pointer is an error; of any other, the caller promises
//! that it is what the function's declaration says.

use std::ffi::{CStr, c_char, c_void};

use crate::Outcome;
use crate::types::*;

/// The value behind a pointer.
pub(crate) fn read<T: Copy>(from: *const T) -> Outcome<T> {
    if from.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: as above.
    Ok(unsafe { from.read_unaligned() })
}

/// Puts a value where a pointer says.
pub(crate) fn write<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: as above.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// As many values as the caller says; the pointer may be null if there are none.
pub(crate) fn list<T: Copy>(from: *const T, count: usize) -> Outcome<Vec<T>> {
    (0..count).map(|i| read(from.wrapping_add(i))).collect()
}

/// Answers a call that gives a list: its length if there is no room for any, or as much as fits.
pub(crate) fn give<T: Copy>(count: *mut u32, to: *mut T, all: &[T]) -> Outcome {
    let room = read(count)? as usize;
    if room == 0 || to.is_null() {
        return write(count, all.len() as u32);
    }
    let given = room.min(all.len());
    for (i, one) in all[..given].iter().enumerate() {
        write(to.wrapping_add(i), *one)?;
    }
    write(count, given as u32)
}

/// The text behind a pointer.
pub(crate) fn text(from: *const c_char) -> Outcome<String> {
    if from.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: as above.
    Ok(unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

/// Text in an array of a structure.
pub(crate) fn put_text<const N: usize>(to: &mut [c_char; N], text: &str) {
    to.fill(0);
    for (to, byte) in to[..N - 1].iter_mut().zip(text.bytes()) {
        *to = byte as c_char;
    }
}

/// The structures of a chain, each by its type and its address.
pub(crate) fn chain(first: *const c_void) -> impl Iterator<Item = (ze_structure_type_t, *const c_void)> {
    let mut next = first;
    std::iter::from_fn(move || {
        let this = next;
        let base = read(this.cast::<ze_base_desc_t>()).ok()?;
        next = base.pNext;
        Some((base.stype, this))
    })
}

/// The structure of a chain that has this type.
pub(crate) fn find<T: Copy>(first: *const c_void, stype: ze_structure_type_t) -> Option<T> {
    chain(first).find(|(found, _)| *found == stype).and_then(|(_, at)| read(at.cast()).ok())
}
