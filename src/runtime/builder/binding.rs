//! Value of a dynamic parameter, and the kernel arguments that it stands for.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::{CommandKind, Error, ErrorKind, Result};

use crate::runtime::resource::kernel::{CallArg, KernelCall, KernelRef, ParamType};
use crate::sync::{AtomicU64, Ordering};

/// A dynamic parameter with its type erased.
#[derive(Debug)]
pub struct Parameter {
    /// Identity that the ids of its graph's nodes carry.
    graph: u32,
    of: ParamType,
    value: Mutex<CallArg>,
    /// Counts the changes of all parameters of the graph.
    changes: Arc<AtomicU64>,
}

/// Tells parameters apart while they live.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ParamKey(usize);

impl Parameter {
    pub(super) fn new(graph: u32, of: ParamType, value: CallArg, changes: Arc<AtomicU64>) -> Self {
        Self { graph, of, value: Mutex::new(value), changes }
    }

    /// Gives back the value before.
    pub(super) fn set(&self, value: CallArg) -> CallArg {
        let old = std::mem::replace(&mut *self.value.lock(), value);
        self.changes.fetch_add(1, Ordering::Release);
        old
    }

    pub(super) fn of(&self) -> ParamType {
        self.of
    }

    pub(crate) fn graph(&self) -> u32 {
        self.graph
    }

    pub(crate) fn key(self: &Arc<Self>) -> ParamKey {
        ParamKey(Arc::as_ptr(self) as usize)
    }

    pub(crate) fn value(&self) -> CallArg {
        self.value.lock().clone()
    }
}

/// A parameter that stands for the argument `name` of a kernel.
#[derive(Clone)]
pub(crate) struct Binding {
    pub(crate) name: Cow<'static, str>,
    pub(crate) param: Arc<Parameter>,
}

impl Binding {
    /// Binds a parameter of this graph to a kernel of one of its nodes.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a name or a type that the kernel does not
    /// have, and for a parameter of another graph.
    pub(super) fn of(graph: u32, kernel: &KernelRef, name: &str, param: &Arc<Parameter>) -> Result<Self> {
        let invalid = |why, help| Err(Error::new(ErrorKind::InvalidArgument, why).help(help));
        if param.graph != graph {
            return invalid(
                "the dynamic parameter belongs to another graph".to_owned(),
                "make it with `param` of the graph that the node is in",
            );
        }
        let Some(index) = index_of(kernel, name) else {
            let names: Vec<_> = kernel.params().iter().map(|param| &*param.name).collect();
            let (kernel, names) = (kernel.name(), names.join(", "));
            let why = format!("kernel '{kernel}' has no argument '{name}': its arguments are {names}");
            return invalid(why, "bind the parameter to an argument by its declared name");
        };
        if kernel.types().get(index) != Some(&param.of) {
            let declared = kernel.types().get(index).map(ToString::to_string).unwrap_or_default();
            let (kernel, given) = (kernel.name(), param.of);
            let why = format!(
                "argument '{name}' of kernel '{kernel}' is of type {declared}, and the dynamic parameter \
                 holds {given}"
            );
            return invalid(why, "make the parameter with a value of the argument's type");
        }
        Ok(Self { name: kernel.params()[index].name.clone(), param: param.clone() })
    }

    /// The error where the node is not a kernel.
    pub(super) fn not_a_kernel(kind: CommandKind) -> Error {
        let why = format!("only kernels have parameters, and the node is: {kind}");
        Error::new(ErrorKind::InvalidArgument, why).help("bind the parameter to a kernel")
    }

    /// The call with `value` for the argument, if that changes it. A kernel that has taken the place
    /// of the one with the argument may have none of that name and type.
    pub(crate) fn assign(&self, call: &KernelCall, value: &CallArg) -> Option<KernelCall> {
        let index = index_of(&call.kernel, &self.name)?;
        let fits = call.kernel.types().get(index) == Some(&self.param.of);
        let is_new = call.args.get(index).is_some_and(|old| !old.is(value));
        (fits && is_new).then(|| call.with_arg(index, value.clone()))
    }
}

fn index_of(kernel: &KernelRef, name: &str) -> Option<usize> {
    kernel.params().iter().position(|param| param.name == name)
}
