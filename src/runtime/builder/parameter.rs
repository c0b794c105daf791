//! Dynamic parameters: values that kernels are bound to by the names of their arguments.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use wakegraph_hal::{CommandKind, Error, ErrorKind, Result};

use crate::graph::{self, Content, NodeId};
use crate::runtime::builder::Graph;
use crate::runtime::builder::binding::Binding;
pub(crate) use crate::runtime::builder::binding::Parameter;
use crate::runtime::builder::command::{Command, Dynamic};
use crate::runtime::builder::node::NodeBuilder;
use crate::runtime::resource::kernel::{ByValue, CallArg, KernelCall, ParamType};
use crate::runtime::resource::memory_arg::MemoryArg;
use crate::runtime::resource::scratch;
use crate::sync::{AtomicU64, Ordering};

/// A value of a graph that kernels are bound to, made by [`Graph::param`]. One parameter may be
/// bound to several nodes, to arguments in different places. A new value reaches all of them.
///
/// `T` is the type that the kernel declares: `f32` for a number, [`Local<f32>`](crate::Local)
/// for the size of local memory, `[f32]` for memory of `&[f32]` or `&mut [f32]`.
///
/// [`set`](Self::set) changes the value for the graph: for executables that are finalized from then
/// on. [`Update::param`](crate::update::Update::param) changes it for one executable.
///
/// ```
/// # use wakegraph::{Device, FinalizeOptions, Graph, Range};
/// wakegraph::kernel! {
///     fn saxpy(a: f32, x: &[f32], y: &mut [f32]) { item: |i, a, x, y| y[i] += a * x[i] }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// # let device = Device::open("host")?;
/// let [x, y, z] = [[1.0f32; 4], [0.0; 4], [0.0; 4]].map(|data| device.buffer_from(&data));
/// let (x, y, z) = (x?, y?, z?);
/// let mut graph = Graph::new(&device);
/// let a = graph.param(2.0f32);
/// let out = graph.param(&y);
/// graph.launch(saxpy(0.0, &x, &y), Range::linear(4)).param("a", &a).param("y", &out);
/// graph.launch(saxpy(1.0, &x, &y), Range::linear(4)).param("y", &out);
/// let exec = graph.finalize_with(FinalizeOptions::new().updatable(true))?;
/// exec.submit().await?;
/// assert_eq!(y.to_vec().await?, [3.0; 4]);
///
/// // This executable only:
/// exec.update().param(&a, 10.0).param(&out, &z).apply().await?;
/// exec.submit().await?;
/// assert_eq!(z.to_vec().await?, [11.0; 4]);
///
/// // The graph, and then the executable from the parameters' present values:
/// a.set(5.0);
/// exec.update().from_params([&a, &out]).apply().await?;
/// exec.submit().await?;
/// assert_eq!(y.to_vec().await?, [9.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct DynamicParam<T: ?Sized> {
    inner: Arc<Parameter>,
    of: PhantomData<fn(&T)>,
}

impl<T: ?Sized + 'static> DynamicParam<T> {
    /// Sets the value for the graph. Executables that exist keep theirs, see
    /// [`Update::param`](crate::update::Update::param).
    ///
    /// Edges that follow from new memory are made when the next node is added, or when the graph is
    /// finalized; edges that follow from earlier memory stay.
    ///
    /// # Errors
    /// When the graph is finalized: as for the [`launch`](Graph::launch) of a node with this value.
    /// The graph is usable again when the parameter has been set to a value that fits.
    pub fn set(&self, value: impl ParamValue<T>) {
        // The last reference to memory may be among the old value, which is freed without a lock.
        drop(self.inner.set(value.into_arg()));
    }

    pub(crate) fn inner(&self) -> &Arc<Parameter> {
        &self.inner
    }
}

impl<T: ByValue> DynamicParam<T> {
    /// The value that the graph has.
    pub fn get(&self) -> Option<T> {
        match self.inner.value() {
            CallArg::Value(arg) => T::from_arg(&arg),
            CallArg::Memory(_) => None,
        }
    }
}

impl<T: ?Sized> Clone for DynamicParam<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), of: PhantomData }
    }
}

impl<T: ?Sized> Debug for DynamicParam<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynamicParam<{}>({})", self.inner.of(), self.inner.value())
    }
}

/// A value for a [`DynamicParam<T>`]: a value of `T`, or `&Buffer<E>` or `&HostBuffer<E>` for `[E]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a value for a dynamic parameter of `{T}`",
    label = "neither `{T}` nor memory of its elements"
)]
pub trait ParamValue<T: ?Sized>: sealed::Value<T> {}

impl<T: ?Sized, V: sealed::Value<T>> ParamValue<T> for V {}

/// A [`DynamicParam`] of any type, for [`Update::from_params`](crate::update::Update::from_params).
pub trait AnyParam: sealed::ErasedParam {}

impl<T: ?Sized + 'static> AnyParam for DynamicParam<T> {}

pub(crate) mod sealed {
    use super::*;

    pub trait Value<T: ?Sized> {
        #[doc(hidden)]
        fn into_arg(self) -> CallArg;
    }

    impl<T: ByValue> Value<T> for T {
        fn into_arg(self) -> CallArg {
            CallArg::Value(self.to_arg())
        }
    }

    impl<T, M: MemoryArg<T>> Value<[T]> for M {
        fn into_arg(self) -> CallArg {
            CallArg::Memory(self.operand())
        }
    }

    pub trait ErasedParam {
        #[doc(hidden)]
        fn parameter(&self) -> Arc<Parameter>;
    }

    impl<T: ?Sized + 'static> ErasedParam for DynamicParam<T> {
        fn parameter(&self) -> Arc<Parameter> {
            self.inner.clone()
        }
    }
}

/// The nodes of a graph that hold parameters or run alternatives of command groups.
#[derive(Default)]
pub(crate) struct BoundNodes {
    /// Counts the changes of the graph's parameters and command groups.
    changes: Arc<AtomicU64>,
    /// Number of these that the nodes have seen.
    seen: u64,
    pub(super) nodes: Vec<u32>,
    /// Whether queues record into the graph. They add nodes under locks, and the bounds of kernels are code
    /// of the user's.
    is_recording: bool,
}

impl BoundNodes {
    pub(super) fn changes(&self) -> Arc<AtomicU64> {
        self.changes.clone()
    }
}

impl Graph {
    /// Makes a parameter of this graph, with a first value: a number or any other `Pod` value, the
    /// size of [local memory](crate::Local), or memory. [`NodeBuilder::param`] binds it to
    /// kernels. See [`DynamicParam`].
    pub fn param<T: ?Sized + 'static>(&mut self, value: impl ParamValue<T>) -> DynamicParam<T> {
        let (graph, changes) = (self.inner().source(), self.bound.changes());
        let inner = Parameter::new(graph, ParamType::of::<T>(), value.into_arg(), changes);
        DynamicParam { inner: Arc::new(inner), of: PhantomData }
    }

    /// The nodes with the present values of their parameters.
    pub(crate) fn present(&self) -> Result<Cow<'_, graph::Graph<Command>>> {
        if self.bound.changes.load(Ordering::Acquire) == self.bound.seen {
            return Ok(Cow::Borrowed(self.inner()));
        }
        let mut nodes = self.inner().clone();
        refresh(&mut nodes, &self.bound.nodes, self.scratch_owner.as_ref())?;
        Ok(Cow::Owned(nodes))
    }

    /// Gives the nodes the present values of their parameters, before another node is added.
    /// What does not fit comes out of finalize. Does nothing while queues record into the graph.
    pub(crate) fn refresh_params(&mut self) {
        let changes = self.bound.changes.load(Ordering::Acquire);
        if changes != self.bound.seen
            && !self.bound.is_recording
            && refresh(&mut self.nodes, &self.bound.nodes, self.scratch_owner.as_ref()).is_ok()
        {
            self.bound.seen = changes;
        }
    }

    /// Queues begin to record into the graph, or end that. The caller holds no lock.
    pub(crate) fn set_recording(&mut self, is_recording: bool) {
        self.bound.is_recording = is_recording;
        self.refresh_params();
    }

    /// Binds a parameter to a node.
    fn bind(&mut self, node: NodeId, name: &str, param: &Arc<Parameter>) -> Result<()> {
        let graph = self.inner().source();
        let place = self.nodes.command_mut(node);
        let Ok(Command::Kernel { call, range, dynamic, .. }) = place else {
            let kind = self.nodes.node(node).map_or(CommandKind::Empty, |node| node.kind());
            return Err(Binding::not_a_kernel(kind));
        };
        if dynamic.as_ref().is_some_and(|dynamic| dynamic.group.is_some()) {
            let why = "the node runs an alternative of a command group";
            return Err(Error::new(ErrorKind::InvalidArgument, why)
                .help("bind the parameter to its alternatives, where the group is built"));
        }
        let binding = Binding::of(graph, &call.kernel, name, param)?;
        if let Some(new) = binding.assign(call, &param.value()) {
            scratch::check_owner(new.views(), self.scratch_owner.as_ref())?;
            new.accesses()?;
            new.check_range(range)?;
        }
        Arc::make_mut(dynamic.get_or_insert_default()).bind(binding);
        let index = node.index();
        self.bound.nodes.push(index as u32);
        if refresh_node(&mut self.nodes, index, self.scratch_owner.as_ref())? {
            match index + 1 == self.nodes.len() {
                true => self.nodes.rederive_newest_edges(),
                false => self.nodes.rederive_edges(),
            }
        }
        Ok(())
    }
}

impl NodeBuilder<'_> {
    /// Binds a dynamic parameter to the kernel's argument `name`, as the kernel's declaration names
    /// it. The argument that the call was made with is replaced by the parameter's present value.
    ///
    /// # Errors
    /// At finalize: [`InvalidArgument`](ErrorKind::InvalidArgument) for an argument that the kernel
    /// does not have or that is of another type, for a node that is not a kernel, and for a
    /// parameter of another graph; those of [`launch`](Graph::launch) for the present value.
    #[track_caller]
    pub fn param<T: ?Sized + 'static>(self, name: &str, param: &DynamicParam<T>) -> Self {
        let at = Location::caller();
        self.refine(|graph, node| {
            let bound = graph.bind(node, name, param.inner());
            let label = || graph.inner().node(node).map(|node| node.label()).unwrap_or_default();
            bound.map_err(|error| error.in_node(label()).at(at))
        })
    }
}

/// Gives nodes the present values of their parameters, as far as these fit, and makes the edges that
/// follow. Returns the first error.
fn refresh(
    nodes: &mut graph::Graph<Command>,
    bound: &[u32],
    scratch_owner: Option<&scratch::Owner>,
) -> Result<()> {
    let (mut outcome, mut has_moved) = (Ok(()), false);
    for &index in bound {
        let index = index as usize;
        match refresh_node(nodes, index, scratch_owner) {
            Ok(moved) => has_moved |= moved,
            Err(error) if outcome.is_ok() => {
                outcome = Err(error.in_node(nodes.label_at(index)).at(nodes.location_at(index)));
            }
            Err(_) => {}
        }
    }
    if has_moved {
        nodes.rederive_edges();
    }
    outcome
}

/// Refreshes one node. Returns whether it accesses other memory than before.
fn refresh_node(
    nodes: &mut graph::Graph<Command>,
    index: usize,
    scratch_owner: Option<&scratch::Owner>,
) -> Result<bool> {
    let Content::Command(command) = nodes.content_at(index) else { return Ok(false) };
    let Some(new) = command.present() else { return Ok(false) };
    let accesses = new.check(scratch_owner)?;
    let has_moved = accesses != nodes.accesses_at(index);
    nodes.replace_accesses(index, &accesses);
    if let Some(id) = nodes.id_at(index) {
        *nodes.command_mut(id)? = new;
    }
    Ok(has_moved)
}

impl Command {
    /// The dynamic parameters that it holds, in all alternatives of its group.
    pub(crate) fn params(&self) -> Vec<&Arc<Parameter>> {
        let Some(dynamic) = self.dynamic() else { return Vec::new() };
        let others = dynamic.group.iter().flat_map(|group| &group.alternatives);
        let others = others.filter_map(Self::dynamic).flat_map(|dynamic| &dynamic.params);
        dynamic.params.iter().chain(others).map(|binding| &binding.param).collect()
    }

    /// The command with the alternative and the parameters that the graph has now, if that changes it.
    pub(super) fn present(&self) -> Option<Self> {
        let chosen = self.membership().map(|membership| membership.group.active());
        let mut new = chosen.and_then(|index| self.with_alternative(index));
        for param in self.params() {
            let assigned = new.as_ref().unwrap_or(self).with_param(param, &param.value());
            new = assigned.or(new);
        }
        new
    }

    /// The command with this value of a parameter, in all alternatives of its group, if that changes
    /// it. Calls the bounds of kernels, which are code of the user's, so the caller holds no lock.
    pub(crate) fn with_param(&self, param: &Arc<Parameter>, value: &CallArg) -> Option<Self> {
        let dynamic = self.dynamic()?;
        let mut new: Option<Self> = None;
        if let Self::Kernel { call, .. } = self
            && let Some(assigned) = dynamic.with_param(call, param, value)
            && let Self::Kernel { call, .. } = new.get_or_insert_with(|| self.clone())
        {
            *call = Arc::new(assigned);
        }
        let Some(membership) = &dynamic.group else { return new };
        for (index, alternative) in membership.alternatives.iter().enumerate() {
            let other = (index != membership.active).then(|| alternative.with_param(param, value)).flatten();
            let Some(other) = other else { continue };
            let command = new.get_or_insert_with(|| self.clone());
            let dynamic = command.dynamic_mut().and_then(Option::as_mut).map(Arc::make_mut);
            if let Some(membership) = dynamic.and_then(|dynamic| dynamic.group.as_mut()) {
                membership.alternatives[index] = other;
            }
        }
        new
    }
}

impl Dynamic {
    /// The call with this value of a parameter, if that changes it; as
    /// [`Command::with_param`] for a command without a group.
    pub(crate) fn with_param(
        &self,
        call: &KernelCall,
        param: &Arc<Parameter>,
        value: &CallArg,
    ) -> Option<KernelCall> {
        let bound = self.params.iter().filter(|binding| Arc::ptr_eq(&binding.param, param));
        bound.fold(None, |new, binding| binding.assign(new.as_ref().unwrap_or(call), value).or(new))
    }
}
