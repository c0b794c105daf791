//! Times of a stream's polls, and the memory of the process.

use std::fmt::{self, Display};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::Stream;

/// Times of polls.
#[derive(Clone, Default)]
pub(crate) struct PollTimes(Arc<Times>);

#[derive(Default)]
struct Times {
    /// The number of polls by powers of ten of a microsecond.
    polls: [AtomicU64; 6],
    /// Microseconds of the longest poll.
    longest: AtomicU64,
    /// Microseconds of processor time of the poll that took the most.
    longest_on_processor: AtomicU64,
}

impl PollTimes {
    fn add(&self, time: Duration, on_processor: Duration) {
        let [micros, on_processor] = [time, on_processor].map(|time| time.as_micros() as u64);
        let class = micros.checked_ilog10().map_or(0, |log| log as usize + 1);
        self.0.polls[class.min(5)].fetch_add(1, Relaxed);
        self.0.longest.fetch_max(micros, Relaxed);
        self.0.longest_on_processor.fetch_max(on_processor, Relaxed);
    }
}

impl Display for PollTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Times { polls, longest, longest_on_processor } = &*self.0;
        let classes = ["< 1 us", "< 10 us", "< 100 us", "< 1 ms", "< 10 ms", "10 ms and more"];
        for (class, polls) in classes.iter().zip(polls) {
            write!(f, "{class}: {}, ", polls.load(Relaxed))?;
        }
        let [longest, on_processor] = [longest, longest_on_processor].map(|time| time.load(Relaxed));
        write!(f, "longest: {longest} us, {on_processor} us on a processor")
    }
}

/// The time for which this thread has had a processor, where the system tells it.
fn processor_time() -> Duration {
    #[cfg(unix)]
    return rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).try_into().unwrap_or_default();
    #[cfg(not(unix))]
    return Duration::ZERO;
}

/// A stream whose polls are timed.
pub(crate) struct Timed<S> {
    pub(crate) stream: S,
    pub(crate) times: PollTimes,
}

impl<S: Stream + Unpin> Stream for Timed<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let (begin, before) = (Instant::now(), processor_time());
        let next = Pin::new(&mut self.stream).poll_next(context);
        self.times.add(begin.elapsed(), processor_time() - before);
        next
    }
}

/// Resident memory of the process in MiB, where the system tells it.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? >> 10)
}
