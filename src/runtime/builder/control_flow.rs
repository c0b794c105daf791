//! Conditionals and loops: graphs inside a node, that become bodies of commands at finalize.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::Arc;

use crate::graph::{self, Content, Payload};
use crate::hal;
use crate::runtime::builder::command::Command;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::scratch::{self, ScratchMemory};
use crate::types::{CommandKind, DeviceId, Error, ErrorKind, ResourceId, Result};

/// A conditional or a loop.
pub(crate) struct Control {
    /// The word that decides.
    pub(crate) condition: View,
    pub(crate) kind: ControlKind,
    /// What it, and its bodies, keep alive.
    pub(crate) allocations: Vec<Arc<Allocation>>,
    /// How deep conditionals and loops lie in it.
    depth: usize,
}

/// What a conditional or a loop runs.
pub(crate) enum ControlKind {
    If { then: Body, otherwise: Option<Body> },
    While(Body),
}

/// The nodes of a graph as they were when it was given to a conditional or loop.
pub(crate) type Body = Arc<graph::Graph<Command>>;

impl ControlKind {
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
    /// Searches the bodies. Gives, too, the device that their commands run on, where there are any.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument), naming the node, for a host task and for a
    /// second device; [`InvalidSize`](ErrorKind::InvalidSize) for a nesting that is too deep.
    pub(crate) fn new(condition: View, kind: ControlKind) -> Result<(Self, Option<DeviceId>)> {
        let mut found = BodyContents::default();
        found.keep(&condition.allocation);
        kind.bodies().try_for_each(|body| found.search(body))?;
        let BodyContents { device, depth, allocations } = found;
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

    /// In words, for verbose drawings.
    pub(crate) fn describe(&self) -> Cow<'_, str> {
        let start = self.condition.offset;
        let (end, resource) = (start + self.condition.len, self.condition.allocation.memory().resource());
        let condition = format_args!("{resource:?}[{start}..{end}] != 0");
        match &self.kind {
            ControlKind::If { then, otherwise: None } => {
                format!("if {condition}\n{}", NodeList("then", then))
            }
            ControlKind::If { then, otherwise: Some(otherwise) } => {
                format!("if {condition}\n{}\n{}", NodeList("then", then), NodeList("else", otherwise))
            }
            ControlKind::While(body) => format!("while {condition}\n{}", NodeList("do", body)),
        }
        .into()
    }
}

/// What lies in the bodies of a conditional or loop.
#[derive(Default)]
struct BodyContents {
    /// Where their commands run, and the first of them.
    device: Option<(DeviceId, String)>,
    depth: usize,
    allocations: HashMap<ResourceId, Arc<Allocation>>,
}

impl BodyContents {
    fn keep(&mut self, allocation: &Arc<Allocation>) {
        self.allocations.entry(allocation.memory().resource()).or_insert_with(|| allocation.clone());
    }

    /// Visits each sub-graph once, however often it occurs, without recursion.
    fn search(&mut self, body: &Body) -> Result<()> {
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

/// The nodes of a body in a line.
struct NodeList<'a>(&'a str, &'a Body);

impl std::fmt::Display for NodeList<'_> {
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
