//! Kernels as users write and launch them.
//!
//! [`kernel!`](crate::kernel!) declares a signature once and makes a function of it, whose call is
//! a [`KernelCall`]: the compiler checks every launch, and access modes come from `&` and `&mut`. Most
//! programs need nothing else. A [`RawKernel`] is for signatures that are known only at run time: from a
//! plug-in, a script, a model file. A [`RangeBound`] is for kernels whose range does not follow from the
//! length of a slice. [`compile_all`] loads kernels before a service opens its port, and a [`KernelCache`]
//! keeps what compilers made for the next start.
//!
//! ```
//! use wakegraph::kernel::{KernelCall, RangeBound};
//! use wakegraph::{Buffer, Device, Graph, Range};
//!
//! wakegraph::kernel! {
//!     fn add_pairs(x: &[u32], y: &mut [u32]) {
//!         range: |x, y| RangeBound::from((x.len() / 2).min(y.len())),
//!         item: |i, x, y| y[i] = x[2 * i] + x[2 * i + 1],
//!     }
//! }
//!
//! /// One step of a sum: a function of one's own around the call.
//! fn step(from: &Buffer<u32>, to: &Buffer<u32>) -> (KernelCall, Range) {
//!     (add_pairs(from, to), Range::linear(to.len()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> wakegraph::Result<()> {
//! let device = Device::open("host")?;
//! let (x, y) = (device.buffer_from(&[1u32, 2, 3, 4])?, device.buffer::<u32>(2)?);
//! let mut graph = Graph::new(&device);
//! let (call, range) = step(&x, &y);
//! graph.launch(call, range);
//! graph.finalize()?.submit().await?;
//! assert_eq!(y.to_vec().await?, [3, 7]);
//! # Ok(())
//! # }
//! ```

pub(crate) mod argument;
mod bound;
mod call;
mod declare;
mod expand;
pub(crate) mod load;
mod parse;
mod raw;

use std::sync::Arc;

#[doc(hidden)]
pub use argument::ParamType;
pub use argument::{ByValue, Element};
pub use bound::{BoundArgs, SliceLen};
use bound::{BoundRule, RangeForm};
#[doc(hidden)]
pub use call::CallArg;
pub use call::KernelCall;
pub use load::compile_all;
pub use raw::{RawCall, RawKernel};
use wakegraph_hal::{self as hal, KernelDesc, Range, Result};
#[doc(hidden)]
pub use wakegraph_hal::{Block, BlockCode, BlockFn, BlockUnit, CpuLevel, Row};
pub use wakegraph_hal::{HostArgs, KernelCache, KernelSources, Param, ParamKind, Part, RangeBound};

use crate::runtime::resource::device::{Device, KernelPlace};
use crate::runtime::resource::kernel_explanation::KernelExplanation;

/// A kernel's declaration: name, parameters, code. The `kernel!` macro makes one, a static.
#[derive(Debug)]
pub struct KernelDef {
    name: &'static str,
    params: Box<[Param]>,
    types: Box<[ParamType]>,
    sources: KernelSources,
    bound: BoundRule,
    form: RangeForm,
}

#[doc(hidden)]
impl KernelDef {
    pub fn new(name: &'static str, params: Box<[Param]>, types: Box<[ParamType]>) -> Self {
        let (bound, form) = (BoundRule::default(), RangeForm::default());
        Self { name, params, types, sources: KernelSources::new(), bound, form }
    }

    pub fn host(
        mut self,
        code: impl Fn(&Range, &mut HostArgs<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.sources = self.sources.host(code);
        self
    }

    /// Sets the code to one that runs in blocks. Comes after the bound.
    pub fn blocks(mut self, code: BlockCode) -> Self {
        self.form.set_unit(code.unit());
        if code.dimensions() > 0 {
            self.form.set_item_dimensions(code.dimensions());
        }
        self.bound = self.bound.or_of(code.unit());
        self.sources = self.sources.host_blocks(code);
        self
    }

    pub fn item_dimensions(mut self, dimensions: usize) -> Self {
        self.form.set_item_dimensions(dimensions);
        self
    }

    pub fn range_bound(
        self,
        bound: impl Fn(&mut BoundArgs<'_>) -> Result<RangeBound> + Send + Sync + 'static,
    ) -> Self {
        Self { bound: BoundRule::declared(bound), ..self }
    }

    /// Adds device code.
    ///
    /// # Safety
    /// As for [`RawKernel::with_c`].
    #[expect(unsafe_code, reason = "who declares device code vouches for it")]
    pub unsafe fn device(mut self, code: impl FnOnce(KernelSources) -> KernelSources) -> Self {
        self.sources = code(self.sources);
        self.form.set_sources(self.name, &self.sources);
        self
    }
}

/// A kernel of either kind, as graphs hold it.
#[derive(Clone, Debug)]
pub(crate) enum KernelRef {
    Declared(&'static KernelDef),
    Raw(Arc<RawKernel>),
}

impl KernelRef {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Declared(def) => def.name,
            Self::Raw(raw) => raw.name(),
        }
    }

    pub(crate) fn params(&self) -> &[Param] {
        match self {
            Self::Declared(def) => &def.params,
            Self::Raw(raw) => raw.params(),
        }
    }

    /// The Rust types of the parameters.
    pub(crate) fn types(&self) -> &[ParamType] {
        match self {
            Self::Declared(def) => &def.types,
            Self::Raw(raw) => raw.types(),
        }
    }

    fn bound(&self) -> &BoundRule {
        match self {
            Self::Declared(def) => &def.bound,
            Self::Raw(raw) => raw.bound(),
        }
    }

    fn form(&self) -> &RangeForm {
        match self {
            Self::Declared(def) => &def.form,
            Self::Raw(raw) => raw.form(),
        }
    }

    /// Whether both are the same kernel, not only equal ones.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.address() == other.address()
    }

    /// Tells kernels apart while they live.
    pub(crate) fn address(&self) -> usize {
        match self {
            Self::Declared(def) => std::ptr::from_ref(*def).addr(),
            Self::Raw(raw) => Arc::as_ptr(raw).addr(),
        }
    }

    /// Whether its code for the CPU runs in blocks.
    pub(crate) fn runs_in_blocks(&self) -> bool {
        self.form().runs_in_blocks()
    }

    /// Whether a launch on the device can be ended before all of it has run.
    pub(crate) fn can_be_stopped(&self, device: &Device) -> bool {
        self.runs_in_blocks() && self.on(device).is_ok_and(|kernel| kernel.can_be_stopped())
    }

    /// The kernel as loaded on `device`, from the cache if it is there. Of several threads that ask at once,
    /// one loads it, and the others wait for it.
    pub(crate) fn on(&self, device: &Device) -> Result<Arc<dyn hal::Kernel>> {
        let place = self.place(device);
        place
            .get_or_make(|| self.describe(|desc| load::load(device, desc)))
            .map(|loaded| loaded.kernel.clone())
    }

    /// Place of the kernel as `device` has loaded it.
    fn place(&self, device: &Device) -> Arc<KernelPlace> {
        match self {
            Self::Declared(def) => def.place(device),
            Self::Raw(raw) => raw.place(device),
        }
    }

    /// Where `device` has its code from, if it has loaded the kernel.
    pub(crate) fn explain(&self, device: &Device) -> Option<Arc<KernelExplanation>> {
        self.place(device).get().map(|loaded| loaded.explanation.clone())
    }

    /// Calls `load` with what a device needs to load the kernel.
    fn describe<R>(&self, load: impl FnOnce(&KernelDesc<'_>) -> R) -> R {
        match self {
            Self::Declared(def) => def.describe(load),
            Self::Raw(raw) => raw.describe(load),
        }
    }
}

impl KernelDef {
    /// Place of the kernel among those of `device`.
    fn place(&'static self, device: &Device) -> Arc<KernelPlace> {
        let address = std::ptr::from_ref(self) as usize;
        let known = device.loaded_kernels().get(&address).map(|place| place.clone());
        known.unwrap_or_else(|| device.loaded_kernels().entry(address).or_default().clone())
    }

    /// Calls `load` with what a device needs to load the kernel.
    pub(crate) fn describe<R>(&self, load: impl FnOnce(&KernelDesc<'_>) -> R) -> R {
        load(&KernelDesc { name: self.name, params: &self.params, sources: &self.sources })
    }
}
