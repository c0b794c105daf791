//! The backend's own kernels, in PTX. Each is loaded when it is first used.
#![expect(unsafe_code, reason = "passes addresses to kernels")]

use std::sync::Arc;

use super::device_inner::CudaDeviceInner;
use super::kernel::CudaKernel;
use super::launch::CudaLaunch;
use crate::hal::{
    Kernel, KernelArg, KernelDesc, KernelLaunch, KernelSources, Param, ParamKind, UsmPointer, ValueBytes,
};
use crate::types::AccessMode::{self, Read, ReadWrite, Write};
use crate::types::{Range, Result};

/// A kernel of the backend's own.
#[derive(Clone, Copy, Debug)]
pub(super) enum BuiltinKernel {
    /// Repeats a pattern of any length over memory.
    Fill,
    /// Repeats a word over memory, as a memset node does.
    Set,
    /// Decides about a conditional node by a word in memory.
    Condition,
    /// Counts a finished run in a completion counter.
    Count,
}

/// A builtin kernel's name, code and parameters.
type Declaration = (&'static str, &'static str, &'static [(&'static str, ParamKind)]);

const fn memory(access: AccessMode, element: usize) -> ParamKind {
    ParamKind::Buffer { access, element_size: element, element_align: element }
}

const TARGET: ParamKind = memory(Write, 1);
const PATTERN: ParamKind = memory(Read, 1);
const WORD: ParamKind = memory(Read, 4);
const COUNTER: ParamKind = memory(ReadWrite, 8);
const U32: ParamKind = ParamKind::Value { size: 4 };
const U64: ParamKind = ParamKind::Value { size: 8 };

impl BuiltinKernel {
    fn declaration(self) -> Declaration {
        match self {
            Self::Fill => (
                "wakegraph_fill",
                include_str!("fill.ptx"),
                &[("memory", TARGET), ("len", U64), ("pattern", PATTERN), ("pattern_len", U64)],
            ),
            Self::Set => {
                ("wakegraph_set", include_str!("set.ptx"), &[("memory", TARGET), ("len", U64), ("word", U32)])
            }
            Self::Condition => (
                "wakegraph_condition",
                include_str!("condition.ptx"),
                &[("handle", U64), ("word", WORD), ("inverted", U32)],
            ),
            Self::Count => {
                ("wakegraph_count", include_str!("count.ptx"), &[("runs", COUNTER), ("seen", COUNTER)])
            }
        }
    }

    /// A launch of this kernel over so many work-items. The caller has bound the context.
    pub(super) fn launch(
        self,
        device: &CudaDeviceInner,
        args: impl Into<Vec<KernelArg>>,
        items: usize,
    ) -> Result<CudaLaunch> {
        let (kernel, args) = (self.get(device)?, args.into());
        CudaLaunch::of(
            device,
            &KernelLaunch { kernel, args, range: Range::linear(items), alternatives: Vec::new() },
        )
    }

    fn get(self, device: &CudaDeviceInner) -> Result<Arc<dyn Kernel>> {
        let loaded = &device.builtin_kernels[self as usize];
        if let Some(kernel) = loaded.get() {
            return Ok(Arc::clone(kernel));
        }
        let (name, ptx, params) = self.declaration();
        let params: Vec<_> =
            params.iter().map(|(name, kind)| Param { name: (*name).into(), kind: kind.clone() }).collect();
        let sources = KernelSources::new().ptx(ptx);
        let kernel =
            Arc::new(CudaKernel::load(device, &KernelDesc { name, params: &params, sources: &sources })?);
        Ok(Arc::clone(loaded.get_or_init(|| kernel)))
    }
}

/// An argument of 4 bytes.
pub(super) fn u32_arg(number: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&number.to_ne_bytes()))
}

/// An argument of 8 bytes.
pub(super) fn u64_arg(number: u64) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&number.to_ne_bytes()))
}

/// The address of memory that the launched command uses, or that the device keeps for good.
pub(super) fn address_arg(address: u64, len: usize) -> KernelArg {
    // SAFETY: a command's memory is valid as long as its operands are.
    KernelArg::Usm(unsafe { UsmPointer::new(address as usize, len) })
}
