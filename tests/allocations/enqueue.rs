//! A repeated enqueue on the host backend allocates nothing, on any thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use wakegraph::backend::host::{self, HostOptions};
use wakegraph::hal::{CommandBufferDesc, Event, Notification, Notify, QueueDesc, QueueOrder};

use crate::common::*;
use crate::{ALLOCATIONS, wait_for_nothing};

/// Counts its calls: a channel would allocate.
#[derive(Default)]
struct Count(AtomicUsize);

impl Notify for Count {
    fn notify(&self, _: u64) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

pub(crate) fn a_repeated_enqueue_allocates_nothing() {
    let device = host::open(HostOptions::new().threads(2)).unwrap();
    let call = || call(&*device, || Ok(()));
    // A thread allocates once in its life for waiting in the crate's locks, when it first has to:
    // let all do so now.
    let all = Arc::new(Barrier::new(3));
    let queue = queue(&*device, QueueOrder::OutOfOrder);
    for _ in 0..2 {
        let all = all.clone();
        let warm_up = one(&*device, move || {
            wait_for_nothing();
            all.wait();
            Ok(())
        });
        start(&*device, &*warm_up, &*queue, &[]);
    }
    wait_for_nothing();
    all.wait();
    queue.finish().unwrap();

    let fork_join = [vec![], vec![0], vec![0], vec![0], vec![1, 2, 3]];
    let commands: Vec<_> = fork_join.iter().map(|_| call()).collect();
    let graph = |profiling| {
        let desc = CommandBufferDesc::new().profiling(profiling);
        buffer(&*device, desc, &commands, &fork_join)
    };
    let cases = [
        ("one command", buffer(&*device, IN_ORDER, &[call()], &[])),
        ("no command", buffer(&*device, IN_ORDER, &[], &[])),
        ("in order", buffer(&*device, IN_ORDER, &commands, &[])),
        ("graph", graph(false)),
        ("graph with profiling", graph(true)),
    ];
    for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
        let queue = device.create_queue(&QueueDesc::new(order)).unwrap();
        for (name, buffer) in &cases {
            // Three in flight: two of them behind the one before, by queue, by command-buffer and
            // by wait list.
            let events = [event(&*device), event(&*device), event(&*device)];
            let count = Arc::new(Count::default());
            let round = |first: Option<&dyn Event>, started: &dyn Fn()| {
                let before = count.0.load(Ordering::Acquire);
                let [a, b, c] = &events;
                for (event, wait) in [(a, first), (b, Some(&**a)), (c, Some(&**b))] {
                    let notification = Some(Notification::new(count.clone(), 0));
                    enqueue(&**buffer, &*queue, wait.as_slice(), event, notification).unwrap();
                }
                started();
                while count.0.load(Ordering::Acquire) < before + 3 {
                    std::thread::yield_now();
                }
            };
            // An event makes room for what waits for it when something does while it is pending: each
            // event is pending once before allocations are counted.
            let gate = Arc::new(Barrier::new(2));
            let blocked = one(&*device, {
                let gate = gate.clone();
                move || {
                    gate.wait();
                    Ok(())
                }
            });
            let other = device.create_queue(&QueueDesc::new(order)).unwrap();
            let pending = start(&*device, &*blocked, &*other, &[]);
            round(Some(&*pending), &|| _ = gate.wait());
            // The tables grow to their working size.
            (0..200).for_each(|_| round(None, &|| ()));
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            (0..500).for_each(|_| round(None, &|| ()));
            let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
            assert_eq!(allocations, 0, "{name}, {order:?}");
        }
    }
}
