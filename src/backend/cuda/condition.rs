//! What decides about conditional nodes: a kernel that reads a word and sets a handle.

use super::device::Shared;
use super::kernel::CudaKernel;
use super::launch::Launch;
use super::lower::{lower_kernel, target};
use super::place::Handle;
use crate::hal::{KernelArg, KernelDesc, KernelLaunch, KernelSources, Param, ParamKind, ValueBytes};
use crate::types::{AccessMode, Range, Result};

/// The launch that sets `handle` to whether the word at `address` is not 0; the opposite if `inverted`.
pub(super) fn set(shared: &Shared, handle: Handle, address: u64, inverted: bool) -> Result<Launch> {
    let launch = KernelLaunch {
        kernel: shared.condition_kernel()?,
        args: vec![
            KernelArg::Value(ValueBytes::from_slice(&handle.to_ne_bytes())),
            KernelArg::Usm(target(address, size_of::<u32>())),
            KernelArg::Value(ValueBytes::from_slice(&u32::from(inverted).to_ne_bytes())),
        ],
        range: Range::linear(1),
        alternatives: Vec::new(),
    };
    lower_kernel(shared, &launch)
}

/// The kernel of [`set`].
pub(super) fn load_kernel(shared: &Shared) -> Result<CudaKernel> {
    let word = ParamKind::Buffer { access: AccessMode::Read, element_size: 4, element_align: 4 };
    let params = [
        Param { name: "handle".into(), kind: ParamKind::Value { size: 8 } },
        Param { name: "word".into(), kind: word },
        Param { name: "inverted".into(), kind: ParamKind::Value { size: 4 } },
    ];
    let sources = KernelSources::new().ptx(include_str!("condition.ptx"));
    CudaKernel::load(shared, &KernelDesc { name: "wakegraph_condition", params: &params, sources: &sources })
}
