//! What commands and kernels take as memory.

use bytemuck::Pod;

use crate::runtime::resource::allocation::View;
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::runtime::resource::registered::HostSource;

/// Something a command can use as memory holding `T`s: `&Buffer<T>` or `&HostBuffer<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not memory of `{T}`",
    label = "not a `&Buffer<{T}>` or `&HostBuffer<{T}>`",
    note = "commands and kernels take `&Buffer<T>` or `&HostBuffer<T>`; both sides hold elements of one type"
)]
pub trait MemoryArg<T>: CopySource<T> {}

/// Something a copy can read `T`s from: a [`MemoryArg`], or a `&HostSource<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not memory of `{T}` to copy from",
    label = "not a `&Buffer<{T}>`, `&HostBuffer<{T}>` or `&HostSource<{T}>`",
    note = "both sides of a copy hold elements of one type"
)]
pub trait CopySource<T>: sealed::Sealed {
    #[doc(hidden)]
    fn operand(&self) -> Operand;
}

/// What a [`CopySource`] refers to.
#[derive(Clone, Debug)]
pub struct Operand(pub(crate) View);

mod sealed {
    pub trait Sealed {}
}

impl<M: sealed::Sealed> sealed::Sealed for &M {}

macro_rules! operands {
    ($($memory:ident)+) => {$(
        impl<T: Pod> sealed::Sealed for $memory<T> {}

        impl<T: Pod> CopySource<T> for $memory<T> {
            fn operand(&self) -> Operand {
                Operand(self.view().clone())
            }
        }
    )+};
}

operands! { Buffer HostBuffer HostSource }

impl<T: Pod> MemoryArg<T> for Buffer<T> {}
impl<T: Pod> MemoryArg<T> for HostBuffer<T> {}
impl<T, M: MemoryArg<T>> MemoryArg<T> for &M {}

impl<T, M: CopySource<T>> CopySource<T> for &M {
    fn operand(&self) -> Operand {
        (**self).operand()
    }
}
