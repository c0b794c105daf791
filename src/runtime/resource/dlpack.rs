//! Tensors of other libraries, in and out without a copy.
//!
//! PyTorch, JAX, CuPy, TVM and others exchange tensors by [DLPack](https://dmlc.github.io/dlpack/latest/). A
//! tensor becomes a [`Buffer`](crate::Buffer) with
//! [`Device::import_dlpack`](crate::Device::import_dlpack), and a buffer a tensor with
//! [`Buffer::to_dlpack`](crate::Buffer::to_dlpack).
//!
//! ```
//! # #![allow(unsafe_code)]
//! use wakegraph::Device;
//! use wakegraph::dlpack::DlpackTensor;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> wakegraph::Result<()> {
//! let device = Device::open("host")?;
//! let tensor: DlpackTensor = device.buffer_from(&[1.0f32, 2.0])?.to_dlpack(&[1, 2])?;
//! // SAFETY: nothing else uses the tensor.
//! let x = unsafe { device.import_dlpack::<f32, _>(tensor) }?;
//! assert_eq!(x.to_vec().await?, [1.0, 2.0]);
//! # Ok(())
//! # }
//! ```
//!
//! The structures are those of the standard's C header, which do not change within a major version, so that a
//! pointer to another crate's declaration of them can be cast. Versions of one crate would have different
//! types for the same bytes.
#![expect(unsafe_code, reason = "owns tensors that C code has made, and makes such tensors")]

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::ptr::{self, NonNull};
use std::slice;

use bytemuck::Pod;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::device::Device;
use crate::util::panics::catch_and_log;

/// The version of the standard that a tensor follows.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DLPackVersion {
    /// Structures of other major versions are laid out in another way.
    pub major: u32,
    /// Newer ones know more values.
    pub minor: u32,
}

/// Device where a tensor is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DLDevice {
    /// Type of the device, such as [`CPU`](Self::CPU).
    pub device_type: u32,
    /// Number among those of the type.
    pub device_id: i32,
}

impl DLDevice {
    /// `kDLCPU`.
    pub const CPU: u32 = 1;
    /// `kDLCUDA`.
    pub const CUDA: u32 = 2;
    /// `kDLCUDAHost`: memory of the host that CUDA has pinned.
    pub const CUDA_HOST: u32 = 3;
    /// `kDLROCM`.
    pub const ROCM: u32 = 10;
    /// `kDLROCMHost`: memory of the host that HIP has pinned.
    pub const ROCM_HOST: u32 = 11;
    /// `kDLCUDAManaged`.
    pub const CUDA_MANAGED: u32 = 13;
}

/// Type of the elements of a tensor.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DLDataType {
    /// `DLDataTypeCode`: 0 for signed integers, 1 for unsigned ones, 2 for floating-point numbers.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// Elements of a vector, 1 for numbers.
    pub lanes: u16,
}

/// A tensor, without its owner.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// The memory.
    pub data: *mut c_void,
    /// Device where it is.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of the elements.
    pub dtype: DLDataType,
    /// The extent of each dimension.
    pub shape: *mut i64,
    /// Elements from one to the next in each dimension; null for a dense tensor, the last dimension first.
    pub strides: *mut i64,
    /// Offset of the first element in the memory.
    pub byte_offset: u64,
}

/// A tensor and its owner, as of DLPack before version 1.0.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// The owner's.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor, and this structure with it.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// A tensor and its owner.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version of the standard.
    pub version: DLPackVersion,
    /// The owner's.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor, and this structure with it.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    /// Bit 0 is set where the tensor must not be written.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };
const READ_ONLY: u64 = 1;

/// The two structures for a tensor and its owner: [`DLManagedTensorVersioned`], and the older
/// [`DLManagedTensor`].
pub trait ManagedTensor: sealed::Sealed + Sized + 'static {}

impl ManagedTensor for DLManagedTensor {}
impl ManagedTensor for DLManagedTensorVersioned {}

mod sealed {
    use super::*;

    pub trait Sealed {
        fn new(dl_tensor: DLTensor, context: *mut c_void, deleter: unsafe extern "C" fn(*mut Self)) -> Self;
        fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
        /// The tensor, if it is laid out as this module knows it, and may be written.
        fn writable(&self) -> Result<&DLTensor>;
    }

    impl Sealed for DLManagedTensor {
        fn new(dl_tensor: DLTensor, context: *mut c_void, deleter: unsafe extern "C" fn(*mut Self)) -> Self {
            Self { dl_tensor, manager_ctx: context, deleter: Some(deleter) }
        }

        fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
            self.deleter
        }

        fn writable(&self) -> Result<&DLTensor> {
            Ok(&self.dl_tensor)
        }
    }

    impl Sealed for DLManagedTensorVersioned {
        fn new(dl_tensor: DLTensor, context: *mut c_void, deleter: unsafe extern "C" fn(*mut Self)) -> Self {
            let (version, flags) = (VERSION, 0);
            Self { version, manager_ctx: context, deleter: Some(deleter), flags, dl_tensor }
        }

        fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
            self.deleter
        }

        fn writable(&self) -> Result<&DLTensor> {
            if self.version.major != VERSION.major {
                let (major, known) = (self.version.major, VERSION.major);
                let why = format!("the tensor is of DLPack {major}, and only {known} is known");
                return Err(Error::new(ErrorKind::FeatureNotSupported, why));
            }
            if self.flags & READ_ONLY != 0 {
                return Err(invalid("the tensor is read-only".into()).help("copy it first"));
            }
            Ok(&self.dl_tensor)
        }
    }
}

/// An element of a tensor.
///
/// # Safety
/// Every value of the data type is a value of the Rust type, of the same size.
pub unsafe trait DlpackElement: Pod {
    /// DLPack's name for the type.
    const DATA_TYPE: DLDataType;
}

/// The type of one number of so many bytes.
const fn scalar(code: u8, bytes: usize) -> DLDataType {
    DLDataType { code, bits: 8 * bytes as u8, lanes: 1 }
}

macro_rules! elements {
    ($($code:literal: $($element:ident)+;)+) => {$($(
        // SAFETY: the number with as many bits.
        unsafe impl DlpackElement for $element {
            const DATA_TYPE: DLDataType = scalar($code, size_of::<$element>());
        }
    )+)+};
}

elements! {
    0: i8 i16 i32 i64;
    1: u8 u16 u32 u64;
    2: f32 f64;
}

#[cfg(feature = "half")]
mod half_elements {
    use half::{bf16, f16};

    use super::{DLDataType, DlpackElement, scalar};

    elements! {
        2: f16;
        4: bf16;
    }
}

/// A tensor that owns its memory, through the deleter of what made it. It is deleted when dropped.
pub struct DlpackTensor<M: ManagedTensor = DLManagedTensorVersioned>(NonNull<M>);

// SAFETY: DLPack's consumers call the deleter on any thread, and `from_raw` demands it.
unsafe impl<M: ManagedTensor> Send for DlpackTensor<M> {}
// SAFETY: shared, it is only read.
unsafe impl<M: ManagedTensor> Sync for DlpackTensor<M> {}

impl<M: ManagedTensor> DlpackTensor<M> {
    /// Takes the tensor over, from a capsule of Python's for example.
    ///
    /// # Safety
    /// The pointer is valid, and so is everything in the tensor until its deleter is called, once, by this
    /// object. That may be on any thread.
    pub unsafe fn from_raw(tensor: NonNull<M>) -> Self {
        Self(tensor)
    }

    /// Hands the tensor over: who gets it calls the deleter.
    pub fn into_raw(self) -> NonNull<M> {
        let tensor = self.0;
        std::mem::forget(self);
        tensor
    }

    fn managed(&self) -> &M {
        // SAFETY: valid until the deleter is called, by `drop`.
        unsafe { self.0.as_ref() }
    }
}

impl<M: ManagedTensor> Drop for DlpackTensor<M> {
    fn drop(&mut self) {
        if let Some(deleter) = self.managed().deleter() {
            // SAFETY: called once, as the owner.
            unsafe { deleter(self.0.as_ptr()) };
        }
    }
}

impl<M: ManagedTensor> Debug for DlpackTensor<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DlpackTensor").field(&self.0).finish()
    }
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, why)
}

impl Device {
    /// A buffer of the elements of a tensor of this device, all of them in the order in which they lie in
    /// memory. The tensor is deleted when nothing uses the memory any more, and at once in case of an error.
    ///
    /// Tensors have to be dense, the last dimension innermost, and of one of the types that have
    /// [`DlpackElement`]. Devices of CUDA take tensors of their own GPU, of managed and of pinned memory, and
    /// the CPU takes tensors of the CPU. See [`import`](Self::import) for what can be done with the buffer.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a tensor of another device or type, with gaps
    /// or in another order, and one that is read-only;
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) for a later major version of DLPack, and on
    /// devices of OpenCL; those of [`import`](Self::import).
    ///
    /// # Safety
    /// As for [`import`](Self::import): nothing else uses the elements while a submission may. A tensor that
    /// its library has work in flight for comes after that by
    /// [`after_native`](crate::SubmitBuilder::after_native), or by waiting for it.
    pub unsafe fn import_dlpack<T: DlpackElement, M: ManagedTensor>(
        &self,
        tensor: DlpackTensor<M>,
    ) -> Result<Buffer<T>> {
        let own = self.dlpack_device()?;
        let DLTensor { data, device, dtype, byte_offset, .. } = *tensor.managed().writable()?;
        let is_here = match (own.device_type, device.device_type) {
            (DLDevice::CUDA, DLDevice::CUDA_HOST | DLDevice::CUDA_MANAGED) => true,
            (DLDevice::ROCM, DLDevice::ROCM_HOST) => true,
            (DLDevice::CPU, DLDevice::CPU | DLDevice::CUDA_HOST | DLDevice::ROCM_HOST) => true,
            _ => own == device,
        };
        if !is_here {
            let why = format!("the tensor is on {device:?}, not on {}, which is {own:?}", self.selector());
            return Err(invalid(why).help("copy it there by the library that has made it"));
        }
        if dtype != T::DATA_TYPE {
            let (is, name) = (dtype, std::any::type_name::<T>());
            let why = format!("the tensor's elements are {is:?}, and {name} is {:?}", T::DATA_TYPE);
            return Err(invalid(why));
        }
        // SAFETY: `from_raw` demanded that everything in the tensor is valid.
        let len = unsafe { dense_len(tensor.managed().writable()?) }?;
        let address = usize::try_from(byte_offset).ok().and_then(|offset| data.addr().checked_add(offset));
        let address = address.filter(|_| !data.is_null()).unwrap_or(0);
        data.expose_provenance();
        // SAFETY: passed on to the caller; the tensor keeps its memory.
        unsafe { self.import(address, len, tensor) }
    }

    /// Returns DLPack's name for the device.
    fn dlpack_device(&self) -> Result<DLDevice> {
        match (self.info().backend, number(self.selector())) {
            ("host", _) => Ok(DLDevice { device_type: DLDevice::CPU, device_id: 0 }),
            ("cuda", Some(device_id)) => Ok(DLDevice { device_type: DLDevice::CUDA, device_id }),
            ("hip", Some(device_id)) => Ok(DLDevice { device_type: DLDevice::ROCM, device_id }),
            (backend, _) => {
                let why = format!("DLPack has no tensors with the addresses of memory of {backend}");
                Err(Error::new(ErrorKind::FeatureNotSupported, why).on_device(self.selector()))
            }
        }
    }
}

/// The number of a device among those of its backend. A share, as in `cuda:0 (share of 16)`, has that of its
/// device, as their memory is the same.
fn number(selector: &str) -> Option<i32> {
    selector.split([':', ' ']).nth(1)?.parse().ok()
}

/// The number of elements of a tensor without gaps.
///
/// # Safety
/// Shape and strides are valid.
unsafe fn dense_len(tensor: &DLTensor) -> Result<usize> {
    let dimensions = usize::try_from(tensor.ndim).map_err(|_| invalid("less than 0 dimensions".into()))?;
    let list = |start: *mut i64| match start.is_null() || dimensions == 0 {
        true => &[][..],
        // SAFETY: the caller vouches for one number a dimension.
        false => unsafe { slice::from_raw_parts(start.cast_const(), dimensions) },
    };
    let (shape, strides) = (list(tensor.shape), list(tensor.strides));
    if shape.len() != dimensions {
        return Err(invalid("the tensor has no shape".into()));
    }
    if shape.iter().any(|&extent| extent < 0) {
        return Err(invalid(format!("the tensor's shape is {shape:?}")));
    }
    // Without elements there are no gaps, whatever the strides. Libraries count extents of 0 as 1 in them.
    if shape.contains(&0) {
        return Ok(0);
    }
    let mut len = 1_i64;
    for (index, &extent) in shape.iter().enumerate().rev() {
        if strides.get(index).is_some_and(|&stride| extent > 1 && stride != len) {
            let why = format!("the tensor of the shape {shape:?} is not dense: its strides are {strides:?}");
            return Err(invalid(why).help("copy it to a dense one, by `contiguous()` for example"));
        }
        let too_long = || Error::new(ErrorKind::InvalidSize, format!("the tensor's shape is {shape:?}"));
        len = len.checked_mul(extent).ok_or_else(too_long)?;
    }
    usize::try_from(len).map_err(|error| invalid(error.to_string()))
}

/// An exported tensor, and what it points to. The tensor's address is that of the whole.
#[repr(C)]
struct Exported<M> {
    managed: M,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// The memory.
    buffer: Box<dyn Send + Sync>,
}

/// # Safety
/// The tensor is one of `to_dlpack`, and is not used any more.
unsafe extern "C" fn delete<M: ManagedTensor>(tensor: *mut M) {
    // SAFETY: `to_dlpack` has made it of a box.
    let exported = unsafe { Box::from_raw(tensor.cast::<Exported<M>>()) };
    // The memory may be another library's.
    catch_and_log("the drop of an exported tensor", || drop(exported));
}

impl<T: DlpackElement> Buffer<T> {
    /// A tensor of this shape, the last dimension innermost, of the buffer's memory. It keeps the memory.
    ///
    /// Nothing orders what its consumer does against submissions that use the buffer:
    /// [`Submission::join`](crate::Submission::join) and [`after_native`](crate::SubmitBuilder::after_native)
    /// do, or waiting for either.
    ///
    /// ```
    /// # use wakegraph::Device;
    /// use wakegraph::dlpack::DlpackTensor;
    /// # let device = Device::open("host")?;
    /// let x = device.buffer_from(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// let tensor: DlpackTensor = x.to_dlpack(&[2, 3])?;
    /// let for_python = tensor.into_raw();
    /// # #[allow(unsafe_code)]
    /// # drop(unsafe { DlpackTensor::from_raw(for_python) });
    /// # Ok::<(), wakegraph::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) when the shape is not that of so many elements;
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) on devices of OpenCL, and for scratch memory.
    pub fn to_dlpack<M: ManagedTensor>(&self, shape: &[usize]) -> Result<DlpackTensor<M>> {
        let device = self.device().dlpack_device()?;
        let Some(address) = self.address() else {
            return Err(Error::new(ErrorKind::FeatureNotSupported, "the buffer has no address"));
        };
        let product = shape.iter().try_fold(1_usize, |len, &extent| len.checked_mul(extent));
        let extents: Option<Vec<i64>> = shape.iter().map(|&extent| i64::try_from(extent).ok()).collect();
        let Some(mut shape) = extents.filter(|_| product == Some(self.len())) else {
            let why = format!("a buffer of {} elements is not a tensor of the shape {shape:?}", self.len());
            return Err(Error::new(ErrorKind::InvalidSize, why));
        };
        let mut strides = vec![1; shape.len()];
        for index in (1..shape.len()).rev() {
            // They do not fit where there is no element.
            strides[index - 1] = i64::saturating_mul(strides[index], shape[index]);
        }
        let tensor = DLTensor {
            data: ptr::with_exposed_provenance_mut(address),
            device,
            ndim: i32::try_from(shape.len()).map_err(|error| invalid(error.to_string()))?,
            dtype: T::DATA_TYPE,
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let (managed, buffer) = (M::new(tensor, ptr::null_mut(), delete::<M>), Box::new(self.clone()));
        let exported = Box::new(Exported { managed, shape, strides, buffer });
        Ok(DlpackTensor(NonNull::from(Box::leak(exported)).cast()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::mem::offset_of;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use dlpark::{ffi, versioned};

    use super::sealed::Sealed as _;
    use super::*;
    use crate::Graph;

    macro_rules! same_layout {
        ($($name:ident: $($field:ident)+;)+) => {$(
            assert_eq!(size_of::<$name>(), size_of::<ffi::$name>());
            assert_eq!(align_of::<$name>(), align_of::<ffi::$name>());
            $(assert_eq!(offset_of!($name, $field), offset_of!(ffi::$name, $field), stringify!($field));)+
        )+};
    }

    #[test]
    fn structures_are_laid_out_as_in_the_standards_header() {
        same_layout! {
            DLPackVersion: major minor;
            DLDevice: device_type device_id;
            DLDataType: code bits lanes;
            DLTensor: data device ndim dtype shape strides byte_offset;
            DLManagedTensor: dl_tensor manager_ctx deleter;
            DLManagedTensorVersioned: version manager_ctx deleter flags dl_tensor;
        }
        assert_eq!(DLDevice::CPU, ffi::DLDeviceType::CPU.0);
        assert_eq!(DLDevice::CUDA, ffi::DLDeviceType::CUDA.0);
        assert_eq!(DLDevice::CUDA_HOST, ffi::DLDeviceType::CUDAHOST.0);
        assert_eq!(DLDevice::ROCM, ffi::DLDeviceType::ROCM.0);
        assert_eq!(DLDevice::ROCM_HOST, ffi::DLDeviceType::ROCMHOST.0);
        assert_eq!(DLDevice::CUDA_MANAGED, ffi::DLDeviceType::CUDAMANAGED.0);
        let codes = [i8::DATA_TYPE.code, u64::DATA_TYPE.code, f32::DATA_TYPE.code];
        let theirs = [ffi::DLDataTypeCode::INT, ffi::DLDataTypeCode::UINT, ffi::DLDataTypeCode::FLOAT];
        assert_eq!(codes, theirs.map(|code| code.0));
        assert_eq!(READ_ONLY, dlpark::DlpackFlags::READ_ONLY.bits());
    }

    #[test]
    fn a_share_has_the_number_of_its_device() {
        let selectors = ["cuda:10", "cuda:0 (share of 16)", "hip:3 (rest of 116) (share of 8)", "host"];
        assert_eq!(selectors.map(number), [Some(10), Some(0), Some(3), None]);
    }

    #[test]
    fn another_crate_reads_an_exported_buffer() {
        let device = Device::open("host").unwrap();
        let x = device.buffer_from(&[1i32, 2, 3, 4, 5, 6]).unwrap();
        let tensor: DlpackTensor = x.slice(2..).unwrap().to_dlpack(&[2, 2]).unwrap();
        drop(x);
        // SAFETY: the structures are the same.
        let theirs = unsafe { versioned::Dlpack::from_raw(tensor.into_raw().as_ptr().cast()) }.unwrap();
        let view = theirs.validate().unwrap();
        assert_eq!(view.shape(), [2, 2]);
        // SAFETY: nothing uses the memory.
        assert_eq!(unsafe { view.cpu_slice::<i32>() }.unwrap(), [3, 4, 5, 6]);
    }

    /// A tensor of a test, which counts its deletions.
    struct Theirs {
        elements: [f32; 8],
        shape: [i64; 3],
        strides: [i64; 3],
        deletions: Arc<AtomicUsize>,
    }

    unsafe extern "C" fn delete_theirs(tensor: *mut DLManagedTensorVersioned) {
        // SAFETY: made by `theirs`.
        let tensor = unsafe { Box::from_raw(tensor) };
        // SAFETY: as above.
        let theirs = unsafe { Box::from_raw(tensor.manager_ctx.cast::<Theirs>()) };
        theirs.deletions.fetch_add(1, Ordering::Relaxed);
    }

    fn theirs(deletions: &Arc<AtomicUsize>, change: impl Fn(&mut DLManagedTensorVersioned)) -> DlpackTensor {
        let elements = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let (shape, strides) = ([3, 1, 2], [2, 77, 1]);
        let owner = Box::leak(Box::new(Theirs { elements, shape, strides, deletions: deletions.clone() }));
        let dl_tensor = DLTensor {
            data: owner.elements.as_mut_ptr().cast(),
            device: DLDevice { device_type: DLDevice::CPU, device_id: 0 },
            ndim: 3,
            dtype: f32::DATA_TYPE,
            shape: owner.shape.as_mut_ptr(),
            strides: owner.strides.as_mut_ptr(),
            byte_offset: 4,
        };
        let mut tensor = DLManagedTensorVersioned::new(dl_tensor, (&raw mut *owner).cast(), delete_theirs);
        change(&mut tensor);
        // SAFETY: everything in it is valid until the deleter is called.
        unsafe { DlpackTensor::from_raw(NonNull::from(Box::leak(Box::new(tensor)))) }
    }

    #[tokio::test]
    async fn an_imported_tensor_is_deleted_after_its_last_use() {
        let (device, deletions) = (Device::open("host").unwrap(), Arc::new(AtomicUsize::new(0)));
        // SAFETY: nothing else uses the tensor.
        let x = unsafe { device.import_dlpack::<f32, _>(theirs(&deletions, |_| ())) }.unwrap();
        let (mut graph, out) = (Graph::new(&device), device.buffer::<f32>(6).unwrap());
        graph.fill(&x.slice(..1).unwrap(), 9.0);
        graph.copy(&x, &out);
        graph.finalize().unwrap().submit().await.unwrap();
        assert_eq!(out.to_vec().await.unwrap(), [9.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(deletions.load(Ordering::Relaxed), 0);
        drop((x, graph));
        while deletions.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_tensor_goes_out_and_in() {
        let device = Device::open("host").unwrap();
        let x = device.buffer_from(&[1u16, 2]).unwrap();
        let tensor = x.to_dlpack::<DLManagedTensor>(&[2]).unwrap();
        // SAFETY: nothing else uses the tensor.
        let y = unsafe { device.import_dlpack::<u16, _>(tensor) }.unwrap();
        assert_eq!((y.len(), y.address()), (2, x.address()));
    }

    #[test]
    fn misuse_is_refused() {
        let (device, deletions) = (Device::open("host").unwrap(), Arc::new(AtomicUsize::new(0)));
        let refused = |kind: ErrorKind, word: &str, change: &dyn Fn(&mut DLManagedTensorVersioned)| {
            let before = deletions.load(Ordering::Relaxed);
            // SAFETY: nothing else uses the tensor.
            let error = unsafe { device.import_dlpack::<f32, _>(theirs(&deletions, change)) }.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(word), "{error}");
            assert_eq!(deletions.load(Ordering::Relaxed), before + 1, "deleted at once");
        };
        let shape = |tensor: &mut DLManagedTensorVersioned, index: usize, extent: i64| {
            // SAFETY: the tensor has three dimensions.
            let place = unsafe { tensor.dl_tensor.shape.add(index) };
            // SAFETY: as above.
            unsafe { place.write(extent) };
        };
        refused(ErrorKind::InvalidArgument, "on DLDevice", &|tensor| tensor.dl_tensor.device.device_type = 2);
        refused(ErrorKind::InvalidArgument, "f32", &|tensor| tensor.dl_tensor.dtype.bits = 64);
        refused(ErrorKind::InvalidArgument, "f32", &|tensor| tensor.dl_tensor.dtype.lanes = 2);
        refused(ErrorKind::InvalidArgument, "read-only", &|tensor| tensor.flags = 1);
        refused(ErrorKind::FeatureNotSupported, "DLPack 2", &|tensor| tensor.version.major = 2);
        refused(ErrorKind::InvalidArgument, "not dense", &|tensor| shape(tensor, 2, 3));
        refused(ErrorKind::InvalidArgument, "shape is", &|tensor| shape(tensor, 0, -3));
        refused(ErrorKind::InvalidSize, "shape is", &|tensor| {
            tensor.dl_tensor.strides = ptr::null_mut();
            shape(tensor, 0, i64::MAX);
        });
        refused(ErrorKind::InvalidArgument, "no shape", &|tensor| tensor.dl_tensor.shape = ptr::null_mut());
        refused(ErrorKind::InvalidArgument, "dimensions", &|tensor| tensor.dl_tensor.ndim = -1);
        refused(ErrorKind::InvalidArgument, "null", &|tensor| tensor.dl_tensor.data = ptr::null_mut());
        refused(ErrorKind::InvalidArgument, "aligned", &|tensor| tensor.dl_tensor.byte_offset = 3);
        // Libraries give tensors without elements a null pointer, and strides as if there were some.
        for (without, others) in [(0, 3), (1, 3), (2, 3), (1, i64::MAX)] {
            let none = theirs(&deletions, |tensor: &mut DLManagedTensorVersioned| {
                (0..3).for_each(|index| shape(tensor, index, if index == without { 0 } else { others }));
                tensor.dl_tensor.data = ptr::null_mut();
            });
            // SAFETY: nothing else uses the tensor.
            assert!(unsafe { device.import_dlpack::<f32, _>(none) }.unwrap().is_empty());
        }

        let x = device.buffer::<u8>(6).unwrap();
        for wrong in [&[2, 2][..], &[], &[7], &[usize::MAX, 3], &[0, 6]] {
            let error = x.to_dlpack::<DLManagedTensor>(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSize, "{wrong:?}");
        }
        let (none, largest) = (device.null_buffer::<u8>(), i64::MAX as usize);
        assert!(none.to_dlpack::<DLManagedTensor>(&[0, largest, largest]).is_ok());
    }
}
