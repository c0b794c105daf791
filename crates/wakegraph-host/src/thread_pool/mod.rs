//! The threads of a device and what they run.
//!
//! | file | what it holds |
//! |---|---|
//! | `work` | one enqueue: what to run, what to signal, how it ended |
//! | `parker` | how a worker without a job waits |
//! | `schedule` | what is in flight and what may start: plain data |
//! | `scheduler` | the schedule's lock; enqueues add to it, workers take from it |
//! | `worker` | the life of a thread |

mod parker;
mod schedule;
mod scheduler;
mod work;
mod worker;

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;

pub(crate) use schedule::{ChainId, QueueTag};
pub(crate) use scheduler::{HostWait, Scheduler};
use wakegraph_hal::{Error, ErrorKind, Result};
pub(crate) use work::{Dependent, PoolWork};

/// Keeps the threads of a device working. Held by the device, its queues and its command-buffers;
/// after the last of them is gone, the threads finish what is in flight and end. They are never
/// joined, because a worker may drop the last of these objects.
#[derive(Debug)]
pub(crate) struct ThreadPool {
    scheduler: Arc<Scheduler>,
}

impl ThreadPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when the system starts no more threads.
    pub(crate) fn start(threads: NonZeroUsize, device: &str) -> Result<Self> {
        // Built first: on an error below its drop ends the threads started so far.
        let pool = Self { scheduler: Arc::new(Scheduler::new(device.into())) };
        for index in 0..threads.get() {
            let scheduler = Arc::clone(&pool.scheduler);
            let name = format!("wakegraph-host-{index}");
            let started = thread::Builder::new().name(name).spawn(move || worker::run(&scheduler));
            started.map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("worker thread {index} cannot be started"))
                    .caused_by(error)
                    .on_device(device)
                    .help("open the device with fewer threads, or raise the limit on threads")
            })?;
        }
        Ok(pool)
    }
}

impl Deref for ThreadPool {
    type Target = Arc<Scheduler>;

    fn deref(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.scheduler.close();
    }
}
