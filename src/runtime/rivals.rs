//! Who conflicts with whom: found when an executable is finalized, and anew when an update changes the memory it uses.

use std::sync::{Arc, Weak};

use super::allocation::{Allocation, StaleUse};
use super::executable::Shared;
use super::ordering::{alive, conflict, lock};
use super::run::Run;
use crate::types::Access;

/// Makes known that an executable, which may be in use, uses these allocations so, and none of `before` beside them; and what
/// runs of it in flight still use.
pub(crate) fn register_again(
    executable: &Arc<Shared>,
    before: &[Arc<Allocation>],
    uses: Vec<(Arc<Allocation>, Vec<Access>)>,
    stale: Vec<(Arc<Allocation>, Access, Arc<Run>)>,
) {
    let is = |known: &Weak<Shared>, other: &Arc<Shared>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(other));
    let mut others = Vec::new();
    let order = lock();
    for allocation in before {
        allocation.users.lock().executables.retain(|(known, _)| !is(known, executable));
    }
    let mut rivals = Vec::new();
    for (allocation, accesses) in uses {
        rivals.extend(enter(executable, &allocation, accesses, &mut others));
    }
    for (allocation, ..) in &stale {
        let own = |stale: &StaleUse| is(&stale.executable, executable) || stale.run.is_done();
        allocation.users.lock().stale.retain(|stale| !own(stale));
    }
    for (allocation, access, run) in stale {
        let mut users = allocation.users.lock();
        for (other, theirs) in &users.executables {
            let Some(other) = alive(other).filter(|other| !Arc::ptr_eq(other, executable)) else { continue };
            if theirs.iter().any(|theirs| theirs.conflicts_with(&access)) {
                other.state.lock().add_rival(executable);
                executable.state.lock().add_rival(&other);
                rivals.push(other.clone());
            }
            others.push(other);
        }
        users.stale.push(StaleUse { executable: Arc::downgrade(executable), access, run });
    }
    // Never without a rival that is still one: a submission looks at them without the order lock.
    let mut former = Vec::new();
    executable.state.lock().rivals.retain(|known| {
        let Some(other) = alive(known) else { return false };
        let remains = rivals.iter().any(|rival| Arc::ptr_eq(rival, &other));
        if !remains {
            former.push(other);
        }
        remains
    });
    for other in &former {
        other.state.lock().rivals.retain(|known| !is(known, executable));
    }
    drop(order);
    drop((others, former, rivals));
}

/// Makes the executable known to one allocation, and to those that use it in a conflicting way, which it gives back. Adds
/// all others to `others`, for the caller to drop without the order lock, which it holds here.
pub(super) fn enter(
    executable: &Arc<Shared>,
    allocation: &Allocation,
    accesses: Vec<Access>,
    others: &mut Vec<Arc<Shared>>,
) -> Vec<Arc<Shared>> {
    let mut rivals = Vec::new();
    let mut users = allocation.users.lock();
    users.executables.retain(|(other, theirs)| {
        let Some(other) = alive(other) else { return false };
        let is_other = !Arc::ptr_eq(&other, executable);
        if is_other && conflict(theirs, &accesses) {
            executable.state.lock().add_rival(&other);
            other.state.lock().add_rival(executable);
            rivals.push(other.clone());
        }
        others.push(other);
        is_other
    });
    users.stale.retain(|stale| !stale.run.is_done());
    for stale in &users.stale {
        let Some(other) = alive(&stale.executable).filter(|other| !Arc::ptr_eq(other, executable)) else {
            continue;
        };
        if accesses.iter().any(|ours| ours.conflicts_with(&stale.access)) {
            executable.state.lock().add_rival(&other);
            other.state.lock().add_rival(executable);
            rivals.push(other.clone());
        }
        others.push(other);
    }
    users.gates.retain(|(_, gate)| !gate.is_open());
    for (access, gate) in &users.gates {
        if accesses.iter().any(|ours| ours.conflicts_with(access)) {
            let mut state = executable.state.lock();
            if !state.gates.iter().any(|known| Arc::ptr_eq(known, gate)) {
                state.gates.push(gate.clone());
            }
        }
    }
    users.executables.push((Arc::downgrade(executable), accesses));
    rivals
}
