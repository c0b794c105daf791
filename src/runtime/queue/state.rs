//! The state of a queue: what is in flight, and the order between its commands.

use std::fmt::{self, Debug};
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::{QueueOrder, Result};

use crate::runtime::builder::recorded_queues::RecordedQueueId;
use crate::runtime::completion::tasks::wake_after_locks;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::executable::ExecutableId;
use crate::runtime::execution::executable_graph::ExecutableGraph;
use crate::runtime::execution::in_flight::{self, RunSource};
use crate::runtime::execution::run::{
    Predecessor, Predecessors, Run, SpinPlan, Timing, record_run, spin_time, without_failed,
};
use crate::runtime::execution::submission::{Event, Submission};
use crate::runtime::execution::submit::{self, LaunchAwaited, Started, Waits};
use crate::runtime::execution::template::RunOwner;
use crate::runtime::queue::command::{CommandTemplate, FirstFailure, QueueCommand};
use crate::runtime::queue::{Barrier, QueueInner, QueueState, Tail};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::raw_memory::NativeEvent;
use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// On devices whose queues are all in order, the commands of an out-of-order queue are spread over so many.
const DEVICE_QUEUES: usize = 4;

/// Maximum of runs kept for reuse. Those that a burst leaves beyond them are given back.
const MOST_SPARE: usize = 64;

/// Maximum of runs that cannot be used yet and are passed over in search of one to use again.
const MOST_PASSED_OVER: usize = 4;

impl QueueInner {
    pub(super) fn new(device: &Device, order: QueueOrder) -> Result<Arc<Self>> {
        device.start_reactor().map_err(|error| error.on_device(device.selector()))?;
        let failures = Arc::<FirstFailure>::default();
        // The reactor polls the oldest event of each queue, so a queue that it polls has to be in order.
        let spreads = !device.is_polled() && device.capabilities().out_of_order_queues;
        let (device_order, count) = match order {
            QueueOrder::InOrder => (QueueOrder::InOrder, 1),
            QueueOrder::OutOfOrder if spreads => (QueueOrder::OutOfOrder, 1),
            QueueOrder::OutOfOrder => (QueueOrder::InOrder, DEVICE_QUEUES),
        };
        let templates = (0..count).map(|_| CommandTemplate::on_device(device, device_order, &failures));
        let queue = Arc::new(Self {
            id: RecordedQueueId::unique(),
            device: device.clone(),
            order,
            owner: (order == QueueOrder::InOrder).then(ExecutableId::unique),
            templates: templates.collect::<Result<_>>()?,
            next: AtomicU32::new(0),
            failures,
            is_recording: AtomicBool::new(false),
            state: Mutex::default(),
        });
        in_flight::add(device, &(queue.clone() as Arc<dyn RunSource>));
        Ok(queue)
    }

    pub(super) fn is_in_order(&self) -> bool {
        self.order == QueueOrder::InOrder
    }

    /// The template for the next command on the device, whose queues take turns.
    pub(super) fn next_template(&self) -> &Arc<CommandTemplate> {
        match &*self.templates {
            [only] => only,
            several => &several[self.next.fetch_add(1, Ordering::Relaxed) as usize % several.len()],
        }
    }

    /// Runs a command. One that is a `barrier` comes after all before it, and all later ones come after it.
    pub(super) fn run(&self, command: Arc<QueueCommand>, after: &[Event], barrier: Barrier) -> Arc<Run> {
        loop {
            match wake_after_locks(|| self.run_locked(&mut self.state.lock(), &command, after, barrier)) {
                Ok(run) => return run,
                Err(awaited) => awaited.wait(),
            }
        }
    }

    /// Runs a command that comes after an event of another library, and whose place in the order of
    /// its memory the caller holds. The event is one that this queue's device has imported.
    pub(super) fn run_after_native(
        &self,
        command: &Arc<QueueCommand>,
        event: &NativeEvent,
    ) -> Result<Arc<Run>> {
        wake_after_locks(|| {
            let mut state = self.state.lock();
            self.device.accepts_work()?;
            let run = state.new_run(command, self.is_in_order(), false)?;
            let waits = Waits::after_native(event);
            submit::start_after(command, &run, Predecessors::new(), waits).without_locks();
            state.runs.push_back(run.clone());
            Ok(run)
        })
    }

    /// Runs a command whose place in the order of its memory the caller holds.
    pub(super) fn run_in_place(&self, command: &Arc<QueueCommand>) -> Result<Arc<Run>> {
        wake_after_locks(|| {
            let mut state = self.state.lock();
            self.device.accepts_work()?;
            let alone = state.runs.back().is_none_or(|last| last.has_ended());
            let run = state.new_run(command, self.is_in_order(), alone)?;
            if alone {
                state.plan_spin(command, &run);
            }
            submit::start_now(command, &run).without_locks();
            state.runs.push_back(run.clone());
            Ok(run)
        })
    }

    /// Submits an executable in the order of the queue.
    pub(super) fn submit(&self, executable: &ExecutableGraph, after: &[Event]) -> Submission {
        loop {
            let submitted = wake_after_locks(|| {
                let mut waits = Waits::after(after);
                let mut state = self.state.lock();
                state.tail.retain(|tail| !tail.run.has_ended());
                waits.order.extend(state.tail.iter().map(|tail| Predecessor::Run(tail.run.clone())));
                let (submission, started) = submit::submit_locked(&executable.inner, &mut waits)?;
                let run = submission.event().run().clone();
                self.submitted(&mut state, &run, false, Barrier::None);
                state.keep(run, &self.failures);
                Ok((submission, started))
            });
            match submitted {
                Ok((submission, started)) => {
                    started.into_iter().for_each(Started::without_locks);
                    return submission;
                }
                Err(awaited) => LaunchAwaited::wait(awaited),
            }
        }
    }

    /// All runs that may be in flight.
    pub(super) fn pending(&self, state: &QueueState) -> Vec<Arc<Run>> {
        let runs = state.runs.iter().chain(&state.others);
        runs.filter(|run| !run.has_ended()).cloned().collect()
    }

    /// Lets go of runs that have ended and not used again, and notes their failures.
    pub(super) fn sweep(&self, state: &mut QueueState) {
        state.sweep(&self.failures);
    }

    fn run_locked(
        &self,
        state: &mut QueueState,
        owner: &Arc<QueueCommand>,
        after: &[Event],
        barrier: Barrier,
    ) -> Result<Arc<Run>, LaunchAwaited> {
        let (mut others, mut ended) = (Vec::new(), Predecessors::new());
        let mut order = conflicts::lock_all(self.owner, &owner.uses, &mut others);
        let mut order_after = Predecessors::new();
        if barrier == Barrier::All && !self.is_in_order() {
            order_after.extend(self.pending(state).into_iter().map(Predecessor::Run));
        }
        state.tail.retain(|tail| !tail.run.has_ended());
        for Tail { run, in_device_order } in &state.tail {
            // What is behind a run that may fail before its turn may fail with it.
            let ordered =
                *in_device_order && owner.is_on_device() && run.is_all_enqueued() && !run.keeps_order();
            if !ordered {
                order_after.push(Predecessor::Run(run.clone()));
            }
        }
        order.add_predecessors(&mut order_after, &mut ended);
        submit::check_launched(&order_after)?;
        let order_after = without_failed(order_after);
        // Those that are kept for reuse are let go at once. The others may be the last references.
        if !ended.is_empty() {
            ended.retain(|one| match one {
                Predecessor::Run(run) => Arc::strong_count(run) == 1,
                Predecessor::Fence(_) | Predecessor::Guard(_) => true,
            });
        }
        let alone = state.runs.back().is_none_or(|last| last.has_ended());
        let accepts = self.device.accepts_work();
        let run = match accepts.and_then(|()| state.new_run(owner, self.is_in_order(), alone)) {
            Ok(run) => run,
            Err(error) => return Ok(Arc::new(Run::failed(self.refused(owner.locate(error))))),
        };
        if alone {
            state.plan_spin(owner, &run);
        }
        let started = if owner.is_on_device() && order_after.is_empty() && after.is_empty() {
            submit::start_now(owner, &run)
        } else {
            let mut waits = Waits::after(after);
            let in_device_order = state.tail.iter().filter(|tail| tail.in_device_order);
            waits.queue_order.extend(in_device_order.map(|tail| Predecessor::Run(tail.run.clone())));
            match waits.take_ended().or_else(|| submit::given_up(&order_after)) {
                Some(failure) => Started::abandoned(&run, &failure),
                None => submit::start_after(owner, &run, order_after, waits),
            }
        };
        self.submitted(state, &run, owner.is_on_device(), barrier);
        match owner.is_on_device() {
            true => state.runs.push_back(run.clone()),
            false => state.keep(run.clone(), &self.failures),
        }
        order.record_command(&run, &mut ended);
        started.without_locks();
        Ok(run)
    }

    /// Makes a run what later commands come after, if they do.
    fn submitted(&self, state: &mut QueueState, run: &Arc<Run>, on_device: bool, barrier: Barrier) {
        if !self.is_in_order() && barrier == Barrier::None || run.has_ended() {
            return;
        }
        state.tail.clear();
        state.tail.push(Tail { run: run.clone(), in_device_order: on_device && self.is_in_order() });
    }

    /// Notes the error of a command that was refused.
    pub(super) fn refused(&self, error: wakegraph_hal::Error) -> wakegraph_hal::Error {
        self.failures.record(error.clone());
        self.device.metrics().of_queues().refused(error.kind());
        error
    }
}

impl QueueState {
    /// A run of a command, made ready to start. `alone`: the command before it has ended.
    fn new_run(&mut self, owner: &Arc<QueueCommand>, in_order: bool, alone: bool) -> Result<Arc<Run>> {
        let number = owner.common().next_number();
        // The clock is read only where a wait may spin.
        let timing = match alone && owner.is_on_device() && !self.spinning.is_backing_off() {
            true => Timing::On,
            false => Timing::Off,
        };
        if owner.is_on_device()
            && let Some(run) = self.take_reusable(in_order, |run| run.reset(owner, timing, number))
        {
            record_run(&run);
            return Ok(run);
        }
        let mut run = Run::new(owner.template())?;
        run.reset(owner, timing, number);
        let run = Arc::new(run);
        record_run(&run);
        Ok(run)
    }

    /// Decides whether a wait for a command will spin. One that queues behind others is not worth it.
    fn plan_spin(&mut self, owner: &QueueCommand, run: &Run) {
        let template = owner.template();
        let limit = template.spin_limit();
        if let Some(expected) = template.expected()
            && expected <= limit
            && self.spinning.try_spin()
        {
            run.waiting.plan_spin(SpinPlan::Once(spin_time(expected, limit)));
        }
    }

    fn take_reusable(&mut self, in_order: bool, reset: impl FnOnce(&mut Run)) -> Option<Arc<Run>> {
        for _ in 0..MOST_PASSED_OVER {
            let has_ended = self.runs.front()?.has_freed_memory();
            // Those behind it are in flight, too.
            if in_order && !has_ended {
                return None;
            }
            let mut run = self.runs.pop_front()?;
            if !has_ended {
                self.runs.push_back(run);
                continue;
            }
            if let Some(reusable) = Arc::get_mut(&mut run) {
                reusable.waiting.spin().into_iter().for_each(|found| self.spinning.record(found));
                reset(reusable);
                if self.runs.len() > MOST_SPARE && self.runs.front().is_some_and(|next| next.has_ended()) {
                    self.runs.pop_front();
                }
                return Some(run);
            }
            // A handle or a register keeps it, the latter until the next command on the memory.
            if self.runs.len() < MOST_SPARE {
                self.runs.push_back(run);
            }
        }
        None
    }

    #[cfg(test)]
    pub(super) fn tail_len(&self) -> usize {
        self.tail.len()
    }

    #[cfg(test)]
    pub(super) fn swept(&self) -> usize {
        self.swept
    }

    fn keep(&mut self, run: Arc<Run>, failures: &FirstFailure) {
        if self.others.len() >= self.sweep_at {
            self.sweep(failures);
            // Doubled, so that on average a new run pays for few old ones, however many are in flight.
            self.sweep_at = 2 * self.others.len();
        }
        self.others.push(run);
    }

    fn sweep(&mut self, failures: &FirstFailure) {
        #[cfg(test)]
        (self.swept += self.others.len());
        self.others.retain(|run| {
            let has_ended = run.has_ended();
            if has_ended && let Err(error) = run.result() {
                failures.record(error);
            }
            !has_ended
        });
    }
}

impl RunSource for QueueInner {
    fn in_flight(&self) -> Vec<Arc<Run>> {
        self.pending(&self.state.lock())
    }
}

impl Drop for QueueInner {
    fn drop(&mut self) {
        in_flight::leave(&self.device, &RunSource::in_flight(self));
    }
}

impl Debug for QueueInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("device", &self.device)
            .field("order", &self.order)
            .field("is_recording", &self.is_recording)
            .finish_non_exhaustive()
    }
}
