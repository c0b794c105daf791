//! A new run of an executable, and how its submission will wait for it.

use std::sync::Arc;

use crate::runtime::execution::executable::{ExecutableInner, ExecutableState};
use crate::runtime::execution::run::{Run, SpinPlan, Timing};
use crate::runtime::execution::spin_time::spin_time;
use crate::types::Result;

/// `alone`: nothing is in flight that the run has to come after.
pub(super) fn new_run(
    executable: &Arc<ExecutableInner>,
    state: &mut ExecutableState,
    alone: bool,
) -> Result<Arc<Run>> {
    executable.accepts_submissions()?;
    // The clock is read only where the time is used: for an estimate of the reactor or of a spin.
    let timing = match alone && (executable.polled || !state.spinning.is_backing_off()) {
        true => Timing::On,
        false => Timing::Off,
    };
    let number = state.runs + 1;
    let run = match state.take_reusable(|run| run.reset(executable, timing, number)) {
        Some(run) => run,
        None => {
            let mut run = Run::new(executable)?;
            run.reset(executable, timing, number);
            Arc::new(run)
        }
    };
    state.runs = number;
    run.record();
    Ok(run)
}

/// Decides, before a run starts, how its submission will wait: the reactor leaves runs alone that their
/// submissions poll.
pub(super) fn plan_spin(executable: &ExecutableInner, state: &mut ExecutableState, run: &Run) {
    let Some(plan) = spin(executable, state) else { return };
    run.plan_spin(plan);
    if executable.polled {
        run.set_polled_by_submission();
    }
}

/// Whether it is worth to spin for a run that starts now.
fn spin(executable: &ExecutableInner, state: &mut ExecutableState) -> Option<SpinPlan> {
    if executable.all_eager {
        let (expected, limit) = (executable.expected()?, executable.spin_limit());
        let pays = expected <= limit && state.spinning.try_spin();
        return pays.then(|| SpinPlan::Once(spin_time(expected, limit)));
    }
    let limit = executable.spin_limit();
    let pays = !limit.is_zero() && state.spinning.try_spin();
    pays.then_some(SpinPlan::BetweenHostTasks(limit))
}
