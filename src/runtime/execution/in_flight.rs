//! The work that is in flight on a device: asking for it, waiting for its end, taking no more, and noticing
//! that it hangs.
//!
//! A submission costs nothing for this. A device knows the executables and queues that use it, and these know
//! their runs.

use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::{Either, select};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::runtime::completion::tasks::{spawn, take_turn};
use crate::runtime::execution::deadline;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::progress::SubmissionProgress;
use crate::runtime::execution::run::Run;
use crate::runtime::resource::device::{Device, DeviceWork};
use crate::util::attachment::Attachment;
use crate::util::fork;

/// An executable or a queue.
pub(crate) trait RunSource: Send + Sync {
    /// Runs that have not ended.
    fn in_flight(&self) -> Vec<Arc<Run>>;
}

impl RunSource for ExecutableInner {
    fn in_flight(&self) -> Vec<Arc<Run>> {
        self.state.lock().in_flight()
    }
}

impl Attachment for DeviceWork {
    type Value = Mutex<Sources>;
}

/// The executables and queues that may have runs on a device.
#[derive(Default)]
pub(crate) struct Sources {
    sources: Vec<Weak<dyn RunSource>>,
    /// Runs of queues that were dropped.
    runs: Vec<Weak<Run>>,
}

/// Makes room for another entry: those that are gone are taken out first.
fn make_room<T: ?Sized>(list: &mut Vec<Weak<T>>) {
    if list.len() == list.capacity() {
        list.retain(|entry| entry.strong_count() > 0);
        // As many again before the next time.
        list.reserve(list.len().max(8));
    }
}

/// Makes a source of runs known to a device.
pub(crate) fn add(device: &Device, source: &Arc<dyn RunSource>) {
    let mut work = device.work().get_or_default().lock();
    make_room(&mut work.sources);
    work.sources.push(Arc::downgrade(source));
}

/// Makes runs known whose source is dropped.
pub(crate) fn leave(device: &Device, runs: &[Arc<Run>]) {
    let mut work = device.work().get_or_default().lock();
    for run in runs {
        make_room(&mut work.runs);
        work.runs.push(Arc::downgrade(run));
    }
}

/// Makes an executable known to the devices that it, or a conditional or loop in it, uses.
///
/// # Errors
/// That of a device that has been shut down.
pub(crate) fn register(executable: &Arc<ExecutableInner>) -> Result<()> {
    let mut devices: Vec<Device> = Vec::new();
    let partitions = executable.partitions.into_iter().filter_map(|partition| partition.device());
    for device in partitions.chain(executable.allocations.iter().map(|allocation| allocation.device())) {
        if !devices.contains(device) {
            devices.push(device.clone());
        }
    }
    let source = executable.clone() as Arc<dyn RunSource>;
    devices.iter().for_each(|device| add(device, &source));
    let accepted = devices.iter().try_for_each(Device::accepts_work);
    let _ = executable.devices.set(devices.into());
    accepted
}

/// The runs on a device that have not ended. In a process that was forked off there are none.
pub(crate) fn runs_on(device: &Device) -> Vec<Arc<Run>> {
    if fork::check().is_err() {
        return Vec::new();
    }
    let (sources, mut runs): (Vec<_>, Vec<_>) = {
        let work = device.work().get_or_default().lock();
        let sources = work.sources.iter().filter_map(Weak::upgrade).collect();
        (sources, work.runs.iter().filter_map(Weak::upgrade).collect())
    };
    runs.extend(sources.iter().flat_map(|source| source.in_flight()));
    runs.retain(|run| !run.is_finished());
    runs
}

/// Maximum of submissions named in the error of a shutdown.
const NAMED: usize = 3;

impl Device {
    /// The submissions and commands of queues that are in flight on the device, or wait for their turn, and
    /// how far they are: what a status page shows, and what to read when a device hangs.
    pub fn in_flight(&self) -> Vec<SubmissionProgress> {
        runs_on(self).iter().filter_map(|run| run.progress()).collect()
    }

    /// Waits until everything has ended that has been submitted to the device so far, successful or not.
    /// What is submitted meanwhile is not waited for.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn drain(&self) {
        for run in runs_on(self) {
            run.ended.wait().await;
        }
        take_turn().await;
    }

    /// Refuses new work from now on, for all handles of this device, and waits until everything that has
    /// been submitted has ended, for `timeout` at most.
    ///
    /// Refused are submissions, commands of queues, transfers and graphs to be finalized, with
    /// [`Unavailable`](ErrorKind::Unavailable). What has been submitted before, conditionals and loops that
    /// the runtime drives included, goes on. [`cancel`](crate::Submission::cancel) it first to end it sooner.
    /// Memory stays valid, and guards of host buffers work. The device can be opened again when all its
    /// handles, and what was made with them, are gone.
    ///
    /// Pools, batchers and caches do not notice: they still give out slots and executables, whose submissions
    /// are refused, also those of requests that they had accepted. So [drain](crate::service) these first.
    ///
    /// # Errors
    /// [`DeadlineExceeded`](ErrorKind::DeadlineExceeded) when something has not ended in time: the message
    /// names it, and [`in_flight`](Self::in_flight) tells more. It goes on, with its memory kept.
    /// [`Unavailable`](ErrorKind::Unavailable) on a tokio runtime without its timer, as with a
    /// [deadline](crate::SubmitBuilder::deadline).
    ///
    /// # Cancel safety
    /// The device stays shut down. Call it again to go on waiting.
    pub async fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.set_shut_down();
        // A time too far away to be represented is no limit.
        let end = Instant::now().checked_add(timeout);
        let drained = pin!(async {
            // A thread that was submitting when the device was shut down is found the second time.
            while !runs_on(self).is_empty() {
                self.drain().await;
            }
        });
        match select(drained, pin!(deadline::passed(end))).await {
            Either::Left(((), _)) => Ok(()),
            Either::Right((timer, _)) => timer.and_then(|()| self.report_in_flight(timeout)),
        }
    }

    fn report_in_flight(&self, timeout: Duration) -> Result<()> {
        let in_flight = self.in_flight();
        if in_flight.is_empty() {
            return Ok(());
        }
        let named: Vec<_> = in_flight.iter().take(NAMED).map(ToString::to_string).collect();
        let more = if in_flight.len() > NAMED { "; ..." } else { "" };
        let why = format!(
            "{} in flight after {timeout:?}: {}{more}",
            match in_flight.len() {
                1 => "one submission is still".to_owned(),
                count => format!("{count} submissions are still"),
            },
            named.join("; ")
        );
        Err(Error::new(ErrorKind::DeadlineExceeded, why).on_device(self.selector()))
    }
}

/// The way on which a watchdog tells its submission.
pub(crate) type Alarm = oneshot::Receiver<Error>;

/// A watchdog whose time runs.
pub(crate) struct Watchdog {
    handle: Handle,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Watchdog {
    /// A watchdog on the caller's tokio runtime, whose handle is `handle`; `None` where the limit is too
    /// far away.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) on a runtime that was built without its timer.
    pub(crate) fn start(handle: Handle, limit: Duration) -> Result<Option<Self>> {
        let Some(end) = Instant::now().checked_add(limit) else { return Ok(None) };
        Ok(Some(Self { handle, limit, timer: deadline::timer(end)? }))
    }

    /// Watches a run.
    pub(crate) fn watch(self, run: Arc<Run>) -> Alarm {
        let (alarm, heard) = oneshot::channel();
        let handle = self.handle.clone();
        spawn(&handle, || "wakegraph watchdog".into(), self.report(run, alarm));
        heard
    }

    async fn report(self, run: Arc<Run>, alarm: oneshot::Sender<Error>) {
        let has_ended = matches!(select(pin!(run.ended.wait()), self.timer).await, Either::Left(_));
        if has_ended || run.is_finished() {
            return;
        }
        let Some(progress) = run.progress() else { return };
        let error = stalled(&progress, self.limit);
        tracing::error!(target: "wakegraph::watchdog", %error, "a submission hangs");
        run.set_stalled(&error);
        // The submission may have been dropped.
        let _ = alarm.send(error);
    }
}

fn stalled(progress: &SubmissionProgress, limit: Duration) -> Error {
    progress.locate(Error::new(ErrorKind::Stalled, format!("not over after {limit:?}: {progress}")))
}
