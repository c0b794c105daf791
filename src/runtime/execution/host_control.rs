//! Conditionals, switches and loops that the host drives: a task reads the flag and submits the bodies.
//!
//! Each body is an executable that users cannot submit. It is in no register of memory: the executable
//! around it declares what the bodies use, and its run is in flight while they run.

use std::borrow::Cow;
use std::sync::Arc;

use wakegraph_hal::{CommandKind, Result};

use crate::runtime::execution::executable::{ExecutableHandle, ExecutableInner};
use crate::runtime::execution::host_guard::{HostRef, Lease};
use crate::runtime::execution::host_task::{NestedRun, TaskLease};
use crate::runtime::execution::run::Run;
use crate::runtime::execution::run_data::RunDataType;
use crate::runtime::execution::submit::{Waits, submit, submit_after};
use crate::runtime::resource::allocation::View;

/// The way in which a word decides between bodies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlKind {
    /// The first body runs if the word is not 0, else the second one, if there is one.
    If,
    /// The only body runs as long as the word is not 0.
    While,
    /// The body with this number runs, if there is one.
    Switch,
}

impl ControlKind {
    /// The name of the word that decides.
    pub(crate) fn operand(self) -> &'static str {
        match self {
            Self::Switch => "index",
            Self::If | Self::While => "flag",
        }
    }

    pub(crate) fn command_kind(self) -> CommandKind {
        match self {
            Self::If => CommandKind::If,
            Self::While => CommandKind::While,
            Self::Switch => CommandKind::Switch,
        }
    }

    /// The number of the body that runs for this word.
    pub(crate) fn choose(self, word: u32) -> usize {
        match self {
            Self::If | Self::While => usize::from(word == 0),
            Self::Switch => word as usize,
        }
    }

    /// Name of the body with this number.
    pub(crate) fn body_name(self, number: usize) -> Cow<'static, str> {
        match (self, number) {
            (Self::If, 0) => "then".into(),
            (Self::If, _) => "else".into(),
            (Self::While, _) => "do".into(),
            (Self::Switch, number) => number.to_string().into(),
        }
    }
}

/// A conditional, switch or loop with its bodies, ready to run.
pub(crate) struct HostControl {
    /// The node's label, for errors.
    pub(crate) label: Box<str>,
    /// Copies the flag to [`word`](Self::word). Not there if the flag is in host memory.
    pub(crate) read: Option<ExecutableHandle>,
    /// The flag, or a copy of it, in host memory.
    pub(crate) word: View,
    pub(crate) kind: ControlKind,
    /// The executables that it submits. That of a loop copies the flag as its last command.
    pub(crate) bodies: Vec<ExecutableHandle>,
}

impl HostControl {
    /// Runs it once. The caller is the task of a partition that owns `lease`.
    pub(crate) async fn run(self: Arc<Self>, lease: TaskLease) -> Result<()> {
        let result = self.run_bodies(&lease).await;
        result.map_err(|error| error.with_note(&format!("inside {}", self.label)))
    }

    async fn run_bodies(&self, lease: &TaskLease) -> Result<()> {
        if let Some(read) = &self.read {
            run(read, lease).await?;
        }
        while let Some(body) = self.bodies.get(self.kind.choose(self.read_word(lease))) {
            run(body, lease).await?;
            if self.kind != ControlKind::While {
                break;
            }
        }
        Ok(())
    }

    /// Reads the flag. Nothing writes it meanwhile: the bodies have ended, and the partition's accesses keep
    /// everything else away.
    fn read_word(&self, lease: &TaskLease) -> u32 {
        let word = HostRef::<u32>::new(&self.word, Lease::HostTask { _lease: lease.clone() });
        word.first().copied().unwrap_or(0)
    }

    /// Returns the type of run data that the bodies take.
    ///
    /// # Errors
    /// [`InvalidArgument`](wakegraph_hal::ErrorKind::InvalidArgument) if they take several.
    pub(crate) fn run_data(&self) -> Result<Option<RunDataType>> {
        let mut all = None;
        for body in &self.bodies {
            RunDataType::add(&mut all, body.run_data.as_slice())?;
        }
        Ok(all)
    }

    /// The plans of the bodies, as text.
    pub(crate) fn plan_text(&self) -> String {
        let bodies = self.bodies.iter().enumerate();
        bodies.map(|(number, body)| body_text(&self.kind.body_name(number), body)).collect()
    }
}

fn body_text(word: &str, body: &ExecutableInner) -> String {
    let plan = body.plan_text();
    let lines = plan.lines().map(|line| format!("    {line}\n"));
    format!("  {word}:\n{}", lines.collect::<String>())
}

/// Submits a body and waits for its end.
async fn run(body: &Arc<ExecutableInner>, lease: &TaskLease) -> Result<()> {
    if let Some(error) = lease.run().stopped() {
        return Err(error);
    }
    let run_data = if body.run_data.is_some() { lease.run().run_data() } else { None };
    let submission = match (lease.run().deadline(), run_data) {
        (None, None) => submit(body),
        (deadline, run_data) => submit_after(body, Waits::until(deadline, run_data)),
    };
    let in_flight = BodyInFlight::new(submission.event().run().clone(), lease);
    let result = submission.await;
    drop(in_flight);
    result
}

/// A body in flight: cancelling the run around it cancels it, and that run does not end before it.
struct BodyInFlight<'a> {
    run: Arc<Run>,
    lease: &'a TaskLease,
}

impl<'a> BodyInFlight<'a> {
    fn new(run: Arc<Run>, lease: &'a TaskLease) -> Self {
        lease.set_nested(Some(run.clone() as Arc<dyn NestedRun>));
        Self { run, lease }
    }
}

impl Drop for BodyInFlight<'_> {
    fn drop(&mut self) {
        self.lease.set_nested(None);
        // The task is dropped half-way: its runtime shuts down.
        if !self.run.has_ended() {
            drop(self.run.drop_at_end(Box::new(self.lease.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use wakegraph_hal::ErrorKind;
    use wakegraph_hal::fake::{FakeControl, FakeDevice, FakeOptions};

    use crate::runtime::{Device, Graph};

    // The device still uses the body's memory when the task that waits for it is gone.
    #[test]
    fn a_run_outlasts_its_body_when_the_runtime_shuts_down() {
        outlasts_its_body(|control| _ = control.complete_all());
        // What the body uses is kept for ever, but nothing waits for it.
        outlasts_its_body(FakeControl::give_up);
    }

    fn outlasts_its_body(end: impl Fn(&FakeControl)) {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
        let device = Device::from_hal(device);
        let flag = device.host_buffer_from(&[1u32]).unwrap();
        let mut body = Graph::new(&device);
        body.fill(&device.buffer::<u32>(4).unwrap(), 1);
        // A second partition makes the node need the host.
        body.host_task((), async |()| {});
        let mut graph = Graph::new(&device);
        graph.while_nonzero(&flag, &body);
        let exec = graph.finalize().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let event = runtime.block_on(async { exec.submit().event() });
        while control.pending() == 0 {
            std::thread::yield_now();
        }
        drop(runtime);
        assert!(!event.is_finished() && flag.try_write().is_err());
        end(&control);
        while !event.is_finished() {
            std::thread::yield_now();
        }
        let error = event.run().result().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        assert!(flag.try_write().is_ok());
    }
}
