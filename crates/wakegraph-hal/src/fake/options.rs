//! Options for the behaviour of a fake device.

use std::time::Duration;

use crate::{Capabilities, CommandKinds, UpdateCapabilities};

/// Limits like those of a small GPU, so that tests of limits meet some.
const MAX_WORK_GROUP: usize = 1024;
const LOCAL_MEMORY: usize = 64 << 10;

/// Options for the behaviour of a [`FakeDevice`](super::FakeDevice).
#[derive(Clone, Debug)]
pub struct FakeOptions {
    pub(super) manual: bool,
    pub(super) timing: Option<FakeTiming>,
    pub(super) name: String,
    pub(super) capabilities: Capabilities,
    pub(super) clock_error: Duration,
    /// Whether the device waits for other fake devices.
    pub(super) peers: bool,
    pub(super) memory_of_peers: bool,
    pub(super) logs_calls: bool,
    pub(super) kernel_work_group: usize,
}

impl FakeOptions {
    /// A device that completes at once, notifies, and can do everything.
    pub fn new() -> Self {
        let capabilities = Capabilities {
            update: UpdateCapabilities::all(),
            profiling: true,
            notifies: true,
            batches: true,
            out_of_order_queues: true,
            stream_tasks: true,
            max_work_group_size: MAX_WORK_GROUP,
            max_work_item_sizes: [MAX_WORK_GROUP, MAX_WORK_GROUP, 64],
            concurrent_parts: true,
            global_offset: true,
            local_memory: LOCAL_MEMORY,
            ..Capabilities::new(CommandKinds::RECORDABLE)
        };
        Self {
            manual: false,
            timing: None,
            name: "fake".into(),
            capabilities,
            clock_error: Duration::ZERO,
            peers: false,
            memory_of_peers: false,
            logs_calls: false,
            kernel_work_group: usize::MAX,
        }
    }

    /// Whether notifications are called; without, completion must be polled, as on a GPU.
    #[must_use]
    pub fn notifies(self, notifies: bool) -> Self {
        self.capabilities(|capabilities| capabilities.notifies = notifies)
    }

    /// Changes what the device says that it can do: a way to test how a graph fares on a device
    /// that can do less.
    ///
    /// ```
    /// use wakegraph::capabilities::CommandKinds;
    /// use wakegraph::testing::{FakeDevice, FakeOptions};
    /// use wakegraph::{Device, ErrorKind, Graph};
    /// let options = FakeOptions::new().capabilities(|can| can.commands -= CommandKinds::BUFFER_FILL);
    /// let device = Device::from_hal(FakeDevice::open(options).0);
    /// let x = device.buffer::<u32>(4)?;
    /// let mut graph = Graph::new(&device);
    /// graph.fill(&x, 1);
    /// assert_eq!(graph.finalize().unwrap_err().kind(), ErrorKind::FeatureNotSupported);
    /// # Ok::<(), wakegraph::Error>(())
    /// ```
    #[must_use]
    pub fn capabilities(mut self, change: impl FnOnce(&mut Capabilities)) -> Self {
        change(&mut self.capabilities);
        self
    }

    /// Makes enqueued work complete by the clock, without notifications; the
    /// [`FakeControl`](super::FakeControl) can complete it earlier.
    #[must_use]
    pub fn timing(self, timing: FakeTiming) -> Self {
        Self { manual: true, timing: Some(timing), ..self }.notifies(false)
    }
}

setters! {
    FakeOptions {
        /// Whether enqueued work stays pending until the [`FakeControl`](super::FakeControl) completes it.
        manual: bool,
        /// Maximum time between the readings of the device's clock and the host's.
        clock_error: Duration,
        /// Whether the device can wait for events of other such devices.
        peers: bool,
        /// Whether the device can use memory of other devices.
        memory_of_peers: bool,
        /// The largest work-group of kernels, where that is less than the device's.
        kernel_work_group: usize,
        /// Whether the device logs the calls that it hears, for
        /// [`FakeControl::take_calls`](super::FakeControl::take_calls).
        logs_calls: bool,
        /// The device's selector and name.
        name: impl Into<String>,
    }
}

impl Default for FakeOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Durations of a fake device's work and calls: a device as slow as a real one, for
/// benchmarks. See [`FakeOptions::timing`]. The default takes no time at all.
///
/// An enqueue starts when its in-order queue, its command-buffer and its wait list allow it,
/// and ends `work` later. From then on a poll finds it complete. The device calls no notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FakeTiming {
    /// Time from the start of an enqueue to its end.
    pub work: Duration,
    /// Time that an enqueue costs the calling thread.
    pub enqueue: Duration,
    /// Time that a poll of a pending event costs.
    pub pending_status: Duration,
    /// Time that the first poll costs that finds an event final.
    pub final_status: Duration,
}
