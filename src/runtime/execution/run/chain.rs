//! Runs that come after each other: chains of any length end in their order, without recursion along them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::runtime::execution::run::Run;

/// Ends those of `runs` that their devices are done with, and before each of them those that it comes after.
///
/// A run that ends makes sure that those it comes after have ended before. It finds that done here,
/// and need not call itself for a whole chain.
pub(super) fn end_in_order(runs: &[Arc<Run>]) {
    if runs.is_empty() {
        return;
    }
    let mut stack: SmallVec<[(Arc<Run>, ChainStep); 4]> =
        runs.iter().map(|run| (run.clone(), ChainStep::Predecessors)).collect();
    while let Some((run, next)) = stack.pop() {
        match next {
            ChainStep::Predecessors if run.has_unseen_end() => {
                let predecessors = run.predecessors();
                stack.push((run, ChainStep::Itself));
                stack.extend(predecessors.into_iter().map(|run| (run, ChainStep::Predecessors)));
            }
            ChainStep::Predecessors => {}
            ChainStep::Itself => run.poll_events(),
        }
    }
}

/// What is to be done for a run on the stack.
enum ChainStep {
    Predecessors,
    Itself,
}

#[cfg(test)]
mod tests {
    use std::thread::Builder;

    use crate::runtime::{Device, Event, ExecutableGraph, Graph, Submission, WakePolicy};
    use crate::testing::{FakeControl, FakeDevice, FakeOptions};
    use crate::types::{Error, ErrorKind};

    const LINKS: usize = if cfg!(miri) { 50 } else { 100_000 };

    /// A device where nobody but a submission sees an end.
    fn device() -> (Device, FakeControl) {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        device.set_wake_policy(WakePolicy::Efficient);
        (device, control)
    }

    fn fill(device: &Device) -> ExecutableGraph {
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(device);
        graph.fill(&x, 1);
        graph.finalize().unwrap()
    }

    /// Submissions in a chain: gives an event of the first, one in the middle, and the last.
    fn chain(first: Submission, mut next: impl FnMut(&Submission) -> Submission) -> (Vec<Event>, Submission) {
        let mut events = vec![first.event()];
        let mut last = first;
        for link in 1..LINKS {
            last = next(&last);
            if link == LINKS / 2 {
                events.push(last.event());
            }
        }
        (events, last)
    }

    /// Lets the device end all, and sees the end of `last` first, on a thread on which recursion
    /// along the chain would abort the process.
    fn finish(device: &Device, last: Submission, end: impl FnOnce()) -> Event {
        let _only_the_submission_looks = device.reactor().unwrap().pause();
        end();
        let look = move || {
            while !last.is_finished() {}
            last.event()
        };
        Builder::new().stack_size(256 << 10).spawn(look).unwrap().join().unwrap()
    }

    #[test]
    fn a_long_chain_of_dependencies_ends() {
        for fails in [false, true] {
            let (device, control) = device();
            let exec = fill(&device);
            let (mut events, last) = chain(exec.submit(), |last| exec.prepare().after(last).submit());
            if fails {
                control.fail_next(Error::new(ErrorKind::OutOfMemory, "the first fails"));
            }
            events.push(finish(&device, last, || _ = control.complete_all()));
            for event in events {
                assert!(event.is_finished());
                let failure = event.run().result().err().map(|error| error.kind());
                assert_eq!(failure, fails.then_some(ErrorKind::OutOfMemory));
            }
        }
    }

    #[test]
    fn a_long_chain_of_dependencies_ends_with_its_device() {
        let (device, control) = device();
        let exec = fill(&device);
        let (mut events, last) = chain(exec.submit(), |last| exec.prepare().after(last).submit());
        events.push(finish(&device, last, || control.lose_device()));
        for event in events {
            assert_eq!(event.run().result().unwrap_err().kind(), ErrorKind::DeviceLost);
        }
    }
}
