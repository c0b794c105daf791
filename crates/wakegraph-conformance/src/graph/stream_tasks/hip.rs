//! The calls of HIP that stream tasks make here.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::LazyLock;

use libloading::{Library, Symbol};
use wakegraph::hal::UsmPointer;
use wakegraph::{Error, ErrorKind, Result};

type Stream = *mut c_void;

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let names = ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];
    // SAFETY: the library, which the backend has loaded already.
    names.iter().find_map(|name| unsafe { Library::new(*name) }.ok()).unwrap()
});

fn function<F>(name: &str) -> Symbol<'static, F> {
    // SAFETY: the callers name the function with its own type.
    unsafe { LIBRARY.get(name) }.unwrap()
}

fn check(call: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::new(ErrorKind::Driver, format!("{call} failed with {code}"))),
    }
}

/// Sets every word, in the order of the stream.
pub(crate) fn set(stream: Stream, x: UsmPointer, word: u32) -> Result<()> {
    type Set = unsafe extern "C" fn(*mut c_void, c_int, usize, Stream) -> c_int;
    let call = "hipMemsetD32Async";
    let (set, to) = (function::<Set>(call), ptr::with_exposed_provenance_mut(x.address()));
    // SAFETY: the stream is alive, and the memory has so many bytes.
    check(call, unsafe { set(to, word.cast_signed(), x.len() / 4, stream) })
}

/// Copies every word, in the order of the stream.
pub(crate) fn copy(stream: Stream, from: UsmPointer, to: UsmPointer) -> Result<()> {
    type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int, Stream) -> c_int;
    const BY_ADDRESS: c_int = 4;
    let call = "hipMemcpyAsync";
    let copy = function::<Copy>(call);
    let target = ptr::with_exposed_provenance_mut(to.address());
    let source = ptr::with_exposed_provenance(from.address());
    // SAFETY: the stream is alive, and both sides have so many bytes.
    check(call, unsafe { copy(target, source, from.len(), BY_ADDRESS, stream) })
}
