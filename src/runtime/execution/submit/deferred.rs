//! A submission that waits on the host before it starts: for futures, for guards, for runs that its
//! devices cannot wait for.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::runtime::Handle;

use futures::future::{Either, select, try_join, try_join_all};

use crate::hal::EventStatus;
use crate::runtime::completion::spawn::{on_thread, spawn};
use crate::runtime::execution::catch_panics::{CatchPanics, catch_panic};
use crate::runtime::execution::deadline;
use crate::runtime::execution::event::Event;
use crate::runtime::execution::host_guard::TaskOutput;
use crate::runtime::execution::host_task::runtime_shut_down;
use crate::runtime::execution::progress::list_causes;
use crate::runtime::execution::run::{self, Run};
use crate::runtime::execution::submit::start::start;
use crate::runtime::execution::template::RunOwner;
use crate::runtime::resource::native_event::NativeEvent;
use crate::types::{Error, ErrorKind, Result};

/// A future of a wait list. Neither its panic nor that of its drop goes any further.
pub(super) type WaitFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

pub(super) fn wait_future<F>(future: F) -> WaitFuture
where
    F: Future + Send + 'static,
    F::Output: TaskOutput,
{
    let future = CatchPanics::new(future);
    Box::pin(async move {
        let output = future.await?;
        catch_panic(|| output.into_result())?.map_err(|error| {
            Error::new(ErrorKind::HostTaskFailed, "a future in the wait list resolved to an error")
                .caused_by(error)
        })
    })
}

/// Waits on a thread for an event of another library.
pub(super) fn native_wait(event: &NativeEvent) -> WaitFuture {
    let event = event.hal().clone();
    let waiting = on_thread(move || event.wait(None));
    Box::pin(async move {
        match waiting?.await {
            Ok(EventStatus::Failed(error)) => Err(error),
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(ErrorKind::Bug, "the thread that waits for an event has panicked")),
        }
    })
}

/// A submission that waits on the host before it starts.
pub(super) struct Starter<O: RunOwner + 'static> {
    pub(super) owner: Arc<O>,
    pub(super) run: Arc<Run>,
    pub(super) started: bool,
}

impl<O: RunOwner + 'static> Starter<O> {
    pub(super) async fn run_after(mut self, events: Vec<Event>, futures: Vec<WaitFuture>) {
        let outcome = self.unless_stopped(wait_for(events, futures)).await;
        let outcome = match outcome {
            Ok(()) => self.turn().await,
            Err(error) => Err(error),
        };
        self.started = true;
        // An update that this submission has waited for may have failed half-way.
        let outcome = outcome.and_then(|()| match self.owner.broken() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        });
        match outcome {
            Ok(()) if self.run.is_cancelled() => self.give_up(&run::cancelled()),
            Ok(()) if self.run.is_late() => self.give_up(&self.owner.template().too_late()),
            Ok(()) => {
                self.run.set_in_turn();
                start(&self.owner, &self.run, &[], &[]);
            }
            Err(error) => self.give_up(&error),
        }
    }

    /// Waits for everything that the run comes after. For a guard it does so until the run is cancelled or
    /// late: the task that awaits the run may be the one that holds the guard.
    async fn turn(&self) -> Result<()> {
        let turn = async {
            for earlier in self.run.comes_after() {
                earlier.ended().await?;
            }
            Ok(())
        };
        if !self.run.is_behind_guard() {
            return turn.await;
        }
        self.run.trace_guard(self.owner.template());
        self.unless_stopped(turn).await.map_err(|error| self.behind_guard(error))
    }

    /// What `waits` comes to, unless the run is cancelled or late before.
    async fn unless_stopped(&self, waits: impl Future<Output = Result<()>>) -> Result<()> {
        let deadline = pin!(deadline::passed(self.run.deadline()));
        let stopped = select(self.run.cancellation(), deadline);
        match select(pin!(waits), stopped).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((Either::Left(_), _)) => Err(run::cancelled()),
            Either::Right((Either::Right((timer, _)), _)) => {
                timer.and_then(|()| Err(self.owner.template().too_late()))
            }
        }
    }

    /// The error of a run that was stopped while it waited for a guard, with what it waited for.
    fn behind_guard(&self, error: Error) -> Error {
        match &*self.run.waits_for(self.owner.template()) {
            [] => error,
            causes => error.with_note(&format!("while it waited for {}", list_causes(causes))),
        }
    }

    /// Ends the run in its turn. Has the submission see that at once, which may not wait for a guard.
    fn give_up(&self, error: &Error) {
        self.run.abandon(error);
        if self.run.awaits_turn() {
            self.run.done.wake_all();
        }
    }
}

/// The task of a submission that waits on the host, to be spawned.
pub(super) struct Deferred<O: RunOwner + 'static> {
    pub(super) handle: Handle,
    pub(super) starter: Starter<O>,
    pub(super) events: Vec<Event>,
    pub(super) futures: Vec<WaitFuture>,
}

impl<O: RunOwner + 'static> Deferred<O> {
    pub(super) fn spawn(self) {
        let Self { handle, starter, events, futures } = self;
        spawn(&handle, || "wakegraph deferred submission".into(), starter.run_after(events, futures));
    }
}

impl<O: RunOwner + 'static> Drop for Starter<O> {
    fn drop(&mut self) {
        if !self.started {
            // The tokio runtime shuts down. The run ends, so that no task waits for ever, but in its turn.
            self.give_up(&runtime_shut_down());
        }
    }
}

/// Waits for everything the caller asked for, all at once; the first failure ends it.
async fn wait_for(events: Vec<Event>, futures: Vec<WaitFuture>) -> Result<()> {
    let events = try_join_all(events.iter().map(Event::wait));
    try_join(try_join_all(futures), events).await.map(drop)
}
