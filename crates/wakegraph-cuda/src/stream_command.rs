//! Single commands that a stream takes as they are, without a graph around them.
#![expect(unsafe_code, reason = "calls the driver")]

use std::sync::Arc;

use wakegraph_hal::support::copy_box::CopyBox;
use wakegraph_hal::support::fill_row::FillRow;
use wakegraph_hal::{Command, MemoryKind, Result};

use super::device_inner::CudaDeviceInner;
use super::launch::CudaLaunch;
use super::memory::CudaMemory;
use super::stream::CudaStream;
use super::sys::{CudaFailure, call};
use super::transfer::copy_params;

/// One call of the driver.
#[derive(Debug)]
pub(super) enum StreamCommand {
    Kernel(CudaLaunch),
    Copy(CopyBox),
    Fill(FillRow),
}

impl StreamCommand {
    /// The call that does what the command says, if there is one. The caller has bound the context.
    pub(super) fn of(device: &Arc<CudaDeviceInner>, command: &Command) -> Result<Option<Self>> {
        Ok(match command {
            Command::Kernel(launch) => Some(Self::Kernel(CudaLaunch::of(device, launch)?)),
            Command::BufferFill { dst, pattern } => {
                FillRow::of(CudaMemory::address_of(dst)?, dst.len(), pattern).map(Self::Fill)
            }
            // The host waits for a stream that copies within its memory, or memory that the driver does not
            // know.
            Command::BufferCopy { src, dst }
            | Command::BufferRead { src, host: dst }
            | Command::BufferWrite { host: src, dst }
            | Command::BufferCopyRect { src, dst, .. }
            | Command::BufferReadRect { src, host: dst, .. }
            | Command::BufferWriteRect { host: src, dst, .. }
                if [src, dst].iter().any(|view| view.memory().kind() == MemoryKind::Device) =>
            {
                match CopyBox::of_command(command, CudaMemory::copy_address_of, |_| true)?[..] {
                    [copy] if !copy.from.start.is_foreign && !copy.to.start.is_foreign => {
                        Some(Self::Copy(copy))
                    }
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// Puts it on the stream. The caller has bound the context, and keeps what it uses until it is over.
    pub(super) fn start(&self, stream: &CudaStream) -> Result<(), CudaFailure> {
        let (driver, raw) = (stream.driver(), stream.raw());
        match self {
            Self::Kernel(launch) => launch.with_params(|params| {
                let [x, y, z] = [params.gridDimX, params.gridDimY, params.gridDimZ];
                let [block_x, block_y, block_z] = [params.blockDimX, params.blockDimY, params.blockDimZ];
                let (shared, values, extra) = (params.sharedMemBytes, params.kernelParams, params.extra);
                // SAFETY: function and stream are alive; the parameters are complete, and copied.
                unsafe {
                    call!(
                        driver,
                        cuLaunchKernel(
                            params.func,
                            x,
                            y,
                            z,
                            block_x,
                            block_y,
                            block_z,
                            shared,
                            raw,
                            values,
                            extra
                        )
                    )
                }
            }),
            Self::Copy(copy) if copy.is_row() => {
                let (to, from, len) = (copy.to.start.address, copy.from.start.address, copy.width);
                // SAFETY: the caller of the enqueue promises that the memory may be used.
                unsafe { call!(driver, cuMemcpyAsync(to, from, len, raw)) }
            }
            Self::Copy(copy) => {
                let params = &copy_params(copy);
                // SAFETY: as above; the parameters are complete, and copied.
                unsafe { call!(driver, cuMemcpy3DAsync(params, raw)) }
            }
            Self::Fill(FillRow { address, value, element: 1, count }) => {
                // SAFETY: as above.
                unsafe { call!(driver, cuMemsetD8Async(*address, *value as u8, *count, raw)) }
            }
            Self::Fill(FillRow { address, value, element: 2, count }) => {
                // SAFETY: as above.
                unsafe { call!(driver, cuMemsetD16Async(*address, *value as u16, *count, raw)) }
            }
            Self::Fill(FillRow { address, value, count, .. }) => {
                // SAFETY: as above.
                unsafe { call!(driver, cuMemsetD32Async(*address, *value, *count, raw)) }
            }
        }
    }
}
