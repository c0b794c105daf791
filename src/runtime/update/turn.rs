//! The place of an update among the submissions.

use std::sync::Arc;

use futures::channel::oneshot;
use tokio::runtime::Handle;

use super::carry_out::{Attempt, carry_out};
use super::state::Current;
use super::{Applied, Change};
use crate::runtime::executable::Shared;
use crate::runtime::gate::GateLease;
use crate::runtime::ordering::Predecessor;
use crate::runtime::spawn::spawn;
use crate::types::{Error, ErrorKind, Result};

/// Applies a change now, or takes a place behind what was submitted so far.
pub(crate) fn apply(shared: &Arc<Shared>, change: Result<Change>) -> Applied {
    let _span = tracing::debug_span!(target: "wakegraph::update", "update").entered();
    let change = match change {
        Ok(change) => change,
        Err(error) => return Applied::known(Err(error)),
    };
    let Some(updatable) = &shared.updatable else {
        let error = Error::new(ErrorKind::InvalidOperation, "the executable is not updatable");
        return Applied::known(Err(error.help("finalize with `FinalizeOptions::new().updatable(true)`")));
    };
    let mut current = updatable.current.lock();
    if current.waiting.as_ref().is_none_or(|earlier| earlier.is_open())
        && let Attempt::Done(result, garbage) = carry_out(shared, updatable, &mut current, &change, false)
    {
        drop(current);
        // Closures and memory of the user's.
        drop(garbage);
        return Applied::known(result);
    }
    let Ok(handle) = Handle::try_current() else {
        let why = "this update comes after a submission that still needs the host, and was made outside a tokio runtime";
        let error = Error::new(ErrorKind::InvalidOperation, why);
        let help = "update inside `#[tokio::main]`, a spawned task, or while `runtime.enter()` is held";
        return Applied::known(Err(error.help(help)));
    };
    let (lease, predecessors) = take_place(shared, &mut current);
    drop(current);
    let (tell, told) = oneshot::channel();
    let task = apply_after(shared.clone(), predecessors, change, lease, tell);
    // A runtime that is shutting down drops the task, and values of the user's with it, right here.
    spawn(&handle, || "wakegraph deferred update".into(), task);
    Applied::waiting(told)
}

/// Holds later submissions back; gives what comes before.
fn take_place(shared: &Shared, current: &mut Current) -> (GateLease, Vec<Predecessor>) {
    let lease = GateLease::new();
    let earlier = current.waiting.replace(lease.gate().clone());
    let mut predecessors: Vec<_> = earlier.into_iter().map(Predecessor::Gate).collect();
    let mut state = shared.state.lock();
    predecessors.extend(state.last_unfinished().map(Predecessor::Run));
    state.gates.retain(|gate| !gate.is_open());
    state.gates.push(lease.gate().clone());
    (lease, predecessors)
}

/// Applies the change when everything before it is over.
async fn apply_after(
    shared: Arc<Shared>,
    predecessors: Vec<Predecessor>,
    change: Change,
    lease: GateLease,
    tell: oneshot::Sender<Result<()>>,
) {
    for predecessor in &predecessors {
        predecessor.finished().await;
    }
    let Some(updatable) = &shared.updatable else { return };
    let attempt = carry_out(&shared, updatable, &mut updatable.current.lock(), &change, true);
    // Those behind it go on.
    drop(lease);
    let Attempt::Done(result, _garbage) = attempt else { return };
    if let Err(Err(error)) = tell.send(result) {
        tracing::warn!(target: "wakegraph::update", %error, "an update failed that nobody awaits");
    }
}
