//! One update: staged, made known to whoever else uses the memory, applied in one go, and remembered.

use std::sync::Arc;

use super::Change;
use super::nodes::{self, Nodes};
use super::state::{Current, Updatable};
use super::whole::{self, Recorded};
use crate::runtime::allocation::Allocation;
use crate::runtime::executable::{Shared, State};
use crate::runtime::reaper::Garbage;
use crate::types::{Access, Result};

/// How it went.
pub(super) enum Attempt {
    /// With what is to be dropped once no lock is held.
    Done(Result<()>, Option<Garbage>),
    /// A run has to be waited for first.
    Busy,
}

/// An update that is checked and prepared: from here on only devices can refuse it.
enum Staged {
    Nodes(Nodes),
    Whole(Box<Recorded>),
}

/// Accesses with their allocations.
pub(super) type Accesses = Vec<(Arc<Allocation>, Access)>;

/// Carries out a change, if everything submitted so far is on its devices or `behind_all` of it is over.
pub(super) fn carry_out(
    shared: &Arc<Shared>,
    updatable: &Updatable,
    current: &mut Current,
    change: &Change,
    behind_all: bool,
) -> Attempt {
    if let Some(error) = updatable.broken() {
        return Attempt::Done(Err(error.clone()), None);
    }
    let staged = match change {
        Change::Nodes(changes) => nodes::stage(shared, updatable, current, changes).map(Staged::Nodes),
        Change::Whole(other) => {
            whole::record(shared, updatable, current, other).map(|recorded| Staged::Whole(Box::new(recorded)))
        }
    };
    let staged = match staged {
        Ok(staged) => staged,
        Err(error) => return Attempt::Done(Err(error), None),
    };
    let (new, old) = match &staged {
        Staged::Nodes(nodes) => nodes.accesses(current),
        Staged::Whole(recorded) => recorded.accesses(current),
    };
    // Single nodes only choose among kernels that stay registered.
    let moves = matches!(staged, Staged::Whole(_)) || !new.is_empty() || !old.is_empty();
    if moves {
        // Before any submission can use it.
        current.register(shared, &[], &new);
    }
    let (outcome, in_flight) = {
        let state = shared.state.lock();
        if !behind_all && is_busy(&state) {
            (None, None)
        } else {
            let applied = match &staged {
                Staged::Nodes(nodes) => nodes.apply(shared, updatable),
                Staged::Whole(recorded) => recorded.apply(shared, updatable, current),
            };
            (Some(applied), state.last_unfinished())
        }
    };
    let mut garbage = None;
    if let Some(Ok(())) = &outcome {
        let retired: Garbage = match staged {
            Staged::Nodes(nodes) => Box::new(nodes.commit(current)),
            Staged::Whole(recorded) => Box::new(recorded.commit(current)),
        };
        match in_flight.filter(|_| moves) {
            Some(run) => garbage = run.keep(retired),
            // Its memory and kernels are still in use, or nothing of it is.
            None => garbage = Some(retired),
        }
    }
    if moves {
        let mut before: Vec<_> = new.into_iter().chain(old).map(|(allocation, _)| allocation).collect();
        before.sort_by_key(|allocation| allocation.memory().resource());
        before.dedup_by_key(|allocation| allocation.memory().resource());
        current.register(shared, &before, &[]);
    }
    outcome.map_or(Attempt::Busy, |outcome| Attempt::Done(outcome, garbage))
}

/// Whether a run has something left to start. If the last one has not, none has.
fn is_busy(state: &State) -> bool {
    state.last.as_ref().is_some_and(|last| !last.is_done() && !last.is_all_enqueued())
}
