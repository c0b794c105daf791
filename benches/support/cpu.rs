//! The CPU time of the process.
#![expect(unsafe_code, reason = "reads a clock that the standard library has not")]

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// Seconds of CPU time that the process has used, on all threads.
pub fn seconds() -> f64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: 2 is CLOCK_PROCESS_CPUTIME_ID on Linux, and the time is writable.
    let outcome = unsafe { clock_gettime(2, &raw mut time) };
    assert_eq!(outcome, 0, "no CPU clock");
    time.seconds as f64 + time.nanoseconds as f64 * 1e-9
}
