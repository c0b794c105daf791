//! The calls of Level Zero that stream tasks and native commands make here.
#![expect(unsafe_code, reason = "calls the driver")]

use std::env;
use std::ffi::{OsString, c_void};
use std::ptr;
use std::sync::LazyLock;

use libloading::{Library, Symbol};
use wakegraph::hal::UsmPointer;
use wakegraph::{Error, ErrorKind, Result};

type List = *mut c_void;
type EventList = *mut *mut c_void;

static LOADER: LazyLock<Library> = LazyLock::new(|| {
    let named = env::var_os("WAKEGRAPH_LEVEL_ZERO_LIBRARY");
    // SAFETY: the loader, which the backend has loaded already.
    unsafe { Library::new(named.unwrap_or_else(|| OsString::from("libze_loader.so.1"))) }.unwrap()
});

fn function<F>(name: &str) -> Symbol<'static, F> {
    // SAFETY: the callers name the function with its own type.
    unsafe { LOADER.get(name) }.unwrap()
}

fn check(call: &str, code: u32) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::new(ErrorKind::Driver, format!("{call} failed with {code:#x}"))),
    }
}

/// Sets every word, behind what is on the list already.
pub(crate) fn set(list: List, x: UsmPointer, word: u32) -> Result<()> {
    type Fill =
        unsafe extern "C" fn(List, *mut c_void, *const c_void, usize, usize, List, u32, EventList) -> u32;
    let call = "zeCommandListAppendMemoryFill";
    let (fill, to) = (function::<Fill>(call), ptr::with_exposed_provenance_mut(x.address()));
    let (pattern, none) = ((&raw const word).cast(), ptr::null_mut());
    // SAFETY: the list is open, and the memory has so many bytes.
    check(call, unsafe { fill(list, to, pattern, 4, x.len(), none, 0, none.cast()) })?;
    barrier(list)
}

/// Copies every word, behind what is on the list already.
pub(crate) fn copy(list: List, from: UsmPointer, to: UsmPointer) -> Result<()> {
    type Copy = unsafe extern "C" fn(List, *mut c_void, *const c_void, usize, List, u32, EventList) -> u32;
    let call = "zeCommandListAppendMemoryCopy";
    let (copy, none) = (function::<Copy>(call), ptr::null_mut());
    let target = ptr::with_exposed_provenance_mut(to.address());
    let source = ptr::with_exposed_provenance(from.address());
    // SAFETY: the list is open, and both sides have so many bytes.
    check(call, unsafe { copy(list, target, source, from.len(), none, 0, none.cast()) })?;
    barrier(list)
}

/// The list need not be in order.
fn barrier(list: List) -> Result<()> {
    type Barrier = unsafe extern "C" fn(List, List, u32, EventList) -> u32;
    let call = "zeCommandListAppendBarrier";
    let (barrier, none) = (function::<Barrier>(call), ptr::null_mut());
    // SAFETY: the list is open.
    check(call, unsafe { barrier(list, none, 0, none.cast()) })
}
