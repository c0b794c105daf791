//! Keeps the process's signal handlers while a driver is loaded or compiles.
//!
//! Compilers in drivers take signals over. LLVM's handler for `SIGTERM` and `SIGINT` ends the
//! process, also if the application, or tokio, puts in a handler of its own later, because that
//! calls the one before it. The handler for `SIGSEGV` that Intel's offline compiler leaves behind
//! jumps to a frame that is gone.

/// Calls a driver, and puts back the handlers that it has replaced. Calls may overlap, and be
/// nested.
///
/// A handler that the application puts in meanwhile stays, unless the driver replaces it.
pub fn keep_handlers<T>(call: impl FnOnce() -> T) -> T {
    let _kept = platform::KeptHandlers::keep();
    call()
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "calls the C library")]
mod platform {
    use std::ffi::{c_int, c_void};
    use std::mem::MaybeUninit;
    use std::ptr;

    use libc::{
        SIGABRT, SIGBUS, SIGHUP, SIGILL, SIGINT, SIGQUIT, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP, SIGUSR1,
        SIGUSR2, SIGXCPU, SIGXFSZ,
    };
    use parking_lot::Mutex;

    /// What compilers take over. `SIGFPE` is not among them: PoCL's own handler makes a kernel that
    /// divides by zero go on.
    const SIGNALS: [c_int; 14] = [
        SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGSEGV, SIGSYS, SIGUSR1, SIGUSR2,
        SIGTERM, SIGXCPU, SIGXFSZ,
    ];

    /// The handlers from before the oldest of the calls that have not returned.
    static HANDLERS: Mutex<Handlers> = Mutex::new(Handlers { calls: 0, before: [None; SIGNALS.len()] });

    struct Handlers {
        calls: usize,
        before: [Option<libc::sigaction>; SIGNALS.len()],
    }

    /// Puts the handlers back when dropped.
    pub(super) struct KeptHandlers;

    impl KeptHandlers {
        pub(super) fn keep() -> Self {
            let mut handlers = HANDLERS.lock();
            if handlers.calls == 0 {
                handlers.before = SIGNALS.map(handler);
            }
            handlers.calls += 1;
            Self
        }
    }

    impl Drop for KeptHandlers {
        fn drop(&mut self) {
            let mut handlers = HANDLERS.lock();
            handlers.calls -= 1;
            for (signal, before) in SIGNALS.into_iter().zip(&mut handlers.before) {
                let now = handler(signal);
                match (&now, &*before) {
                    (Some(now), Some(before)) if is_the_drivers(now, before) => put_back(signal, before),
                    _ => *before = now,
                }
            }
        }
    }

    /// Whether a driver has replaced the handler `before`: the application's lies in the same
    /// object as this crate.
    fn is_the_drivers(now: &libc::sigaction, before: &libc::sigaction) -> bool {
        let is_function = ![libc::SIG_DFL, libc::SIG_IGN].contains(&now.sa_sigaction);
        let own = handler as fn(c_int) -> Option<libc::sigaction> as usize;
        is_function && now.sa_sigaction != before.sa_sigaction && object(now.sa_sigaction) != object(own)
    }

    /// Where the library or program begins in which a function lies.
    fn object(function: usize) -> Option<usize> {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        let address = ptr::with_exposed_provenance::<c_void>(function);
        // SAFETY: the place has room; any address will do.
        let is_found = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
        // SAFETY: zeros, or what the function has written.
        let found = unsafe { found.assume_init() };
        is_found.then(|| found.dli_fbase.addr())
    }

    fn handler(signal: c_int) -> Option<libc::sigaction> {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: changes nothing; the place has room.
        let code = unsafe { libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) };
        // SAFETY: zeros, or what the function has written.
        let now = unsafe { now.assume_init() };
        (code == 0).then_some(now)
    }

    fn put_back(signal: c_int, before: &libc::sigaction) {
        // SAFETY: the process had this handler before, so it can have it again.
        let code = unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
        if code != 0 {
            tracing::warn!(target: "wakegraph", signal, "a signal's handler could not be put back");
        }
    }
}

#[cfg(not(unix))]
mod platform {
    pub(super) struct KeptHandlers;

    impl KeptHandlers {
        pub(super) fn keep() -> Self {
            Self
        }
    }
}

#[cfg(all(test, unix))]
#[expect(unsafe_code, reason = "calls the C library")]
mod tests {
    use std::ffi::c_int;

    use super::*;

    extern "C" fn own(_: c_int) {}

    /// Puts a handler in, and gives the one before.
    fn replace(signal: c_int, handler: usize) -> usize {
        // SAFETY: the handlers are functions or the default, and nobody sends the signal.
        unsafe { libc::signal(signal, handler) }
    }

    /// The C library stands in for a driver: another object than this program.
    #[test]
    fn what_a_driver_takes_over_is_put_back() {
        // SAFETY: looks a function up.
        let drivers = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"abs".as_ptr()) }.expose_provenance();
        let before = replace(libc::SIGUSR2, libc::SIG_DFL);
        keep_handlers(|| {
            keep_handlers(|| replace(libc::SIGUSR2, drivers));
            assert_eq!(replace(libc::SIGUSR2, drivers), libc::SIG_DFL);
        });
        assert_eq!(replace(libc::SIGUSR2, before), libc::SIG_DFL);
    }

    #[test]
    fn what_the_application_puts_in_stays() {
        let own = own as extern "C" fn(c_int);
        let before = keep_handlers(|| {
            let before = replace(libc::SIGXFSZ, own as usize);
            keep_handlers(|| ());
            before
        });
        assert_eq!(replace(libc::SIGXFSZ, before), own as usize);
    }
}
