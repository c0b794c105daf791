//! What commands and kernels take as memory.

use bytemuck::Pod;

use crate::runtime::resource::allocation::View;
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::host_buffer::HostBuffer;

/// Something a command can use as memory holding `T`s: `&Buffer<T>` or `&HostBuffer<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not memory of `{T}`",
    label = "not a `&Buffer<{T}>` or `&HostBuffer<{T}>`",
    note = "commands and kernels take `&Buffer<T>` or `&HostBuffer<T>`; both sides hold elements of one type"
)]
pub trait MemoryArg<T>: sealed::Sealed {
    #[doc(hidden)]
    fn operand(&self) -> Operand;
}

/// What a [`MemoryArg`] refers to.
#[derive(Clone, Debug)]
pub struct Operand(pub(crate) View);

mod sealed {
    pub trait Sealed {}
}

impl<T: Pod> sealed::Sealed for Buffer<T> {}
impl<T: Pod> sealed::Sealed for HostBuffer<T> {}
impl<M: sealed::Sealed> sealed::Sealed for &M {}

impl<T: Pod> MemoryArg<T> for Buffer<T> {
    fn operand(&self) -> Operand {
        Operand(self.view().clone())
    }
}

impl<T: Pod> MemoryArg<T> for HostBuffer<T> {
    fn operand(&self) -> Operand {
        Operand(self.view().clone())
    }
}

impl<T, M: MemoryArg<T>> MemoryArg<T> for &M {
    fn operand(&self) -> Operand {
        (**self).operand()
    }
}
