//! Entry points: each is counted and can be made to fail.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::settings;

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
        eprintln!("[{}] {name}", thread.trim_end());
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

/// Prints what happens, where that was asked for.
macro_rules! trace {
    ($($what:tt)*) => {
        if $crate::settings::get().trace {
            eprintln!($($what)*);
        }
    };
}
pub(crate) use trace;
