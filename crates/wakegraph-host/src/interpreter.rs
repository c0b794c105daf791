//! Interpreter of commands.
//!
//! Conditionals and loops run their commands one after the other, on the worker that has reached the
//! command.
#![expect(unsafe_code, reason = "reads and writes the memory that commands name")]

use wakegraph_hal::support::errors::stopped_loop;
use wakegraph_hal::{
    Body, Command, Error, ErrorKind, KernelArg, MemoryView, NativeCommand, NativeStream, Pitch, Rect, Result,
    UsmPointer,
};

use super::launch::{HostKernel, WorkerControl, run_kernel};

/// Whether the host can run the command at all: its memory has an address here, its kernel is a closure.
pub(super) fn check(command: &Command) -> Result<()> {
    match command {
        Command::Kernel(launch) => {
            for kernel in std::iter::once(&launch.kernel).chain(&launch.alternatives) {
                HostKernel::of(&**kernel)?;
            }
        }
        Command::Native(native) => return Err(unsupported(native)),
        _ => {}
    }
    command.views().try_for_each(|view| address(view).map(drop))?;
    command.bodies().try_for_each(|body| body.commands().try_for_each(|(command, _)| check(command)))
}

/// As [`check`], for one argument of a kernel.
pub(super) fn check_arg(arg: &KernelArg) -> Result<()> {
    match arg {
        KernelArg::Memory(view) => address(view).map(drop),
        KernelArg::Value(_) | KernelArg::Usm(_) | KernelArg::Local(_) => Ok(()),
    }
}

/// Runs one command. A loop that is to end does so between two iterations.
///
/// # Errors
/// The kernel's, and [`Cancelled`](ErrorKind::Cancelled) for a loop that was stopped.
///
/// # Safety
/// The operands are in bounds, the pointers valid, and nothing else accesses the bytes in a
/// conflicting way until this returns: validation checks the operands, and the caller of an enqueue
/// vouches for the rest.
pub(super) unsafe fn execute(command: &Command, control: &mut dyn WorkerControl) -> Result<()> {
    match command {
        Command::Kernel(launch) => {
            // SAFETY: passed on to the caller.
            unsafe { run_kernel(launch, control) }
        }
        Command::UsmCopy { src, dst, len } => {
            // SAFETY: passed on to the caller.
            unsafe { copy(usm(src), usm(dst), *len) };
            Ok(())
        }
        Command::BufferCopy { src, dst }
        | Command::BufferRead { src, host: dst }
        | Command::BufferWrite { host: src, dst } => {
            let len = src.len().min(dst.len());
            // SAFETY: passed on to the caller.
            unsafe { copy(address(src)?, address(dst)?, len) };
            Ok(())
        }
        Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch }
        | Command::BufferReadRect { src, host: dst, rect, src_pitch, host_pitch: dst_pitch }
        | Command::BufferWriteRect { host: src, dst, rect, host_pitch: src_pitch, dst_pitch } => {
            // SAFETY: passed on to the caller.
            unsafe { copy_rect(address(src)?, address(dst)?, *rect, *src_pitch, *dst_pitch) };
            Ok(())
        }
        Command::UsmFill { dst, pattern } => {
            // SAFETY: passed on to the caller.
            unsafe { fill(usm(dst), dst.len(), pattern) };
            Ok(())
        }
        Command::BufferFill { dst, pattern } => {
            // SAFETY: passed on to the caller.
            unsafe { fill(address(dst)?, dst.len(), pattern) };
            Ok(())
        }
        Command::UsmPrefetch { .. } | Command::UsmAdvise { .. } | Command::Empty => Ok(()),
        Command::If { .. } | Command::While { .. } | Command::Switch { .. } => {
            // SAFETY: passed on to the caller.
            unsafe { execute_control(command, control) }
        }
        Command::Native(native) => Err(unsupported(native)),
        Command::StreamTask(task) => {
            let (stream, context) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: the host has neither, and says so.
            let lent = unsafe { NativeStream::new("host", stream, context) };
            // SAFETY: this comes after the wait list, and the event becomes final after it.
            unsafe { task.call_live(&lent) }
        }
    }
}

/// The host has no stream to lend.
fn unsupported(native: &NativeCommand) -> Error {
    let why = format!("the host has no stream for native command '{}'", native.name());
    Error::new(ErrorKind::FeatureNotSupported, why).help("write a kernel with a Rust closure instead")
}

/// Runs a command that holds bodies.
///
/// # Errors
/// Those of the first command that fails: the ones after it do not run.
///
/// # Safety
/// As for [`execute`].
unsafe fn execute_control(command: &Command, control: &mut dyn WorkerControl) -> Result<()> {
    match command {
        Command::If { condition, then, otherwise } => {
            // SAFETY: passed on to the caller.
            let holds = unsafe { word(condition) }? != 0;
            match if holds { Some(then) } else { otherwise.as_ref() } {
                // SAFETY: passed on to the caller.
                Some(body) => unsafe { run_body(body, control) },
                None => Ok(()),
            }
        }
        Command::While { condition, body } => {
            // SAFETY: passed on to the caller.
            while unsafe { word(condition) }? != 0 {
                if control.is_stopped() {
                    return Err(stopped_loop());
                }
                // SAFETY: passed on to the caller.
                unsafe { run_body(body, control) }?;
            }
            Ok(())
        }
        Command::Switch { index, bodies } => {
            // SAFETY: passed on to the caller.
            match bodies.get(unsafe { word(index) }? as usize) {
                // SAFETY: passed on to the caller.
                Some(body) => unsafe { run_body(body, control) },
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// # Safety
/// As for [`execute`].
unsafe fn run_body(body: &Body, control: &mut dyn WorkerControl) -> Result<()> {
    for (command, _) in body.commands() {
        // SAFETY: passed on to the caller. Running the commands one after the other keeps their order.
        unsafe { execute(command, control) }?;
    }
    Ok(())
}

/// # Safety
/// As for [`execute`].
unsafe fn word(view: &MemoryView) -> Result<u32> {
    let word = address(view)?.cast::<u32>();
    // SAFETY: the view has 4 bytes, and nothing writes them meanwhile.
    Ok(unsafe { word.read_unaligned() })
}

fn usm(pointer: &UsmPointer) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(pointer.address())
}

fn address(view: &MemoryView) -> Result<*mut u8> {
    let base = view.memory().host_ptr().ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, "the memory has no address on the host")
            .help("copy it through host memory of its own device first")
    })?;
    Ok(base.as_ptr().wrapping_add(view.offset()))
}

/// # Safety
/// `len` bytes at both are valid and not accessed by anything else meanwhile.
unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: passed on to the caller. A copy that tolerates overlap, so that a mistake is not
    // undefined behaviour.
    unsafe { std::ptr::copy(src, dst, len) }
}

/// # Safety
/// The rectangle under each pitch is valid and not accessed by anything else meanwhile.
unsafe fn copy_rect(src: *const u8, dst: *mut u8, rect: Rect, src_pitch: Pitch, dst_pitch: Pitch) {
    for (from, to) in rect.rows(src_pitch).zip(rect.rows(dst_pitch)) {
        // SAFETY: passed on to the caller; each row lies inside its rectangle.
        unsafe { copy(src.wrapping_add(from), dst.wrapping_add(to), rect.width) }
    }
}

/// The most bytes that a fill copies at once: a part of a core's first cache.
const CACHED: usize = if cfg!(miri) { 64 } else { 16 << 10 };

/// # Safety
/// `len` bytes at `dst` are valid and not accessed by anything else meanwhile.
unsafe fn fill(dst: *mut u8, len: usize, pattern: &[u8]) {
    let Some(&first) = pattern.first() else { return };
    if pattern.iter().all(|&byte| byte == first) {
        // SAFETY: passed on to the caller.
        unsafe { dst.write_bytes(first, len) };
        return;
    }
    let mut filled = pattern.len().min(len);
    // SAFETY: `filled` is at most `len`.
    unsafe { std::ptr::copy_nonoverlapping(pattern.as_ptr(), dst, filled) };
    // Each copy doubles the filled part, as long as what is copied stays in the core's cache. `block` and
    // `filled` stay multiples of the pattern's length until the last copy.
    let mut block = filled;
    while filled < len {
        if filled <= CACHED {
            block = filled;
        }
        let more = block.min(len - filled);
        // SAFETY: source and target lie inside `len`, one before `filled` and one from it on.
        unsafe { std::ptr::copy_nonoverlapping(dst, dst.wrapping_add(filled), more) };
        filled += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_repeat_patterns_of_any_length() {
        for pattern in [1, 2, 3, 12, 16, 1000, CACHED - 1, CACHED + 1, 3 * CACHED] {
            let pattern: Vec<u8> = (0..pattern).map(|byte| (byte % 251) as u8).collect();
            for len in [1, 5, CACHED - 1, CACHED, 2 * CACHED + 7, 10 * CACHED + 3] {
                let mut bytes = vec![255; len + 1];
                // SAFETY: the vector has so many bytes.
                unsafe { fill(bytes.as_mut_ptr(), len, &pattern) };
                let expected = pattern.iter().cycle().take(len).chain([&255]);
                assert!(bytes.iter().eq(expected), "{} of {len} bytes", pattern.len());
            }
        }
    }
}
