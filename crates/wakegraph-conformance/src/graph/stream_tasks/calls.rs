//! The work of the closures of stream tasks, on each backend with its own calls.
#![expect(unsafe_code, reason = "uses the memory that is declared")]

use std::{ptr, slice};

use wakegraph::Result;
use wakegraph::interop::{NativeMemory, NativeStream};

use super::super::native::raw;

/// The words of memory that the host has an address of.
fn words<'a>(memory: NativeMemory<'a>) -> &'a mut [u32] {
    let start = ptr::with_exposed_provenance_mut(memory.address().unwrap());
    // SAFETY: the memory has so many bytes, and nothing else uses them during the call.
    unsafe { slice::from_raw_parts_mut(start, memory.len() / 4) }
}

/// Sets every word, in the order of the stream.
pub(super) fn set(stream: &NativeStream<'_>, x: NativeMemory<'_>, word: u32) -> Result<()> {
    match stream.backend() {
        "host" => words(x).fill(word),
        "cuda" => raw::set(stream.stream(), pointer(x), word)?,
        "hip" => super::hip::set(stream.stream(), pointer(x), word)?,
        "opencl" => {
            let (pattern, none) = ((&raw const word).cast(), ptr::null());
            let (handle, start, len) = (x.handle(), x.offset(), x.len());
            // SAFETY: the queue and the buffer are alive, and the buffer has these bytes.
            let event = unsafe {
                cl3::command_queue::enqueue_fill_buffer(
                    stream.stream(),
                    handle,
                    pattern,
                    4,
                    start,
                    len,
                    0,
                    none,
                )
            };
            release(event)?;
        }
        "level_zero" => super::level_zero::set(stream.stream(), pointer(x), word)?,
        other => panic!("what does {other} lend?"),
    }
    Ok(())
}

/// Copies every word, in the order of the stream.
pub(super) fn copy(stream: &NativeStream<'_>, from: NativeMemory<'_>, to: NativeMemory<'_>) -> Result<()> {
    match stream.backend() {
        "host" => words(to).copy_from_slice(words(from)),
        "cuda" => raw::copy(stream.stream(), pointer(from), pointer(to))?,
        "hip" => super::hip::copy(stream.stream(), pointer(from), pointer(to))?,
        "opencl" => {
            let (source, target, none) = (from.handle(), to.handle(), ptr::null());
            let (at, to_at, len) = (from.offset(), to.offset(), from.len());
            let queue = stream.stream();
            // SAFETY: the queue and the buffers are alive, and the buffers have these bytes.
            let event = unsafe {
                cl3::command_queue::enqueue_copy_buffer(queue, source, target, at, to_at, len, 0, none)
            };
            release(event)?;
        }
        "level_zero" => super::level_zero::copy(stream.stream(), pointer(from), pointer(to))?,
        other => panic!("what does {other} lend?"),
    }
    Ok(())
}

fn release(event: std::result::Result<*mut std::ffi::c_void, i32>) -> Result<()> {
    use wakegraph::{Error, ErrorKind};
    let error = |code| Error::new(ErrorKind::Driver, format!("an enqueue failed with {code}"));
    let event = event.map_err(error)?;
    // SAFETY: the event is that of the enqueue.
    unsafe { cl3::event::release_event(event) }.map_err(error)
}

pub(super) fn pointer(memory: NativeMemory<'_>) -> wakegraph::hal::UsmPointer {
    // SAFETY: so many bytes are at the address.
    unsafe { wakegraph::hal::UsmPointer::new(memory.address().unwrap(), memory.len()) }
}
