//! Telling those that wait what the reactor has found.

use std::time::Duration;

use crate::runtime::completion::latch::wake_after_locks;
use crate::runtime::completion::reactor::Watch;
use crate::runtime::completion::reactor::schedule::{Finished, Scout};
use crate::util::panics::catch_and_log;

/// Has those look for the end of something who wait for it.
pub(super) fn send(scouts: &mut Vec<Scout<Watch>>) {
    for Scout { watch, until } in scouts.drain(..) {
        outlive(|| watch.run.set_near(until));
    }
}

/// Ends what is over. Where that is several at once, all wakers are called at the end: a thread
/// that is woken for the first would otherwise be asleep again when the next one is found, and each
/// time costs more than all there is to do.
pub(super) fn finish(finished: &mut Vec<Finished<Watch>>) {
    if finished.len() > 1 {
        wake_after_locks(|| finished.iter().for_each(|finished| outlive(|| end(finished))));
    }
    for finished in finished.drain(..) {
        outlive(move || {
            end(&finished);
            drop(finished);
        });
    }
}

fn end(Finished { watch: Watch { run, partition }, seen, took }: &Finished<Watch>) {
    run.complete(*partition, took.map(Duration::from_nanos), *seen);
}

/// Wakers and what logs events are others' code; the reactor outlives their panics.
fn outlive(work: impl FnOnce()) {
    catch_and_log("what the reactor called", work);
}
