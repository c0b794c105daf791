//! Kernels whose signature is known only at run time.

use std::borrow::Cow;
use std::sync::Arc;

use bytemuck::Pod;
use parking_lot::Mutex;
use wakegraph_hal::{
    AccessMode, HostArgs, KernelDesc, KernelSources, Param, ParamKind, Range, RangeBound, Result,
};

use crate::runtime::resource::device::{Device, KernelPlace, WeakDevice};
use crate::runtime::resource::kernel::bound::{BoundArgs, BoundRule, RangeForm};
use crate::runtime::resource::kernel::call::{CallArg, KernelCall};
use crate::runtime::resource::kernel::{ByValue, KernelRef, ParamType};
use crate::runtime::resource::memory_arg::MemoryArg;

/// A kernel whose signature is known only at run time: from a plug-in, a script, a model file.
///
/// ```
/// use wakegraph::{Device, Graph, Range, kernel::RawKernel};
/// # fn main() -> wakegraph::Result<()> {
/// let scale = RawKernel::new("scale").value::<f32>("factor").writes::<f32>("data").host(|range, args| {
///     let (factor, data) = (args.value::<f32>()?, args.write::<f32>()?);
///     data[range.indices()].iter_mut().for_each(|x| *x *= factor);
///     Ok(())
/// });
/// let device = Device::open("host")?;
/// let data = device.buffer::<f32>(16)?;
/// let mut graph = Graph::new(&device);
/// graph.launch(scale.call().value(2.0f32).memory::<f32>(&data), Range::linear(16));
/// # graph.finalize()?; Ok(())
/// # }
/// ```
///
/// Once it is [built](Self::build) its declaration stays as it is, so that its author can vouch for the
/// device code: there is no copy of it to be given another bound.
///
/// ```compile_fail,E0308
/// # use std::sync::Arc;
/// # use wakegraph::kernel::RawKernel;
/// fn copied(kernel: &Arc<RawKernel>) -> RawKernel {
///     kernel.as_ref().clone()
/// }
/// ```
#[derive(Debug)]
pub struct RawKernel {
    name: String,
    params: Vec<Param>,
    types: Vec<ParamType>,
    sources: KernelSources,
    bound: BoundRule,
    form: RangeForm,
    loaded: Loaded,
}

impl RawKernel {
    /// A kernel of this name without parameters.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            params: Vec::new(),
            types: Vec::new(),
            sources: KernelSources::default(),
            bound: BoundRule::default(),
            form: RangeForm::default(),
            loaded: Loaded::default(),
        }
    }

    /// Adds a parameter passed by value, a `Pod` type or
    /// [`Local`](crate::Local) memory.
    #[must_use]
    pub fn value<T: ByValue>(self, name: impl Into<String>) -> Self {
        self.param(name, T::KIND, ParamType::of::<T>())
    }

    /// Adds memory of `T`s that the kernel reads.
    #[must_use]
    pub fn reads<T: Pod>(self, name: impl Into<String>) -> Self {
        self.memory::<T>(name, AccessMode::Read)
    }

    /// Adds memory of `T`s that the kernel reads and writes.
    #[must_use]
    pub fn writes<T: Pod>(self, name: impl Into<String>) -> Self {
        self.memory::<T>(name, AccessMode::ReadWrite)
    }

    /// Adds source in the [portable C dialect](wakegraph_hal::dialect), where the kernel has the name that
    /// it has here.
    ///
    /// # Safety
    /// The code keeps the [contract of device code](crate::kernel!#device-code), over every range
    /// within the kernel's [bound](Self::range_bound). That counts with the parameters and the bound that the
    /// kernel has when it is [built](Self::build), by whomever.
    #[expect(unsafe_code, reason = "who declares device code vouches for it")]
    #[must_use]
    pub unsafe fn with_c(mut self, source: impl Into<Cow<'static, str>>) -> Self {
        self.sources = self.sources.c(source);
        self
    }

    /// Replaces the code by these variants.
    ///
    /// # Safety
    /// As for [`with_c`](Self::with_c), each of them.
    #[expect(unsafe_code, reason = "who declares device code vouches for it")]
    #[must_use]
    pub unsafe fn with_sources(self, sources: KernelSources) -> Self {
        Self { sources, ..self }
    }

    /// Declares the bound on the range: a closure that reads its arguments one after the other, in
    /// the order of the parameters. Without one, the bound is the length of the shortest slice, in
    /// one dimension.
    ///
    /// ```
    /// use wakegraph::kernel::{RangeBound, RawKernel};
    /// let kernel = RawKernel::new("rows").value::<u32>("width").reads::<f32>("image").range_bound(|args| {
    ///     let (width, image) = (args.value::<u32>()? as usize, args.slice()?);
    ///     Ok(RangeBound::from([width, image.len() / width.max(1)]))
    /// });
    /// ```
    #[must_use]
    pub fn range_bound(
        self,
        bound: impl Fn(&mut BoundArgs<'_>) -> Result<RangeBound> + Send + Sync + 'static,
    ) -> Self {
        Self { bound: BoundRule::declared(bound), ..self }
    }

    /// Ends the declaration with the code for the host: a closure that reads its arguments one
    /// after the other, in the order of the parameters, and sees the whole launch at once.
    pub fn host(
        mut self,
        code: impl Fn(&Range, &mut HostArgs<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        self.sources = self.sources.host(code);
        self.build()
    }

    /// Ends the declaration of a kernel that has device code only.
    pub fn build(mut self) -> Arc<Self> {
        self.form.set_sources(&self.name, &self.sources);
        Arc::new(self)
    }

    /// Starts a call; the arguments follow in the order of the parameters.
    pub fn call(self: &Arc<Self>) -> RawCall {
        RawCall { kernel: self.clone(), args: Vec::new() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn bound(&self) -> &BoundRule {
        &self.bound
    }

    pub(super) fn form(&self) -> &RangeForm {
        &self.form
    }

    pub(crate) fn params(&self) -> &[Param] {
        &self.params
    }

    pub(super) fn types(&self) -> &[ParamType] {
        &self.types
    }

    /// Place of the kernel as `device` has loaded it.
    pub(super) fn place(&self, device: &Device) -> Arc<KernelPlace> {
        self.loaded.place(device)
    }

    /// Calls `load` with what a device needs to load the kernel.
    pub(super) fn describe<R>(&self, load: impl FnOnce(&KernelDesc<'_>) -> R) -> R {
        load(&KernelDesc { name: &self.name, params: &self.params, sources: &self.sources })
    }

    fn memory<T: Pod>(self, name: impl Into<String>, access: AccessMode) -> Self {
        let kind = ParamKind::Buffer { access, element_size: size_of::<T>(), element_align: align_of::<T>() };
        self.param(name, kind, ParamType::of::<[T]>())
    }

    fn param(mut self, name: impl Into<String>, kind: ParamKind, of_type: ParamType) -> Self {
        self.params.push(Param { name: name.into().into(), kind });
        self.types.push(of_type);
        self
    }
}

/// A call of a [`RawKernel`] in preparation. Whether the arguments fit is checked by `graph.launch`.
#[derive(Clone, Debug)]
pub struct RawCall {
    kernel: Arc<RawKernel>,
    args: Vec<CallArg>,
}

impl RawCall {
    /// The next argument, by value.
    #[must_use]
    pub fn value<T: ByValue>(mut self, value: T) -> Self {
        self.args.push(CallArg::Value(value.to_arg()));
        self
    }

    /// The next argument, memory.
    #[must_use]
    pub fn memory<T>(mut self, memory: impl MemoryArg<T>) -> Self {
        self.args.push(CallArg::Memory(memory.operand()));
        self
    }
}

impl From<RawCall> for KernelCall {
    fn from(call: RawCall) -> Self {
        Self::of(KernelRef::Raw(call.kernel), call.args.into())
    }
}

/// A kernel's loaded forms, one for each device. They live with the kernel and not with the
/// devices, so that what its closure has captured is freed with it.
#[derive(Debug, Default)]
struct Loaded(Mutex<Vec<(WeakDevice, Arc<KernelPlace>)>>);

impl Loaded {
    fn place(&self, device: &Device) -> Arc<KernelPlace> {
        let mut loaded = self.0.lock();
        if let Some((_, place)) = loaded.iter().find(|(known, _)| known.is(device)) {
            return place.clone();
        }
        loaded.retain(|(known, _)| !known.is_gone());
        let place = Arc::<KernelPlace>::default();
        loaded.push((device.downgrade(), place.clone()));
        place
    }
}
