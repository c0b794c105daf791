//! When what is submitted again and again should need its next look.

/// What was seen last of the time from when nothing is in flight to the next look.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    /// When the last entry was found over.
    idle_since: Option<u64>,
    /// How long nothing was in flight then.
    gap: Option<u64>,
    /// When something was again.
    began: u64,
    /// How long from then to the first look, where a prediction had put that off and the work is long.
    first_look: Option<u64>,
}

/// A thread that sleeps for longer than this need not be spared from being woken.
const LONGEST: u64 = 1_000_000_000;

impl Rhythm {
    pub(super) fn begin(&mut self, now: u64) {
        self.gap = self.idle_since.map(|since| now.saturating_sub(since));
        (self.began, self.first_look) = (now, None);
    }

    pub(super) fn look(&mut self, planned: u64) {
        self.first_look.get_or_insert(planned.saturating_sub(self.began));
    }

    pub(super) fn end(&mut self, now: u64) {
        self.idle_since = Some(now);
    }

    /// If it goes on like this: when the next look will be.
    pub(super) fn next_look(&self) -> Option<u64> {
        let time = Some(self.gap? + self.first_look?).filter(|&time| time <= LONGEST)?;
        Some(self.idle_since? + time)
    }
}
