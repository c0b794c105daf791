//! What ends the process, and the calls that are under way.

use std::cell::Cell;

thread_local! {
    static CALL: Cell<&'static str> = const { Cell::new("no call") };
}

/// Takes note that this thread is in a call, or carries out a command of one.
pub(crate) fn enter(call: &'static str) {
    CALL.set(call);
}

/// The call that this thread is in.
pub(crate) fn call() -> &'static str {
    CALL.get()
}

/// Ends the process: the program has done what the specification forbids.
#[cold]
pub(crate) fn end_process(what: std::fmt::Arguments<'_>) -> ! {
    eprintln!("level_zero_driver: {}: {what} (seed {})", call(), crate::state::seed());
    std::process::abort();
}

/// Ends the process with a message.
macro_rules! misuse {
    ($($message:tt)*) => { $crate::misuse::end_process(format_args!($($message)*)) };
}
pub(crate) use misuse;
