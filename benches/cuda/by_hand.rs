//! What one would write by hand in tokio for work whose time is known: a task for each graph
//! launches it and waits for the answer; one more sleeps until all should be over, on a timer of the
//! system's, as tokio's own are too coarse, and tells them.
#![expect(unsafe_code, reason = "gives a timer to tokio")]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::raw::{Raw, RawGraph};

/// How long before the end the timer runs out, tuned on an H100.
const EARLY: Duration = Duration::from_micros(55);

pub(crate) struct ByHand(Arc<Shared>);

struct Shared {
    graphs: Vec<RawGraph>,
    ended: Vec<Notify>,
    timer: AsyncFd<OwnedFd>,
    sleep: Duration,
}

impl ByHand {
    /// `count` kernels that take so long.
    pub(crate) fn new(raw: &Raw, runtime: &Runtime, count: usize, nanoseconds: u64) -> Self {
        let _inside = runtime.enter();
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)
            .expect("a timer of the system's");
        // SAFETY: the timer owns its file descriptor.
        let timer =
            unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }.expect("an I/O driver");
        // To launch one takes a few microseconds. Early enough to see the end about when ours does.
        let sleep = Duration::from_nanos(nanoseconds) + Duration::from_micros(4 * count as u64) - EARLY;
        let shared = Arc::new(Shared {
            graphs: (0..count).map(|_| raw.busy(nanoseconds)).collect(),
            ended: (0..count).map(|_| Notify::new()).collect(),
            timer,
            sleep,
        });
        let polling = shared.clone();
        runtime.spawn(async move {
            loop {
                polling.timer.readable().await.expect("an I/O driver").clear_ready();
                for (graph, ended) in polling.graphs.iter().zip(&polling.ended) {
                    while !graph.is_complete() {
                        std::hint::spin_loop();
                    }
                    ended.notify_one();
                }
            }
        });
        Self(shared)
    }

    pub(crate) async fn round(&self) {
        let start = Instant::now();
        if self.0.graphs.len() == 1 {
            return self.0.run(0, start).await;
        }
        let run = |shared: Arc<Shared>, index| async move { shared.run(index, start).await };
        let tasks: Vec<_> =
            (0..self.0.graphs.len()).map(|index| tokio::spawn(run(self.0.clone(), index))).collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    }
}

impl Shared {
    async fn run(&self, index: usize, start: Instant) {
        let graph = &self.graphs[index];
        graph.bind();
        graph.launch();
        graph.record();
        if index == 0 {
            self.set_timer(start);
        }
        self.ended[index].notified().await;
    }

    fn set_timer(&self, start: Instant) {
        let value = Timespec::try_from(self.sleep.saturating_sub(start.elapsed())).expect("a short time");
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once).expect("a valid time");
    }
}
