//! The device's clock in nanoseconds. The hardware counts cycles in few bits: 32 of them at 83 ns
//! are six minutes.
#![expect(unsafe_code, reason = "calls the driver")]

use std::time::Instant;

use parking_lot::Mutex;

use super::driver::DriverDevice;
use super::sys::{self, DriverResult, call, version};

/// Converts counts of cycles to times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TimerResolution {
    /// A cycle is this many nanoseconds, divided by `per`.
    nanoseconds: u64,
    per: u64,
}

impl TimerResolution {
    fn new(resolution: u64, in_cycles_per_second: bool) -> Self {
        match (resolution.max(1), in_cycles_per_second) {
            (frequency, true) => Self { nanoseconds: 1_000_000_000, per: frequency },
            (nanoseconds, false) => Self { nanoseconds, per: 1 },
        }
    }

    fn to_nanoseconds(self, cycles: u64) -> u64 {
        scale(cycles, self.nanoseconds, self.per)
    }

    fn to_cycles(self, nanoseconds: u64) -> u64 {
        scale(nanoseconds, self.per, self.nanoseconds)
    }
}

fn scale(value: u64, by: u64, per: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(per)).unwrap_or(u64::MAX)
}

/// The count that ends in the `bits` low bits of `value` and is nearest to `near`.
fn unwrap(value: u64, bits: u32, near: u64) -> u64 {
    if bits == 0 || bits >= 64 {
        return value;
    }
    let period = 1u64 << bits;
    let distance = value.wrapping_sub(near) & (period - 1);
    match distance <= period / 2 {
        true => near.saturating_add(distance),
        // Before the count begins there is no earlier one.
        false => near.checked_sub(period - distance).unwrap_or(near.saturating_add(distance)),
    }
}

/// The clock of a device.
#[derive(Debug)]
pub(super) struct LevelZeroClock {
    timer: TimerResolution,
    bits: u32,
    kernel_bits: u32,
    /// The last reading, in cycles, and when that was: from it, the next reading is expected.
    last: Mutex<Option<(u64, Instant)>>,
}

impl LevelZeroClock {
    pub(super) fn new(device: DriverDevice, properties: &sys::ze_device_properties_t) -> Self {
        let in_cycles_per_second = device.driver.version >= version(1, 2);
        Self {
            timer: TimerResolution::new(properties.timerResolution, in_cycles_per_second),
            bits: properties.timestampValidBits,
            kernel_bits: properties.kernelTimestampValidBits,
            last: Mutex::new(None),
        }
    }

    /// The time now.
    pub(super) fn now(&self, device: DriverDevice) -> DriverResult<u64> {
        let mut last = self.last.lock();
        let (mut host, mut cycles) = (0, 0);
        // SAFETY: the driver gave the device, both places are numbers.
        unsafe {
            call!(device.driver.api, zeDeviceGetGlobalTimestamps(device.raw, &raw mut host, &raw mut cycles))
        }?;
        let now = Instant::now();
        let cycles = match *last {
            None => unwrap(cycles, self.bits, cycles & mask(self.bits)),
            Some((before, then)) => {
                let elapsed = u64::try_from((now - then).as_nanos()).unwrap_or(u64::MAX);
                let expected = before.saturating_add(self.timer.to_cycles(elapsed));
                unwrap(cycles, self.bits, expected)
            }
        };
        *last = Some((cycles, now));
        Ok(self.timer.to_nanoseconds(cycles))
    }

    /// Converts the timestamps of kernels that ran between `from` and `span` nanoseconds later; `None` if the
    /// timestamps may mean several times in between.
    pub(super) fn kernel_times(&self, from: u64, span: u64) -> Option<impl Fn(u64) -> u64> {
        let (timer, bits) = (self.timer, self.kernel_bits);
        // A part of the period is left for readings of the clock that differ.
        let longest = if (1..64).contains(&bits) { mask(bits) / 8 * 7 } else { u64::MAX };
        let middle = timer.to_cycles(from.saturating_add(span / 2));
        let convert = move |cycles| timer.to_nanoseconds(unwrap(cycles, bits, middle));
        (timer.to_cycles(span) <= longest).then_some(convert)
    }
}

fn mask(bits: u32) -> u64 {
    1u64.checked_shl(bits).map_or(u64::MAX, |period| period.wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_the_resolution_depends_on_the_version() {
        let old = TimerResolution::new(83, false);
        assert_eq!((old.to_nanoseconds(10), old.to_cycles(830)), (830, 10));
        let new = TimerResolution::new(12_000_000, true);
        assert_eq!((new.to_nanoseconds(12), new.to_cycles(1000)), (1000, 12));
        assert_eq!(TimerResolution::new(0, true).to_nanoseconds(0), 0);
    }

    #[test]
    fn times_of_kernels_are_right_or_missing() {
        const MINUTE: u64 = 60_000_000_000;
        let timer = TimerResolution::new(83, false);
        let clock = LevelZeroClock { timer, bits: 64, kernel_bits: 32, last: Mutex::new(None) };
        let stamp = |time: u64| timer.to_cycles(time) & mask(32);
        // A period takes 5 minutes and 56 seconds.
        for from in [0, 3 * MINUTE, 5 * MINUTE, 100 * MINUTE] {
            for span in [0, 1_000_000, MINUTE, 3 * MINUTE, 4 * MINUTE, 5 * MINUTE] {
                let convert = clock.kernel_times(from, span).unwrap();
                for time in [from, from + span / 3, from + span] {
                    assert!(convert(stamp(time)).abs_diff(time) <= 83, "{time} of {from} + {span}");
                }
            }
            assert!(clock.kernel_times(from, 6 * MINUTE).is_none());
        }
        let wide = LevelZeroClock { kernel_bits: 64, ..clock };
        assert_eq!(wide.kernel_times(0, 100 * MINUTE).unwrap()(timer.to_cycles(83 * MINUTE)), 83 * MINUTE);
    }

    #[test]
    fn counts_are_unwrapped_to_the_nearest_to_what_is_expected() {
        let wrap = 1 << 32;
        assert_eq!(unwrap(5, 32, wrap - 3), wrap + 5);
        assert_eq!(unwrap(wrap - 3, 32, wrap + 5), wrap - 3);
        assert_eq!(unwrap(7, 32, 3 * wrap + 8), 3 * wrap + 7);
        assert_eq!(unwrap(7 | 0xff << 32, 32, 3 * wrap + 8), 3 * wrap + 7, "bits that are not valid");
        assert_eq!(unwrap(wrap - 1, 32, 0), wrap - 1, "there is nothing before zero");
        assert_eq!(unwrap(u64::MAX, 64, 0), u64::MAX);
        assert_eq!((mask(32), mask(64), mask(0)), (wrap - 1, u64::MAX, 0));
    }
}
