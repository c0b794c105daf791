//! Memory and events of other libraries, known by addresses or by the driver's handles.
#![expect(unsafe_code, reason = "wraps addresses that the caller vouches for")]

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;
use wakegraph_hal as hal;
use wakegraph_hal::{DeviceId, Error, ErrorKind, Memory, MemoryKind, ResourceId, Result, UsmPointer};

use crate::runtime::resource::allocation::{Allocation, View, byte_len};
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::device::Device;
use crate::util::deferred_drop::drop_later;

/// Memory at an address. Commands get the address in the place of a memory object.
struct RawMemory {
    resource: ResourceId,
    device: DeviceId,
    pointer: UsmPointer,
    /// Owner that keeps the memory alive; dropped with it.
    keep_alive: Option<Box<dyn Send + Sync>>,
}

impl Drop for RawMemory {
    fn drop(&mut self) {
        // A value of the user's. The thread may hold locks, or be one of the device's.
        self.keep_alive.take().into_iter().for_each(drop_later);
    }
}

impl Debug for RawMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawMemory").field(&self.pointer).finish()
    }
}

impl Device {
    /// A buffer of `len` elements at `address`: memory that another library has allocated on this
    /// device, or unified shared memory that the device can use. `keep_alive` is dropped when nothing
    /// uses the memory any more, on another thread, and is mostly what owns it; `()` where that lives
    /// long enough anyway.
    /// Commands of other devices are refused the buffer: import the memory on each device that uses it.
    ///
    /// Kernels, copies and fills take it as any other buffer; copies and fills are then those of
    /// [`CommandKind::UsmCopy`](crate::graph::CommandKind::UsmCopy) and
    /// [`UsmFill`](crate::graph::CommandKind::UsmFill), which a device may lack, and rectangles are refused.
    ///
    /// ```
    /// # #![allow(unsafe_code)]
    /// # use wakegraph::{Device, Graph};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let owned = device.buffer_from(&[1u32, 2, 3, 4])?;
    /// let Some(address) = owned.address() else { return Ok(()) };
    /// // SAFETY: the clone keeps the memory, and nothing else uses it during the submission.
    /// let raw = unsafe { device.import::<u32>(address, 2, owned.clone())? };
    /// let mut graph = Graph::new(&device);
    /// graph.fill(&raw, 7);
    /// graph.finalize()?.submit().await?;
    /// assert_eq!(owned.to_vec().await?, [7, 7, 3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a null address, or one that is not aligned
    /// for `T`; [`InvalidSize`](ErrorKind::InvalidSize) for more elements than there are addresses. On CUDA
    /// also `InvalidArgument` where the driver knows no memory, or memory of another device, and
    /// `InvalidSize` where it ends before the last element. The address of no elements may be any.
    ///
    /// # Safety
    /// The elements are valid on the device, and in a copy from or to a host buffer as the device's
    /// unified shared memory is, as long as `keep_alive` is not dropped. Nothing else uses them while a
    /// submission may: no order follows from other buffers, or other code, that use the same memory.
    pub unsafe fn import<T: Pod>(
        &self,
        address: usize,
        len: usize,
        keep_alive: impl Send + Sync + 'static,
    ) -> Result<Buffer<T>> {
        let bytes = byte_len::<T>(len)?;
        if bytes == 0 {
            return Ok(Buffer::whole(self.raw(null(), Some(Box::new(keep_alive)))));
        }
        let invalid = |why| Error::new(ErrorKind::InvalidArgument, why);
        if address == 0 {
            let error = invalid("a buffer cannot be made of a null address");
            return Err(error.help("pass `null_buffer` to kernels that can do without"));
        }
        if !address.is_multiple_of(align_of::<T>()) {
            return Err(invalid("the address is not aligned for the elements"));
        }
        if address.checked_add(bytes).is_none() {
            return Err(Error::new(ErrorKind::InvalidSize, "the buffer ends beyond the address space"));
        }
        self.hal().check_address(address, bytes)?;
        // SAFETY: the caller vouches for these bytes.
        let pointer = unsafe { UsmPointer::new(address, bytes) };
        Ok(Buffer::whole(self.raw(pointer, Some(Box::new(keep_alive)))))
    }

    /// A buffer of the first `len` elements of memory that another library has made in this
    /// device's driver and context, under the driver's handle: on OpenCL a `cl_mem` with
    /// `CL_MEM_READ_WRITE` and without `CL_MEM_HOST_*`, which may be a part of another one. The
    /// buffer has a reference of its own to it. On other backends memory has addresses:
    /// [`import`](Self::import) them.
    ///
    /// It is used as any other buffer. A device of the application's own context is opened by
    /// `backend::opencl::open_in_context`.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) where memory has no such handles;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a null handle, one of another context,
    /// and one that is not a buffer for reading and writing, by the host as well;
    /// [`InvalidSize`](ErrorKind::InvalidSize) for more elements than it has.
    ///
    /// # Safety
    /// The handle is null or that of a live memory object. What else uses the memory, which
    /// includes other imports of it or of parts of it, is ordered before and after submissions that
    /// do: by [`after_native`](crate::SubmitBuilder::after_native) and
    /// [`join`](crate::Submission::join), or by waiting on the host.
    pub unsafe fn import_memory<T: Pod>(&self, handle: *mut c_void, len: usize) -> Result<Buffer<T>> {
        let bytes = byte_len::<T>(len)?;
        if bytes == 0 {
            return self.buffer(0);
        }
        // SAFETY: passed on to the caller.
        let memory = unsafe { self.hal().import_memory(handle, bytes) }?;
        Ok(Buffer::whole(Allocation::of(self, memory)))
    }

    /// A buffer without elements, for kernels that take memory which they can do without: device code
    /// gets a null pointer and the length 0, a Rust closure an empty slice. The kernel's own
    /// [bound](crate::kernel::RangeBound) must allow its range in spite of that.
    pub fn null_buffer<T: Pod>(&self) -> Buffer<T> {
        Buffer::whole(self.raw(null(), None))
    }

    fn raw(&self, pointer: UsmPointer, keep_alive: Option<Box<dyn Send + Sync>>) -> Arc<Allocation> {
        let (resource, device) = (ResourceId::unique(), self.info().id);
        Allocation::of(self, Arc::new(RawMemory { resource, device, pointer, keep_alive }))
    }
}

impl<T: Pod> Buffer<T> {
    /// The address of the first element, for other libraries; none where the device's memory has no
    /// addresses, as on OpenCL devices without shared virtual memory, and for scratch buffers. It is
    /// good as long as a clone of this buffer, a graph or an executable holds the memory.
    ///
    /// Blocks until the memory is allocated and cleared, which on CUDA and HIP the
    /// [allocation](Device::buffer) does not wait for: other libraries' streams know nothing of that.
    pub fn address(&self) -> Option<usize> {
        let address = self.view().pointer()?.address();
        let ready = self.view().allocation.memory().wait_until_ready();
        if let Err(error) = self.device().observe(ready) {
            // The device is lost: what uses the address fails as well.
            tracing::debug!(target: "wakegraph", %error, "memory is not ready");
        }
        Some(address)
    }
}

impl View {
    /// Whether it is known by its address only.
    pub(crate) fn is_raw(&self) -> bool {
        self.allocation.memory().downcast_ref::<RawMemory>().is_some()
    }

    /// Checks that `device` may take the memory by its address, if there is nothing else to tell it by: a
    /// backend does not see whose address it is.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for memory that has been imported on another device.
    pub(crate) fn check_address(&self, device: &Device) -> Result<()> {
        let owner = self.allocation.device();
        if self.len == 0 || owner == device || !self.is_raw() {
            return Ok(());
        }
        let (owner, here) = (owner.selector(), device.selector());
        let why = format!("memory that has been imported on {owner} by its address cannot be used on {here}");
        Err(Error::new(ErrorKind::InvalidArgument, why).help("import it on the device of the command"))
    }

    /// Pointer, where the memory has one.
    pub(crate) fn pointer(&self) -> Option<UsmPointer> {
        let whole = self.allocation.memory().usm()?;
        // SAFETY: the view lies inside the allocation, which the command's owner keeps alive.
        Some(unsafe { UsmPointer::new(whole.address() + self.offset, self.len) })
    }
}

/// The pointer to no bytes.
pub(crate) fn null() -> UsmPointer {
    // SAFETY: there are no bytes.
    unsafe { UsmPointer::new(0, 0) }
}

fn no_access() -> Error {
    Error::new(ErrorKind::InvalidOperation, "a buffer of a raw address cannot be accessed by the host")
        .help("copy it to a buffer inside a graph")
}

impl Memory for RawMemory {
    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn len(&self) -> usize {
        self.pointer.len()
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn usm(&self) -> Option<UsmPointer> {
        Some(self.pointer)
    }

    unsafe fn write(&self, _: usize, _: &[u8]) -> Result<()> {
        Err(no_access())
    }

    unsafe fn read(&self, _: usize, _: &mut [u8]) -> Result<()> {
        Err(no_access())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::{FinalizeOptions, Graph, Range};

    crate::kernel! {
        fn add(n: u32, x: &mut [u32]) {
            item: |i, n, x| x[i] += n,
        }
        fn count(x: &mut [u32]) {
            range: |_| crate::kernel::RangeBound::ANY,
            host: |_, x| assert!(x.is_empty()),
        }
    }

    #[test]
    fn a_null_buffer_has_no_elements_of_any_size() {
        let device = Device::open("host").unwrap();
        assert_eq!((device.null_buffer::<u32>().len(), device.null_buffer::<()>().len()), (0, 0));
        assert!(device.null_buffer::<()>().slice(..).unwrap().is_empty());
    }

    struct SendsItsThread(mpsc::Sender<thread::ThreadId>);

    impl Drop for SendsItsThread {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    // What is refused while a queue records is dropped under the locks of the recording.
    #[test]
    fn what_keeps_memory_is_dropped_on_another_thread() {
        let device = Device::open("host").unwrap();
        let x = device.buffer::<u32>(4).unwrap();
        let (sender, dropped) = mpsc::channel();
        // SAFETY: the buffer outlives all uses, which are refused.
        let raw = unsafe { device.import::<u32>(x.address().unwrap(), 2, SendsItsThread(sender)) };
        let (queue, mut graph) = (device.queue().unwrap(), Graph::new(&device));
        let recording = graph.record([&queue]).unwrap();
        let call = add(1, raw.unwrap());
        queue.launch(call, Range::linear(3));
        drop(recording);
        assert_eq!(graph.errors()[0].kind(), ErrorKind::InvalidSize);
        assert_ne!(dropped.recv().unwrap(), thread::current().id());
    }

    #[tokio::test]
    async fn an_address_is_used_on_its_own_device_only() {
        let [own, other] = ["host:944", "host:945"].map(|selector| Device::open(selector).unwrap());
        let x = own.buffer::<u32>(4).unwrap();
        let import = || {
            // SAFETY: the clone keeps the memory, and all uses are refused.
            unsafe { own.import::<u32>(x.address().unwrap(), 2, x.clone()) }.unwrap()
        };
        let (raw, range) = (import(), Range::linear(2));
        let there = other.buffer::<u32>(2).unwrap();
        let flag = other.buffer::<u32>(1).unwrap();
        let builds: [&dyn Fn(&mut Graph); 4] = [
            &|graph| _ = graph.launch(add(1, &raw), range).on(&other).id(),
            &|graph| _ = graph.fill(&raw, 1).on(&other).id(),
            &|graph| _ = graph.copy(&raw, import()).on(&other).id(),
            &|graph| {
                let mut body = Graph::new(&other);
                body.launch(add(1, &raw), range).on(&other);
                graph.if_nonzero(&flag, &body);
            },
        ];
        for build in builds {
            let mut graph = Graph::new(&other);
            build(&mut graph);
            let error = graph.finalize().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains("imported on host:944"), "{error}");
        }

        let queue = other.queue().unwrap();
        for event in [queue.launch(add(1, &raw), range), queue.fill(&raw, 1)] {
            assert_eq!(event.await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }

        let mut graph = Graph::new(&other);
        let node = graph.launch(add(1, &there), range).id();
        graph.launch(count(own.null_buffer()), range).on(&other);
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        let update = exec.update().launch(node, add(1, &raw)).apply();
        assert_eq!(update.await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        exec.submit().await.unwrap();
        assert_eq!(there.to_vec().await.unwrap(), [1; 2]);
        assert_eq!(x.to_vec().await.unwrap(), [0; 4]);
    }
}

/// An event of another library that uses the same driver: what
/// [`SubmitBuilder::after_native`](crate::SubmitBuilder::after_native) waits for.
#[derive(Clone, Debug)]
pub struct NativeEvent {
    event: Arc<dyn hal::Event>,
}

impl Device {
    /// An event that another library has made in this device's driver, under the driver's handle: on OpenCL a
    /// `cl_event` of the device's context, on CUDA a `CUevent` of any context. What counts is what the event
    /// has been recorded for by now: it may be recorded again or released afterwards.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) on other backends;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a null handle, and as far as the
    /// driver tells for one that is no event, or not one that the device can wait for. A `CUevent`
    /// that has been recorded in a capture is an error of the driver's.
    ///
    /// # Safety
    /// The handle is null or that of a live event.
    pub unsafe fn import_event(&self, handle: *mut c_void) -> Result<NativeEvent> {
        // SAFETY: passed on to the caller.
        Ok(NativeEvent { event: unsafe { self.hal().import_event(handle) }? })
    }
}

impl NativeEvent {
    pub(crate) fn hal(&self) -> &Arc<dyn hal::Event> {
        &self.event
    }
}
