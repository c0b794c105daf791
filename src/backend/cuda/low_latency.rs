//! The low-latency form of a command-buffer: the same graph, followed by a kernel that counts the
//! run in a completion counter.
//!
//! The host reads the counter a microsecond before an event would be complete, without a driver
//! call, for a microsecond of the device's time. Enqueues ask for it when the caller is going to
//! poll in a loop ([`Signal::prompt`](crate::hal::Signal::prompt)). There is no fence between the
//! commands and the counter, so this serves only command-buffers that write to the device's memory
//! alone: there, the driver's own order makes results visible to later work.
//!
//! A command-buffer has one instance of its graph, so that an update changes one. While enqueues ask
//! for the low-latency form the instance has that form, and every launch counts; when none has asked
//! for a while, it has the plain form again.

use smallvec::SmallVec;

use super::builtin_kernels::{BuiltinKernel, address_arg};
use super::completion_counter::CompletionCounter;
use super::device_inner::CudaDeviceInner;
use super::graph::GraphNode;
use super::launch::CudaLaunch;
use super::memory::CudaMemory;
use crate::hal::{Command, KernelArg, MemoryKind, MemoryView};
use crate::types::Result;

/// With more commands, the last microsecond does not matter.
const MOST_COMMANDS: usize = 128;

/// Whether counting every launch is worth its price, as far as enqueues have asked for it.
#[derive(Debug)]
pub(super) struct CounterDemand {
    /// Enqueues that asked since the last change.
    asked: u32,
    /// Consecutive enqueues that did not ask.
    unasked: u32,
    /// How many have to ask before there is a counter.
    needed: u32,
}

/// At first, so many enqueues have to ask: instantiating the graph again costs as much as they gain.
const FIRST_NEEDED: u32 = 4;

/// After so many consecutive enqueues that did not ask, none is expected to.
const UNASKED_LIMIT: u32 = 64;

/// Each back-off multiplies the number of enqueues that have to ask, so that instantiations become
/// rare among enqueues, whatever the user does.
const BACK_OFF: u32 = 8;

impl Default for CounterDemand {
    fn default() -> Self {
        Self { asked: 0, unasked: 0, needed: FIRST_NEEDED }
    }
}

impl CounterDemand {
    /// Takes note of the next enqueue. Returns whether it should count.
    pub(super) fn next(&mut self, asked: bool, counts: bool) -> bool {
        if asked {
            self.asked = self.asked.saturating_add(1);
            self.unasked = 0;
        } else {
            self.unasked = self.unasked.saturating_add(1);
        }
        if self.unasked >= UNASKED_LIMIT {
            self.asked = 0;
        }
        match counts {
            true => self.unasked < UNASKED_LIMIT,
            false => asked && self.asked >= self.needed,
        }
    }

    /// The counter has been removed, or could not be added.
    pub(super) fn back_off(&mut self) {
        *self = Self { asked: 0, unasked: 0, needed: self.needed.saturating_mul(BACK_OFF) };
    }
}

/// What a graph needs for the low-latency form: few commands, which write to the device's memory
/// only.
#[derive(Default, Debug)]
pub(super) struct LowLatencyEligibility {
    commands: usize,
    /// How many commands may write to other memory.
    outside: usize,
    /// The nodes that no other follows. Unknown for many commands.
    leaves: SmallVec<[GraphNode; 4]>,
}

impl LowLatencyEligibility {
    /// A command has been appended behind some nodes. It has these end nodes, and `stays` says
    /// whether it [writes only](writes_only_device) to the device.
    pub(super) fn append(&mut self, after: &[GraphNode], ends: &[GraphNode], stays: bool) {
        self.commands += 1;
        self.outside += usize::from(!stays);
        if self.commands > MOST_COMMANDS {
            self.leaves = SmallVec::new();
            return;
        }
        self.leaves.retain(|leaf| !after.contains(leaf) && !ends.contains(leaf));
        self.leaves.extend_from_slice(ends);
    }

    /// A command has become another one.
    pub(super) fn replace(&mut self, stayed: bool, stays: bool) {
        self.outside += usize::from(!stays);
        self.outside -= usize::from(!stayed);
    }

    pub(super) fn is_eligible(&self) -> bool {
        self.commands <= MOST_COMMANDS && self.outside == 0
    }

    /// The nodes that the counting kernel follows.
    pub(super) fn leaves(&self) -> &[GraphNode] {
        &self.leaves
    }
}

/// The launch that counts a run. The caller has bound the context.
pub(super) fn counting_launch(device: &CudaDeviceInner, counter: &CompletionCounter) -> Result<CudaLaunch> {
    let args = counter.addresses().map(|address| address_arg(address, size_of::<u64>()));
    BuiltinKernel::Count.launch(device, args, 1)
}

/// Whether the command writes to memory of this device only.
pub(super) fn writes_only_device(device: &CudaDeviceInner, command: &Command) -> bool {
    let is_here = |view: &MemoryView| {
        let memory = view.memory().as_any().downcast_ref::<CudaMemory>();
        memory.is_some_and(|memory| {
            memory.owner().info.id == device.info.id && view.memory().kind() == MemoryKind::Device
        })
    };
    match command {
        Command::Kernel(launch) => launch.args.iter().all(|arg| match arg {
            KernelArg::Value(_) | KernelArg::Local(_) => true,
            KernelArg::Memory(view) => is_here(view),
            // It may point anywhere.
            KernelArg::Usm(_) => false,
        }),
        Command::BufferCopy { dst, .. }
        | Command::BufferCopyRect { dst, .. }
        | Command::BufferWrite { dst, .. }
        | Command::BufferWriteRect { dst, .. }
        | Command::BufferFill { dst, .. } => is_here(dst),
        Command::Empty => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enqueues that ask until one of them counts.
    fn asks(demand: &mut CounterDemand) -> u32 {
        (1..).find(|_| demand.next(true, false)).unwrap()
    }

    #[test]
    fn a_few_requests_are_enough_and_each_back_off_needs_more() {
        let mut demand = CounterDemand::default();
        for expected in [FIRST_NEEDED, FIRST_NEEDED * BACK_OFF, FIRST_NEEDED * BACK_OFF * BACK_OFF] {
            assert_eq!(asks(&mut demand), expected);
            demand.back_off();
        }
    }

    #[test]
    fn a_counter_without_requests_goes() {
        let mut demand = CounterDemand::default();
        asks(&mut demand);
        for _ in 0..3 {
            assert!((1..UNASKED_LIMIT).all(|_| demand.next(false, true)));
            assert!(demand.next(true, true));
        }
        assert!((1..UNASKED_LIMIT).all(|_| demand.next(false, true)));
        assert!(!demand.next(false, true));
    }

    #[test]
    fn rare_requests_do_not_add_up() {
        let mut demand = CounterDemand::default();
        for _ in 0..2 * FIRST_NEEDED {
            assert!(!demand.next(true, false));
            assert!((0..UNASKED_LIMIT).all(|_| !demand.next(false, false)));
        }
        assert!((1..FIRST_NEEDED).all(|_| !demand.next(true, false)));
        assert!(!demand.next(false, false), "it did not ask");
        assert!(demand.next(true, false));
    }
}
