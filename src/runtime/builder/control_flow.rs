//! Conditionals and loops: graphs inside a node, that become bodies of commands at finalize.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::Arc;

use crate::graph::{self, Content, Payload};
use crate::hal;
use crate::plan::{PartitionPolicy, Plan, PlanOptions};
use crate::runtime::builder::command::Command;
use crate::runtime::finalize::{Source, to_hal};
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::scratch::{self, ScratchMemory};
use crate::types::{CommandKind, DeviceId, Error, ErrorKind, ResourceId, Result};

/// A conditional or a loop.
pub(crate) struct Control {
    /// The word that decides.
    pub(crate) condition: View,
    pub(crate) kind: Kind,
    /// What it, and its bodies, keep alive.
    pub(crate) allocations: Vec<Arc<Allocation>>,
    /// How deep conditionals and loops lie in it.
    depth: usize,
}

/// What a conditional or a loop runs.
pub(crate) enum Kind {
    If { then: Body, otherwise: Option<Body> },
    While(Body),
}

/// The nodes of a graph as they were when it was given to a conditional or loop.
type Body = Arc<graph::Graph<Command>>;

impl Kind {
    pub(crate) fn command_kind(&self) -> CommandKind {
        match self {
            Self::If { .. } => CommandKind::If,
            Self::While(_) => CommandKind::While,
        }
    }

    fn bodies(&self) -> impl Iterator<Item = &Body> {
        let (first, second) = match self {
            Self::If { then, otherwise } => (then, otherwise.as_ref()),
            Self::While(body) => (body, None),
        };
        std::iter::once(first).chain(second)
    }
}

impl Control {
    /// Looks through the bodies. Gives, too, the device that their commands run on, where there are any.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument), naming the node, for a host task and for a second device;
    /// [`InvalidSize`](ErrorKind::InvalidSize) for a nesting that is too deep.
    pub(crate) fn new(condition: View, kind: Kind) -> Result<(Self, Option<DeviceId>)> {
        let mut found = Found::default();
        found.keep(&condition.allocation);
        kind.bodies().try_for_each(|body| found.look_through(body))?;
        let Found { device, depth, allocations } = found;
        let depth = depth + 1;
        if depth >= hal::Body::MAX_DEPTH {
            let why = format!("conditionals and loops lie more than {} deep", hal::Body::MAX_DEPTH - 1);
            return Err(Error::new(ErrorKind::InvalidSize, why));
        }
        if allocations.values().any(|allocation| ScratchMemory::of(allocation).is_some()) {
            return Err(scratch::refused("a conditional or a loop"));
        }
        let allocations = allocations.into_values().collect();
        Ok((Self { condition, kind, allocations, depth }, device.map(|(device, _)| device)))
    }

    /// The command for `device`.
    ///
    /// # Errors
    /// As for the commands of a graph; the node of the body is named.
    pub(crate) fn to_hal(&self, device: &Device) -> Result<hal::Command> {
        let condition = self.condition.to_hal()?;
        let record = |body: &Body| record(body, device).map(Arc::new);
        Ok(match &self.kind {
            Kind::If { then, otherwise } => hal::Command::If {
                condition,
                then: record(then)?,
                otherwise: otherwise.as_ref().map(record).transpose()?,
            },
            Kind::While(body) => hal::Command::While { condition, body: record(body)? },
        })
    }

    /// In words, for verbose drawings.
    pub(crate) fn describe(&self) -> Cow<'_, str> {
        let start = self.condition.offset;
        let (end, resource) = (start + self.condition.len, self.condition.allocation.memory().resource());
        let condition = format_args!("{resource:?}[{start}..{end}] != 0");
        match &self.kind {
            Kind::If { then, otherwise: None } => format!("if {condition}\n{}", Nodes("then", then)),
            Kind::If { then, otherwise: Some(otherwise) } => {
                format!("if {condition}\n{}\n{}", Nodes("then", then), Nodes("else", otherwise))
            }
            Kind::While(body) => format!("while {condition}\n{}", Nodes("do", body)),
        }
        .into()
    }
}

/// What lies in the bodies of a conditional or loop.
#[derive(Default)]
struct Found {
    /// Where their commands run, and the first of them.
    device: Option<(DeviceId, String)>,
    depth: usize,
    allocations: HashMap<ResourceId, Arc<Allocation>>,
}

impl Found {
    fn keep(&mut self, allocation: &Arc<Allocation>) {
        self.allocations.entry(allocation.memory().resource()).or_insert_with(|| allocation.clone());
    }

    /// Sub-graphs are looked at once each, however often they occur, and with no help of the stack.
    fn look_through(&mut self, body: &Body) -> Result<()> {
        let mut seen = HashSet::from([ptr::from_ref(&**body)]);
        let mut open = vec![&**body];
        while let Some(graph) = open.pop() {
            for index in 0..graph.len() {
                match graph.content_at(index) {
                    Content::Empty => {}
                    Content::SubGraph(inner) => {
                        if seen.insert(ptr::from_ref(&**inner)) {
                            open.push(inner);
                        }
                    }
                    Content::Command(command) => self.add(graph, index, command)?,
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, graph: &graph::Graph<Command>, index: usize, command: &Command) -> Result<()> {
        let label = || graph.label_at(index);
        if let Command::HostTask { .. } = command {
            let why = format!("the body holds a {}, which the device cannot run", label());
            return Err(Error::new(ErrorKind::InvalidArgument, why)
                .help("put the host task in front of the conditional or loop, or behind it"));
        }
        let device = graph.devices()[index];
        let (first, other) = self.device.get_or_insert_with(|| (device, label()));
        if *first != device {
            let why =
                format!("{other} and {} of the body run on different devices, {first} and {device}", label());
            return Err(Error::new(ErrorKind::InvalidArgument, why)
                .help("copy between the devices in front of the conditional or loop, or behind it"));
        }
        if let Command::Control(control) = command {
            self.depth = self.depth.max(control.depth);
        }
        command.allocations().for_each(|allocation| self.keep(allocation));
        Ok(())
    }
}

/// Plans the body like a graph, as one partition, and takes down its commands.
fn record(graph: &Body, device: &Device) -> Result<hal::Body> {
    let options = PlanOptions { partition: PartitionPolicy::Fewest, ..PlanOptions::default() };
    let plan = Plan::new(graph, |_| device.node_kinds(), &options)?;
    let source = Source::new(graph, &plan);
    let mut body = hal::Body::new();
    let mut after: Vec<u32> = Vec::new();
    match plan.partitions() {
        [] => return Ok(body),
        [_] => {}
        _ => {
            return Err(Error::new(
                ErrorKind::Bug,
                "the body of a conditional or loop has several partitions",
            ));
        }
    }
    let in_order = plan.partitions()[0].in_order;
    for (position, &node) in plan.nodes(0).iter().enumerate() {
        let (graph, index) = source.place(&plan, node);
        after.clear();
        match (in_order, position.checked_sub(1)) {
            (true, before) => after.extend(before.map(|before| before as u32)),
            (false, _) => after.extend_from_slice(plan.waits(0, position)),
        }
        let command = match graph.content_at(index) {
            Content::Command(command) => to_hal(device, command, false).map(Cow::into_owned),
            Content::Empty | Content::SubGraph(_) => Ok(hal::Command::Empty),
        };
        command
            .and_then(|command| body.push(command, &after))
            .map_err(|error| error.in_node(graph.label_at(index)).at(graph.location_at(index)))?;
    }
    Ok(body)
}

/// The nodes of a body in a line.
struct Nodes<'a>(&'a str, &'a Body);

impl std::fmt::Display for Nodes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 6;
        let Self(word, body) = *self;
        write!(f, "{word}: ")?;
        for index in 0..body.len().min(SHOWN) {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}{}", body.label_at(index))?;
            if let Content::Command(command @ Command::Control(_)) = body.content_at(index) {
                write!(f, " ({})", command.describe().replace('\n', "; "))?;
            }
        }
        match body.len() {
            0 => f.write_str("nothing"),
            len if len > SHOWN => write!(f, ", {} more", len - SHOWN),
            _ => Ok(()),
        }
    }
}
