//! The core of an executable: what its handles and runs share, and its state from submission to submission.

use std::mem;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use wakegraph_hal::{Error, ErrorKind, ResourceId, Result};

use crate::runtime::execution::accesses::Contested;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::run::{Fence, Predecessor, Run, may_still_run};
use crate::runtime::execution::run_data::RunDataType;
use crate::runtime::execution::submission_queue::SubmissionQueue;
use crate::runtime::execution::template::{Partitions, RunOwner, RunTemplate};
use crate::runtime::resource::allocation::Allocation;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel_explanation::KernelExplanation;
use crate::runtime::resource::scratch::Places;
use crate::util::AdaptiveSpin;
use crate::util::attachment::Attached;
use crate::util::deferred_drop::{drop_later, drop_unless_nested};

/// Tells executables apart; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ExecutableId(u64);

impl ExecutableId {
    pub(crate) fn unique() -> Self {
        // One of the standard library, as loom has none for statics.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        Self(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }
}

/// State that updates of an executable need, which `finalize::updatable` defines.
pub(crate) enum UpdateState {}

/// The state that all handles and runs of one executable share.
pub(crate) struct ExecutableInner {
    pub(crate) id: ExecutableId,
    pub(crate) template: RunTemplate,
    /// Keeps the memory alive that the commands use.
    pub(crate) allocations: Box<[Arc<Allocation>]>,
    /// Place where the scratch buffers of the finalized graph lie.
    pub(crate) scratch: Arc<Places>,
    /// Device memory when it was finalized: each allocation, with its bytes.
    pub(crate) device_memory: Box<[(ResourceId, u64)]>,
    /// State of updates, if the executable can be updated; then it keeps the memory alive.
    pub(crate) updatable: Attached<UpdateState>,
    /// The type of the values that its host tasks get, if they get some.
    pub(crate) run_data: Option<RunDataType>,
    /// The kernels that finalize has loaded, or found loaded.
    pub(crate) kernels: Box<[Arc<KernelExplanation>]>,
    /// Why it must not run any more: an update could not be taken back, or a device was lost that may still
    /// run it.
    pub(crate) broken: OnceLock<Error>,
    /// The devices that it uses, unless it is the body of a conditional or loop, which is part of another
    /// executable's run.
    pub(crate) devices: OnceLock<Box<[Device]>>,
    /// Where runs can be left to the reactor's thread while many are in flight.
    pub(crate) submission_queue: Option<Arc<SubmissionQueue>>,
    pub(crate) state: Mutex<ExecutableState>,
}

impl Deref for ExecutableInner {
    type Target = RunTemplate;

    fn deref(&self) -> &RunTemplate {
        &self.template
    }
}

impl RunOwner for ExecutableInner {
    fn template(&self) -> &RunTemplate {
        &self.template
    }

    fn device_memory(&self) -> &[(ResourceId, u64)] {
        &self.device_memory
    }

    /// Why the executable must not run any more, after an update that could not be taken back or the loss of
    /// a device that may still run it.
    fn broken(&self) -> Option<&Error> {
        self.broken.get()
    }

    fn failed(&self, error: Error) {
        if error.kind() == ErrorKind::DeviceLost && may_still_run(&self.template) {
            let _ = self.broken.set(error);
        }
    }
}

impl ExecutableInner {
    /// The plan as text, with what each device made of its partitions.
    pub(crate) fn plan_text(&self) -> String {
        let lowering = |partition: usize| {
            Some(self.partitions[partition].command_buffer()?.with(|buffer| buffer.info()).lowering)
        };
        let bodies = |partition: usize| self.partitions[partition].bodies_text();
        self.labels.text(lowering, bodies)
    }

    /// Fails if it must not be submitted.
    ///
    /// # Errors
    /// Those of an update that failed half-way, and of a device that has been shut down.
    pub(crate) fn accepts_submissions(&self) -> Result<()> {
        self.broken().map_or(Ok(()), |error| Err(error.clone()))?;
        self.devices.get().into_iter().flatten().try_for_each(Device::accepts_work)
    }

    /// Checks that a new host task takes no run data of another type than the executable's host tasks do.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if it does.
    pub(crate) fn check_run_data(&self, task: &HostTask) -> Result<()> {
        match task.run_data() {
            [first, ..] if self.run_data.is_none() => Err(first.none_expected()),
            types => RunDataType::add(&mut self.run_data.clone(), types),
        }
    }

    /// An update could not be taken back: the executable must not run any more.
    pub(crate) fn set_broken(&self, cause: Error) {
        let why = "an update failed half-way, and could not be taken back";
        let error = Error::new(cause.kind(), why).caused_by(cause).help("finalize the graph again");
        tracing::error!(target: "wakegraph", %error, "an executable is of no more use");
        let _ = self.broken.set(error);
    }
}

/// A user's reference to an executable.
///
/// The last one drops the executable on the user's thread, so that its memory is free afterwards.
#[derive(Clone)]
pub(crate) struct ExecutableHandle(Option<Arc<ExecutableInner>>);

impl ExecutableHandle {
    pub(crate) fn new(inner: Arc<ExecutableInner>) -> Self {
        Self(Some(inner))
    }
}

impl Deref for ExecutableHandle {
    type Target = Arc<ExecutableInner>;

    fn deref(&self) -> &Arc<ExecutableInner> {
        self.0.as_ref().expect("a handle has its executable until it is dropped")
    }
}

impl Drop for ExecutableHandle {
    fn drop(&mut self) {
        if let Some(mut inner) = self.0.take().and_then(Arc::into_inner) {
            drop_unless_nested(inner.take_resources());
        }
    }
}

/// The resources of users and devices that an executable holds.
struct ExecutableResources {
    _partitions: Partitions,
    _allocations: Box<[Arc<Allocation>]>,
    _scratch: Arc<Places>,
    _updatable: Attached<UpdateState>,
    _state: ExecutableState,
}

impl ExecutableInner {
    fn take_resources(&mut self) -> ExecutableResources {
        ExecutableResources {
            _partitions: mem::take(&mut self.template.partitions),
            _allocations: mem::take(&mut self.allocations),
            _scratch: mem::take(&mut self.scratch),
            _updatable: mem::take(&mut self.updatable),
            _state: mem::take(self.state.get_mut()),
        }
    }
}

impl Drop for ExecutableInner {
    /// Where the last reference is not an [`ExecutableHandle`], the runtime holds it: in a run that has just
    /// ended, say. The thread may hold locks then, or a device may need it.
    fn drop(&mut self) {
        let has_handle_dropped_it = self.partitions.is_empty();
        if !has_handle_dropped_it {
            drop_later(self.take_resources());
        }
    }
}

/// The state that changes from submission to submission.
#[derive(Default)]
pub(crate) struct ExecutableState {
    /// Number of runs so far.
    pub(crate) runs: u64,
    /// The run submitted last. When it has ended, all earlier ones have.
    pub(crate) last: Option<Arc<Run>>,
    /// Earlier runs, oldest first, kept for reuse.
    spare: std::collections::VecDeque<Arc<Run>>,
    /// Whether submissions should spin, learned from the runs that are reused.
    pub(crate) spinning: AdaptiveSpin,
    /// Whether runs should share queues, learned likewise.
    pub(crate) sharing: AdaptiveSpin,
    /// Opens when all updates of this executable have ended that later runs have to wait for.
    pub(crate) fence: Option<Arc<Fence>>,
    /// The memory whose registers a submission has to consult.
    pub(crate) contested: Contested,
}

/// More runs than this are not kept for reuse: it bounds the memory that a burst leaves behind.
const MOST_SPARE: usize = 16_384;

/// As many are kept for good. What a burst left beyond them is given back while no two runs are in flight.
const FEW_SPARE: usize = 64;

/// Of what a burst left, each submission gives back this part, a divisor: some hundred of them all,
/// and few enough where the next burst follows soon.
const GIVEN_BACK: usize = 64;

impl ExecutableState {
    pub(crate) fn last_in_flight(&self) -> Option<Arc<Run>> {
        self.last.as_ref().filter(|run| !run.has_freed_memory()).cloned()
    }

    /// All runs that have not ended.
    pub(crate) fn in_flight(&self) -> Vec<Arc<Run>> {
        self.spare.iter().chain(&self.last).filter(|run| !run.has_ended()).cloned().collect()
    }

    pub(crate) fn is_last(&self, predecessor: &Predecessor) -> bool {
        let Predecessor::Run(run) = predecessor else { return false };
        self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, run))
    }

    /// A run that has ended and that nothing else refers to, made ready by `reset`.
    pub(crate) fn take_reusable(&mut self, reset: impl Fn(&mut Run)) -> Option<Arc<Run>> {
        let (spinning, sharing) = (&mut self.spinning, &mut self.sharing);
        let mut reuse = |run: &mut Arc<Run>| {
            let Some(run) = run.has_freed_memory().then(|| Arc::get_mut(run)).flatten() else { return false };
            if let Some(found) = run.waiting.spin() {
                spinning.record(found);
            }
            if let Some(well) = run.shared_well() {
                sharing.record(well);
            }
            reset(run);
            true
        };
        // Where the last run is reused each time, a spare run that has failed would keep its error, which
        // may be a value of the user's, also in the events of its devices: it is reused first.
        if self.last.as_ref().is_some_and(|last| last.has_ended())
            && let Some(mut oldest) = self.spare.pop_front()
        {
            if oldest.has_failed() && reuse(&mut oldest) {
                return Some(oldest);
            }
            self.spare.push_back(oldest);
        }
        if self.last.as_mut().is_some_and(&mut reuse) {
            let surplus = self.spare.len().saturating_sub(FEW_SPARE);
            if surplus > 0 {
                self.spare.drain(..surplus.div_ceil(GIVEN_BACK));
            }
            return self.last.take();
        }
        // Runs end in order, so none has ended if the oldest has not. One that has ended and is still
        // referred to goes to the back.
        for _ in 0..self.spare.len().min(8) {
            if !self.spare.front()?.has_ended() {
                break;
            }
            let mut oldest = self.spare.pop_front()?;
            if reuse(&mut oldest) {
                return Some(oldest);
            }
            self.spare.push_back(oldest);
        }
        None
    }

    /// Makes `run` the last one.
    pub(crate) fn submitted(&mut self, run: &Arc<Run>) {
        // One that was refused has no place among the others: those before it may still be in flight.
        if run.has_ended() && run.result().is_err() {
            return;
        }
        if let Some(previous) = self.last.replace(run.clone())
            && self.spare.len() < MOST_SPARE
        {
            self.spare.push_back(previous);
        }
    }
}

#[cfg(test)]
mod tests {
    use wakegraph_hal::ErrorKind;
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    use super::*;
    use crate::runtime::{Device, Graph};

    #[test]
    fn a_spare_run_does_not_keep_a_failure() {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
        let device = Device::from_hal(device);
        let mut graph = Graph::new(&device);
        graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
        let exec = graph.finalize().unwrap();
        control.fail_next(Error::new(ErrorKind::Driver, "fails"));
        let failed = exec.submit().event();
        control.complete_all();
        // The event refers to the failed run, so this one is new.
        drop(exec.submit());
        control.complete_all();
        let has_failure = || exec.inner.state.lock().spare.iter().any(|run| run.has_failed());
        assert!(has_failure());
        drop(failed);
        for _ in 0..2 {
            drop(exec.submit());
            control.complete_all();
        }
        assert!(!has_failure());
    }

    #[test]
    fn a_burst_leaves_few_runs_behind() {
        const BURST: usize = if cfg!(miri) { 70 } else { 5_000 };
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
        let device = Device::from_hal(device);
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let exec = graph.finalize().unwrap();
        (0..BURST).for_each(|_| drop(exec.submit()));
        control.complete_all();
        assert!(exec.inner.state.lock().spare.len() >= BURST - 1);
        for _ in 0..if cfg!(miri) { 10 } else { 500 } {
            drop(exec.submit());
            control.complete_all();
        }
        assert_eq!(exec.inner.state.lock().spare.len(), FEW_SPARE);
    }
}
