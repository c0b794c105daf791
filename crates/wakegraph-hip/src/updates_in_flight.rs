//! A trial of updates: may an instantiated graph be updated while a launch of it is in flight?
//!
//! HIP's documentation does not say whether such a launch keeps the values that it was made with: the
//! runtime could have the arguments in memory that an update overwrites, and it has lost updates
//! before. So each device tries it once. Where it does not hold, updates work on a second instance.
#![expect(unsafe_code, reason = "accesses memory that its own launches use")]

use std::sync::Arc;

use wakegraph_hal::support::graphs::InstantiatedGraph as _;
use wakegraph_hal::support::streams::DriverContext as _;
use wakegraph_hal::{Memory, MemoryDesc, MemoryKind, Result, UsmPointer};

use super::context::{HipRawEvent, HipStream};
use super::device::{HipDeviceInner, HipMemory};
use super::graph::{HipGraph, HipGraphExec, HipGraphNode, HipNewNode, add_node, create_graph};
use super::kernel::{self, HipLaunch};

/// Length of the work before the launch at first, in bytes that one work-item sets.
const FIRST_DELAY: usize = 4 << 10;

/// The longest that is tried.
const LAST_DELAY: usize = 1 << 20;

/// The value of both bytes before the nodes write.
const BEFORE: u8 = 1;
/// The value that the nodes write at first.
const OLD: u8 = 2;
/// The value that the first one writes after the update.
const NEW: u8 = 3;

/// Whether launches in flight keep their values. The first call for a device tries it, which takes a
/// compilation; where that is not possible, they are taken not to.
pub(super) fn keep_their_values(device: &Arc<HipDeviceInner>) -> bool {
    *device.keeps_values.get_or_init(|| {
        let outcome = device.context.run(|| UpdateTest::prepare(device)?.run());
        if let Err(error) = &outcome {
            tracing::debug!(target: "wakegraph::hip", %error, "updates in flight could not be tried");
        }
        let (keep, device) = (outcome.unwrap_or(false), device.context.health.selector());
        let what = "tried whether launches in flight keep their values";
        tracing::debug!(target: "wakegraph::hip", device, keep, "{what}");
        keep
    })
}

/// A graph of two nodes, one behind the other, each of which fills one byte.
struct UpdateTest<'a> {
    device: &'a HipDeviceInner,
    stream: HipStream,
    /// The bytes that the nodes fill; then the patterns.
    bytes: HipMemory,
    /// Memory that is filled before the launch, so that it has to wait.
    delay: HipMemory,
    nodes: [HipGraphNode; 2],
    exec: HipGraphExec,
    _graph: HipGraph,
}

impl<'a> UpdateTest<'a> {
    fn prepare(device: &'a Arc<HipDeviceInner>) -> Result<Self> {
        let memory = |kind, len| HipMemory::allocate(device, &MemoryDesc::new(len, kind));
        let (bytes, delay) = (memory(MemoryKind::Host, 5)?, memory(MemoryKind::Device, LAST_DELAY)?);
        // SAFETY: nothing uses the memory yet.
        unsafe { bytes.write(0, &[BEFORE, BEFORE, BEFORE, OLD, NEW]) }?;
        let mut graph = create_graph(&device.context)?;
        let mut add = |index, after: &[_]| -> Result<_> {
            let launch = fill(device, &bytes, index, OLD)?;
            Ok(add_node(&mut graph, HipNewNode::Kernel(&launch), after)?)
        };
        let first = add(0, &[])?;
        let nodes = [first, add(1, &[first])?];
        let exec = HipGraphExec::instantiate(&mut graph)?;
        let stream = HipStream::create(&device.context)?;
        device.pool.stream.order_before(&stream)?;
        Ok(Self { device, stream, bytes, delay, nodes, exec, _graph: graph })
    }

    fn run(&mut self) -> Result<bool> {
        let mut delay = FIRST_DELAY;
        while delay <= LAST_DELAY {
            if let Some(keep) = self.attempt(delay)? {
                return Ok(keep);
            }
            delay *= 4;
        }
        Ok(false)
    }

    /// `None` if the launch ended before the update.
    fn attempt(&mut self, delay: usize) -> Result<Option<bool>> {
        self.update(OLD, true)?;
        self.reset()?;
        let pattern = part(&self.bytes, 2, 1);
        kernel::fill_by(self.device, 1, part(&self.delay, 0, delay), pattern)?.start(&self.stream)?;
        self.launch()?;
        let end = HipRawEvent::recorded_on(&self.stream)?;
        self.update(NEW, false)?;
        let was_in_flight = !end.is_complete()?;
        self.stream.synchronize()?;
        if !was_in_flight {
            return Ok(None);
        }
        let first = self.read()?;
        self.reset()?;
        self.launch()?;
        self.stream.synchronize()?;
        Ok(Some(first == [OLD, OLD] && self.read()? == [NEW, BEFORE]))
    }

    /// Sets what the first node writes, and whether the second one is enabled.
    fn update(&mut self, value: u8, is_enabled: bool) -> Result<()> {
        self.exec.set_kernel(self.nodes[0], &fill(self.device, &self.bytes, 0, value)?)?;
        Ok(self.exec.set_enabled(self.nodes[1], is_enabled)?)
    }

    fn launch(&mut self) -> Result<()> {
        self.exec.launch(&self.stream)?;
        Ok(())
    }

    fn reset(&self) -> Result<()> {
        // SAFETY: nothing is in flight.
        unsafe { self.bytes.write(0, &[BEFORE, BEFORE]) }
    }

    fn read(&self) -> Result<[u8; 2]> {
        let mut bytes = [0; 2];
        // SAFETY: nothing is in flight.
        unsafe { self.bytes.read(0, &mut bytes) }?;
        Ok(bytes)
    }
}

impl Drop for UpdateTest<'_> {
    /// Waits for an attempt that has failed half-way, before its memory serves others.
    fn drop(&mut self) {
        self.device.context.report(self.stream.synchronize());
    }
}

/// The launch that sets one byte.
fn fill(device: &HipDeviceInner, bytes: &HipMemory, index: usize, value: u8) -> Result<HipLaunch> {
    kernel::fill(device, part(bytes, index, 1), part(bytes, if value == OLD { 3 } else { 4 }, 1))
}

fn part(memory: &HipMemory, offset: usize, len: usize) -> UsmPointer {
    // SAFETY: the memory outlives the launches that use it: each attempt waits for its own, or the drop does.
    unsafe { UsmPointer::new(memory.address() as usize + offset, len) }
}
