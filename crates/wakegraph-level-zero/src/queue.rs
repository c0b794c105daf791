//! Queues, and the one way in which anything is enqueued on them.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use wakegraph_hal::support::refusal::foreign;
use wakegraph_hal::support::signals::ResolvedWaitList;
use wakegraph_hal::{Command, DeviceId, Error, Queue, QueueDesc, QueueOrder, Result, Signal, WaitList};

use super::append::AppendQueue;
use super::context::LevelZeroContext;
use super::enqueue_work::{EnqueueTarget, EnqueueWork, LastRun, SignalAlone};
use super::execute::ExecuteQueue;
use super::options::Lowering;
use super::profiling::LevelZeroTimes;
use super::queue_driver::{LevelZeroWaitList, LoweringQueue, QueueDriver, Started};
use super::run_slot::SlotRun;
use super::signal::{LevelZeroEvent, LevelZeroSignal, NewSignal};
use super::single_run::SingleRun;
use super::sys::{DriverResult, call};

/// A queue.
#[derive(Debug)]
pub(super) struct LevelZeroQueue {
    /// Tells it from others.
    id: u64,
    context: Arc<LevelZeroContext>,
    desc: QueueDesc,
    /// Held while enqueueing: an enqueue is several calls.
    state: Mutex<EnqueueState>,
}

#[derive(Debug)]
struct EnqueueState {
    driver: QueueDriver,
    /// On an in-order queue whose lists the driver does not order: the last enqueue, which the next
    /// has to come after.
    last: Option<LastEnqueue>,
}

/// The last enqueue on a queue.
#[derive(Debug)]
struct LastEnqueue {
    run: SlotRun,
    /// The signal, if it uses anything until it is over.
    signal: Option<Arc<LevelZeroSignal>>,
}

impl LevelZeroQueue {
    pub(super) fn create(context: &Arc<LevelZeroContext>, desc: QueueDesc) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let lowering = match context.lowering {
            Lowering::Append => LoweringQueue::Append(AppendQueue::new(context, desc)?),
            Lowering::Execute => LoweringQueue::Execute(ExecuteQueue::new(context, desc)?),
        };
        let state = EnqueueState { driver: QueueDriver::new(lowering), last: None };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { id, context: Arc::clone(context), desc, state: Mutex::new(state) })
    }

    /// The queue behind `queue`, if it is one of `device`.
    pub(super) fn of<'a>(queue: &'a dyn Queue, device: &LevelZeroContext) -> Result<&'a Self> {
        let queue = queue.as_any().downcast_ref::<Self>();
        queue.filter(|queue| queue.context.info.id == device.info.id).ok_or_else(|| foreign("queue"))
    }

    pub(super) fn context(&self) -> &Arc<LevelZeroContext> {
        &self.context
    }

    /// Whether everything enqueued from now on comes after `signal` by the queue's order.
    fn follows(&self, signal: &LevelZeroSignal) -> bool {
        self.desc.order == QueueOrder::InOrder && signal.is_on(self.id)
    }

    /// Has an enqueue wait for the last run of the same commands, unless it does so by the queue's order.
    fn wait_for_last(&self, last: Option<&LastRun>, waits: &mut LevelZeroWaitList) -> DriverResult {
        let Some(LastRun { run, queue }) = last else { return Ok(()) };
        let is_ordered = self.desc.order == QueueOrder::InOrder && *queue == self.id;
        if !is_ordered && !run.is_over()? {
            waits.push(run);
        }
        Ok(())
    }

    /// The failure of a dependency in a wait list that has failed already.
    pub(super) fn failed_dependency(&self, wait: WaitList<'_>) -> Result<Option<Error>> {
        Ok(self.resolve(wait)?.failure)
    }

    fn resolve(&self, wait: WaitList<'_>) -> Result<ResolvedWaitList<LevelZeroSignal>> {
        let can_wait = |other: &LevelZeroContext| self.context.can_wait_for(other);
        ResolvedWaitList::of(wait, |event| LevelZeroEvent::awaited(event, can_wait))
    }

    fn add_wait_list(&self, wait: WaitList<'_>, waits: &mut LevelZeroWaitList) -> Result<()> {
        let resolved = self.resolve(wait)?;
        waits.failure = resolved.failure;
        for (signal, is_needed) in resolved.pending {
            if !self.follows(&signal) {
                waits.push(&signal.run);
            }
            let uses = waits.uses();
            if is_needed {
                uses.dependencies.push(signal);
            } else {
                uses.order.push(signal);
            }
        }
        Ok(())
    }

    /// Enqueues something.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue).
    pub(super) unsafe fn submit<W: EnqueueWork>(
        &self,
        mut work: W,
        wait: WaitList<'_>,
        signal: &Signal<'_>,
    ) -> Result<()> {
        let context = &self.context;
        context.health()?;
        let event = LevelZeroEvent::of(signal.event, context)?;
        let mut waits = LevelZeroWaitList::default();
        if !wait.is_empty() {
            self.add_wait_list(wait, &mut waits)?;
        }
        let mut state = self.state.lock();
        let EnqueueState { driver, last } = &mut *state;
        if let Some(last) = last {
            last.add_to(&mut waits).map_err(|failure| context.error(failure))?;
        }
        self.wait_for_last(work.last(), &mut waits).map_err(|failure| context.error(failure))?;
        let mut place = event.signal.open_place()?;
        let timed_commands = work.timed_commands();
        let is_timed = timed_commands.is_some() || signal.timed || self.desc.profiling;
        let time = || LevelZeroTimes::begin(context, timed_commands, W::RUNS);
        let times = is_timed.then(time).transpose().map_err(|failure| context.error(failure))?;
        let kind = driver.event_kind(context, &self.desc, is_timed);
        let Started { slot, number, failure } = match waits.failure.take() {
            None => {
                let to = EnqueueTarget { context, queue: self.id, kind };
                // SAFETY: passed on to the caller.
                unsafe { work.hand_over(driver, to, &mut waits) }?
            }
            // What does not run keeps its place in the order.
            inherited => driver.mark(context, kind, waits.events())?.failing(inherited),
        };
        let times = times.filter(|_| failure.is_none());
        let uses = waits.pending.as_mut().map(|pending| &mut pending.uses);
        let has_uses = W::KEPT || uses.is_some();
        let new = NewSignal { slot, number, queue: self.id, failure, times, uses, has_uses };
        let signal = LevelZeroSignal::put(new, &mut place);
        if let Some(kept) = work.kept() {
            signal.keep(kept);
        }
        if self.desc.order == QueueOrder::InOrder && context.lowering == Lowering::Execute {
            LastEnqueue::set(last, signal);
        }
        Ok(())
    }
}

impl LastEnqueue {
    /// Has another enqueue come after this one.
    #[inline]
    fn add_to(&self, waits: &mut LevelZeroWaitList) -> DriverResult {
        if self.run.is_over()? {
            return Ok(());
        }
        waits.push(&self.run);
        if let Some(signal) = &self.signal {
            waits.uses().order.push(Arc::clone(signal));
        }
        Ok(())
    }

    #[inline]
    fn set(last: &mut Option<Self>, signal: &Arc<LevelZeroSignal>) {
        let used = signal.has_uses().then(|| Arc::clone(signal));
        match last {
            Some(last) => {
                last.run.set_to(&signal.run);
                last.signal = used;
            }
            None => *last = Some(Self { run: signal.run.clone(), signal: used }),
        }
    }
}

impl Queue for LevelZeroQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.context.info.id
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    /// A single command is a closed list of one command, too.
    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let context = &self.context;
        match &**command {
            // SAFETY: passed on to the caller.
            Command::StreamTask(task) => return unsafe { self.run_stream_task(task, wait, &signal) },
            // SAFETY: passed on to the caller.
            Command::Empty => return unsafe { self.submit(SignalAlone(None), wait, &signal) },
            _ => {}
        }
        let recorded = SingleRun::of_command(context, command).map_err(|error| context.error(error))?;
        // SAFETY: passed on to the caller.
        unsafe { self.submit(recorded, wait, &signal) }
    }

    fn flush(&self) -> Result<()> {
        self.context.health()
    }

    fn finish(&self) -> Result<()> {
        let (api, state) = (self.context.api, self.state.lock());
        let finished = match &state.driver.lowering {
            LoweringQueue::Append(queue) => {
                let list = queue.main();
                // Others may enqueue meanwhile.
                drop(state);
                // SAFETY: the list lives as long as this queue.
                unsafe { call!(api, zeCommandListHostSynchronize(list, u64::MAX)) }
            }
            LoweringQueue::Execute(queue) => {
                let queues = queue.queues();
                drop(state);
                queues.into_iter().try_for_each(|queue| {
                    // SAFETY: the queues live as long as this one.
                    unsafe { call!(api, zeCommandQueueSynchronize(queue, u64::MAX)) }
                })
            }
        };
        finished.map_err(|failure| self.context.error(failure))
    }
}
