//! A thread that is slow to say that a command is over. The only test of its process, because it stops that
//! thread by the subscriber of `tracing`, which is global.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::thread;

use tracing::span;
use wakegraph::testing::{FakeDevice, FakeOptions};
use wakegraph::{Device, Error, ErrorKind};

/// Stops the thread with the name [`SLOW`] where it says that a partition is over, before it ends the run.
#[derive(Clone)]
struct StopAtEnd {
    stopped: Arc<Barrier>,
    go_on: Arc<Barrier>,
}

const SLOW: &str = "slow";

impl tracing::Subscriber for StopAtEnd {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "wakegraph::partition"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let is_end = event.metadata().fields().field("succeeded").is_some();
        if is_end && thread::current().name() == Some(SLOW) {
            self.stopped.wait();
            self.go_on.wait();
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_thread_that_is_slow_to_end_a_command_holds_nobody_up() {
    let slow = StopAtEnd { stopped: Arc::new(Barrier::new(2)), go_on: Arc::new(Barrier::new(2)) };
    tracing::subscriber::set_global_default(slow.clone()).unwrap();
    for error in [None, Some(Error::new(ErrorKind::Driver, "as it should"))] {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
        let device = Device::from_hal(device);
        let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
        let queue = device.queue().unwrap();
        let (first, second) = (queue.fill(&x, 1), queue.fill(&y, 1));
        error.iter().for_each(|error| control.fail_next(error.clone()));
        thread::scope(|scope| {
            let complete = || control.complete_next(None);
            thread::Builder::new().name(SLOW.into()).spawn_scoped(scope, complete).unwrap();
            slow.stopped.wait();
            control.complete_next(None);
            let finished = [&second, &first].map(wakegraph::Event::is_finished);
            let poll = pin!(queue.wait()).poll(&mut Context::from_waker(Waker::noop()));
            slow.go_on.wait();
            let kind = error.map(|error| error.kind());
            assert_eq!(finished, [true; 2]);
            assert!(matches!(poll, Poll::Ready(result) if result.as_ref().err().map(Error::kind) == kind));
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(second.wait()).is_ok());
    }
}
