//! Arguments that commands and kernels accept as memory.

use bytemuck::Pod;

use crate::runtime::resource::allocation::View;
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::runtime::resource::registered::HostSource;

/// Something a command can use as memory holding `T`s: `&Buffer<T>` or `&HostBuffer<T>`.
///
/// No crate can make other memory of it, least of all a source, which nothing may write:
///
/// ```compile_fail,E0277
/// # use bytemuck::{Pod, Zeroable};
/// # use wakegraph::interop::HostSource;
/// # use wakegraph::memory::MemoryArg;
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(transparent)]
/// struct Pixel(u32);
///
/// impl MemoryArg<Pixel> for HostSource<Pixel> {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not memory of `{T}`",
    label = "not a `&Buffer<{T}>` or `&HostBuffer<{T}>`",
    note = "commands and kernels take `&Buffer<T>` or `&HostBuffer<T>`, also where they write; both sides hold \
            elements of one type",
    note = "`device.buffer_from(&values)` makes a buffer of values"
)]
pub trait MemoryArg<T>: CopySource<T> + sealed::Memory<T> {}

/// Something a copy can read `T`s from: a [`MemoryArg`], or a `&HostSource<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not memory of `{T}` to copy from",
    label = "not a `&Buffer<{T}>`, `&HostBuffer<{T}>` or `&HostSource<{T}>`",
    note = "both sides of a copy hold elements of one type"
)]
pub trait CopySource<T>: sealed::Source<T> {
    #[doc(hidden)]
    fn operand(&self) -> Operand;
}

/// Memory that a [`CopySource`] refers to.
#[derive(Clone, Debug)]
pub struct Operand(pub(crate) View);

/// The traits name the elements: with a type of its own, a crate could otherwise implement the public ones
/// for other memory than these.
mod sealed {
    pub trait Source<T> {}
    pub trait Memory<T> {}
}

impl<T, M: sealed::Source<T>> sealed::Source<T> for &M {}
impl<T, M: sealed::Memory<T>> sealed::Memory<T> for &M {}

macro_rules! operands {
    ($($memory:ident)+) => {$(
        impl<T: Pod> sealed::Source<T> for $memory<T> {}

        impl<T: Pod> CopySource<T> for $memory<T> {
            fn operand(&self) -> Operand {
                Operand(self.view().clone())
            }
        }
    )+};
}

operands! { Buffer HostBuffer HostSource }

impl<T: Pod> sealed::Memory<T> for Buffer<T> {}
impl<T: Pod> sealed::Memory<T> for HostBuffer<T> {}
impl<T: Pod> MemoryArg<T> for Buffer<T> {}
impl<T: Pod> MemoryArg<T> for HostBuffer<T> {}
impl<T, M: MemoryArg<T>> MemoryArg<T> for &M {}

impl<T, M: CopySource<T>> CopySource<T> for &M {
    fn operand(&self) -> Operand {
        (**self).operand()
    }
}
