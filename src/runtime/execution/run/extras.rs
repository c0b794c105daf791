//! What only some runs have. In most there is none of it.

use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::hal;
use crate::runtime::completion::clock;
use crate::runtime::execution::host_task::NestedRun;
use crate::runtime::execution::labels::Labels;
use crate::runtime::execution::profile::Profile;
use crate::runtime::execution::run::{EndGuard, Fence, HostScheduler, Predecessors, Replaced, Run, RunTrace};
use crate::util::deferred_drop::Failure;

/// What only some runs have.
#[derive(Default)]
pub(super) struct RunExtras {
    /// From when on nothing of the run starts any more.
    pub(super) deadline: Option<Instant>,
    /// The task that waits to start the run.
    pub(super) starter: Option<Waker>,
    /// What tells of its end in the place of its own event, if it was launched in a batch.
    pub(super) batch_event: Option<Arc<dyn hal::Event>>,
    pub(super) failure: Option<Failure>,
    pub(super) profile: ProfileParts,
    /// Runs that host tasks have submitted and wait for, by partition.
    pub(super) nested: SmallVec<[(usize, Arc<dyn NestedRun>); 1]>,
    /// The host tasks that have ended while views of their buffers are kept, by partition.
    pub(super) views_kept: SmallVec<[usize; 1]>,
    pub(super) until_end: UntilEnd,
}

/// What a run gives up when it is over.
#[derive(Default)]
pub(super) struct UntilEnd {
    /// How partitions that need the host get started. Refers back to the run.
    pub(super) scheduler: Option<HostScheduler>,
    /// Runs whose results the devices wait for.
    pub(super) depends_on: SmallVec<[Arc<Run>; 1]>,
    /// What the run comes after, where it may fail before its turn. It ends after all of it.
    pub(super) comes_after: Predecessors,
    /// A guard among them, or among what they come after.
    pub(super) guard: Option<Arc<Fence>>,
    /// The run itself, if it comes after something: who ends it then needs it.
    pub(super) this: Option<Arc<Run>>,
    /// What updates have taken out of the executable, and this run or one before it still uses.
    pub(super) retired: Vec<Replaced>,
    /// What is to be dropped when the run is over.
    pub(super) guards: Vec<EndGuard>,
    pub(super) trace: Option<Arc<RunTrace>>,
}

/// What the profile of a run is made of.
#[derive(Clone, Default)]
pub(super) struct ProfileParts {
    /// The names of nodes.
    pub(super) labels: Option<Arc<Labels>>,
    /// When the run was submitted.
    pub(super) submitted: u64,
    /// When host tasks began and ended, by partition.
    pub(super) host_times: Vec<(usize, u64, u64)>,
    /// The profile, once it was asked for.
    pub(super) collected: Option<Profile>,
}

impl RunExtras {
    /// Makes them ready for the next run.
    pub(super) fn reset(&mut self) {
        self.deadline = None;
        self.starter = None;
        self.batch_event = None;
        self.failure = None;
        self.views_kept.clear();
        self.profile.reset();
    }

    /// The run is over.
    pub(super) fn end(&mut self) -> UntilEnd {
        // Once all runs of the batch have let it go it serves another.
        self.batch_event = None;
        std::mem::take(&mut self.until_end)
    }
}

impl ProfileParts {
    fn reset(&mut self) {
        self.labels = None;
        self.host_times.clear();
        self.collected = None;
    }

    /// A run is submitted that has a profile.
    pub(super) fn begin(&mut self, labels: &Arc<Labels>) {
        self.labels = Some(labels.clone());
        self.submitted = clock::now();
    }
}
