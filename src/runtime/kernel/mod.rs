//! Kernels as users write and launch them.
//!
//! [`kernel!`](crate::kernel!) declares a signature once and makes a function of it, whose call is a [`KernelCall`]:
//! the compiler checks every launch, and access modes come from `&` and `&mut`. [`RawKernel`] is the same for
//! signatures that are known only at run time.

mod argument;
mod call;
mod declare;
mod raw;

use std::borrow::Cow;
use std::sync::{Arc, Weak};

pub use argument::{ByValue, Local};
#[doc(hidden)]
pub use call::CallArg;
pub use call::KernelCall;
pub use raw::{RawCall, RawKernel};

pub use crate::hal::{HostArgs, Param, ParamKind};
use crate::hal::{HostFn, KernelDesc, KernelSources};
use crate::types::{Range, Result};

/// A kernel's declaration: name, parameters, code. The `kernel!` macro makes one, a static.
#[derive(Debug)]
pub struct KernelDef {
    name: &'static str,
    params: &'static [Param],
    host: fn(&Range, &mut HostArgs<'_>) -> Result<()>,
    c: Option<&'static str>,
}

impl KernelDef {
    #[doc(hidden)]
    pub const fn new(
        name: &'static str,
        params: &'static [Param],
        host: fn(&Range, &mut HostArgs<'_>) -> Result<()>,
        c: Option<&'static str>,
    ) -> Self {
        Self { name, params, host, c }
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
            Self::Declared(def) => def.params,
            Self::Raw(raw) => raw.params(),
        }
    }

    /// Equal for the same kernel, different for any two that live at the same time.
    pub(crate) fn address(&self) -> usize {
        match self {
            Self::Declared(def) => std::ptr::from_ref::<KernelDef>(def) as usize,
            Self::Raw(raw) => Arc::as_ptr(raw) as usize,
        }
    }

    pub(crate) fn anchor(&self) -> KernelAnchor {
        match self {
            Self::Declared(_) => KernelAnchor::Static,
            Self::Raw(raw) => KernelAnchor::Raw(Arc::downgrade(raw)),
        }
    }

    /// Calls `load` with what a device needs to load the kernel.
    pub(crate) fn describe<R>(&self, load: impl FnOnce(&KernelDesc<'_>) -> R) -> R {
        match self {
            Self::Declared(def) => {
                let sources =
                    KernelSources { host: Some(Arc::new(def.host) as HostFn), c: def.c.map(Cow::Borrowed) };
                load(&KernelDesc { name: def.name, params: def.params, sources: &sources })
            }
            Self::Raw(raw) => {
                load(&KernelDesc { name: raw.name(), params: raw.params(), sources: raw.sources() })
            }
        }
    }
}

/// Keeps a kernel's address from being reused, without keeping the kernel.
#[derive(Debug)]
pub(crate) enum KernelAnchor {
    Static,
    Raw(Weak<RawKernel>),
}

impl KernelAnchor {
    pub(crate) fn is_alive(&self) -> bool {
        match self {
            Self::Static => true,
            Self::Raw(raw) => raw.strong_count() > 0,
        }
    }
}
