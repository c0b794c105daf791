//! The driver's graphs as objects that destroy themselves.
#![expect(unsafe_code, reason = "calls the driver")]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::context::Context;
use super::launch::Launch;
use super::place::{Place, copy_params};
use super::shape::{CopyShape, SetShape};
use super::stream::{RawEvent, Stream};
use super::sys::{CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo_st, CUgraphNode, Code, Failure, call};

/// How the driver refuses to update in place.
const INVALID_VALUE: Code = 1;
const NOT_SUPPORTED: Code = 801;
const UPDATE_FAILURE: Code = 910;

/// A node of a graph; the graph keeps it alive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub(super) struct Node(pub(super) CUgraphNode);

// SAFETY: a node is a name; the calls that use it lock the graph.
unsafe impl Send for Node {}
// SAFETY: as for `Send`.
unsafe impl Sync for Node {}

/// What a node does.
#[derive(Debug)]
pub(super) enum Op {
    Kernel(Launch),
    /// With the sides, from and to, that lie in host memory of somebody else's.
    Copy(CopyShape, [bool; 2]),
    Set(SetShape),
    Empty,
    /// Parts with their order, in the place of one node.
    Child(Vec<Part>),
    /// With the address of the word that decides.
    If(u64, Vec<Part>, Option<Vec<Part>>),
    While(u64, Vec<Part>),
    /// What a stream has captured.
    Captured(Graph),
}

/// A command of a body: operations that need no order among themselves, behind earlier parts.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) ops: SmallVec<[Op; 1]>,
    pub(super) after: SmallVec<[u32; 2]>,
}

/// A graph under construction. The caller has bound the context, and is the only one that uses it.
#[derive(Debug)]
pub(super) struct Graph {
    context: Arc<Context>,
    raw: CUgraph,
}

// SAFETY: the driver's graphs may be used from any thread, by one at a time, which the exclusive
// references see to.
unsafe impl Send for Graph {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for Graph {}

impl Graph {
    pub(super) fn create(context: &Arc<Context>) -> Result<Self, Failure> {
        let _bound = context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is bound; the place is a pointer's.
        unsafe { call!(context.driver, cuGraphCreate(&raw mut raw, 0)) }?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// A graph that the driver has made, which is this object's from now on.
    pub(super) fn adopt(context: &Arc<Context>, raw: CUgraph) -> Option<Self> {
        (!raw.is_null()).then(|| Self { context: Arc::clone(context), raw })
    }

    /// Where its nodes are added.
    pub(super) fn place(&mut self) -> Place<'_> {
        Place::new(&self.context, self.raw)
    }

    pub(super) fn raw(&self) -> CUgraph {
        self.raw
    }

    /// The same again, and the nodes in it that are these here.
    pub(super) fn duplicate(&self, nodes: &[Node]) -> Result<(Self, Vec<Node>), Failure> {
        let (context, driver) = (Arc::clone(&self.context), self.context.driver);
        let mut raw = ptr::null_mut();
        // SAFETY: the graph is alive; the place is a pointer's.
        unsafe { call!(driver, cuGraphClone(&raw mut raw, self.raw)) }?;
        let clone = Self { context, raw };
        let find = |node: &Node| {
            let mut found = ptr::null_mut();
            // SAFETY: the node is one of the graph that was cloned; the place is a pointer's.
            unsafe { call!(driver, cuGraphNodeFindInClone(&raw mut found, node.0, clone.raw)) }?;
            Ok(Node(found))
        };
        let nodes = nodes.iter().map(find).collect::<Result<_, Failure>>()?;
        Ok((clone, nodes))
    }

    /// Takes away a node that nothing is behind.
    pub(super) fn remove(&mut self, node: Node) -> Result<(), Failure> {
        // SAFETY: the node is of this graph, and not used any more.
        unsafe { call!(self.context.driver, cuGraphDestroyNode(node.0)) }
    }

    pub(super) fn instantiate(&mut self) -> Result<Exec, Failure> {
        let _bound = self.context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the graph is alive; the place is a pointer's.
        unsafe { call!(self.context.driver, cuGraphInstantiateWithFlags(&raw mut raw, self.raw, 0)) }?;
        Ok(Exec { context: Arc::clone(&self.context), raw, copy: None })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let destroy = || {
            let _bound = self.context.bind()?;
            // SAFETY: created by `create`, destroyed once.
            unsafe { call!(self.context.driver, cuGraphDestroy(self.raw)) }
        };
        self.context.dropped(destroy());
    }
}

/// An instantiated graph. The driver takes one call at a time: callers see to it, and have bound the context.
#[derive(Debug)]
pub(super) struct Exec {
    context: Arc<Context>,
    raw: CUgraphExec,
    /// The graph that it was made of, if that is a copy of the one whose nodes its callers name.
    copy: Option<CopiedGraph>,
}

/// A copy of a graph, and what nodes of that are called in it, in ascending order.
#[derive(Debug)]
struct CopiedGraph {
    names: Box<[(Node, Node)]>,
    _graph: Graph,
}

// SAFETY: may be used from any thread, by one at a time, which its owner's lock sees to.
unsafe impl Send for Exec {}

impl Exec {
    /// Was made of this copy of a graph, where these nodes of the graph are called so.
    pub(super) fn of_copy(mut self, copy: Graph, names: impl Iterator<Item = (Node, Node)>) -> Self {
        let mut names: Box<[_]> = names.collect();
        names.sort_unstable();
        self.copy = Some(CopiedGraph { names, _graph: copy });
        self
    }

    /// What the driver calls a node.
    fn name(&self, node: Node) -> CUgraphNode {
        let names = self.copy.as_ref().map(|copy| &copy.names);
        let found = names.and_then(|names| {
            let at = names.binary_search_by_key(&node, |(name, _)| *name).ok()?;
            names.get(at)
        });
        found.map_or(node, |(_, name)| *name).0
    }

    /// Prepares the first launch.
    pub(super) fn upload(&mut self, stream: &Stream) -> Result<(), Failure> {
        // SAFETY: both are alive and of one context.
        unsafe { call!(self.context.driver, cuGraphUpload(self.raw, stream.raw())) }
    }

    pub(super) fn launch(&mut self, stream: &Stream) -> Result<(), Failure> {
        // SAFETY: both are alive and of one context.
        unsafe { call!(self.context.driver, cuGraphLaunch(self.raw, stream.raw())) }
    }

    /// Changes a kernel node for later launches.
    pub(super) fn set_kernel(&mut self, node: Node, launch: &Launch) -> Result<(), Failure> {
        let name = self.name(node);
        launch.with_params(|params| {
            // SAFETY: the node is of the graph that this was made of; the parameters are complete,
            // and copied.
            unsafe { call!(self.context.driver, cuGraphExecKernelNodeSetParams(self.raw, name, params)) }
        })
    }

    /// Changes a copy node of one row for later launches; the driver changes no others.
    pub(super) fn set_copy(
        &mut self,
        node: Node,
        shape: &CopyShape,
        foreign: [bool; 2],
    ) -> Result<(), Failure> {
        let (name, context) = (self.name(node), self.context.raw());
        let copy = copy_params(shape, foreign);
        let copy = &raw const copy;
        // SAFETY: the node is of the graph that this was made of; the parameters are complete, and copied.
        unsafe { call!(self.context.driver, cuGraphExecMemcpyNodeSetParams(self.raw, name, copy, context)) }
    }

    /// Lets a kernel or copy node do what it says, or nothing, in later launches. Not a set node:
    /// with one that is switched off the driver loses the order of what comes before and after it.
    /// The caller sets the parameters of a node that it has switched on: the driver forgets those
    /// that the node was given since the last launch before it was switched off.
    pub(super) fn set_enabled(&mut self, node: Node, enabled: bool) -> Result<(), Failure> {
        let name = self.name(node);
        // SAFETY: the node is of the graph that this was made of, and of a kind that has the switch.
        unsafe { call!(self.context.driver, cuGraphNodeSetEnabled(self.raw, name, u32::from(enabled))) }
    }

    /// Does in later launches what `graph` says, whose nodes are like those of the graph that this
    /// was made of. False where the driver does not do that; then nobody knows what it says.
    pub(super) fn update(&mut self, graph: &mut Graph) -> Result<bool, Failure> {
        let mut info = MaybeUninit::<CUgraphExecUpdateResultInfo_st>::zeroed();
        let place = info.as_mut_ptr();
        // SAFETY: both are alive; the place is such a structure's.
        match unsafe { call!(self.context.driver, cuGraphExecUpdate(self.raw, graph.raw, place)) } {
            Ok(()) => Ok(true),
            Err(Failure { code: INVALID_VALUE | NOT_SUPPORTED | UPDATE_FAILURE, .. }) => {
                // A newer driver's reason is no value of the type.
                // SAFETY: the structure begins with this number, and all its bytes are written.
                let reason = unsafe { place.cast::<u32>().read() };
                tracing::debug!(target: "wakegraph::cuda", reason, "an update in place was refused");
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Lets a record node record another event in later launches.
    pub(super) fn set_event(&mut self, node: Node, event: &RawEvent) -> Result<(), Failure> {
        let (event, name) = (event.raw(), self.name(node));
        // SAFETY: the node is of the graph that this was made of; the event is alive.
        unsafe { call!(self.context.driver, cuGraphExecEventRecordNodeSetEvent(self.raw, name, event)) }
    }
}

impl Drop for Exec {
    /// What is in flight goes on; the driver frees it then.
    fn drop(&mut self) {
        let destroy = || {
            let _bound = self.context.bind()?;
            // SAFETY: made once, destroyed once.
            unsafe { call!(self.context.driver, cuGraphExecDestroy(self.raw)) }
        };
        self.context.dropped(destroy());
    }
}
