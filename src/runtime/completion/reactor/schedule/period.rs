//! When work that is submitted again and again should need its next poll.

/// What was seen last of the time from when nothing is in flight to the next poll.
///
/// With it, a host that has nothing to do sleeps until the next run of periodic work needs it, so that the
/// submission need not wake it, which takes a system call.
#[derive(Debug, Default)]
pub(super) struct Period {
    /// When the last entry was found complete.
    idle_since: Option<u64>,
    /// How long nothing was in flight then.
    gap: Option<u64>,
    /// When something was in flight again.
    began: u64,
    /// How long from then to the first turn that a host has planned.
    first_poll: Option<u64>,
}

/// A host that sleeps for longer than this, in nanoseconds, may as well be woken.
const LONGEST: u64 = 1_000_000_000;

impl Period {
    pub(super) fn begin(&mut self, now: u64) {
        self.gap = self.idle_since.map(|since| now.saturating_sub(since));
        (self.began, self.first_poll) = (now, None);
    }

    pub(super) fn plan(&mut self, poll: u64) {
        self.first_poll.get_or_insert(poll.saturating_sub(self.began));
    }

    pub(super) fn end(&mut self, now: u64) {
        self.idle_since = Some(now);
    }

    /// If it goes on like this: when the next poll will be.
    pub(super) fn next_poll(&self) -> Option<u64> {
        let time = Some(self.gap? + self.first_poll?).filter(|&time| time <= LONGEST)?;
        Some(self.idle_since? + time)
    }
}
