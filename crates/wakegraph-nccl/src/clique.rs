//! The communicators of all ranks, and the order in which NCCL is called with them.
#![expect(unsafe_code, reason = "calls NCCL and CUDA's driver")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem;
use std::ptr::null_mut;
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use wakegraph::interop::NativeStream;
use wakegraph::{Buffer, Device, Error, ErrorKind, Result};

use crate::exit;
use crate::sys::{DISABLE_TIMING, Functions, Handle, NON_BLOCKING, NOT_CAPTURING, call};

/// NCCL's communicators, one for each device.
pub(crate) struct Clique {
    pub(crate) functions: &'static Functions,
    pub(crate) devices: Vec<Device>,
    pub(crate) tokens: Vec<Arc<Buffer<u32>>>,
    /// NCCL takes one call at a time for a communicator.
    pub(crate) ranks: Mutex<Vec<Rank>>,
}

/// A device, as NCCL uses it.
pub(crate) struct Rank {
    device: c_int,
    /// The primary context of the device, which NCCL uses, too.
    context: Handle,
    /// Null before it is made.
    communicator: Handle,
    /// Streams to record on.
    streams: Vec<Handle>,
}

// SAFETY: any thread may use the handles, one at a time.
unsafe impl Send for Rank {}

impl Clique {
    pub(crate) fn new(functions: &'static Functions, devices: &[Device]) -> Result<Self> {
        let indices: Vec<c_int> = devices.iter().map(index_of).collect::<Result<_>>()?;
        Self::of(functions, devices, &indices)
    }

    /// The devices with these indices of CUDA.
    pub(crate) fn of(functions: &'static Functions, devices: &[Device], indices: &[c_int]) -> Result<Self> {
        let tokens = devices.iter().map(token).collect::<Result<_>>()?;
        let clique = Self { functions, devices: devices.to_vec(), tokens, ranks: Mutex::new(Vec::new()) };
        let mut ranks = clique.ranks.lock();
        for &index in indices {
            ranks.push(Rank::retain(functions, index)?);
        }
        let mut communicators = vec![null_mut(); indices.len()];
        keeping_context(functions, || {
            let (places, count) = (communicators.as_mut_ptr(), indices.len() as c_int);
            // SAFETY: `places` has room for `count` communicators, and there are as many indices.
            unsafe { call!(functions, ncclCommInitAll(places, count, indices.as_ptr())) }
        })?;
        exit::stop_at_exit();
        for (rank, communicator) in ranks.iter_mut().zip(communicators) {
            rank.communicator = communicator;
        }
        drop(ranks);
        Ok(clique)
    }

    /// Enqueues one call of NCCL for each rank, all in one group: on the lent stream for the first rank, on
    /// streams that branch off it for the others. `call` gets the rank with its communicator and stream, and
    /// does nothing that can fail but NCCL's call: a group that lacks a rank would wait for it.
    pub(crate) fn record(
        &self,
        lent: &NativeStream<'_>,
        call: impl Fn(usize, Handle, Handle) -> Result<()>,
    ) -> Result<()> {
        let mut ranks = self.ranks.lock();
        if ranks[0].context != lent.context() {
            let why =
                "NCCL works in the primary context of a device, and the graph's device is in another one";
            return Err(Error::new(ErrorKind::InvalidArgument, why).help("open it by `Device::open`"));
        }
        keeping_context(self.functions, || {
            let streams = self.fork(&mut ranks, lent)?;
            self.group(&ranks, &streams, call)?;
            self.join(&ranks, &streams)
        })
    }

    /// A stream for each rank, behind what is on the lent one.
    fn fork(&self, ranks: &mut [Rank], lent: &NativeStream<'_>) -> Result<Vec<Handle>> {
        let mut streams = vec![lent.stream()];
        let Some((_, others)) = ranks.split_first_mut().filter(|(_, others)| !others.is_empty()) else {
            return Ok(streams);
        };
        let begun = self.recorded_event(lent.stream())?;
        for rank in others {
            let stream = rank.idle_stream(self.functions)?;
            // SAFETY: both are alive.
            unsafe { call!(self.functions, cuStreamWaitEvent(stream, begun.raw, 0)) }?;
            streams.push(stream);
        }
        Ok(streams)
    }

    /// All calls in one group: to NCCL, one collective.
    fn group(
        &self,
        ranks: &[Rank],
        streams: &[Handle],
        call: impl Fn(usize, Handle, Handle) -> Result<()>,
    ) -> Result<()> {
        // SAFETY: the group is ended below.
        unsafe { call!(self.functions, ncclGroupStart()) }?;
        let mut each = ranks.iter().zip(streams).enumerate();
        let called = each.try_for_each(|(rank, (of, stream))| call(rank, of.communicator, *stream));
        // SAFETY: the group was begun on this thread.
        let ended = unsafe { call!(self.functions, ncclGroupEnd()) };
        called.and(ended)
    }

    /// Orders the first stream, the lent one, behind the others.
    fn join(&self, ranks: &[Rank], streams: &[Handle]) -> Result<()> {
        for (rank, &stream) in ranks.iter().zip(streams).skip(1) {
            rank.make_current(self.functions)?;
            let ended = self.recorded_event(stream)?;
            // SAFETY: both are alive.
            unsafe { call!(self.functions, cuStreamWaitEvent(streams[0], ended.raw, 0)) }?;
        }
        Ok(())
    }

    /// An event of the current context, recorded on a stream of it.
    fn recorded_event(&self, stream: Handle) -> Result<Event> {
        let mut raw = null_mut();
        // SAFETY: the place is valid.
        unsafe { call!(self.functions, cuEventCreate(&raw mut raw, DISABLE_TIMING)) }?;
        let event = Event { functions: self.functions, raw };
        // SAFETY: both are alive, and of one context.
        unsafe { call!(self.functions, cuEventRecord(raw, stream)) }?;
        Ok(event)
    }
}

impl Drop for Clique {
    /// On a thread of its own: NCCL waits until no graph has its kernels any more, and this may be the thread
    /// that is about to drop one.
    fn drop(&mut self) {
        let (functions, ranks) = (self.functions, mem::take(self.ranks.get_mut()));
        let destroy = move || exit::unless_exiting(|| destroy(functions, ranks));
        if let Err(error) = thread::Builder::new().name("wakegraph-nccl".into()).spawn(destroy) {
            tracing::warn!(target: "wakegraph", %error, "no thread can be started to destroy communicators");
        }
    }
}

impl Rank {
    fn retain(functions: &Functions, index: c_int) -> Result<Self> {
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: the place is valid.
        unsafe { call!(functions, cuDeviceGet(&raw mut device, index)) }?;
        // SAFETY: the place is valid, the device the driver's.
        unsafe { call!(functions, cuDevicePrimaryCtxRetain(&raw mut context, device)) }?;
        Ok(Self { device, context, communicator: null_mut(), streams: Vec::new() })
    }

    fn make_current(&self, functions: &Functions) -> Result<()> {
        // SAFETY: the context is retained.
        unsafe { call!(functions, cuCtxSetCurrent(self.context)) }
    }

    /// A stream of the rank that no recording uses. The thread's context is then that of the rank.
    fn idle_stream(&mut self, functions: &Functions) -> Result<Handle> {
        self.make_current(functions)?;
        for &stream in &self.streams {
            let mut status = NOT_CAPTURING;
            // SAFETY: the stream is alive, the place valid.
            let asked = unsafe { call!(functions, cuStreamIsCapturing(stream, &raw mut status)) };
            if asked.is_ok() && status == NOT_CAPTURING {
                return Ok(stream);
            }
        }
        let mut stream = null_mut();
        // SAFETY: the place is valid.
        unsafe { call!(functions, cuStreamCreate(&raw mut stream, NON_BLOCKING)) }?;
        self.streams.push(stream);
        Ok(stream)
    }
}

/// Destroys the communicators of all ranks, and then what they stand on.
pub(crate) fn destroy(functions: &Functions, ranks: Vec<Rank>) {
    let report = |result: Result<()>| {
        if let Err(error) = result {
            tracing::warn!(target: "wakegraph", %error, "a part of a communicator could not be destroyed");
        }
    };
    for rank in ranks.iter().filter(|rank| !rank.communicator.is_null()) {
        // SAFETY: nothing else uses the communicator.
        report(unsafe { call!(functions, ncclCommDestroy(rank.communicator)) });
    }
    for rank in ranks {
        report(rank.make_current(functions));
        for stream in rank.streams {
            // SAFETY: nothing else uses the stream.
            report(unsafe { call!(functions, cuStreamDestroy(stream)) });
        }
        // SAFETY: retained once by `retain`, released once.
        report(unsafe { call!(functions, cuDevicePrimaryCtxRelease(rank.device)) });
    }
}

/// Calls `run`, which may make other contexts current, and restores the thread's.
fn keeping_context<T>(functions: &Functions, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut before = null_mut();
    // SAFETY: the place is valid.
    unsafe { call!(functions, cuCtxGetCurrent(&raw mut before)) }?;
    let result = run();
    // SAFETY: the context was current, or none was.
    let restored = unsafe { call!(functions, cuCtxSetCurrent(before)) };
    result.and_then(|value| restored.map(|()| value))
}

/// An event of the driver, destroyed when dropped: what waits for it does so without it.
struct Event {
    functions: &'static Functions,
    raw: Handle,
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is alive, and used by nothing else.
        if let Err(error) = unsafe { call!(self.functions, cuEventDestroy(self.raw)) } {
            tracing::warn!(target: "wakegraph", %error, "an event could not be destroyed");
        }
    }
}

/// The index of a CUDA device.
fn index_of(device: &Device) -> Result<c_int> {
    let index = device.selector().strip_prefix("cuda:").and_then(|index| index.parse().ok());
    index.ok_or_else(|| {
        let selector = device.selector();
        let why = match selector.starts_with("cuda:") {
            true => format!("NCCL's collectives run on whole GPUs, and {selector} is a part of one"),
            false => format!("NCCL's collectives run on CUDA devices, and {selector} is none"),
        };
        Error::new(ErrorKind::InvalidArgument, why)
    })
}

/// Memory of the device that every collective on it declares to write, whatever its communicator. So no two
/// of them run at once: kernels of NCCL that wait for their peers would keep each other from starting.
pub(crate) fn token(device: &Device) -> Result<Arc<Buffer<u32>>> {
    static TOKENS: Mutex<BTreeMap<String, Weak<Buffer<u32>>>> = Mutex::new(BTreeMap::new());

    let mut tokens = TOKENS.lock();
    if let Some(token) = tokens.get(device.selector()).and_then(Weak::upgrade) {
        return Ok(token);
    }
    let token = Arc::new(device.buffer(1)?);
    tokens.insert(device.selector().to_owned(), Arc::downgrade(&token));
    Ok(token)
}
