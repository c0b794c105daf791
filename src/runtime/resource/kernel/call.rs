//! A kernel with its arguments: what `graph.launch` takes.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::{
    Access, AccessMode, Bytes, Error, ErrorKind, KernelArg, Param, ParamKind, Range, RangeBound, Result,
};

use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::KernelRef;
use crate::runtime::resource::memory_arg::Operand;
use crate::runtime::resource::raw_memory;

/// A kernel with its arguments, made by calling the function that [`kernel!`](crate::kernel!) declares.
#[derive(Clone, Debug)]
pub struct KernelCall {
    pub(crate) kernel: KernelRef,
    pub(crate) args: CallArgs,
    /// Computed when the arguments are known, so that no code of the user's runs later, under locks.
    bound: Result<RangeBound>,
}

/// The arguments of a call. A few need no allocation of their own.
pub(super) type CallArgs = SmallVec<[CallArg; 3]>;

/// One argument.
#[derive(Clone, Debug)]
pub enum CallArg {
    #[doc(hidden)]
    Value(KernelArg),
    #[doc(hidden)]
    Memory(Operand),
}

impl CallArg {
    /// Whether both are the same bytes, or the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(KernelArg::Value(one)), Self::Value(KernelArg::Value(other))) => one == other,
            (Self::Value(KernelArg::Local(one)), Self::Value(KernelArg::Local(other))) => one == other,
            (Self::Memory(Operand(one)), Self::Memory(Operand(other))) => {
                let same_place = (one.offset, one.len) == (other.offset, other.len);
                same_place && Arc::ptr_eq(&one.allocation, &other.allocation)
            }
            _ => false,
        }
    }

    /// The argument for a kernel on `device`. Of memory without elements it is a null pointer.
    #[inline]
    pub(crate) fn to_hal(&self, device: &Device) -> Result<KernelArg> {
        match self {
            Self::Value(value) => Ok(value.clone()),
            Self::Memory(Operand(view)) if view.is_empty() => Ok(KernelArg::Usm(raw_memory::null())),
            Self::Memory(Operand(view)) => match view.pointer().filter(|_| view.is_raw()) {
                Some(pointer) => view.check_address(device).map(|()| KernelArg::Usm(pointer)),
                None => view.to_hal().map(KernelArg::Memory),
            },
        }
    }
}

impl fmt::Display for CallArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Memory(operand) => write!(f, "memory of {}", Bytes(operand.0.len)),
        }
    }
}

impl KernelCall {
    #[doc(hidden)]
    pub fn new<const N: usize>(
        kernel: &'static crate::runtime::resource::kernel::KernelDef,
        args: [CallArg; N],
    ) -> Self {
        // Made in its place: it is large, and an update makes many.
        let kernel = KernelRef::Declared(kernel);
        let mut call = Self { kernel, args: CallArgs::with_capacity(N), bound: Ok(RangeBound::ANY) };
        args.into_iter().for_each(|arg| call.args.push(arg));
        call.bound = call.kernel.bound().apply(call.kernel.params(), &call.args);
        call
    }

    #[inline]
    pub(super) fn of(kernel: KernelRef, args: CallArgs) -> Self {
        let bound = kernel.bound().apply(kernel.params(), &args);
        Self { kernel, args, bound }
    }

    /// Returns the same call with another argument at `index`, and the bound that the kernel declares
    /// for its arguments. Calls the bound's closure, which is the user's, so the caller holds no lock.
    pub(crate) fn with_arg(&self, index: usize, arg: CallArg) -> Self {
        let mut args = self.args.clone();
        if let Some(place) = args.get_mut(index) {
            *place = arg;
        }
        Self::of(self.kernel.clone(), args)
    }

    /// Replaces the bound on the range that the kernel declares by another one; with
    /// [`RangeBound::ANY`] by none. It holds for the launch that this call becomes, and for later
    /// updates of that node's range, as long as its arguments stay: with a new value of a
    /// [`DynamicParam`](crate::update::DynamicParam), the kernel's own bound holds again.
    ///
    /// ```
    /// # #![allow(unsafe_code)]
    /// use wakegraph::{Device, Graph, Range};
    ///
    /// wakegraph::kernel! {
    ///     /// x = 0 at every second place
    ///     fn clear_even(x: &mut [f32]) {
    ///         item: |i, x| x[2 * i] = 0.0,
    ///     }
    /// }
    /// # fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let x = device.buffer::<f32>(8)?;
    /// // SAFETY: with 8 elements, indices below 4 lead to places inside.
    /// let call = unsafe { clear_even(&x).with_range_bound([4]) };
    /// Graph::new(&device).launch(call, Range::linear(4));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// The kernel's device code keeps its [contract](crate::kernel!#device-code) over every range
    /// within `bound`, with these arguments.
    #[expect(unsafe_code, reason = "the caller vouches for the bound instead of the kernel's author")]
    #[must_use]
    pub unsafe fn with_range_bound(self, bound: impl Into<RangeBound>) -> Self {
        Self { bound: Ok(bound.into()), ..self }
    }

    /// The launch over `range` for people: the kernel, and each argument on a line of its own.
    pub(crate) fn describe(&self, range: &Range) -> String {
        let params = self.kernel.params().iter().zip(self.kernel.types());
        let args = params.zip(&self.args).map(|((param, of_type), arg)| match arg {
            CallArg::Value(KernelArg::Value(bytes)) => {
                format!("\n{}: {of_type} = {}", param.name, of_type.display(bytes))
            }
            CallArg::Memory(_) => format!("\n{}: {of_type} = {arg}", param.name),
            CallArg::Value(_) => format!("\n{} = {arg}", param.name),
        });
        format!("{} over {range}{}", self.kernel.name(), args.collect::<String>())
    }

    /// Whether the kernel may be launched over the range with these arguments.
    ///
    /// # Errors
    /// `InvalidSize` when it may not; the error of the bound's own closure.
    pub(crate) fn check_range(&self, range: &Range) -> Result<()> {
        let bound = self.bound.as_ref().map_err(Clone::clone)?;
        let name = self.kernel.name();
        if bound.allows(range) {
            let Some((why, help)) = self.kernel.form().fault(self.kernel.params(), &self.args, range) else {
                return Ok(());
            };
            let why = format!("kernel '{name}' cannot be launched over {range}: {why}");
            return Err(Error::new(ErrorKind::InvalidSize, why).help(help));
        }
        let why =
            format!("kernel '{name}' cannot be launched over {range}: the bound on its range is {bound}");
        let help = match self.kernel.bound().is_declared() {
            true => {
                "launch it over a smaller range, or with longer slices; the kernel's declaration computes \
                 the bound"
            }
            false => {
                "the bound is the length of the shortest slice, in one dimension unless its code is `each:`: \
                 launch it over a smaller range or with longer slices, or declare another bound (`range:` in \
                 `kernel!`, `RawKernel::range_bound`)"
            }
        };
        Err(Error::new(ErrorKind::InvalidSize, why).help(help))
    }

    /// The accesses of its memory arguments, in the order of the parameters.
    ///
    /// # Errors
    /// `InvalidArgument` when their number or kinds do not fit the parameters (of a raw kernel), or
    /// when a written argument overlaps another one: the kernel would get two references to the
    /// same memory.
    pub(crate) fn accesses(&self) -> Result<Vec<Access>> {
        let mut accesses = Vec::new();
        self.check_memory(|view, mode| accesses.push(view.access(mode)))?;
        Ok(accesses)
    }

    /// Passes the memory of each argument to `each`, with what the kernel does to it.
    ///
    /// # Errors
    /// As [`accesses`](Self::accesses).
    pub(crate) fn check_memory(&self, mut each: impl FnMut(&View, AccessMode)) -> Result<()> {
        let params = self.kernel.params();
        if params.len() != self.args.len() {
            let (takes, given) = (params.len(), self.args.len());
            let names: Vec<_> = params.iter().map(|param| &*param.name).collect();
            let names = names.join(", ");
            return Err(self.invalid(format!("takes {takes} arguments ({names}), {given} were given")));
        }
        let mut touched: SmallVec<[(&Param, Access); 4]> = SmallVec::new();
        for (param, arg) in params.iter().zip(&self.args) {
            if let Some((view, mode)) = self.check(param, arg)? {
                let access = view.touched(mode);
                for (other, earlier) in &touched {
                    if earlier.conflicts_with(&access) {
                        let (first, second) = (&other.name, &param.name);
                        return Err(self
                            .invalid(format!(
                                "gets overlapping memory for '{first}' and '{second}', one of which it writes"
                            ))
                            .help("pass disjoint buffers or slices"));
                    }
                }
                touched.push((param, access));
                each(view, mode);
            }
        }
        Ok(())
    }

    /// Whether the two differ in the bytes of values at most, so that this one fits the parameters, and
    /// accesses the same memory, if the other one does.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let is_alike = |(one, other): (&CallArg, &CallArg)| match (one, other) {
            (CallArg::Value(KernelArg::Value(one)), CallArg::Value(KernelArg::Value(other))) => {
                one.len() == other.len()
            }
            _ => one.is(other),
        };
        self.kernel.is(&other.kernel)
            && self.args.len() == other.args.len()
            && self.args.iter().zip(&other.args).all(is_alike)
    }

    /// The accesses with their allocations; none for arguments that do not fit.
    pub(crate) fn accesses_with_allocations(&self) -> Vec<(Arc<Allocation>, Access)> {
        let accesses = self.accesses().unwrap_or_default().into_iter();
        let with_allocation = |access: Access| {
            let mut allocations = self.views().map(View::allocation);
            let of = allocations.find(|allocation| allocation.memory().resource() == access.resource)?;
            Some((of.clone(), access))
        };
        accesses.filter_map(with_allocation).collect()
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = &View> {
        self.args.iter().filter_map(|arg| match arg {
            CallArg::Memory(operand) => Some(&operand.0),
            CallArg::Value(_) => None,
        })
    }

    /// The arguments for a launch on `device`.
    pub(crate) fn to_hal(&self, device: &Device) -> Result<Vec<KernelArg>> {
        let mut args = Vec::with_capacity(self.args.len());
        for arg in &self.args {
            args.push(arg.to_hal(device)?);
        }
        Ok(args)
    }

    /// The memory of an argument that fits its parameter, and how the kernel uses it.
    fn check<'a>(&self, param: &Param, arg: &'a CallArg) -> Result<Option<(&'a View, AccessMode)>> {
        match (&param.kind, arg) {
            (ParamKind::Buffer { access, element_size, .. }, CallArg::Memory(operand)) => {
                if !operand.0.len.is_multiple_of((*element_size).max(1)) {
                    let why = format!(
                        "gets {} for '{}', which are not whole elements of {}",
                        Bytes(operand.0.len),
                        param.name,
                        Bytes(*element_size)
                    );
                    return Err(self.invalid(why));
                }
                operand.0.check_mode(*access).map_err(|error| {
                    let (name, kernel) = (&param.name, self.kernel.name());
                    error.with_note(&format!("as argument '{name}' of kernel '{kernel}' is"))
                })?;
                Ok(Some((&operand.0, *access)))
            }
            (ParamKind::Value { size }, CallArg::Value(KernelArg::Value(bytes))) if bytes.len() == *size => {
                Ok(None)
            }
            (ParamKind::Local { .. }, CallArg::Value(KernelArg::Local(_))) => Ok(None),
            _ => {
                let why = format!("gets {arg} for '{}', which takes {}", param.name, param.kind);
                Err(self.invalid(why).help("pass the arguments in the order of the parameters"))
            }
        }
    }

    fn invalid(&self, why: String) -> Error {
        Error::new(ErrorKind::InvalidArgument, format!("kernel '{}' {why}", self.kernel.name()))
    }
}
