//! What a submission waits for before it starts.

use tokio::time::Instant;

use crate::runtime::execution::event::Event;
use crate::runtime::execution::run::Predecessors;
use crate::runtime::execution::submit::deferred::WaitFuture;
use crate::runtime::resource::native_event::NativeEvent;
use crate::util::deferred_drop::Failure;

/// What the caller wants to wait for.
#[derive(Default)]
pub(crate) struct Waits {
    pub(super) events: Vec<Event>,
    pub(super) futures: Vec<WaitFuture>,
    pub(super) native: Vec<NativeEvent>,
    /// What only has to be over, successful or not.
    pub(crate) order: Predecessors,
    /// The same, which the device's own queue sees to once the run is on it.
    pub(crate) queue_order: Predecessors,
    /// When it is too late to start anything.
    pub(crate) deadline: Option<Instant>,
}

impl Waits {
    /// Nothing to wait for, and maybe a deadline.
    pub(crate) fn until(deadline: Option<Instant>) -> Self {
        Self { deadline, ..Self::default() }
    }

    /// For what comes after events.
    pub(crate) fn after(events: &[Event]) -> Self {
        Self { events: events.to_vec(), ..Self::default() }
    }

    /// For what comes after an event of another library.
    pub(crate) fn after_native(event: &NativeEvent) -> Self {
        Self { native: vec![event.clone()], ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.futures.is_empty() && self.native.is_empty()
    }

    /// Takes out events that are over. Gives the first failure among them.
    pub(crate) fn take_finished(&mut self) -> Option<Failure> {
        let mut failure = None;
        self.events.retain(|event| {
            let finished = event.run().is_done();
            if finished && failure.is_none() {
                failure = event.run().result().err().map(Failure::new);
            }
            !finished
        });
        failure
    }
}
