//! Queues: commands that run at once, or are recorded into a graph.
//!
//! | file | holds |
//! |---|---|
//! | this | [`Queue`], how to make one, and what its handles share |
//! | `commands` | the commands of queues, with and without a wait list |
//! | `command` | a command as the owner of its run |
//! | `state` | what is in flight, and the order between commands |
//! | `recording` | recording into a graph |
//! | `loan` | device memory that other libraries use |
//! | `transfer` | copies from and to memory that is not pinned |
//!
//! A command that runs is a run of one partition, as a submission is one of several: it is ordered by the
//! registers of the memory that it uses (`execution::conflicts`), started as a submission is
//! (`execution::submit`), and ended as one (`completion`).

mod command;
mod commands;
mod loan;
#[cfg(all(test, wakegraph_loom))]
mod model;
mod recording;
mod state;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::Arc;

use command::{CommandTemplate, FirstFailure};
pub use commands::CommandBuilder;
pub use loan::Loan;
use parking_lot::Mutex;
use recording::Recorder;
pub use recording::Recording;
use smallvec::SmallVec;
use wakegraph_hal::{Error, ErrorKind, QueueOrder, Result};

use crate::runtime::builder::recorded_queues::RecordedQueueId;
use crate::runtime::completion::tasks::take_turn;
use crate::runtime::execution::executable::ExecutableId;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::submission::Event;
use crate::runtime::resource::device::Device;
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crate::util::AdaptiveSpin;

/// A queue of a device: its commands run at once, or become nodes of a graph while the queue
/// [records](crate::Graph::record). Clones are handles to the same queue.
///
/// Each command returns an [`Event`], which can be awaited, dropped, and passed to
/// [`after`](Self::after). What goes wrong comes out of the event, and of [`wait`](Self::wait).
///
/// Commands that use the same memory in conflicting ways run in the order of the calls, whatever queue,
/// submission or guard of a [`HostBuffer`](crate::HostBuffer) they are of, so most programs need no other
/// order. On an [in-order](Device::queue) queue, each command also comes after the previous one.
///
/// [Recording](crate::guide::recording) is a page of the guide.
///
/// ```
/// use wakegraph::{Device, Range, read};
///
/// wakegraph::kernel! {
///     fn saxpy(a: f32, x: &[f32], y: &mut [f32]) { item: |i, a, x, y| y[i] += a * x[i] }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let (x, y) = (device.buffer_from(&[1.0f32, 2.0, 3.0])?, device.buffer::<f32>(3)?);
/// let out = device.host_buffer::<f32>(3)?;
///
/// let queue = device.queue()?;
/// queue.fill(&y, 1.0);
/// queue.launch(saxpy(2.0, &x, &y), Range::linear(3));
/// let done = queue.copy(&y, &out);
/// queue.host_task((read(&out),), async |(out,)| assert_eq!(*out, [3.0, 5.0, 7.0]));
///
/// done.await?;
/// queue.wait().await
/// # }
/// ```
///
/// A function that takes a `&Queue` runs eagerly on one queue, and is recorded by another one. What is
/// launched again and again is better recorded: a graph is submitted as a whole, which costs the host about
/// as much as one command.
///
/// Dropping a queue changes nothing about commands in flight.
#[derive(Clone)]
pub struct Queue {
    inner: Arc<QueueInner>,
}

impl Device {
    /// A new in-order queue of this device: each command runs after the previous one.
    ///
    /// # Errors
    /// The driver's.
    pub fn queue(&self) -> Result<Queue> {
        Ok(Queue { inner: QueueInner::new(self, QueueOrder::InOrder)? })
    }

    /// A new out-of-order queue of this device: commands may run at once, unless they use the same memory
    /// in conflicting ways, or a [wait list](Queue::after) or [barrier](Queue::barrier) orders them. How many
    /// do run at once depends on the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn out_of_order_queue(&self) -> Result<Queue> {
        Ok(Queue { inner: QueueInner::new(self, QueueOrder::OutOfOrder)? })
    }
}

impl Queue {
    /// The device that the commands run on.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Whether each command comes after the previous one.
    pub fn is_in_order(&self) -> bool {
        self.inner.is_in_order()
    }

    /// Whether commands are being [recorded](crate::Graph::record) instead of run.
    pub fn is_recording(&self) -> bool {
        self.inner.is_recording.load(Ordering::Acquire)
    }

    /// Offers the same commands, for one that comes after `events` as well: those of other queues and of
    /// [submissions](crate::Submission::event), or of recorded commands. If one of them fails, the command
    /// fails with the same error, and does not start.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = wakegraph::Device::open("host")?;
    /// # let (x, y) = (device.buffer::<u32>(3)?, device.buffer::<u32>(3)?);
    /// let (first, second) = (device.queue()?, device.queue()?);
    /// let filled = first.fill(&x, 1);
    /// second.after([&filled]).fill(&y, 2).await
    /// # }
    /// ```
    ///
    /// A queue that does not record, and depends on a recorded event, joins the recording of that event
    /// until it ends: this command and the following ones are recorded.
    ///
    /// # Errors
    /// Out of the command's event: [`InvalidOperation`](ErrorKind::InvalidOperation) for a recorded event
    /// whose recording has ended. If the command is recorded, out of
    /// [`finalize`](crate::Graph::finalize): [`InvalidArgument`](ErrorKind::InvalidArgument) for an event
    /// that was recorded into another graph, or not recorded at all.
    pub fn after<'e>(&self, events: impl IntoIterator<Item = &'e Event>) -> CommandBuilder<'_> {
        CommandBuilder::new(self, events.into_iter().cloned().collect())
    }

    /// Adds a barrier that waits for `events` only; otherwise as [`barrier`](Self::barrier).
    #[track_caller]
    pub fn barrier_after<'e>(&self, events: impl IntoIterator<Item = &'e Event>) -> Event {
        self.after(events).barrier_after_listed()
    }

    /// Waits until all commands so far have ended.
    ///
    /// # Errors
    /// The first failure of a command of this queue since it was made or last waited for, whether or not the
    /// command's event was awaited. [`InvalidOperation`](ErrorKind::InvalidOperation) while the queue
    /// records.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self) -> Result<()> {
        let pending = {
            let state = self.inner.state.lock();
            if state.recorder.is_some() {
                let why = "the queue is recording, so there is nothing that runs to wait for";
                let error = Error::new(ErrorKind::InvalidOperation, why);
                return Err(error.help("end the recording and submit an executable of the graph"));
            }
            self.inner.pending(&state)
        };
        for run in pending {
            run.ended.wait().await;
        }
        take_turn().await;
        self.inner.sweep(&mut self.inner.state.lock());
        self.inner.failures.take()
    }
}

impl Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&*self.inner, f)
    }
}

/// The state that all handles of a queue share.
pub(crate) struct QueueInner {
    id: RecordedQueueId,
    device: Device,
    order: QueueOrder,
    /// Stands for an in-order queue in the registers of memory: its commands are ordered anyway.
    owner: Option<ExecutableId>,
    /// One for each queue of the device that commands are spread over.
    templates: Box<[Arc<CommandTemplate>]>,
    /// Counts the commands, where there are several templates.
    next: AtomicU32,
    failures: Arc<FirstFailure>,
    /// Whether there is a recorder. Changes under the lock of the state.
    is_recording: AtomicBool,
    state: Mutex<QueueState>,
}

/// The state that changes from command to command.
#[derive(Default)]
struct QueueState {
    /// Where commands go while the queue records.
    recorder: Option<Recorder>,
    /// The predecessors of the next command: the previous one on an in-order queue, else the last barrier.
    tail: SmallVec<[Tail; 1]>,
    /// Runs of single commands, those of an in-order queue oldest first. Those that have ended are used
    /// again.
    runs: VecDeque<Arc<Run>>,
    /// Runs of host tasks and executables that may be in flight.
    others: Vec<Arc<Run>>,
    /// Number of these from which on those that have ended are let go.
    sweep_at: usize,
    /// Whether spinning for commands has paid.
    spinning: AdaptiveSpin,
    /// Number of runs that sweeps have examined.
    #[cfg(test)]
    swept: usize,
}

struct Tail {
    run: Arc<Run>,
    /// Whether the device's own queue orders it before what is enqueued later.
    in_device_order: bool,
}

/// Whether a command is a barrier, which all later commands of the queue come after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Barrier {
    None,
    /// It waits for what is in its wait list.
    Listed,
    /// It waits for all earlier commands of the queue.
    All,
}
