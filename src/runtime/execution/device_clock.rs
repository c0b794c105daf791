//! How the clocks of devices stand to the runtime's.

use std::time::Duration;

use crate::hal::{ClockSample, Event, EventProfile};
use crate::runtime::completion::clock::{self, nanoseconds};
use crate::runtime::resource::device::Device;

/// How a device's clock was brought in line with the host's.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceClock {
    /// What opens the device.
    pub device: String,
    /// How far all of its times may be off, in the same direction. Zero where the device's clock is
    /// the host's.
    pub error: Duration,
}

/// How many nanoseconds the runtime's clock is ahead of a device's: at least, and at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClockOffset {
    least: i128,
    most: i128,
}

impl DeviceClock {
    pub(crate) fn new(device: &Device, offset: ClockOffset) -> Self {
        Self { device: device.selector().to_owned(), error: offset.error() }
    }
}

impl ClockOffset {
    /// Reads the clocks until what the samples have in common is exact enough. On a busy machine a
    /// sample may be off by a time slice: the thread stands still between two readings. `None`
    /// where the device does not tell.
    pub(crate) fn sampled(device: &Device) -> Option<Self> {
        const MOST_SAMPLES: usize = 8;
        const EXACT: Duration = Duration::from_micros(5);
        let mut found: Option<Self> = None;
        for _ in 0..MOST_SAMPLES {
            let Ok(sample) = device.hal().clock() else { break };
            let sample = Self::of(&sample);
            let joined = found.map_or(sample, |found| found.joined(sample));
            found = Some(joined);
            if joined.error() <= EXACT {
                break;
            }
        }
        found
    }

    fn of(sample: &ClockSample) -> Self {
        let (ours, error) = (i128::from(clock::at(sample.host)), i128::from(nanoseconds(sample.error)));
        let offset = ours - i128::from(sample.device);
        Self { least: offset - error, most: offset + error }
    }

    /// What both say. Where they contradict each other, as a clock has drifted, what the more exact
    /// one says.
    fn joined(self, other: Self) -> Self {
        let both = Self { least: self.least.max(other.least), most: self.most.min(other.most) };
        match both.least <= both.most {
            true => both,
            false => std::cmp::min_by_key(self, other, |offset| offset.error()),
        }
    }

    /// Half of what is open.
    fn error(&self) -> Duration {
        Duration::from_nanos(u64::try_from((self.most - self.least) / 2).unwrap_or(u64::MAX))
    }

    /// A time of the device's on the runtime's clock.
    fn ours(&self, device: u64) -> u64 {
        let offset = self.least + (self.most - self.least) / 2;
        u64::try_from((i128::from(device) + offset).max(0)).unwrap_or(u64::MAX)
    }

    /// Takes into account that a time of the device's is not before one of ours, as far as that can
    /// be.
    pub(crate) fn not_before(&mut self, device: u64, ours: u64) {
        self.least = (i128::from(ours) - i128::from(device)).clamp(self.least, self.most);
    }

    /// As [`not_before`](Self::not_before), for one that is not after.
    pub(crate) fn not_after(&mut self, device: u64, ours: u64) {
        self.most = (i128::from(ours) - i128::from(device)).clamp(self.least, self.most);
    }

    /// Moves times to the runtime's clock.
    pub(crate) fn move_times(&self, times: &mut EventProfile) {
        let move_one = |at: &mut u64| *at = self.ours(*at);
        [&mut times.submitted, &mut times.start, &mut times.end].into_iter().for_each(move_one);
        for command in &mut times.commands {
            [&mut command.start, &mut command.end].into_iter().for_each(move_one);
        }
    }
}

/// How the clocks of the devices of one profile, or of one timeline, stand to the runtime's.
///
/// Each is found out once: with two offsets the times of one device would disagree among
/// themselves.
#[derive(Default)]
pub(crate) struct Clocks(Vec<(Device, Option<ClockOffset>)>);

impl Clocks {
    /// The times of what the event last signalled, moved to the runtime's clock. `None` where it
    /// has none.
    pub(crate) fn times(&mut self, device: &Device, event: &dyn Event) -> Option<EventProfile> {
        let mut times = event.profile().ok()?;
        self.of(device)?.move_times(&mut times);
        Some(times)
    }

    /// Those of the devices that were asked and have told.
    pub(crate) fn known(&self) -> Vec<DeviceClock> {
        self.0.iter().filter_map(|(device, offset)| Some(DeviceClock::new(device, (*offset)?))).collect()
    }

    /// `None` where the device does not tell.
    fn of(&mut self, device: &Device) -> Option<ClockOffset> {
        if let Some((_, offset)) = self.0.iter().find(|(known, _)| known == device) {
            return *offset;
        }
        let offset = ClockOffset::sampled(device);
        self.0.push((device.clone(), offset));
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: ClockOffset = ClockOffset { least: 100, most: 120 };

    #[test]
    fn samples_are_as_exact_as_what_they_have_in_common() {
        let late = ClockOffset { least: 110, most: 900 };
        assert_eq!(EXACT.joined(late), ClockOffset { least: 110, most: 120 });
        assert_eq!(late.joined(EXACT).error(), Duration::from_nanos(5));
        let contradicting = ClockOffset { least: 130, most: 1000 };
        assert_eq!(EXACT.joined(contradicting), EXACT);
        assert_eq!(contradicting.joined(EXACT), EXACT);
    }

    #[test]
    fn an_order_narrows_an_offset_as_far_as_it_can() {
        let mut offset = EXACT;
        offset.not_before(1000, 1104);
        offset.not_after(1000, 1110);
        assert_eq!(offset, ClockOffset { least: 104, most: 110 });
        assert_eq!(offset.ours(1000), 1107);
        // No time within the error is that early.
        offset.not_after(1000, 900);
        assert_eq!((offset.ours(1000), offset.error()), (1104, Duration::ZERO));
        // Before the runtime's clock began.
        assert_eq!(ClockOffset { least: -50, most: -50 }.ours(20), 0);
    }
}
