//! Where the time of a run went.

use std::fmt;
use std::time::Duration;

use crate::hal::{ClockSample, Event, EventProfile};
use crate::runtime::completion::clock::{self, nanoseconds};
use crate::runtime::execution::labels::Labels;
use crate::runtime::resource::device::Device;
use crate::types::{CommandKind, DeviceId};

/// Times of one run, relative to its submission. Recorded when the executable was finalized with
/// [`profiling`](crate::FinalizeOptions::profiling), and, without the nodes of devices, when one of
/// its devices was [profiled](crate::Device::profile).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Every command and host task with times, in plan order.
    pub nodes: Vec<NodeTimes>,
    /// Every partition, in plan order.
    pub partitions: Vec<PartitionTimes>,
}

/// One node's times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeTimes {
    /// The node as errors show it.
    pub label: String,
    /// What it does.
    pub kind: CommandKind,
    /// Its partition.
    pub partition: usize,
    /// From the submission to its start.
    pub start: Duration,
    /// From the submission to its end.
    pub end: Duration,
}

impl NodeTimes {
    /// How long it took.
    pub fn duration(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }
}

/// One partition's times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionTimes {
    /// Its device, or the host task it is.
    pub label: String,
    /// From the submission to its first start.
    pub start: Duration,
    /// From the submission to its last end.
    pub end: Duration,
    /// Whether it has times. It has none, and both of the above are zero, when it did not start in
    /// this run or failed on its device.
    pub measured: bool,
}

impl Profile {
    /// Reads the events of a run whose partitions are all final. `event_of` gives that of a device
    /// partition which has succeeded.
    pub(crate) fn collect<'r>(
        labels: &Labels,
        event_of: impl Fn(usize) -> Option<&'r dyn Event>,
        host_times: &[(usize, u64, u64)],
        origin: u64,
    ) -> Self {
        let since = |at: u64| Duration::from_nanos(at.saturating_sub(origin));
        let mut profile = Self::default();
        let mut clocks = Clocks::default();
        for (index, device) in labels.devices.iter().enumerate() {
            let nodes = labels.plan.nodes(index);
            let mut times: Vec<(u64, u64)> = Vec::new();
            let mut whole = None;
            match device {
                Some(device) => {
                    if let Some(moved) = event_of(index).and_then(|event| clocks.times(device, event)) {
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

    /// When the last partition ended.
    pub fn total(&self) -> Duration {
        self.partitions.iter().map(|partition| partition.end).max().unwrap_or_default()
    }

    /// The partitions as bars over time, `width` characters wide, for a terminal.
    pub fn timeline(&self, width: usize) -> ProfileTimeline<'_> {
        ProfileTimeline { profile: self, width: width.max(8) }
    }
}

/// How the clocks of the devices of one profile stand to the runtime's.
///
/// Each is asked once. What the host does between reading the device's clock and its own shifts all
/// times of the device, so with two samples the times of one device would disagree among
/// themselves.
#[derive(Default)]
pub(crate) struct Clocks(Vec<(DeviceId, Option<ClockSample>)>);

impl Clocks {
    /// The times of what the event last signalled, moved to the runtime's clock. `None` where it has none.
    pub(crate) fn times(&mut self, device: &Device, event: &dyn Event) -> Option<EventProfile> {
        let mut times = event.profile().ok()?;
        let sample = self.of(device)?;
        let ours = clock::at(sample.host);
        let move_one = |at: &mut u64| match at.checked_sub(sample.device) {
            Some(later) => *at = ours.saturating_add(later),
            None => *at = ours.saturating_sub(sample.device - *at),
        };
        [&mut times.submitted, &mut times.start, &mut times.end].into_iter().for_each(move_one);
        for command in &mut times.commands {
            [&mut command.start, &mut command.end].into_iter().for_each(move_one);
        }
        Some(times)
    }

    /// `None` where the device does not tell.
    pub(crate) fn of(&mut self, device: &Device) -> Option<ClockSample> {
        if let Some((_, sample)) = self.0.iter().find(|(known, _)| *known == device.id()) {
            return *sample;
        }
        let sample = device.hal().clock().ok();
        self.0.push((device.id(), sample));
        sample
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{FinalizeOptions, Graph, read};
    use crate::testing::{FakeDevice, FakeOptions};

    /// The null device's clock counts events, so it drifts from the host's as far as a clock can.
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
