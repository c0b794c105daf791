//! The place of an update among the submissions.

use std::sync::Arc;

use futures::channel::oneshot;
use tokio::runtime::Handle;

use crate::runtime::completion::latch::wake_after_locks;
use crate::runtime::completion::spawn::spawn;
use crate::runtime::execution::conflicts::Predecessor;
use crate::runtime::execution::executable::{Shared, State};
use crate::runtime::execution::fence::GateLease;
use crate::runtime::execution::run::Replaced;
use crate::runtime::update::carry_out::{Accesses, Attempt, carry_out};
use crate::runtime::update::state::{Current, Updatable, Waiting};
use crate::runtime::update::{Applied, Change};
use crate::types::{Error, ErrorKind, Result};

/// The place that an update which cannot be applied yet has among the submissions. Later
/// submissions wait for it, and the memory that the update may bring is registered as theirs.
/// Dropping it, when the update has been applied or given up, takes that memory out again and lets
/// them go on.
pub(super) struct Turn {
    lease: GateLease,
    shared: Arc<Shared>,
}

impl Turn {
    /// Takes a turn behind all updates that wait. The caller registers what the update brings, and
    /// only then lets submissions [see](Self::hold_back) that they have to wait: each is ordered by
    /// what is registered when it is made.
    pub(super) fn take(shared: &Arc<Shared>, current: &mut Current, brings: Accesses) -> Self {
        let lease = GateLease::new();
        current.waiting.push(Waiting { gate: lease.gate().clone(), brings });
        Self { lease, shared: shared.clone() }
    }

    /// Has later submissions wait. Returns the last run before the turn, if it is not over.
    pub(super) fn hold_back(&self, state: &mut State) -> Option<Predecessor> {
        state.gates.retain(|gate| !gate.is_open());
        state.gates.push(self.lease.gate().clone());
        state.last_unfinished().map(Predecessor::Run)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(updatable) = &self.shared.updatable {
            updatable.lock().leave(&self.shared, self.lease.gate());
        }
    }
}

/// Applies a change now, or takes a turn behind what was submitted so far.
pub(crate) fn apply(shared: &Arc<Shared>, change: Result<Change>) -> Applied {
    let _span = tracing::debug_span!(target: "wakegraph::update", "update").entered();
    wake_after_locks(|| apply_or_take_turn(shared, change))
}

fn apply_or_take_turn(shared: &Arc<Shared>, change: Result<Change>) -> Applied {
    let (mut change, updatable) = match change.and_then(|change| Ok((change, Updatable::of(shared)?))) {
        Ok(known) => known,
        Err(error) => return Applied::known(Err(error)),
    };
    let mut current = updatable.lock();
    let attempt = match current.waiting.is_empty() {
        true => carry_out(shared, updatable, &mut current, &mut change, None),
        false => Attempt::Busy,
    };
    if !matches!(attempt, Attempt::Busy) {
        drop(current);
        let (result, garbage) = conclude(shared, updatable, &change, attempt);
        drop(garbage);
        return Applied::known(result);
    }
    let Ok(handle) = Handle::try_current() else {
        let why = "this update comes after a submission that still needs the host, and was made outside a tokio runtime";
        let error = Error::new(ErrorKind::InvalidOperation, why);
        let help = "update inside `#[tokio::main]`, a spawned task, or while `runtime.enter()` is held";
        return Applied::known(Err(error.help(help)));
    };
    let earlier = current.waiting.iter().map(|earlier| Predecessor::Gate(earlier.gate.clone()));
    let mut predecessors: Vec<_> = earlier.collect();
    let brings = change.brings();
    let brings_memory = !brings.is_empty();
    let turn = Turn::take(shared, &mut current, brings);
    if brings_memory {
        current.register(shared, &[], &[]);
    }
    predecessors.extend(turn.hold_back(&mut shared.state.lock()));
    drop(current);
    let (tell, told) = oneshot::channel();
    // A runtime that is shutting down drops the task, and values of the user's with it, right here.
    spawn(
        &handle,
        || "wakegraph deferred update".into(),
        apply_after(predecessors, Deferred { turn, tell, change }),
    );
    Applied::waiting(told)
}

/// An update that waits. It lets submissions go on before it drops values of the user's, which may submit.
struct Deferred {
    turn: Turn,
    tell: oneshot::Sender<Result<()>>,
    change: Change,
}

/// Applies the change when everything before it is over.
async fn apply_after(predecessors: Vec<Predecessor>, deferred: Deferred) {
    for predecessor in &predecessors {
        predecessor.finished().await;
    }
    let Deferred { turn, tell, mut change } = deferred;
    let shared = turn.shared.clone();
    let Ok(updatable) = Updatable::of(&shared) else { return };
    let attempt = carry_out(&shared, updatable, &mut updatable.lock(), &mut change, Some(&turn));
    let (result, _garbage) = conclude(&shared, updatable, &change, attempt);
    drop(turn);
    if let Err(Err(error)) = tell.send(result) {
        tracing::warn!(target: "wakegraph::update", %error, "an update failed that nobody awaits");
    }
}

/// Finishes an attempt when no lock is held. Returns values of the user's with the result, to be dropped when
/// submissions can go on.
fn conclude(
    shared: &Arc<Shared>,
    updatable: &Updatable,
    change: &Change,
    attempt: Attempt,
) -> (Result<()>, Option<Replaced>) {
    match (attempt, change) {
        (Attempt::Done(result, garbage), _) => (result, garbage),
        (Attempt::HalfWay { error, partitions, turn }, Change::Whole(recorded)) => {
            recorded.restore(shared, updatable, partitions);
            drop(turn);
            (Err(error), None)
        }
        (Attempt::HalfWay { error, .. }, Change::Nodes(_)) => (Err(error), None),
        (Attempt::Busy, _) => {
            (Err(Error::new(ErrorKind::Bug, "an update was put off that has had its turn")), None)
        }
    }
}
