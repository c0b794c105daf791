//! What is in flight, and the threads that carry it out.
//!
//! A queue does not keep an order by itself: each command knows which others it follows. Those that follow
//! nothing unfinished are taken in random order by threads, of which there are as many as commands that may
//! run at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::commands::{Command, Operation, Order, Wait};
use crate::events::{SignalState, Token};
use crate::misuse::{enter, misuse};
use crate::objects::Handle;
use crate::state::{State, chance, lock, now, random, shared};

/// Numbers commands in flight in the order of their submission.
pub(crate) type NodeId = u64;
/// Numbers executions of lists.
type RunId = u64;

#[derive(Default, Debug)]
pub(crate) struct Engine {
    next: u64,
    nodes: BTreeMap<NodeId, Node>,
    runs: HashMap<RunId, Run>,
    streams: HashMap<Handle, Stream>,
    /// For each event the commands that wait for it, whose predecessors are over.
    waiting: HashMap<Handle, Vec<NodeId>>,
    /// Commands that may run.
    ready: Vec<NodeId>,
    idle_threads: usize,
    threads: usize,
    /// A thread ends a command, and takes another one next.
    is_in_finish: bool,
}

/// A command in flight.
#[derive(Debug)]
struct Node {
    device: Handle,
    stream: Handle,
    run: Option<RunId>,
    /// How many others have to end, or to start, before this one may look at its events.
    blockers: usize,
    frees_at_end: Vec<NodeId>,
    frees_at_start: Vec<NodeId>,
    has_started: bool,
    is_waiting: bool,
    waits: Vec<Wait>,
    signal: Option<Handle>,
    token: Option<Arc<Token>>,
    uses: Vec<Handle>,
    command: Arc<Command>,
}

/// An execution of a list.
#[derive(Debug)]
struct Run {
    list: Handle,
    left: usize,
}

/// A queue's commands in flight.
#[derive(Default, Debug)]
struct Stream {
    live: BTreeSet<NodeId>,
    last: Option<NodeId>,
    /// The last command that blocks those behind it.
    blocker: Option<NodeId>,
}

/// Where commands go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) device: Handle,
    pub(crate) context: Handle,
    /// The queue, or the immediate list.
    pub(crate) stream: Handle,
    pub(crate) in_order: bool,
}

/// What a command follows.
#[derive(Default, Debug)]
struct After {
    ends: Vec<NodeId>,
    start: Option<NodeId>,
}

impl Engine {
    pub(crate) fn open(&mut self, stream: Handle) {
        self.streams.insert(stream, Stream::default());
    }

    pub(crate) fn close(&mut self, stream: Handle) {
        self.streams.remove(&stream);
    }

    pub(crate) fn is_idle(&self, stream: Handle) -> bool {
        self.streams.get(&stream).is_none_or(|stream| stream.live.is_empty())
    }

    pub(crate) fn is_over(&self, id: NodeId) -> bool {
        !self.nodes.contains_key(&id)
    }

    /// The call of a command in flight that uses the memory.
    pub(crate) fn user_of(&self, memory: &Range<usize>) -> Option<&'static str> {
        let uses = |command: &Command| {
            command
                .operation
                .memory()
                .iter()
                .any(|(used, _)| used.start < memory.end && memory.start < used.end)
        };
        self.nodes.values().find(|node| uses(&node.command)).map(|node| node.command.call)
    }

    /// The call of a command in flight that uses the kernel.
    pub(crate) fn user_of_kernel(&self, kernel: Handle) -> Option<&'static str> {
        let uses =
            |command: &Command| matches!(&command.operation, Operation::Launch(l) if l.kernel == kernel);
        self.nodes.values().find(|node| uses(&node.command)).map(|node| node.command.call)
    }
}

/// A command that does nothing, for the beginning and the end of a submission.
fn mark(waits: Vec<Wait>, signal: Option<Handle>) -> Arc<Command> {
    let call = crate::misuse::call();
    Arc::new(Command { call, operation: Operation::Nothing, waits, signal, order: Order::Free })
}

impl State {
    /// Puts a command into flight.
    fn start(&mut self, to: Target, run: Option<RunId>, after: After, command: &Arc<Command>) -> NodeId {
        let id = self.engine.next;
        self.engine.next += 1;
        let mut blockers = 0;
        for other in after.ends {
            if let Some(other) = self.engine.nodes.get_mut(&other) {
                other.frees_at_end.push(id);
                blockers += 1;
            }
        }
        let start = after.start.and_then(|other| self.engine.nodes.get_mut(&other));
        if let Some(other) = start.filter(|other| !other.has_started) {
            other.frees_at_start.push(id);
            blockers += 1;
        }
        let waits = command.waits.clone();
        let mut uses: Vec<Handle> = command.signal.into_iter().collect();
        uses.extend(waits.iter().filter_map(|wait| match wait {
            Wait::Event(event) => Some(*event),
            Wait::Token(..) => None,
        }));
        match &command.operation {
            Operation::Reset(event) => uses.push(*event),
            Operation::Times { events, .. } => uses.extend(events),
            _ => {}
        }
        for event in &uses {
            self.events.get(*event).uses += 1;
        }
        command.operation.check(self, to.context);
        let token = command.signal.and_then(|handle| {
            let event = self.events.get(handle);
            let SignalState::Counter(last) = &mut event.signal else { return None };
            let token = last.insert(Arc::default()).clone();
            event.publish(handle);
            Some(token)
        });
        let (Target { device, stream, .. }, signal) = (to, command.signal);
        self.engine.nodes.insert(
            id,
            Node {
                device,
                stream,
                run,
                blockers,
                frees_at_end: Vec::new(),
                frees_at_start: Vec::new(),
                has_started: false,
                is_waiting: false,
                waits,
                signal,
                token,
                uses,
                command: command.clone(),
            },
        );
        self.engine.streams.get_mut(&stream).unwrap().live.insert(id);
        if blockers == 0 {
            self.look_at_events(id);
        }
        id
    }

    /// A single command of an immediate list.
    pub(crate) fn submit(&mut self, to: Target, command: Command) -> NodeId {
        let stream = &self.engine.streams[&to.stream];
        let ends = match command.order {
            _ if to.in_order => stream.last.into_iter().collect(),
            Order::Barrier => stream.live.iter().copied().collect(),
            Order::Free | Order::Blocks => stream.blocker.into_iter().collect(),
        };
        let start = stream.last.filter(|_| chance(2));
        let order = command.order;
        let id = self.start(to, None, After { ends, start }, &Arc::new(command));
        let stream = self.engine.streams.get_mut(&to.stream).unwrap();
        stream.last = Some(id);
        if order != Order::Free {
            stream.blocker = Some(id);
        }
        id
    }

    /// Executions of closed lists, between the waits and the signal. Lists of one call follow each other on a
    /// target in order only.
    pub(crate) fn execute(&mut self, to: Target, lists: &[Handle], waits: Vec<Wait>, signal: Option<Handle>) {
        let stream = &self.engine.streams[&to.stream];
        let ends = if to.in_order { stream.last } else { stream.blocker }.into_iter().collect();
        let (last, in_order_of_start) = (stream.last, chance(2));
        let start = last.filter(|_| in_order_of_start);
        let first = self.start(to, None, After { ends, start }, &mark(waits, None));
        let mut all = vec![first];
        let mut list_begins = vec![first];
        for list in lists {
            let nodes = self.execute_one(to, *list, &list_begins, in_order_of_start);
            all.extend(&nodes);
            if to.in_order {
                list_begins = all.clone();
            }
        }
        let mut last = *all.last().unwrap();
        if to.in_order || signal.is_some() {
            last = self.start(to, None, After { ends: all, start: None }, &mark(Vec::new(), signal));
        }
        self.engine.streams.get_mut(&to.stream).unwrap().last = Some(last);
    }

    fn execute_one(
        &mut self,
        to: Target,
        handle: Handle,
        begin: &[NodeId],
        in_order_of_start: bool,
    ) -> Vec<NodeId> {
        let list = self.lists.get(handle);
        list.running = true;
        let (commands, in_order) = (list.commands.clone(), list.in_order);
        let run = self.engine.next;
        self.engine.next += 1;
        self.engine.runs.insert(run, Run { list: handle, left: commands.len().max(1) });
        let mut nodes = Vec::new();
        let (mut blocker, mut last) = (None, None);
        for command in &commands {
            let mut ends = begin.to_vec();
            match command.order {
                _ if in_order => ends.extend(last),
                Order::Barrier => ends.extend(&nodes),
                Order::Free | Order::Blocks => ends.extend(blocker),
            }
            let start = last.filter(|_| in_order_of_start);
            let id = self.start(to, Some(run), After { ends, start }, command);
            nodes.push(id);
            last = Some(id);
            if command.order != Order::Free {
                blocker = Some(id);
            }
        }
        if nodes.is_empty() {
            let after = After { ends: begin.to_vec(), start: None };
            nodes.push(self.start(to, Some(run), after, &mark(Vec::new(), None)));
        }
        nodes
    }

    fn unblock(&mut self, id: NodeId) {
        let Some(node) = self.engine.nodes.get_mut(&id) else { return };
        node.blockers -= 1;
        if node.blockers == 0 {
            self.look_at_events(id);
        }
    }

    /// Makes a command ready whose events are complete. A wait that has seen its event is over.
    fn look_at_events(&mut self, id: NodeId) {
        let Some(node) = self.engine.nodes.get_mut(&id).filter(|node| !node.has_started) else { return };
        let events = &mut self.events;
        node.waits.retain(|wait| match wait {
            Wait::Event(event) => !events.get(*event).is_complete(),
            Wait::Token(_, token) => !token.is_done(),
        });
        if !node.waits.is_empty() {
            if !std::mem::replace(&mut node.is_waiting, true) {
                for Wait::Event(event) | Wait::Token(event, _) in &node.waits {
                    self.engine.waiting.entry(*event).or_default().push(id);
                }
            }
            return;
        }
        node.has_started = true;
        let freed = std::mem::take(&mut node.frees_at_start);
        self.engine.ready.push(id);
        self.wake_threads();
        freed.into_iter().for_each(|id| self.unblock(id));
    }

    /// Looks at the commands that wait for an event, after it has changed.
    pub(crate) fn settle(&mut self, event: Handle) {
        let waiting = self.engine.waiting.remove(&event).unwrap_or_default();
        for id in waiting {
            self.look_at_events(id);
            // It may wait for a later signal of the same event.
            if self.engine.nodes.get(&id).is_some_and(|node| !node.has_started) {
                self.engine.waiting.entry(event).or_default().push(id);
            }
        }
        shared().host.notify_all();
    }

    /// Has a thread take the command that has just become ready. One that has ended a command takes one of
    /// those that this made ready itself.
    fn wake_threads(&mut self) {
        let others = self.engine.ready.len() - usize::from(self.engine.is_in_finish);
        if others == 0 {
            return;
        }
        if self.engine.idle_threads >= others {
            shared().work.notify_one();
        } else if self.engine.threads < 256 {
            self.engine.threads += 1;
            std::thread::spawn(work);
        }
    }

    /// A command is over. The thread takes another one next.
    fn finish(&mut self, id: NodeId, times: (u64, u64)) {
        self.engine.is_in_finish = true;
        self.end(id, times);
        self.engine.is_in_finish = false;
    }

    fn end(&mut self, id: NodeId, times: (u64, u64)) {
        let Some(mut node) = self.engine.nodes.remove(&id) else { return };
        if let Operation::Reset(event) = &node.command.operation {
            match &mut self.events.get(*event).signal {
                SignalState::Flag(flag) => *flag = false,
                SignalState::Counter(_) => misuse!("an event that counts is never reset"),
            }
            self.events.get(*event).publish(*event);
        }
        if let Some(signal) = node.signal {
            let event = self.events.get(signal);
            event.times = Some((times.0, times.1, node.device));
            if let SignalState::Flag(flag) = &mut event.signal {
                *flag = true;
            }
        }
        if let Some(token) = node.token.take() {
            token.finish();
        }
        let (signal, freed) = (node.signal, std::mem::take(&mut node.frees_at_end));
        if let Some(event) = signal {
            self.events.get(event).publish(event);
        }
        self.forget(id, node);
        freed.into_iter().for_each(|id| self.unblock(id));
        if let Some(event) = signal {
            self.settle(event);
        }
    }

    /// What a command has held, it holds no longer.
    fn forget(&mut self, id: NodeId, node: Node) {
        for event in &node.uses {
            self.events.get(*event).uses -= 1;
        }
        if let Some(number) = node.run {
            let run = self.engine.runs.get_mut(&number).unwrap();
            run.left -= 1;
            if run.left == 0 {
                let run = self.engine.runs.remove(&number).unwrap();
                self.lists.get(run.list).running = false;
            }
        }
        if let Some(stream) = self.engine.streams.get_mut(&node.stream) {
            stream.live.remove(&id);
            if stream.live.is_empty() {
                shared().host.notify_all();
            }
        }
    }

    /// Nothing of the device's that has not begun will ever run.
    pub(crate) fn drop_commands_of(&mut self, device: Handle) {
        let dropped: Vec<NodeId> =
            self.engine.nodes.iter().filter(|(_, node)| node.device == device).map(|(id, _)| *id).collect();
        let can_run: BTreeSet<NodeId> = self.engine.ready.iter().copied().collect();
        for id in dropped {
            let node = &self.engine.nodes[&id];
            let is_running = node.has_started && !can_run.contains(&id);
            if !is_running {
                let node = self.engine.nodes.remove(&id).unwrap();
                self.forget(id, node);
            }
        }
        let Engine { nodes, ready, .. } = &mut self.engine;
        ready.retain(|id| nodes.contains_key(id));
        shared().host.notify_all();
    }
}

/// The longest delay in microseconds.
static DELAY: LazyLock<u64> = LazyLock::new(|| {
    std::env::var("WAKEGRAPH_LZ_DELAY").ok().and_then(|delay| delay.parse().ok()).unwrap_or(50)
});

/// Sleeps, once in so many times.
fn dawdle(one_in: u64) {
    if *DELAY > 0 && chance(one_in) {
        std::thread::sleep(Duration::from_micros(random(*DELAY)));
    }
}

/// What a thread of the driver does.
fn work() {
    let mut state = lock();
    loop {
        if state.engine.ready.is_empty() {
            state.engine.idle_threads += 1;
            state = shared().work.wait(state).unwrap();
            state.engine.idle_threads -= 1;
            continue;
        }
        if chance(8) {
            drop(state);
            dawdle(1);
            state = lock();
            continue;
        }
        let chosen = random(state.engine.ready.len() as u64) as usize;
        let id = state.engine.ready.swap_remove(chosen);
        let node = &state.engine.nodes[&id];
        let (command, device) = (node.command.clone(), node.device);
        if let Operation::Nothing = command.operation {
            drop(command);
            let now = now();
            state.finish(id, (now, now));
            continue;
        }
        drop(state);
        enter(command.call);
        dawdle(8);
        let start = now();
        command.operation.run(device);
        let end = now();
        dawdle(8);
        state = lock();
        drop(command);
        state.finish(id, (start, end));
    }
}
