//! How eagerly completions are looked for.

use std::time::Duration;

use crate::hal::Progress;

/// The trade between the time until a finished submission is seen and the CPU time spent on seeing it.
///
/// The submissions that a thread polls keep it for at most 25 us together; then other tasks have
/// their turn. Where long work is awaited,
/// [`Device::run_reactor_on`](crate::Device::run_reactor_on) saves more CPU time than a policy
/// does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum WakePolicy {
    /// See it as early as possible; waiting may cost a core for short times. A graph that is
    /// finalized under this policy may also take a microsecond more on the device to be seen earlier.
    Latency,
    /// Short submissions are seen at once, long ones at little cost.
    #[default]
    Balanced,
    /// Never spin.
    Efficient,
}

impl WakePolicy {
    /// Longest time that one poll of a submission may spin for a device that goes on like this.
    pub(crate) fn spin_limit_for(self, progress: Progress) -> Duration {
        match (progress, self) {
            (Progress::Device, policy) => policy.spin_limit(),
            // Who spins lets others have the core between two looks.
            (Progress::HostCores, _) if single_core() => Duration::ZERO,
            (Progress::HostCores, Self::Latency) => Duration::from_micros(1000),
            (Progress::HostCores, Self::Balanced) => Duration::from_micros(400),
            (Progress::HostCores, Self::Efficient) => Duration::ZERO,
        }
    }

    /// Longest time that the polls of a submission may spin, giving way to other tasks.
    fn spin_limit(self) -> Duration {
        match self {
            // More than one core is needed for a spin to see anything happen.
            _ if single_core() => Duration::ZERO,
            Self::Latency => Duration::from_micros(1000),
            Self::Balanced => Duration::from_micros(150),
            Self::Efficient => Duration::ZERO,
        }
    }

    /// How long before the predicted completion the reactor starts to look.
    pub(crate) fn reactor_margin(self) -> Duration {
        match self {
            Self::Latency => Duration::from_micros(300),
            Self::Balanced => Duration::from_micros(150),
            Self::Efficient => Duration::from_micros(20),
        }
    }

    /// Whether the reactor looks without a pause around the predicted completion.
    pub(crate) fn spins(self) -> bool {
        !single_core() && self != Self::Efficient
    }

    /// What part of itself a pause grows by while nothing completes, as a divisor.
    pub(crate) fn pause_growth(self) -> u64 {
        match self {
            Self::Latency => 8,
            Self::Balanced => 4,
            Self::Efficient => 2,
        }
    }

    /// How long before the predicted completion a waiting task is woken, to look itself: a thread
    /// that has slept for milliseconds takes hundreds of microseconds to wake up, which so pass
    /// while the device is still at work.
    pub(crate) fn scout_margin(self, expected: Duration) -> Option<Duration> {
        match self {
            _ if single_core() => None,
            Self::Latency => Some((expected / 8).min(Duration::from_micros(1000))),
            Self::Balanced => Some((expected / 36).min(Duration::from_micros(400))),
            Self::Efficient => None,
        }
    }

    /// The same where the work always takes the same time: two threads take so long to wake up one
    /// after the other, mostly.
    pub(crate) fn scout_lead(self) -> Duration {
        match self {
            Self::Latency => Duration::MAX,
            Self::Balanced | Self::Efficient => Duration::from_micros(130),
        }
    }

    /// The same where whoever looks is on the thread of those that wait: only that has to wake up.
    pub(crate) fn look_lead(self) -> Duration {
        match self {
            Self::Latency => Duration::MAX,
            Self::Balanced | Self::Efficient => Duration::from_micros(90),
        }
    }

    /// How long a look at work that takes so long may be put off to be one with the looks at others.
    pub(crate) fn slack(self, expected: Duration) -> Duration {
        match self {
            Self::Latency => Duration::ZERO,
            // What is shorter is over before a pause would pay.
            Self::Balanced if expected < Duration::from_millis(1) => Duration::ZERO,
            Self::Balanced => (expected / 500).min(Duration::from_micros(100)),
            Self::Efficient => expected / 40,
        }
    }

    /// For how many at once there are looks for each, and not some for all.
    pub(crate) fn few(self) -> usize {
        match self {
            Self::Latency => usize::MAX,
            Self::Balanced => 8,
            Self::Efficient => 1,
        }
    }

    /// First pause between two looks of the reactor; it grows while nothing completes.
    pub(crate) fn first_pause(self) -> Duration {
        match self {
            Self::Latency => Duration::ZERO,
            Self::Balanced => Duration::from_micros(5),
            Self::Efficient => Duration::from_micros(100),
        }
    }

    /// Longest pause between two looks.
    pub(crate) fn longest_pause(self) -> Duration {
        match self {
            Self::Latency => Duration::from_micros(50),
            Self::Balanced => Duration::from_millis(1),
            Self::Efficient => Duration::from_millis(5),
        }
    }

    pub(crate) fn from_repr(repr: u8) -> Self {
        match repr {
            0 => Self::Latency,
            2 => Self::Efficient,
            _ => Self::Balanced,
        }
    }
}

fn single_core() -> bool {
    static CORES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from)) == 1
}
