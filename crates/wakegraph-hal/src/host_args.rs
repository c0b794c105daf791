//! The arguments of a launch as a kernel on the host receives them.

use std::fmt::{self, Debug};
use std::marker::PhantomData;

use super::{KernelArg, Param, ParamKind};
use crate::{Error, ErrorKind, Result};

/// The arguments of one launch as a host kernel receives them: read one after the other, in the
/// parameters' order.
///
/// Each argument is handed out once, so two mutable slices can never be the same memory.
pub struct HostArgs<'a> {
    args: &'a [KernelArg],
    params: &'a [Param],
    next: usize,
    // Slices handed out live as long as the launch, not longer.
    launch: PhantomData<&'a mut [u8]>,
}

impl Debug for HostArgs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostArgs").field("args", &self.args).field("next", &self.next).finish()
    }
}

#[expect(unsafe_code, reason = "turns the device's memory into the slices that the launch was given")]
impl<'a> HostArgs<'a> {
    /// Starts to read the arguments of one launch.
    ///
    /// # Safety
    /// For `'a`, all memory arguments are valid host memory, nothing else accesses a range that the
    /// parameters say is written, nothing writes a range that they say is read, and the ranges of
    /// one launch do not overlap where one of them is written.
    pub unsafe fn new(args: &'a [KernelArg], params: &'a [Param]) -> Self {
        Self { args, params, next: 0, launch: PhantomData }
    }

    /// Number of arguments that have not been read yet.
    pub fn remaining(&self) -> usize {
        self.args.len() - self.next
    }

    /// Reads the next argument, which is a value.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when it is not a value of this size.
    pub fn value<T: bytemuck::AnyBitPattern>(&mut self) -> Result<T> {
        match self.take()? {
            (KernelArg::Value(bytes), param) => bytemuck::try_pod_read_unaligned(bytes)
                .map_err(|error| mismatch(param, format!("is not of the type asked for: {error}"))),
            (_, param) => Err(mismatch(param, "is not a value".into())),
        }
    }

    /// Reads the next argument, which is memory that the kernel reads.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when it is not memory, or does not hold
    /// whole elements of `T`.
    pub fn read<T: bytemuck::AnyBitPattern>(&mut self) -> Result<&'a [T]> {
        let (address, len, param) = self.memory()?;
        let len = elements::<T>(address, len, param)?;
        // SAFETY: `new`'s caller vouched for the range and that nothing writes it; `elements`
        // checked size and alignment; every bit pattern is a `T`.
        Ok(unsafe { std::slice::from_raw_parts(address as *const T, len) })
    }

    /// Reads the next argument, which is memory that the kernel writes.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when it is not memory that the parameter
    /// says is written, or does not hold whole elements of `T`.
    pub fn write<T: bytemuck::Pod>(&mut self) -> Result<&'a mut [T]> {
        let (address, len, param) = self.memory()?;
        if !matches!(&param.kind, ParamKind::Buffer { access, .. } if access.writes()) {
            return Err(mismatch(param, "is declared read-only".into()));
        }
        let len = elements::<T>(address, len, param)?;
        // SAFETY: as in `read`; nothing else accesses the range, and it is handed out once.
        Ok(unsafe { std::slice::from_raw_parts_mut(address as *mut T, len) })
    }

    /// The next argument, local memory: its size in bytes. A host kernel brings its own scratch
    /// space.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when it is not local memory.
    pub fn local(&mut self) -> Result<usize> {
        match self.take()? {
            (KernelArg::Local(bytes), _) => Ok(*bytes),
            (_, param) => Err(mismatch(param, "is not local memory".into())),
        }
    }

    fn take(&mut self) -> Result<(&'a KernelArg, &'a Param)> {
        let index = self.next;
        let (Some(arg), Some(param)) = (self.args.get(index), self.params.get(index)) else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the kernel has no parameter {index}"),
            ));
        };
        self.next += 1;
        Ok((arg, param))
    }

    fn memory(&mut self) -> Result<(usize, usize, &'a Param)> {
        match self.take()? {
            (KernelArg::Memory(view), param) => {
                let base = view.memory().host_ptr();
                let base = base.ok_or_else(|| mismatch(param, "is not host memory".into()))?;
                Ok((base.as_ptr() as usize + view.offset(), view.len(), param))
            }
            // A slice of no elements needs an address that is aligned and not null.
            (KernelArg::Usm(pointer), param) if pointer.is_empty() => Ok((ALIGNED, 0, param)),
            (KernelArg::Usm(pointer), param) => Ok((pointer.address(), pointer.len(), param)),
            (_, param) => Err(mismatch(param, "is not memory".into())),
        }
    }
}

/// An address that is aligned for any element.
const ALIGNED: usize = 4096;

fn elements<T>(address: usize, len: usize, param: &Param) -> Result<usize> {
    let size = size_of::<T>();
    if size == 0 || !len.is_multiple_of(size) || !address.is_multiple_of(align_of::<T>()) {
        let type_name = std::any::type_name::<T>();
        return Err(mismatch(param, format!("is {len} bytes, not aligned whole elements of {type_name}")));
    }
    Ok(len / size)
}

fn mismatch(param: &Param, why: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("argument '{}' {why}", param.name))
}
