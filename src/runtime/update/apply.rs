//! Application of an update: at once, or in a turn after the submissions before it; staged,
//! registered with the other users of the memory, applied in one go, and remembered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::channel::oneshot;
use tokio::runtime::Handle;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::runtime::completion::tasks::{Turn, spawn, wake_after_locks};
use crate::runtime::execution::executable::{ExecutableInner, ExecutableState};
use crate::runtime::execution::run::{Fence, FenceGuard, FenceHolder, Predecessor, Replaced};
use crate::runtime::execution::submit::check_launched;
use crate::runtime::execution::template::RunOwner;
use crate::runtime::finalize::updatable::{Brings, CurrentGraph, Updatable};
use crate::runtime::resource::allocation::Allocation;
use crate::runtime::update::change::Change;
use crate::runtime::update::nodes::{self, Nodes};
use crate::runtime::update::replace::Recorded;

/// The future of an update: resolves when it has been applied, or to why it has not. Dropping it
/// detaches the update.
#[must_use = "an update that fails says so here"]
#[derive(Debug)]
pub struct Applied {
    outcome: Outcome,
    turn: Turn,
}

#[derive(Debug)]
enum Outcome {
    Known(Result<()>),
    WaitingUpdate(oneshot::Receiver<Result<()>>),
}

impl Applied {
    pub(super) fn known(result: Result<()>) -> Self {
        Self { outcome: Outcome::Known(result), turn: Turn::default() }
    }

    pub(super) fn waiting(result: oneshot::Receiver<Result<()>>) -> Self {
        Self { outcome: Outcome::WaitingUpdate(result), turn: Turn::default() }
    }

    /// Whether it is known how the update went.
    pub fn is_known(&self) -> bool {
        matches!(self.outcome, Outcome::Known(_))
    }
}

impl Future for Applied {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Outcome::WaitingUpdate(result) = &mut self.outcome {
            let result = match Pin::new(result).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result,
            };
            let shut_down = |_| {
                let why = "the tokio runtime that was to apply this update shut down";
                Err(Error::new(ErrorKind::Cancelled, why))
            };
            self.outcome = Outcome::Known(result.unwrap_or_else(shut_down));
        }
        ready!(self.turn.poll(cx));
        match &self.outcome {
            Outcome::Known(result) => Poll::Ready(result.clone()),
            Outcome::WaitingUpdate(_) => Poll::Pending,
        }
    }
}

/// Applies a change now, or takes a turn behind what was submitted so far.
pub(crate) fn apply(executable: &Arc<ExecutableInner>, change: Result<Change>) -> Applied {
    let _span = tracing::debug_span!(target: "wakegraph::update", "update").entered();
    let refused = |error| Applied::known(Err(executable.labels.name(error)));
    let (mut change, updatable) = match change.and_then(|change| Ok((change, Updatable::of(executable)?))) {
        Ok(known) => known,
        Err(error) => return refused(error),
    };
    loop {
        let last = executable.state.lock().last_in_flight().map(Predecessor::Run);
        if let Err(awaited) = check_launched(&last) {
            awaited.wait();
        }
        let waits = !updatable.lock().waiting.is_empty();
        // Without a lock, and without wakers that are called later, because it calls code of the user's.
        if !waits && let Err(error) = change.prepare(executable, updatable) {
            return refused(error);
        }
        match wake_after_locks(|| apply_or_take_turn(executable, updatable, &mut change, waits)) {
            Sequenced::Again => {}
            Sequenced::Applied(result, garbage) => {
                drop(garbage);
                return result.map_or_else(refused, |()| Applied::known(Ok(())));
            }
            Sequenced::Wait(handle, predecessors, turn) => {
                let (sender, receiver) = oneshot::channel();
                // A runtime that is shutting down drops the task, and values of the user's with it, right
                // here.
                spawn(
                    &handle,
                    || "wakegraph deferred update".into(),
                    apply_after(predecessors, DeferredUpdate { turn, sender, change }),
                );
                return Applied::waiting(receiver);
            }
        }
    }
}

/// Result of an attempt to apply an update.
enum Sequenced {
    /// Something has changed meanwhile: the update is prepared again.
    Again,
    /// With what is to be dropped.
    Applied(Result<()>, Option<Replaced>),
    /// A task is to apply the update in its turn, after these.
    Wait(Handle, Vec<Predecessor>, UpdateTurn),
}

/// Applies a change that was prepared, unless the update `waits` for others, or takes a turn.
fn apply_or_take_turn(
    executable: &Arc<ExecutableInner>,
    updatable: &Updatable,
    change: &mut Change,
    waits: bool,
) -> Sequenced {
    let mut current = updatable.lock();
    let attempt = match current.waiting.is_empty() {
        true if waits => Attempt::Stale,
        true => try_apply(executable, &mut current, change, None),
        false => Attempt::Busy,
    };
    match attempt {
        Attempt::Stale => return Sequenced::Again,
        Attempt::Busy => {}
        Attempt::Done(..) | Attempt::HalfWay { .. } => {
            drop(current);
            let (result, garbage) = conclude(executable, updatable, change, attempt);
            return Sequenced::Applied(result, garbage);
        }
    }
    let Ok(handle) = Handle::try_current() else {
        let why = "this update comes after a submission that still needs the host, and was made outside a \
                   tokio runtime";
        let error = Error::new(ErrorKind::InvalidOperation, why);
        let help = "update inside `#[tokio::main]`, a spawned task, or while `runtime.enter()` is held";
        return Sequenced::Applied(Err(error.help(help)), None);
    };
    // It opens when all updates before this one have ended.
    let earlier = current.waiting.last().map(|fence| Predecessor::Fence(fence.clone()));
    let mut predecessors: Vec<_> = earlier.into_iter().collect();
    let brings = change.brings(&current);
    let (turn, new) = UpdateTurn::take(executable, &mut current, brings);
    if !new.is_empty() {
        current.register(executable, &new, &[]);
    }
    predecessors.extend(turn.hold_back(&mut executable.state.lock()));
    Sequenced::Wait(handle, predecessors, turn)
}

/// An update that waits. It lets submissions go on before it drops values of the user's, which may submit.
struct DeferredUpdate {
    turn: UpdateTurn,
    sender: oneshot::Sender<Result<()>>,
    change: Change,
}

/// Applies the change when everything before it has ended.
async fn apply_after(predecessors: Vec<Predecessor>, deferred: DeferredUpdate) {
    for predecessor in &predecessors {
        // Also a run that a lost device may still run has ended: its memory is kept.
        let _ = predecessor.ended().await;
    }
    let DeferredUpdate { turn, sender, mut change } = deferred;
    let executable = turn.executable.clone();
    let Ok(updatable) = Updatable::of(&executable) else { return };
    // Nothing else changes the executable during the turn.
    let attempt = match change.prepare(&executable, updatable) {
        Ok(()) => try_apply(&executable, &mut updatable.lock(), &mut change, Some(&turn)),
        Err(error) => Attempt::Done(Err(error), None),
    };
    let (result, _garbage) = conclude(&executable, updatable, &change, attempt);
    let result = result.map_err(|error| executable.labels.name(error));
    drop(turn);
    if let Err(Err(error)) = sender.send(result) {
        tracing::warn!(target: "wakegraph::update", %error, "an update failed, and its future was dropped");
    }
}

/// Finishes an attempt when no lock is held. Returns values of the user's with the result, to be dropped when
/// submissions can go on.
fn conclude(
    executable: &Arc<ExecutableInner>,
    updatable: &Updatable,
    change: &Change,
    attempt: Attempt,
) -> (Result<()>, Option<Replaced>) {
    match (attempt, change) {
        (Attempt::Done(result, garbage), _) => (result, garbage),
        (Attempt::HalfWay { error, partitions, turn }, Change::Whole(recorded)) => {
            recorded.restore(executable, updatable, partitions);
            drop(turn);
            (Err(error), None)
        }
        (Attempt::HalfWay { error, .. }, Change::Nodes { .. }) => (Err(error), None),
        (Attempt::Busy | Attempt::Stale, _) => {
            (Err(Error::new(ErrorKind::Bug, "an update was put off that has had its turn")), None)
        }
    }
}

/// The place that an update which cannot be applied yet has among the submissions. Later
/// submissions wait for it, and the memory that the update may bring is registered as theirs.
/// Dropping it, when the update has been applied or given up, takes that memory out again and lets
/// them go on.
pub(super) struct UpdateTurn {
    /// Present until the drop.
    lease: Option<FenceGuard>,
    fence: Arc<Fence>,
    pub(super) executable: Arc<ExecutableInner>,
}

impl UpdateTurn {
    /// Takes a turn behind all updates that wait. The caller registers the memory that is returned, which the
    /// update brings, and only then lets submissions [see](Self::hold_back) that they have to wait: each
    /// is ordered by what is registered when it is made.
    pub(super) fn take(
        executable: &Arc<ExecutableInner>,
        current: &mut CurrentGraph,
        brings: Brings,
    ) -> (Self, Vec<Arc<Allocation>>) {
        let lease = FenceGuard::new(FenceHolder::Update);
        let fence = lease.fence().clone();
        let new = current.waiting.push(fence.clone(), brings);
        (Self { lease: Some(lease), fence, executable: executable.clone() }, new)
    }

    /// Has later submissions wait. Returns the last run before the turn, if it has not ended.
    pub(super) fn hold_back(&self, state: &mut ExecutableState) -> Option<Predecessor> {
        state.fence = Some(self.fence.clone());
        state.last_in_flight().map(Predecessor::Run)
    }
}

impl Drop for UpdateTurn {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if let Ok(updatable) = Updatable::of(&self.executable) {
            let fences = updatable.lock().leave(&self.executable, lease);
            drop(fences);
        }
    }
}

/// Result of an attempt to apply an update.
pub(super) enum Attempt {
    /// With what is to be dropped once no lock is held.
    Done(Result<()>, Option<Replaced>),
    /// A run has to be waited for first.
    Busy,
    /// Another update has changed what this one was worked out from, or a launch has to be waited for.
    Stale,
    /// A device refused the update, and `partitions` that had been updated before it have to be
    /// restored. The caller does that without a lock. An update that had no turn has taken one, so
    /// that nothing is enqueued meanwhile.
    HalfWay { error: Error, partitions: usize, turn: Option<UpdateTurn> },
}

/// An update that is checked and prepared: from here on only devices can refuse it.
enum Staged<'a> {
    Nodes(Nodes<'a>),
    Whole(&'a mut Recorded),
}

/// Applies a change. An update that has taken a turn is applied, because the caller has waited for
/// everything before it. An update without one is applied only if everything submitted so far is on
/// its devices.
pub(super) fn try_apply(
    executable: &Arc<ExecutableInner>,
    current: &mut CurrentGraph,
    change: &mut Change,
    turn: Option<&UpdateTurn>,
) -> Attempt {
    if let Some(error) = executable.broken() {
        return Attempt::Done(Err(error.clone()), None);
    }
    let staged = match change {
        Change::Nodes { drafts, .. } if !drafts.is_current(current) => {
            return Attempt::Stale;
        }
        Change::Nodes { steps, drafts } => {
            nodes::stage(executable, current, steps, drafts).map(Staged::Nodes)
        }
        Change::Whole(recorded) => recorded.check(executable, current).map(|()| Staged::Whole(recorded)),
    };
    let mut staged = match staged {
        Ok(staged) => staged,
        Err(error) => return Attempt::Done(Err(error), None),
    };
    let (new, old) = match &staged {
        Staged::Nodes(nodes) => nodes.accesses(current),
        Staged::Whole(recorded) => recorded.accesses(current),
    };
    // Single nodes only choose among kernels that stay registered.
    let moves = matches!(staged, Staged::Whole(_)) || !new.is_empty() || !old.is_empty();
    if moves && turn.is_none() {
        // Before any submission can use it.
        current.register(executable, &[], &new);
    }
    let (outcome, in_flight) = {
        let mut state = executable.state.lock();
        if turn.is_none() && is_launched(&state) {
            (Err(Attempt::Stale), None)
        } else if turn.is_none() && is_busy(&state) {
            (Err(Attempt::Busy), None)
        } else {
            let applied = match &mut staged {
                Staged::Nodes(nodes) => nodes.apply(executable, current).map_err(|error| (error, 0)),
                Staged::Whole(recorded) => recorded.apply(executable),
            };
            let outcome = applied.map_err(|failure| match failure {
                (error, 0) => Attempt::Done(Err(error), None),
                (error, partitions) => {
                    let turn = turn.is_none().then(|| {
                        let (turn, _) = UpdateTurn::take(executable, current, Brings::default());
                        turn.hold_back(&mut state);
                        turn
                    });
                    Attempt::HalfWay { error, partitions, turn }
                }
            });
            // What has been submitted behind the turn has not started, and uses only what is new.
            (outcome, state.last_in_flight().filter(|_| turn.is_none()))
        }
    };
    let outcome = outcome.map(|()| {
        let replaced: Replaced = match staged {
            Staged::Nodes(nodes) => Box::new(nodes.commit(current)),
            Staged::Whole(recorded) => Box::new(recorded.commit(executable, current)),
        };
        let garbage = match in_flight.filter(|_| moves) {
            Some(run) => run.keep(replaced),
            // Its memory and kernels are still in use, or nothing of it is.
            None => Some(replaced),
        };
        Attempt::Done(Ok(()), garbage)
    });
    if moves {
        let changed: Vec<_> = new.into_iter().chain(old).map(|(allocation, _)| allocation).collect();
        current.register(executable, &changed, &[]);
    }
    outcome.unwrap_or_else(|attempt| attempt)
}

/// Whether another thread is launching the last run, and the caller can wait for that.
fn is_launched(state: &ExecutableState) -> bool {
    check_launched(&state.last_in_flight().map(Predecessor::Run)).is_err()
}

/// Whether a run has something left to start. If the last one has not, none has.
fn is_busy(state: &ExecutableState) -> bool {
    state.last.as_ref().is_some_and(|last| !last.has_ended() && !last.is_all_enqueued())
}
