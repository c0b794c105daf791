//! Addresses that C code passes: the caller answers for them, as the HSA standard says for each
//! function.

use std::ffi::{CStr, c_char};

/// Writes a result to where the caller wants it.
pub(crate) fn write<T>(to: *mut T, value: T) {
    // SAFETY: the callers of these functions pass addresses of sufficient size, aligned or not.
    unsafe { to.write_unaligned(value) }
}

/// Reads what the caller has passed.
pub(crate) fn read<T: Copy>(from: *const T) -> T {
    // SAFETY: as in `write`; the types that are read take every bit pattern.
    unsafe { from.read_unaligned() }
}

/// An array of the caller's.
pub(crate) fn list<T: Copy>(from: *const T, count: usize) -> Vec<T> {
    (0..count).map(|index| read(from.wrapping_add(index))).collect()
}

/// Copies bytes, which may overlap.
pub(crate) fn copy(to: usize, from: usize, bytes: usize) {
    let (to, from): (*mut u8, *const u8) = (to as *mut u8, from as *const u8);
    // SAFETY: the caller, or whoever wrote the packet, answers for both ranges; copies of agents
    // are checked before.
    unsafe { std::ptr::copy(from, to, bytes) }
}

/// A C string of the caller's, which may be null.
pub(crate) fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: not null, so it ends with a zero.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

/// What lies at an address for as long as the process runs, or until the caller gives it back.
pub(crate) fn borrow<'a, T>(at: *const T) -> &'a T {
    // SAFETY: the handles of this library are addresses of its own objects.
    unsafe { &*at }
}

/// Writes a text without its terminating zero.
pub(crate) fn write_text(to: *mut u8, text: &str) {
    // SAFETY: the caller passes room for the length that it asked for before, or that the standard
    // names.
    unsafe { to.copy_from_nonoverlapping(text.as_ptr(), text.len()) }
}
