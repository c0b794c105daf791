//! When an update is applied: at once, or after the submissions before it.

use std::sync::Arc;

use futures::channel::oneshot;
use tokio::runtime::Handle;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::runtime::completion::spawn::spawn;
use crate::runtime::completion::wakers::wake_after_locks;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::run::{Predecessor, Replaced};
use crate::runtime::execution::submit::check_launched;
use crate::runtime::finalize::updatable::Updatable;
use crate::runtime::update::applied::Applied;
use crate::runtime::update::apply::{Attempt, try_apply};
use crate::runtime::update::change::Change;
use crate::runtime::update::turn::Turn;

/// Applies a change now, or takes a turn behind what was submitted so far.
pub(crate) fn apply(executable: &Arc<ExecutableInner>, change: Result<Change>) -> Applied {
    let _span = tracing::debug_span!(target: "wakegraph::update", "update").entered();
    let (mut change, updatable) = match change.and_then(|change| Ok((change, Updatable::of(executable)?))) {
        Ok(known) => known,
        Err(error) => return Applied::known(Err(error)),
    };
    loop {
        let last = executable.state.lock().last_in_flight().map(Predecessor::Run);
        if let Err(awaited) = check_launched(&last) {
            awaited.wait();
        }
        let waits = !updatable.lock().waiting.is_empty();
        // Without a lock, and without wakers that are called later, because it calls code of the user's.
        if !waits && let Err(error) = change.prepare(executable, updatable) {
            return Applied::known(Err(error));
        }
        match wake_after_locks(|| apply_or_take_turn(executable, updatable, &mut change, waits)) {
            Sequenced::Again => {}
            Sequenced::Applied(result, garbage) => {
                drop(garbage);
                return Applied::known(result);
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
    Wait(Handle, Vec<Predecessor>, Turn),
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
    let (turn, new) = Turn::take(executable, &mut current, brings);
    if !new.is_empty() {
        current.register(executable, &new, &[]);
    }
    predecessors.extend(turn.hold_back(&mut executable.state.lock()));
    Sequenced::Wait(handle, predecessors, turn)
}

/// An update that waits. It lets submissions go on before it drops values of the user's, which may submit.
struct DeferredUpdate {
    turn: Turn,
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
