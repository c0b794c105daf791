//! Policies of noticing completions: those that users choose from, and the figures behind each.

use std::time::Duration;

use wakegraph_hal::Progress;

use crate::runtime::completion::clock::nanoseconds;
use crate::runtime::completion::estimate::Estimate;

/// The trade between the time until the end of a submission is seen and the CPU time spent on seeing it.
///
/// The submissions that a thread polls keep it for at most 25 us together; then other tasks have
/// their turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum WakePolicy {
    /// See it as early as possible; waiting may cost a core for short times.
    Latency,
    /// Short submissions are seen at once, long ones at little cost.
    #[default]
    Balanced,
    /// Never spin. A graph that is finalized under another policy may take a microsecond more on the
    /// device to be seen earlier; under this one it does not.
    Efficient,
}

impl WakePolicy {
    pub(crate) fn from_repr(repr: u8) -> Self {
        match repr {
            0 => Self::Latency,
            2 => Self::Efficient,
            _ => Self::Balanced,
        }
    }
}

/// The figures of one policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// Time before the estimated end at which polls begin.
    pub(crate) poll_lead: Duration,
    /// Time that a thread takes to wake up. Polls of long work begin this and [`DEVIATIONS`] before the
    /// estimated end.
    pub(crate) wake_lead: Duration,
    /// Limits of that time: a part of the work's own (a divisor), and a duration. Work is long if the smaller
    /// of them is more than `poll_lead`.
    pub(crate) long_lead: Option<(u32, Duration)>,
    /// Whether polls follow each other without a pause around the estimated end.
    pub(crate) spins: bool,
    /// The pause after the first poll that finds nothing.
    pub(crate) first_pause: Duration,
    /// The longest pause between two polls.
    pub(crate) longest_pause: Duration,
    /// Part of a pause (a divisor) by which the next one is longer.
    pub(crate) pause_growth: u32,
    /// Time by which a poll may be late so that one wake-up serves several queues: this part of the work's
    /// time (a divisor), at most the first duration, for work that takes at least the second.
    pub(crate) coalescing: Option<(u32, Duration, Duration)>,
    /// Maximum of queues with long work in flight whose polls come before their estimated ends. With more,
    /// polls come after the ends and serve many queues.
    pub(crate) few: usize,
    /// Whether the first poll is always after the estimated end.
    pub(crate) late: bool,
}

const LATENCY: Tuning = Tuning {
    poll_lead: Duration::from_micros(300),
    wake_lead: Duration::from_millis(1),
    long_lead: Some((8, Duration::from_millis(1))),
    spins: true,
    first_pause: Duration::ZERO,
    longest_pause: Duration::from_micros(50),
    pause_growth: 8,
    coalescing: None,
    few: usize::MAX,
    late: false,
};

const BALANCED: Tuning = Tuning {
    poll_lead: Duration::from_micros(150),
    wake_lead: Duration::from_micros(25),
    long_lead: Some((36, Duration::from_micros(400))),
    spins: true,
    first_pause: Duration::from_micros(5),
    longest_pause: Duration::from_millis(1),
    pause_growth: 4,
    // Shorter work has ended before a pause would pay.
    coalescing: Some((500, Duration::from_micros(100), Duration::from_millis(1))),
    few: 8,
    late: false,
};

const EFFICIENT: Tuning = Tuning {
    poll_lead: Duration::from_micros(20),
    wake_lead: Duration::ZERO,
    long_lead: None,
    spins: false,
    first_pause: Duration::from_micros(100),
    longest_pause: Duration::from_millis(5),
    pause_growth: 2,
    coalescing: Some((40, Duration::MAX, Duration::ZERO)),
    few: 1,
    late: true,
};

/// Number of mean deviations by which an end may come before its estimate.
const DEVIATIONS: u32 = 3;

/// Part of the work's time (a divisor) for which a poll of one of many queues can wait for others.
const SHARED_WINDOW: u64 = 32;

/// Times of the polls of a queue's oldest entry, in nanoseconds from when it became the oldest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PollPlan {
    /// The first poll.
    pub(super) first: u64,
    /// Time by which each poll may be late.
    pub(super) window: u64,
    /// The pause after the first poll that finds nothing.
    pub(super) pause: u64,
    /// End of the time in which polls follow each other without a pause.
    pub(super) spin_until: u64,
}

impl Tuning {
    pub(crate) fn of(policy: WakePolicy) -> Self {
        let tuning = match policy {
            WakePolicy::Latency => LATENCY,
            WakePolicy::Balanced => BALANCED,
            WakePolicy::Efficient => EFFICIENT,
        };
        match single_core() {
            // Without a second core, nothing can be seen to happen.
            true => Self { long_lead: None, spins: false, ..tuning },
            false => tuning,
        }
    }

    /// Returns by how much polls of work that takes so long may be late, 0 for short work.
    pub(super) fn delay(&self, mean: u64) -> u64 {
        match self.coalescing {
            Some((part, most, from)) if mean >= nanoseconds(from) => {
                (mean / u64::from(part)).min(nanoseconds(most))
            }
            _ => 0,
        }
    }

    /// Plans the polls of work with this estimate. `many`: more queues of long work than `few` are in flight.
    pub(super) fn plan(&self, estimate: Option<Estimate>, many: bool) -> PollPlan {
        let pause = nanoseconds(self.first_pause);
        let Some(Estimate { mean, deviation }) = estimate else {
            return PollPlan { pause, ..PollPlan::default() };
        };
        let delay = self.delay(mean);
        let many = many && delay > 0;
        if many || self.late {
            let window = if many { (mean / SHARED_WINDOW).max(delay) } else { delay };
            let first = mean.saturating_add(delay);
            return PollPlan { first, window, pause: pause.max(2 * delay), spin_until: 0 };
        }
        let margin = nanoseconds(self.poll_lead);
        let long = self.long_lead.map(|(part, most)| (mean / u64::from(part)).min(nanoseconds(most)));
        let spin_until = if self.spins { mean.saturating_add(margin / 2) } else { 0 };
        let steady = nanoseconds(self.wake_lead).saturating_add(u64::from(DEVIATIONS) * deviation);
        let lead = long.filter(|&long| long > margin).map_or(margin, |most| steady.min(most));
        PollPlan { first: mean.saturating_sub(lead), window: 0, pause, spin_until }
    }

    /// Returns the pause after a pause in which nothing ended.
    pub(super) fn longer(&self, pause: u64) -> u64 {
        let longer = (pause / u64::from(self.pause_growth)).max(1);
        pause.saturating_add(longer).min(nanoseconds(self.longest_pause).max(1))
    }
}

impl WakePolicy {
    /// Returns the longest time for which a submission spins, between whose polls other tasks have their
    /// turn.
    pub(crate) fn spin_limit(self, progress: Progress) -> Duration {
        if single_core() {
            return Duration::ZERO;
        }
        match (self, progress) {
            (Self::Efficient, _) => Duration::ZERO,
            (Self::Latency, _) => Duration::from_millis(1),
            (Self::Balanced, Progress::Device) => Duration::from_micros(150),
            (Self::Balanced, Progress::HostCores) => Duration::from_micros(400),
        }
    }
}

fn single_core() -> bool {
    static CORES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from)) == 1
}
