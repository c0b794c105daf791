//! Entry points: each is counted and can be made to fail.

use std::collections::HashMap;
use std::ffi::c_char;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{raw, settings};

/// Declares functions of the C interface that return a status.
macro_rules! hsa {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> $crate::status::Status {
            fn inner($($argument: $kind),*) -> Result<(), $crate::status::Status> $body
            if $crate::calls::fails(stringify!($name)) {
                return $crate::status::OUT_OF_RESOURCES;
            }
            match inner($($argument),*) {
                Ok(()) => $crate::status::SUCCESS,
                Err(status) => status,
            }
        }
    )* };
}
pub(crate) use hsa;

/// Notes a call, and tells whether it is to fail.
pub(crate) fn fails(name: &str) -> bool {
    let settings = settings::get();
    if settings.trace {
        let thread = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
        // In one write, as other threads print, too.
        let line = format!("[{}] {name}\n", thread.trim_end());
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    if IS_TO_FAIL.load(Ordering::Acquire) && NEXT.lock().unwrap().take_if(|next| next == name).is_some() {
        IS_TO_FAIL.store(false, Ordering::Release);
        return true;
    }
    static COUNTS: Mutex<Option<HashMap<String, u64>>> = Mutex::new(None);
    let Some((failing, nth)) = &settings.fail else { return false };
    if failing != name {
        return false;
    }
    let mut counts = COUNTS.lock().unwrap();
    let count = counts.get_or_insert_default().entry(name.to_owned()).or_default();
    *count += 1;
    *count == *nth
}

/// The function whose next call fails, besides the one that the environment names.
static NEXT: Mutex<Option<String>> = Mutex::new(None);
static IS_TO_FAIL: AtomicBool = AtomicBool::new(false);

/// The next call of this function fails. Tests call it.
#[unsafe(no_mangle)]
extern "C" fn wakegraph_fail_next(name: *const c_char) {
    *NEXT.lock().unwrap() = Some(raw::text(name));
    IS_TO_FAIL.store(true, Ordering::Release);
}

/// Whether the call that was to fail is still to come.
#[unsafe(no_mangle)]
extern "C" fn wakegraph_is_to_fail() -> bool {
    IS_TO_FAIL.load(Ordering::Acquire)
}

/// Prints what happens, where that was asked for.
macro_rules! trace {
    ($($what:tt)*) => {
        if $crate::settings::get().trace {
            eprintln!($($what)*);
        }
    };
}
pub(crate) use trace;
