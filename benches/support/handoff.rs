//! The hand-written base: a worker pool as one writes it, and results through oneshots.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Worker threads around a queue of boxed closures.
#[derive(Clone)]
pub struct WorkerPool {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    work: Condvar,
}

impl WorkerPool {
    /// Starts the threads. They end with the process.
    pub fn start(threads: usize) -> Self {
        let shared = Arc::new(Shared::default());
        for _ in 0..threads {
            let shared = shared.clone();
            thread::spawn(move || shared.work_for_ever());
        }
        Self { shared }
    }

    /// Runs `job` on a worker; the future resolves to its result. It runs whether or not the future
    /// is polled.
    pub fn hand_off<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || drop(sender.send(job())));
        self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner).push_back(job);
        self.shared.work.notify_one();
        async { receiver.await.expect("the workers live as long as the process") }
    }
}

impl Shared {
    fn work_for_ever(&self) {
        loop {
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            let job = loop {
                match jobs.pop_front() {
                    Some(job) => break job,
                    None => jobs = self.work.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(jobs);
            job();
        }
    }
}
