//! A timer of microseconds that a task of a tokio runtime can wait for: tokio's own have milliseconds.

use std::io;
use std::time::Duration;

#[cfg(target_os = "linux")]
pub(super) use timerfd::Timer;
use tokio::runtime::Handle;
use wakegraph_hal::{Error, ErrorKind, Result};

#[cfg(target_os = "linux")]
mod timerfd {
    use std::os::fd::OwnedFd;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::*;

    #[derive(Debug)]
    pub(in super::super) struct Timer {
        timer: AsyncFd<OwnedFd>,
    }

    #[expect(unsafe_code, reason = "gives a file descriptor to the runtime's I/O driver")]
    impl Timer {
        /// # Errors
        /// [`Unavailable`](ErrorKind::Unavailable) when the runtime's I/O driver is not enabled, or
        /// the system has no timer.
        pub(in super::super) fn new(runtime: &Handle) -> Result<Self> {
            let failed = |error: io::Error| {
                Error::new(ErrorKind::Unavailable, "could not make a timer").caused_by(error)
            };
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer =
                timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|error| failed(error.into()))?;
            let _inside = runtime.enter();
            // SAFETY: the timer owns its file descriptor, which stays the same one as long as it lives.
            let register = || unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) };
            // There is no other way to ask whether it is enabled.
            let timer = catch_unwind(AssertUnwindSafe(register))
                .map_err(|_| {
                    Error::new(ErrorKind::Unavailable, "the runtime's I/O driver is not enabled")
                        .help("build the runtime with enable_io() or enable_all()")
                })?
                .map_err(|error| failed(error.into()))?;
            Ok(Self { timer })
        }

        /// Has it run out after this time, and not before.
        pub(in super::super) fn set(&self, after: Duration) -> io::Result<()> {
            // Zero would stop it.
            let value = Timespec::try_from(after.max(Duration::from_nanos(1)))
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
            timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
            Ok(())
        }

        /// Resolves when it has run out since this was last awaited. Cancel safe.
        pub(in super::super) async fn ran_out(&self) -> io::Result<()> {
            // The next setting starts the count again, so the expirations are not read.
            self.timer.readable().await?.clear_ready();
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) enum Timer {}

#[cfg(not(target_os = "linux"))]
impl Timer {
    pub(super) fn new(_runtime: &Handle) -> Result<Self> {
        Err(Error::new(ErrorKind::FeatureNotSupported, "the reactor runs in a runtime only on Linux"))
    }

    pub(super) fn set(&self, _after: Duration) -> io::Result<()> {
        match *self {}
    }

    pub(super) async fn ran_out(&self) -> io::Result<()> {
        match *self {}
    }
}
