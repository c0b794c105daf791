//! One enqueue: what to run, what to signal, and how it ended.

use std::fmt::{self, Debug};
use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::Notification;
use wakegraph_hal::util::deferred_drop::Failure;
use wakegraph_hal::util::panics::catch_and_log;

use crate::clock::now;
use crate::event::HostEvent;
use crate::program::EnqueuedCommands;

/// Names a run while it is in flight: its place among the runs, counted from one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RunId(NonZeroU32);

impl RunId {
    pub(super) fn at(place: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place as u32))
    }

    pub(super) fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A schedule in which runs wait for events.
pub(super) trait ReleaseRuns: Send + Sync {
    /// Counts `count` of the events that `run` waits for as final. `failure` becomes the run's, too.
    fn release(&self, run: RunId, count: u32, failure: Option<Failure>);
}

/// A run that waits for an event, maybe on another device.
pub(crate) struct Dependent {
    pub(super) schedule: Arc<dyn ReleaseRuns>,
    pub(super) run: RunId,
    /// Whether the run needs the event's result, so that a failure spreads to it.
    pub(super) needs_result: bool,
}

impl Dependent {
    /// What the failure of the event means for the run.
    pub(super) fn inherit(&self, failure: &Option<Failure>) -> Option<Failure> {
        failure.as_ref().filter(|_| self.needs_result).cloned()
    }

    pub(super) fn release(&self, failure: &Option<Failure>) {
        self.schedule.release(self.run, 1, self.inherit(failure));
    }
}

impl Debug for Dependent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependent").field("run", &self.run).finish_non_exhaustive()
    }
}

/// Commands to run, and what to signal after them.
#[derive(Debug)]
pub(crate) struct PoolWork {
    pub(super) commands: EnqueuedCommands,
    pub(super) event: Arc<HostEvent<Dependent>>,
    pub(super) notification: Option<Notification>,
    /// Whether to take times; without it no clock is read.
    pub(super) profiled: bool,
    /// The first failure: of a dependency, or of one of the commands.
    pub(super) failure: Option<Failure>,
}

/// How work ended, and what has to hear of it.
#[derive(Debug)]
pub(super) struct WorkOutcome {
    pub(super) dependents: SmallVec<[Dependent; 2]>,
    pub(super) failure: Option<Failure>,
    pub(super) notification: Option<Notification>,
}

impl PoolWork {
    pub(crate) fn new(
        commands: EnqueuedCommands,
        event: Arc<HostEvent<Dependent>>,
        notification: Option<Notification>,
        profiled: bool,
    ) -> Self {
        Self { commands, event, notification, profiled, failure: None }
    }

    /// Drops the commands, then makes the event final. Calls nothing that takes a lock of a schedule
    /// and no user's code but drops, so the schedule may be locked.
    pub(super) fn complete(self) -> WorkOutcome {
        let Self { commands, event, notification, profiled, failure } = self;
        if profiled {
            let end = now();
            event.set_profile(|profile| {
                profile.end = end;
                profile.commands.clear();
                profile.commands.extend(commands.times());
            });
        }
        drop_commands(commands);
        let dependents = event.complete(failure.as_ref().map_or(Ok(()), Err), profiled);
        WorkOutcome { dependents, failure, notification }
    }
}

/// Drops commands, whose kernels may hold values of the user's.
pub(super) fn drop_commands(commands: EnqueuedCommands) {
    catch_and_log("the drop of a kernel's values", || drop(commands));
}

/// Calls the notification, if any. No lock may be held.
pub(super) fn notify(notification: Option<Notification>) {
    if let Some(notification) = notification {
        catch_and_log("a notification of the host backend", || {
            notification.target.notify(notification.token);
            drop(notification);
        });
    }
}
