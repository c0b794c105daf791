//! Profiles: where the time of a run went.

use std::fmt;
use std::time::Duration;

use wakegraph_hal::{ClockSample, CommandKind, Event, EventProfile};

use crate::runtime::completion::clock::{self, nanoseconds};
use crate::runtime::execution::labels::Labels;
use crate::runtime::resource::device::Device;

/// Times of one run, relative to its submission. Recorded when the executable was finalized with
/// [`profiling`](crate::FinalizeOptions::profiling), and, without the nodes of devices, when one of
/// its devices was [profiled](crate::Device::profile).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Every command and host task with times, in plan order.
    pub nodes: Vec<NodeTimes>,
    /// Every partition, in plan order.
    pub partitions: Vec<PartitionTimes>,
    /// The devices that the times of partitions and nodes are from, each with the error of all of
    /// its times.
    ///
    /// Within that error, partitions begin after what they depend on has ended. Where the clocks
    /// run at different rates, times may contradict that order.
    pub clocks: Vec<DeviceClock>,
}

/// One node's times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeTimes {
    /// The node as errors show it.
    pub label: String,
    /// The kind of its command.
    pub kind: CommandKind,
    /// Partition of the node.
    pub partition: usize,
    /// Time from the submission to its start.
    pub start: Duration,
    /// Time from the submission to its end.
    pub end: Duration,
}

impl NodeTimes {
    /// Time that it took.
    pub fn duration(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }
}

/// One partition's times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionTimes {
    /// Label of its device, or of the host task that it is.
    pub label: String,
    /// Time from the submission to its first start.
    pub start: Duration,
    /// Time from the submission to its last end.
    pub end: Duration,
    /// Whether it has times. It has none, and both of the above are zero, when it did not start in
    /// this run or failed on its device.
    pub measured: bool,
}

impl Profile {
    /// Reads the events of a run whose partitions have all ended. `event_of` gives that of a device
    /// partition which has succeeded.
    pub(crate) fn collect<'r>(
        labels: &Labels,
        event_of: impl Fn(usize) -> Option<&'r dyn Event>,
        host_times: &[(usize, u64, u64)],
        origin: u64,
    ) -> Self {
        let since = |at: u64| Duration::from_nanos(at.saturating_sub(origin));
        let mut times = PlacedTimes::collect(labels, event_of, host_times);
        let mut profile = Self { clocks: times.place(origin), ..Self::default() };
        for (index, device) in labels.devices.iter().enumerate() {
            let nodes = labels.plan.nodes(index);
            let moved = times.profiles[index].take();
            let mut times: Vec<(u64, u64)> = Vec::new();
            let mut whole = None;
            match device {
                Some(_) => {
                    if let Some(moved) = moved {
                        times = moved.commands.iter().map(|t| (t.start, t.end)).collect();
                        whole = Some((moved.start, moved.end)).filter(|_| times.is_empty());
                        // It is the only node of its partition.
                        if labels.is_stream_task(index) {
                            times.extend(whole.take());
                        }
                    }
                }
                None => {
                    times.extend(
                        host_times.iter().filter(|t| t.0 == index).map(|&(_, start, end)| (start, end)),
                    );
                }
            }
            let label = match device {
                Some(device) => device.selector().to_owned(),
                None => nodes.first().map_or_else(String::new, |&node| labels.label(node).to_owned()),
            };
            let measured = whole.is_some() || !times.is_empty();
            let start = times.iter().chain(&whole).map(|t| t.0).min().unwrap_or(origin);
            let end = times.iter().chain(&whole).map(|t| t.1).max().unwrap_or(start);
            profile.partitions.push(PartitionTimes { label, start: since(start), end: since(end), measured });
            profile.nodes.extend(nodes.iter().zip(times).map(|(&node, (start, end))| NodeTimes {
                label: labels.label(node).to_owned(),
                kind: labels.nodes[node as usize].kind,
                partition: index,
                start: since(start),
                end: since(end),
            }));
        }
        profile
    }

    /// Time from the submission to the end of the last partition.
    pub fn total(&self) -> Duration {
        self.partitions.iter().map(|partition| partition.end).max().unwrap_or_default()
    }

    /// The partitions as bars over time, `width` characters wide, for a terminal.
    pub fn timeline(&self, width: usize) -> ProfileTimeline<'_> {
        ProfileTimeline { profile: self, width: width.max(8) }
    }
}

/// The times of partitions on the runtime's clock, while they are brought in line with each other.
struct PlacedTimes<'l> {
    labels: &'l Labels,
    /// Of each partition of a device: on that device's clock until they are placed.
    profiles: Vec<Option<EventProfile>>,
    /// The begin and the end of each partition that is placed.
    spans: Vec<Option<(u64, u64)>>,
}

impl<'l> PlacedTimes<'l> {
    fn collect<'r>(
        labels: &'l Labels,
        event_of: impl Fn(usize) -> Option<&'r dyn Event>,
        host_times: &[(usize, u64, u64)],
    ) -> Self {
        let profile = |(index, device): (usize, &Option<Device>)| {
            event_of(index).filter(|_| device.is_some())?.profile().ok()
        };
        let profiles = labels.devices.iter().enumerate().map(profile).collect();
        let mut spans = vec![None; labels.devices.len()];
        for &(index, start, end) in host_times {
            spans[index] = Some((start, end));
        }
        Self { labels, profiles, spans }
    }

    /// The times of a partition of this device that is not placed yet.
    fn open(&self, index: usize, device: &Device) -> Option<&EventProfile> {
        let is_open = self.labels.devices[index].as_ref() == Some(device) && self.spans[index].is_none();
        self.profiles[index].as_ref().filter(|_| is_open)
    }

    /// Moves all times to the runtime's clock, one device after the other: within the error of the
    /// device's clock, where its partitions have begun and ended in the order that the run knows.
    /// Gives the clocks.
    fn place(&mut self, origin: u64) -> Vec<DeviceClock> {
        let (mut clocks, labels) = (Vec::new(), self.labels);
        for (first, device) in labels.devices.iter().enumerate() {
            let Some(device) = device.as_ref().filter(|device| self.open(first, device).is_some()) else {
                continue;
            };
            let offset = ClockOffset::sampled(device).map(|offset| self.narrowed(offset, device, origin));
            for index in first..self.profiles.len() {
                if self.open(index, device).is_none() {
                    continue;
                }
                let placed = self.profiles[index].take().zip(offset).map(|(mut times, offset)| {
                    offset.move_times(&mut times);
                    times
                });
                self.spans[index] = placed.as_ref().map(|times| (times.start, times.end));
                self.profiles[index] = placed;
            }
            clocks.extend(offset.map(|offset| DeviceClock::new(device, offset)));
        }
        clocks
    }

    /// The offset of a device's clock, with what the placed partitions before and after its own say
    /// about it.
    fn narrowed(&self, mut offset: ClockOffset, device: &Device, origin: u64) -> ClockOffset {
        let now = clock::now();
        for later in 0..self.profiles.len() {
            if let Some(times) = self.open(later, device) {
                offset.not_before(times.start, origin);
                offset.not_after(times.end, now);
            }
            for &earlier in self.labels.plan.predecessors(later) {
                let earlier = earlier as usize;
                if let Some((times, (_, end))) = self.open(later, device).zip(self.spans[earlier]) {
                    offset.not_before(times.start, end);
                }
                if let Some((times, (start, _))) = self.open(earlier, device).zip(self.spans[later]) {
                    offset.not_after(times.end, start);
                }
            }
        }
        offset
    }
}

/// A [`Profile`] as text; see [`Profile::timeline`].
#[derive(Clone, Copy, Debug)]
pub struct ProfileTimeline<'a> {
    profile: &'a Profile,
    width: usize,
}

impl fmt::Display for ProfileTimeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, width } = self;
        let total = nanoseconds(profile.total()).max(1);
        let labels = profile.partitions.iter().map(|partition| partition.label.chars().count());
        let margin = labels.max().unwrap_or(0);
        let column =
            |at: Duration| (u128::from(nanoseconds(at)) * *width as u128 / u128::from(total)) as usize;
        for (index, PartitionTimes { label, start, end, measured }) in profile.partitions.iter().enumerate() {
            if !measured {
                writeln!(f, "{index:>3}  {label:<margin$}  |{:width$}| no times", "")?;
                continue;
            }
            let from = column(*start).min(width - 1);
            let to = column(*end).clamp(from + 1, *width);
            let (before, bar, after) = (" ".repeat(from), "█".repeat(to - from), " ".repeat(width - to));
            writeln!(
                f,
                "{index:>3}  {label:<margin$}  |{before}{bar}{after}| {:>9.1} us at {:>9.1}",
                micros(end.saturating_sub(*start)),
                micros(*start)
            )?;
        }
        Ok(())
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Relation of a device's clock to the host's.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceClock {
    /// The name that opens the device.
    pub device: String,
    /// Maximum error of all of its times, in the same direction. Zero where the device's clock is
    /// the host's.
    pub error: Duration,
}

/// Nanoseconds by which the runtime's clock is ahead of a device's: at least, and at most.
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

    /// The bounds that both give. Where they contradict each other, as a clock has drifted, those of the
    /// more exact one.
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

    /// The clocks of the devices that were asked and have answered.
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
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    use super::*;
    use crate::runtime::{FinalizeOptions, Graph, read};

    /// The device's clock is read with a large error, by which the copy seems to end when the
    /// profile is made.
    #[test]
    fn what_the_run_knows_corrects_a_clock_within_its_error() {
        let options = FakeOptions::new().clock_error(Duration::from_secs(3600));
        let device = Device::from_hal(FakeDevice::open(options).0);
        let (x, host) = (device.buffer::<u32>(4).unwrap(), device.host_buffer::<u32>(4).unwrap());
        let mut graph = Graph::new(&device);
        graph.copy(&x, &host);
        graph.host_task((read(&host),), async |(_host,)| ());
        let exec = graph.finalize_with(FinalizeOptions::new().profiling(true)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let profile = runtime.block_on(async {
            let mut submission = exec.submit();
            (&mut submission).await.unwrap();
            submission.profile().unwrap()
        });
        let [copy, task] = &profile.nodes[..] else { panic!("{profile:?}") };
        assert!(copy.end <= task.start, "{profile:?}");
        assert!(copy.start <= copy.end && profile.clocks[0].error < Duration::from_secs(60), "{profile:?}");
    }

    /// The fake device's clock counts events, so it drifts from the host's as far as a clock can.
    #[test]
    fn the_times_of_one_device_agree_between_partitions() {
        let device = Device::from_hal(FakeDevice::open(FakeOptions::new()).0);
        let (x, host) = (device.buffer::<u32>(4).unwrap(), device.host_buffer::<u32>(4).unwrap());
        let mut graph = Graph::new(&device);
        for _ in 0..4 {
            graph.copy(&x, &host);
            graph.host_task((read(&host),), async |(_host,)| ());
            graph.copy(&host, &x);
        }
        let exec = graph.finalize_with(FinalizeOptions::new().profiling(true)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let pauses = || {
            let profile = runtime.block_on(async {
                let mut submission = exec.submit();
                (&mut submission).await.unwrap();
                submission.profile().unwrap()
            });
            let of_device: Vec<_> =
                profile.partitions.iter().filter(|partition| partition.label == device.selector()).collect();
            assert!(of_device.len() > 3, "{of_device:?}");
            of_device
                .windows(2)
                .map(|pair| pair[1].start.checked_sub(pair[0].end).expect("one after the other"))
                .collect::<Vec<_>>()
        };
        let first = pauses();
        for _ in 0..20 {
            assert_eq!(pauses(), first, "as many events lie between two partitions in every run");
        }
    }
}

#[cfg(test)]
mod device_clock_tests {
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
