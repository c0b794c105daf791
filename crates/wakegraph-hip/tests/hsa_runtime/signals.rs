//! Signals: values that agents and the host change and wait for.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, Once};
use std::time::{Duration, Instant};

use crate::agents::{Agent, now};
use crate::calls::hsa;
use crate::raw;
use crate::settings::{self, abort};

/// `hsa_signal_t`: the address of a [`Signal`], or 0.
pub(crate) type Handle = u64;

/// `amd_signal_t`.
#[repr(C, align(64))]
pub(crate) struct Signal {
    kind: AtomicI64,
    value: AtomicI64,
    mailbox: u64,
    event: u64,
    start: AtomicU64,
    end: AtomicU64,
    /// Not 0 for a doorbell.
    queue: AtomicU64,
    reserved: u64,
}

const USER: i64 = 1;
const DESTROYED: i64 = 0;

/// Destroyed signals stay readable, so that their use is noticed. The oldest are used again.
static DESTROYED_SIGNALS: Mutex<VecDeque<&'static Signal>> = Mutex::new(VecDeque::new());
const KEPT: usize = 1024;

/// Locked by who waits for a change of any signal or queue, and by who announces one.
static CHANGES: Mutex<()> = Mutex::new(());
static CHANGED: Condvar = Condvar::new();

/// Wakes all that wait.
pub(crate) fn announce() {
    drop(CHANGES.lock().unwrap());
    CHANGED.notify_all();
}

/// Blocks until the condition holds, which changes only before an `announce`. False when the time
/// is over first.
pub(crate) fn wait_until(timeout: Option<Duration>, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    let mut guard = CHANGES.lock().unwrap();
    loop {
        if holds() {
            return true;
        }
        match timeout {
            None => guard = CHANGED.wait(guard).unwrap(),
            Some(all) => {
                let Some(rest) = all.checked_sub(start.elapsed()) else { return false };
                guard = CHANGED.wait_timeout(guard, rest).unwrap().0;
            }
        }
    }
}

pub(crate) fn create(value: i64) -> Handle {
    let mut destroyed = DESTROYED_SIGNALS.lock().unwrap();
    let reused = if destroyed.len() > KEPT { destroyed.pop_front() } else { None };
    drop(destroyed);
    let signal = reused.unwrap_or_else(|| {
        Box::leak(Box::new(Signal {
            kind: AtomicI64::new(DESTROYED),
            value: AtomicI64::new(0),
            mailbox: 0,
            event: 0,
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            queue: AtomicU64::new(0),
            reserved: 0,
        }))
    });
    signal.value.store(value, SeqCst);
    signal.queue.store(0, SeqCst);
    signal.kind.store(USER, SeqCst);
    std::ptr::from_ref(signal) as Handle
}

/// A signal that counts up only: several threads may ring it out of order, each for its own packet.
pub(crate) fn create_doorbell() -> Handle {
    let doorbell = create(-1);
    get(doorbell).queue.store(1, SeqCst);
    doorbell
}

/// The signal of a handle that is not 0.
fn get(handle: Handle) -> &'static Signal {
    if handle == 0 {
        abort("a signal of handle 0 is used");
    }
    let signal: &Signal = raw::borrow(handle as *const Signal);
    if signal.kind.load(SeqCst) != USER {
        abort(format_args!("signal {handle:#x} is used after it was destroyed"));
    }
    signal
}

pub(crate) fn value(handle: Handle) -> i64 {
    get(handle).value.load(SeqCst)
}

/// Whether a wait for a signal to become 0 is over. Handle 0 waits for nothing.
pub(crate) fn is_zero(handle: Handle) -> bool {
    handle == 0 || value(handle) == 0
}

/// What an agent does at the end of a packet or a copy: times, then one less.
pub(crate) fn complete(handle: Handle, start: u64) {
    settings::delay();
    if handle != 0 {
        let signal = get(handle);
        signal.start.store(start, SeqCst);
        signal.end.store(now(), SeqCst);
        signal.value.fetch_sub(1, SeqCst);
    }
    announce();
}

/// `hsa_signal_condition_t`.
pub(crate) fn holds(value: i64, condition: u32, compared: i64) -> bool {
    match condition {
        0 => value == compared,
        1 => value != compared,
        2 => value < compared,
        _ => value >= compared,
    }
}

/// A function that waits for a signal.
struct Handler {
    signal: Handle,
    condition: u32,
    compared: i64,
    call: extern "C" fn(i64, *mut c_void) -> bool,
    argument: usize,
}

static HANDLERS: Mutex<Vec<Handler>> = Mutex::new(Vec::new());

/// Calls handlers whose condition holds, on a thread of its own. A handler that returns true stays.
fn run_handlers() {
    loop {
        let mut ready = None;
        wait_until(None, || {
            let mut handlers = HANDLERS.lock().unwrap();
            let at = handlers.iter().position(|h| holds(value(h.signal), h.condition, h.compared));
            ready = at.map(|at| handlers.remove(at));
            ready.is_some()
        });
        let Some(handler) = ready else { continue };
        if (handler.call)(value(handler.signal), handler.argument as *mut c_void) {
            HANDLERS.lock().unwrap().push(handler);
        }
    }
}

/// `hsa_amd_profiling_dispatch_time_t`, and that of copies.
type Times = [u64; 2];

fn times(handle: Handle) -> Times {
    let signal = get(handle);
    [signal.start.load(SeqCst), signal.end.load(SeqCst)]
}

hsa! {
    fn hsa_signal_create(value: i64, _count: u32, _consumers: *const Agent, signal: *mut Handle) {
        raw::write(signal, create(value));
        Ok(())
    }

    fn hsa_amd_signal_create(
        value: i64, _count: u32, _consumers: *const Agent, _attributes: u64, signal: *mut Handle,
    ) {
        raw::write(signal, create(value));
        Ok(())
    }

    fn hsa_signal_destroy(signal: Handle) {
        HANDLERS.lock().unwrap().retain(|handler| handler.signal != signal);
        let destroyed = get(signal);
        destroyed.kind.store(DESTROYED, SeqCst);
        DESTROYED_SIGNALS.lock().unwrap().push_back(destroyed);
        Ok(())
    }

    fn hsa_amd_signal_value_pointer(signal: Handle, address: *mut usize) {
        raw::write(address, &raw const get(signal).value as usize);
        Ok(())
    }

    fn hsa_amd_signal_async_handler(
        signal: Handle, condition: u32, compared: i64, call: extern "C" fn(i64, *mut c_void) -> bool,
        argument: usize,
    ) {
        static THREAD: Once = Once::new();
        THREAD.call_once(|| {
            std::thread::Builder::new().name("hsa-handlers".into()).spawn(run_handlers).unwrap();
        });
        HANDLERS.lock().unwrap().push(Handler { signal, condition, compared, call, argument });
        announce();
        Ok(())
    }

    fn hsa_amd_profiling_async_copy_enable(_enabled: bool) {
        Ok(())
    }

    fn hsa_amd_profiling_set_profiler_enabled(_queue: *mut c_void, _enabled: i32) {
        Ok(())
    }

    fn hsa_amd_profiling_get_dispatch_time(_agent: Agent, signal: Handle, result: *mut Times) {
        raw::write(result, times(signal));
        Ok(())
    }

    fn hsa_amd_profiling_get_async_copy_time(signal: Handle, result: *mut Times) {
        raw::write(result, times(signal));
        Ok(())
    }
}

fn store(signal: Handle, value: i64) {
    let stored = get(signal);
    match stored.queue.load(SeqCst) {
        0 => stored.value.store(value, SeqCst),
        _ => _ = stored.value.fetch_max(value, SeqCst),
    }
    announce();
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_load_relaxed(signal: Handle) -> i64 {
    value(signal)
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_store_relaxed(signal: Handle, value: i64) {
    store(signal, value);
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_store_screlease(signal: Handle, value: i64) {
    store(signal, value);
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_silent_store_relaxed(signal: Handle, value: i64) {
    store(signal, value);
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_add_relaxed(signal: Handle, value: i64) {
    get(signal).value.fetch_add(value, SeqCst);
    announce();
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_subtract_relaxed(signal: Handle, value: i64) {
    get(signal).value.fetch_sub(value, SeqCst);
    announce();
}

#[unsafe(no_mangle)]
extern "C" fn hsa_signal_wait_scacquire(
    signal: Handle,
    condition: u32,
    compared: i64,
    timeout: u64,
    _hint: u32,
) -> i64 {
    crate::calls::fails("hsa_signal_wait_scacquire");
    let timeout = (timeout != u64::MAX).then(|| Duration::from_nanos(timeout));
    let mut seen = 0;
    wait_until(timeout, || {
        seen = value(signal);
        holds(seen, condition, compared)
    });
    seen
}
