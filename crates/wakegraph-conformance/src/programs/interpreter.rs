//! The interpreter: asks for submissions, updates, commands of queues and guards as the choices say, and lets
//! the model do the same in the same order.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::task::yield_now;
use wakegraph::memory::ScratchArena;
use wakegraph::{Device, Error, ErrorKind, Event, HostMut, Queue, Result, Submission};

use super::choices::Choices;
use super::generate::Mixture;
use super::model::{Model, mixed};
use super::settings::Settings;
use super::step::{BUFFERS, LEN, Node, ON_DEVICES};
use super::subject::{Expected, Subject};
use super::world::{Builder, Form, Memory, World};

/// How long anything may take: more than that is a hang, also on a device that a sanitizer slows down.
const TIME_LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 3600 } else { 300 });
/// Steps of a program, at most.
const STEPS: usize = 64;
/// Runs a program.
///
/// # Panics
/// Where the crate does something else than the model, and where something does not end.
pub async fn run(choices: Choices<'_>, devices: &[Device], settings: &Settings) {
    Program::new(choices, devices, settings).run().await;
}

/// A request that has not been compared with the model yet.
enum Asked {
    Submission(Submitted),
    Update {
        subject: usize,
        applied: wakegraph::update::Applied,
        expected: Expected,
    },
    /// A command that a queue runs.
    Command {
        event: Event,
        node: Node,
    },
    Guard {
        buffer: usize,
        guard: Pin<Box<dyn Future<Output = HostMut<u32>>>>,
        n: u32,
    },
    Read {
        buffer: usize,
        elements: Pin<Box<dyn Future<Output = Result<Vec<u32>>>>>,
    },
}

struct Submitted {
    number: usize,
    /// Nodes of the run, in order.
    nodes: Vec<Node>,
    /// The number of the submission in its wait list.
    after: Option<usize>,
    event: Event,
    /// `None` once it is dropped.
    submission: Option<Submission>,
    /// Whether it may end without having run.
    cancelled: bool,
    late: bool,
}

struct Program<'a> {
    choices: Choices<'a>,
    settings: &'a Settings,
    world: World,
    mixture: Mixture,
    model: Model,
    subjects: Vec<Subject>,
    arena: ScratchArena,
    /// For each device, in order and out of order.
    queues: [Vec<Queue>; 2],
    /// In order of the calls.
    asked: Vec<Asked>,
    /// How each submission has ended, by its number; `None` while that is not known.
    outcomes: Vec<Option<Result<(), ErrorKind>>>,
    /// The events of all submissions.
    events: Vec<Event>,
    /// Requests, in words.
    log: Vec<String>,
}

impl<'a> Program<'a> {
    fn new(mut choices: Choices<'a>, devices: &[Device], settings: &'a Settings) -> Self {
        // Commands of a device that computes nothing leave zeros, and conditionals would read others.
        let computes = settings.control.is_none();
        let contents = [(); BUFFERS].map(|()| [(); LEN].map(|()| if computes { choices.word() } else { 0 }));
        let world = World::new(devices, &contents);
        let mixture = settings.mixture(&mut choices, &world);
        Self {
            choices,
            settings,
            queues: [true, false].map(|in_order| world.queues(in_order)),
            world,
            mixture,
            model: Model::new(contents),
            subjects: Vec::new(),
            arena: ScratchArena::new(),
            asked: Vec::new(),
            outcomes: Vec::new(),
            events: Vec::new(),
            log: Vec::new(),
        }
    }

    async fn run(mut self) {
        let steps = self.choices.within(4..=(4 + 6 * self.settings.executables).min(STEPS));
        // Everything is compared after every step, rather than with all in flight together.
        let careful = self.choices.chance(2);
        for _ in 0..self.settings.executables {
            self.make();
        }
        for _ in 0..steps {
            if self.choices.are_over() {
                break;
            }
            self.step().await;
            if careful {
                self.check_all().await;
            }
        }
        self.submit();
        self.check_all().await;
        self.subjects.clear();
        if let Some(control) = &self.settings.control {
            assert_eq!(control.pending(), 0, "the device has something in flight");
        }
    }

    async fn step(&mut self) {
        match self.choices.below(24) {
            0..=5 => self.submit(),
            6..=11 => self.update().await,
            12..=14 => self.run_eagerly(),
            15..=16 => self.use_guard(),
            17 => self.read(),
            18 => self.cancel(),
            19 => self.drop_something(),
            20 => self.poll_something(),
            21 => self.complete_some().await,
            22 => self.replace(),
            _ => self.check_all().await,
        }
    }

    /// Makes an executable, unless its graph is refused.
    fn make(&mut self) {
        let made = Subject::new(&mut self.choices, &self.world, &self.mixture, self.settings, &self.arena);
        if let Some(subject) = made {
            self.log.push(format!("executable {}: {:?}", self.subjects.len(), subject.nodes));
            self.subjects.push(subject);
        }
    }

    /// Drops an executable, which may be in flight, and makes another one.
    fn replace(&mut self) {
        if self.subjects.len() <= 2 * self.settings.executables {
            if let Some(subject) = self.some_subject() {
                self.subjects[subject].exec = None;
                self.log.push(format!("drop executable {subject}"));
            }
            self.make();
        }
    }

    /// Some executable, also one that was dropped.
    fn some_subject(&mut self) -> Option<usize> {
        let all: Vec<_> = (0..self.subjects.len()).collect();
        self.choices.pick(&all)
    }

    fn submit(&mut self) {
        let Some(subject) = self.some_subject() else { return };
        let Some(exec) = self.subjects[subject].exec.clone() else { return };
        let kind = self.choices.below(10);
        let (mut after, mut late) = (None, false);
        let submission = match kind {
            6 => exec.prepare().after_future(yield_now()).submit(),
            7 => {
                after = self.choices.pick(&(0..self.events.len()).collect::<Vec<_>>());
                let prepared = exec.prepare();
                match after {
                    Some(earlier) => prepared.after_event(&self.events[earlier]).submit(),
                    None => prepared.submit(),
                }
            }
            8 => self.some_queue().submit(&exec),
            9 if self.settings.faults => {
                late = true;
                exec.prepare().deadline(Instant::now()).submit()
            }
            _ => exec.submit(),
        };
        let (number, event) = (self.events.len(), submission.event());
        self.log
            .push(format!("submission {number} of executable {subject}, of kind {kind}, after {after:?}"));
        self.events.push(event.clone());
        self.outcomes.push(None);
        let (nodes, submission) = (self.subjects[subject].in_order(), Some(submission));
        let submitted = Submitted { number, nodes, after, event, submission, cancelled: false, late };
        self.asked.push(Asked::Submission(submitted));
    }

    fn some_queue(&mut self) -> Queue {
        let queues = &self.queues[self.choices.below(2)];
        queues[self.choices.below(queues.len())].clone()
    }

    /// Lets queues run the commands of an executable, or others.
    fn run_eagerly(&mut self) {
        // What scratch memory holds for a graph, it does not hold for other commands.
        let of_subject = self.settings.scratch || self.choices.chance(2);
        let (mut nodes, edges, form) = match self.some_subject().filter(|_| of_subject) {
            Some(subject) => {
                let subject = &self.subjects[subject];
                (subject.in_order(), subject.edges_in_order(), subject.form)
            }
            None if self.settings.scratch => return,
            None => (self.mixture.nodes(&mut self.choices, 3), Vec::new(), Form::random(&mut self.choices)),
        };
        nodes.iter_mut().for_each(|node| node.step.prune());
        // A command that comes after one that fails would fail, too.
        let may_fail = nodes.iter().any(|node| node.step.may_fail());
        let edges = if may_fail { Vec::new() } else { edges };
        let queues = &self.queues[self.choices.below(2)];
        self.log.push(format!("commands {nodes:?}"));
        let mut builder = Builder::new(&self.world, form);
        let events = builder.issue(&nodes, 0..nodes.len(), &edges, queues, &mut Vec::new());
        for (event, node) in events.into_iter().zip(nodes) {
            self.asked.extend(event.map(|event| Asked::Command { event, node }));
        }
    }

    /// Updates an executable. Where the outcome is not known beforehand, waits for it.
    async fn update(&mut self) {
        let Some(subject) = self.some_subject() else { return };
        let asked = self.subjects[subject].update(&mut self.choices, &self.mixture);
        let Some((applied, expected, nodes)) = asked else { return };
        self.log.push(format!("update of executable {subject}, {expected:?}: {nodes:?}"));
        if expected == Expected::Either {
            self.settle().await;
            let outcome = self.finish(applied).await;
            let refused = outcome.as_ref().err().map(Error::kind);
            let is_possible =
                matches!(refused, None | Some(ErrorKind::InvalidArgument | ErrorKind::FeatureNotSupported));
            assert!(is_possible, "{outcome:?}{}", self.history());
            if outcome.is_ok() {
                self.subjects[subject].nodes = nodes;
            }
            return;
        }
        if expected == Expected::Applied {
            self.subjects[subject].nodes = nodes;
        }
        self.asked.push(Asked::Update { subject, applied, expected });
    }

    /// Takes a guard of a host buffer, which is held, or waits, until its turn. Or gives it up while it
    /// waits.
    fn use_guard(&mut self) {
        let buffer = self.choices.within(ON_DEVICES..=BUFFERS - 1);
        let Memory::Host(memory) = self.world.memory[buffer].clone() else { unreachable!() };
        let (kind, n) = (self.choices.below(6), self.choices.word());
        if kind == 5 {
            let result = memory.try_write();
            assert!(
                result.is_ok() || !self.asked.is_empty(),
                "a guard is refused while nothing is in flight"
            );
            return;
        }
        let mut guard = Box::pin(async move { memory.write().await });
        let polled = guard.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if kind < 4 {
            let guard: Pin<Box<dyn Future<Output = HostMut<u32>>>> = match polled {
                Poll::Ready(taken) => Box::pin(std::future::ready(taken)),
                Poll::Pending => guard,
            };
            self.log.push(format!("guard of buffer {buffer}"));
            self.asked.push(Asked::Guard { buffer, guard, n });
        }
    }

    /// Copies a buffer of a device to the host, behind what has been asked for.
    fn read(&mut self) {
        let visible = self.visible();
        let buffer = self.choices.below(visible);
        let Memory::Device(memory) = self.world.memory[buffer].clone() else { unreachable!() };
        let mut elements = Box::pin(async move { memory.to_vec().await });
        let elements: Pin<Box<dyn Future<Output = _>>> =
            match elements.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(read) => Box::pin(std::future::ready(read)),
                Poll::Pending => elements,
            };
        self.asked.push(Asked::Read { buffer, elements });
    }

    /// How many device buffers a program can read: others are scratch memory of each graph.
    fn visible(&self) -> usize {
        if self.settings.scratch { ON_DEVICES / 2 } else { ON_DEVICES }
    }

    /// A submission that has not been compared.
    fn some_submission(&mut self) -> Option<&mut Submitted> {
        let submissions = self.asked.iter_mut().filter_map(|asked| match asked {
            Asked::Submission(submitted) => Some(submitted),
            _ => None,
        });
        let mut all: Vec<_> = submissions.collect();
        if all.is_empty() { None } else { Some(all.swap_remove(self.choices.below(all.len()))) }
    }

    fn cancel(&mut self) {
        if !self.settings.faults {
            return;
        }
        let Some(submitted) = self.some_submission() else { return };
        if let Some(submission) = &submitted.submission {
            submitted.cancelled = true;
            submission.cancel();
        }
    }

    /// Drops a submission, which may be in flight.
    fn drop_something(&mut self) {
        if let Some(submitted) = self.some_submission() {
            submitted.submission = None;
        }
    }

    fn poll_something(&mut self) {
        if let Some(submitted) = self.some_submission() {
            let _ = submitted.event.is_finished();
            if let Some(submission) = &mut submitted.submission {
                let _ = Pin::new(submission).poll(&mut Context::from_waker(Waker::noop()));
            }
        }
    }

    async fn complete_some(&mut self) {
        let count = self.choices.below(4);
        yield_now().await;
        if let Some(control) = &self.settings.control {
            for _ in 0..count {
                control.complete_next(None);
            }
        }
    }

    /// Waits for something, and completes what is pending on a device that does not complete it by itself.
    async fn finish<F: Future>(&self, future: F) -> F::Output {
        let finished = async {
            let mut future = pin!(future);
            poll_fn(|context| {
                let polled = future.as_mut().poll(context);
                if let (Poll::Pending, Some(control)) = (&polled, &self.settings.control) {
                    control.complete_all();
                    context.waker().wake_by_ref();
                }
                polled
            })
            .await
        };
        let ended = tokio::time::timeout(TIME_LIMIT, finished).await;
        ended.unwrap_or_else(|_| panic!("HANG: something does not end{}", self.history()))
    }

    /// Waits for all that was asked for, and lets the model do the same in the same order.
    async fn settle(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            match asked {
                Asked::Submission(submitted) => self.settle_submission(submitted).await,
                Asked::Command { event, node } => {
                    let result = self.finish(event.wait()).await;
                    let (fails, may_fail) = (node.step.fails(), node.step.may_fail());
                    let is_possible = match &result {
                        Ok(()) => !node.step.is_wrong() && !fails,
                        Err(error) => {
                            node.step.is_wrong() || may_fail && error.kind() == ErrorKind::HostTaskFailed
                        }
                    };
                    assert!(is_possible, "{result:?} of {node:?}{}", self.history());
                    self.carry_out(&result, &[node]);
                }
                Asked::Update { subject, applied, expected } => {
                    let refused = self.finish(applied).await.err();
                    let is_expected = match (expected, &refused) {
                        (Expected::Refused(kind), Some(error)) => error.kind() == kind,
                        (expected, refused) => expected == Expected::Applied && refused.is_none(),
                    };
                    let history = || self.history();
                    assert!(is_expected, "update of {subject}: {refused:?}, not {expected:?}{}", history());
                }
                Asked::Guard { buffer, guard, n } => {
                    let mut guard = self.finish(guard).await;
                    self.compare(buffer, &guard);
                    guard.iter_mut().for_each(|x| *x = if self.computes() { mixed(*x, n) } else { 0 });
                    self.model.set(buffer, &guard);
                }
                Asked::Read { buffer, elements } => {
                    let elements = self.finish(elements).await.unwrap();
                    self.compare(buffer, &elements);
                }
            }
        }
    }

    fn carry_out(&mut self, result: &Result<()>, nodes: &[Node]) {
        match result {
            Ok(()) => self.model.run(nodes),
            Err(_) => nodes.iter().for_each(|node| self.model.forget(&node.step)),
        }
    }

    async fn settle_submission(&mut self, submitted: Submitted) {
        let Submitted { number, nodes, after, event, submission, cancelled, late } = submitted;
        let result = match submission {
            Some(submission) => self.finish(submission).await,
            None => self.finish(event.wait()).await,
        };
        let again = self.finish(event.wait()).await;
        assert_eq!(format!("{result:?}"), format!("{again:?}"), "a submission ends in two ways");
        let earlier = after.and_then(|number| self.outcomes[number]);
        let on = |test: fn(&Node) -> bool| nodes.iter().filter(|node| node.enabled).any(test);
        let (fails, may_fail) = (on(|node| node.step.fails()), on(|node| node.step.may_fail()));
        let is_possible = match (&result, earlier) {
            (Ok(()), earlier) => !fails && !late && !matches!(earlier, Some(Err(_))),
            (Err(error), Some(Err(kind))) if error.kind() == kind => true,
            (Err(error), _) => match error.kind() {
                ErrorKind::Cancelled => cancelled,
                ErrorKind::DeadlineExceeded => late,
                ErrorKind::HostTaskFailed => may_fail,
                _ => false,
            },
        };
        assert!(is_possible, "submission {number}: {result:?} after {earlier:?}{}", self.history());
        self.outcomes[number] = Some(result.as_ref().copied().map_err(Error::kind));
        self.carry_out(&result, &nodes);
    }

    async fn check_all(&mut self) {
        self.settle().await;
        for buffer in (0..self.visible()).chain(ON_DEVICES..BUFFERS) {
            let elements = match self.world.memory[buffer].clone() {
                Memory::Device(memory) => self.finish(memory.to_vec()).await.unwrap(),
                Memory::Host(memory) => self.finish(memory.read()).await.to_vec(),
            };
            self.compare(buffer, &elements);
        }
    }

    fn computes(&self) -> bool {
        self.settings.control.is_none()
    }

    fn compare(&mut self, buffer: usize, elements: &[u32]) {
        if self.computes()
            && let Err(difference) = self.model.compare(buffer, elements)
        {
            panic!("{difference}{}", self.history());
        }
    }

    /// The requests, for messages.
    fn history(&self) -> String {
        format!("\n{}", self.log.join("\n"))
    }
}
