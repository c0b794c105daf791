//! One update: staged, registered with the other users of the memory, applied in one go, and remembered.

use std::sync::Arc;

use wakegraph_hal::{Error, Result};

use crate::runtime::execution::executable::{ExecutableInner, ExecutableState};
use crate::runtime::execution::run::{Predecessor, Replaced};
use crate::runtime::execution::submit::check_launched;
use crate::runtime::execution::template::RunOwner;
use crate::runtime::finalize::updatable::{Brings, CurrentGraph};
use crate::runtime::update::change::Change;
use crate::runtime::update::nodes::{self, Nodes};
use crate::runtime::update::replace::Recorded;
use crate::runtime::update::turn::Turn;

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
    HalfWay { error: Error, partitions: usize, turn: Option<Turn> },
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
    turn: Option<&Turn>,
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
                        let (turn, _) = Turn::take(executable, current, Brings::default());
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
