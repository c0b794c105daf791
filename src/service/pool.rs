//! Executables with inputs and outputs of their own, of which each request has one to itself.

use std::fmt::{self, Debug};
use std::future::Future;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wakegraph_hal::util::Mutex;
use wakegraph_hal::{Error, Priority, Result, setters};

use crate::runtime::{Device, ExecutableGraph, take_turn, with_default_name};
use crate::service::deadline::{Deadline, exceeded, until};
use crate::service::drain::Drain;
use crate::service::permit::{Ask, PoolInner, PoolState, Slot};
use crate::service::pool_guard::PoolGuard;
use crate::service::slot_table::SlotTable;
use crate::util::metrics::QueueMetrics;

/// Bound of a pool's or batcher's queue, in requests, unless its builder says otherwise.
pub(super) const DEFAULT_QUEUE: usize = 1024;

/// Slots, each an executable with inputs and outputs `T` of its own, for requests that arrive at
/// any rate.
///
/// A request [acquires](Self::acquire) a slot, writes its inputs, submits, and reads its outputs.
/// With two slots, the copies of one request overlap with the kernels of another. Requests that
/// find no slot free wait in a bounded queue; when that is full, they get an error at once. So the
/// work on the device is bounded by the slots and the memory of the process by the queue, and a
/// request that gives up while it waits has cost the device nothing.
///
/// Clones are handles to the same pool.
///
/// ```
/// use wakegraph::service::ExecutablePool;
/// use wakegraph::{Graph, HostBuffer, Range, Result};
///
/// wakegraph::kernel! {
///     fn double(x: &mut [u32]) { item: |i, x| x[i] *= 2 }
/// }
///
/// /// What each slot has of its own.
/// struct Buffers { input: HostBuffer<u32>, output: HostBuffer<u32> }
///
/// fn pool() -> ExecutablePool<Buffers> {
///     ExecutablePool::new(2, |slot| {
///         let device = slot.device()?;
///         let buffers = Buffers { input: device.host_buffer(4)?, output: device.host_buffer(4)? };
///         let x = device.buffer::<u32>(4)?;
///         let mut graph = Graph::new(&device);
///         graph.copy(&buffers.input, &x);
///         graph.launch(double(&x), Range::linear(4));
///         graph.copy(&x, &buffers.output);
///         Ok((graph.finalize()?, buffers))
///     })
/// }
///
/// async fn handle(pool: &ExecutablePool<Buffers>, request: &[u32]) -> Result<Vec<u32>> {
///     let slot = pool.acquire().await?;
///     slot.input.write().await.copy_from_slice(request);
///     slot.submit().await?;
///     Ok(slot.output.read().await.to_vec())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # assert_eq!(handle(&pool(), &[1, 2, 3, 4]).await?, [2, 4, 6, 8]);
/// # Ok(())
/// # }
/// ```
///
/// # Slots come and go
/// - A slot is made by the pool's closure when a request needs it for the first time, on a thread of its
///   own that is inside the request's tokio runtime, if there is one. [`warm_up`](Self::warm_up) makes all
///   of them.
/// - A slot whose run has failed or panicked is made again, unless the run was cancelled, refused or late,
///   or a host task returned an error: these leave the executable as it was.
/// - A slot whose device is lost is gone, and so are all others of that device. When none is left,
///   requests get the error of the loss, until a [device is added](Self::add_device). The pool goes by the
///   [health](Device::health) of the devices that it was given or that executables use, not by errors of the
///   closure.
pub struct ExecutablePool<T> {
    pub(super) inner: Arc<PoolInner<T>>,
}

/// Options of an [`ExecutablePool`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct PoolBuilder {
    name: Option<Arc<str>>,
    places: Vec<(Option<Device>, usize)>,
    queue: usize,
    memory_limit: Option<u64>,
    skip_stalled: bool,
}

impl PoolBuilder {
    /// Adds slots on a device. The slots of a device that is added later are for overflow: they are
    /// used while all of the earlier ones are taken, and while the earlier device
    /// [hangs](crate::Health::Stalled).
    pub fn device(mut self, device: &Device, slots: usize) -> Self {
        self.places.push((Some(device.clone()), slots));
        self
    }

    /// Adds slots for which the closure chooses the device.
    pub fn slots(mut self, slots: usize) -> Self {
        self.places.push((None, slots));
        self
    }

    /// Names the pool in metrics; `pool` unless set. Executables that the pool's closure finalizes have this
    /// name, too, unless [their options](crate::FinalizeOptions::name) name them. Those that other threads
    /// finalize for it, as a cache in a slot does, have none.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Builds the pool. `make` makes a slot: an executable, and what its users need beside it.
    pub fn build<T: Send + 'static>(
        self,
        make: impl Fn(&Slot) -> Result<(ExecutableGraph, T)> + Send + Sync + 'static,
    ) -> ExecutablePool<T> {
        let devices: Vec<_> = self.places.iter().filter_map(|(device, _)| device.clone()).collect();
        let (skips_stalled, table) =
            (self.skip_stalled, SlotTable::new(self.places, self.memory_limit, self.skip_stalled));
        let state = Mutex::new(PoolState::new(table));
        let (queue, keys) = (self.queue, RandomState::new());
        let of_executables = self.name.clone();
        let make = Box::new(move |slot: &Slot| with_default_name(of_executables.as_ref(), || make(slot)));
        let name = self.name.unwrap_or_else(|| "pool".into());
        let metrics = QueueMetrics::new("pool", &name);
        let drain = Drain::new(format!("pool '{name}'"));
        let inner = PoolInner { name, make, queue, skips_stalled, keys, metrics, drain, state };
        let pool = ExecutablePool { inner: Arc::new(inner) };
        pool.inner.listen_to(&devices);
        pool
    }
}

setters! {
    PoolBuilder {
        /// Sets how many requests may wait for a slot, 1,024 unless set. With 0, requests that find no slot
        /// free get an error.
        queue: usize,
        /// The most device memory, in bytes, that the slots of each device have together: the buffers
        /// and the scratch memory that their executables use. Memory that existed before a slot was
        /// made and that several slots use, such as weights, counts once. A slot is only made if what the
        /// largest so far has added fits; until then, requests wait for the slots that there are. One that
        /// turns out not to fit is dropped, and its request is the next to get a slot. A device that is added
        /// to the pool several times has the limit each time.
        ///
        /// A first slot that does not fit by itself is an error of kind
        /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) for the request that needed it.
        memory_limit: u64,
        /// Sets whether requests pass over a device that [hangs](crate::Health::Stalled), also where the pool
        /// has no other: false unless set. A [watchdog](crate::SubmitBuilder::watchdog) finds out, so have
        /// the submissions in slots watched.
        ///
        /// Requests then get slots of the other devices, or wait for one of these. If all devices hang,
        /// requests that wait and those that come fail with [`Unavailable`](crate::ErrorKind::Unavailable)
        /// at once. A device whose work has ended after all is used again. Where the closure chooses the
        /// devices, a slot is passed over if one of its own hangs. `warm_up` leaves slots on a device that
        /// hangs for later.
        skip_stalled: bool,
    }
}

impl ExecutablePool<()> {
    /// Options of a pool for any `T`: devices, the length of the queue, a limit of memory.
    pub fn builder() -> PoolBuilder {
        let (name, places, queue, memory_limit) = (None, Vec::new(), DEFAULT_QUEUE, None);
        PoolBuilder { name, places, queue, memory_limit, skip_stalled: false }
    }
}

impl<T: Send + 'static> ExecutablePool<T> {
    /// A pool of `slots` slots. `make` makes a slot: an executable, and what its users need beside
    /// it.
    pub fn new(
        slots: usize,
        make: impl Fn(&Slot) -> Result<(ExecutableGraph, T)> + Send + Sync + 'static,
    ) -> Self {
        ExecutablePool::builder().slots(slots).build(make)
    }

    /// Waits for a free slot, at [`Priority::Normal`] and without a key.
    ///
    /// # Errors
    /// [`Overloaded`](crate::ErrorKind::Overloaded) at once when the queue is full; the closure's errors
    /// when it cannot make the slot, and [`HostTaskPanicked`](crate::ErrorKind::HostTaskPanicked) when it
    /// panics; [`DeviceLost`](crate::ErrorKind::DeviceLost) when no slot is left;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the system has no thread to make it on, and at
    /// once when the pool is [closed](Self::close), or [skips](PoolBuilder::skip_stalled) devices that hang
    /// and all do.
    ///
    /// # Cancel safety
    /// Cancel safe. Dropping the future gives up the place in the queue. A slot that had been given
    /// to it already, also one that is still being made, goes to the next request.
    pub async fn acquire(&self) -> Result<PoolGuard<T>> {
        self.prepare().acquire().await
    }

    /// Takes a slot that is free now. If the slot has not been used before, makes it on this
    /// thread, which takes as long as the closure does; call [`warm_up`](Self::warm_up) first where
    /// that matters. It makes one slot at most.
    ///
    /// # Errors
    /// [`Overloaded`](crate::ErrorKind::Overloaded) when no slot is free; otherwise as
    /// [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> Result<PoolGuard<T>> {
        let mut take: fn(&mut SlotTable<T>) -> _ = SlotTable::take;
        loop {
            let permit = self.inner.try_take(take)?.ok_or_else(|| self.inner.refuse())?;
            if permit.made().is_none() {
                // If it turns out not to fit into the memory, no other is made.
                take = SlotTable::take_made;
            }
            let mut permit = permit.make_here()?;
            if permit.is_usable() {
                return Ok(PoolGuard::new(permit));
            }
        }
    }

    /// Prepares to acquire a slot with a deadline, with a priority or fairly by key.
    ///
    /// ```
    /// # use wakegraph::service::{ExecutablePool, PoolGuard, Priority};
    /// # use wakegraph::Result;
    /// # async fn f<T: Send + 'static>(pool: &ExecutablePool<T>, tenant: &str) -> Result<PoolGuard<T>> {
    /// pool.prepare().priority(Priority::High).key(tenant).acquire().await
    /// # }
    /// ```
    pub fn prepare(&self) -> AcquireBuilder<'_, T> {
        let queue = self.inner.queue;
        let ask = Ask { priority: Priority::Normal, key: 0, queue, position: None };
        AcquireBuilder { pool: &self.inner, ask, deadline: None }
    }

    /// As [`acquire`](Self::acquire), also when the queue is full: for callers with a bound of
    /// their own.
    pub(super) async fn acquire_beside_queue(&self) -> Result<PoolGuard<T>> {
        let mut request = self.prepare();
        request.ask.queue = usize::MAX;
        request.acquire().await
    }

    /// A slot that is free and has been made, unless requests wait.
    pub(super) fn try_made(&self) -> Option<PoolGuard<T>> {
        let mut permit = self.inner.try_take(SlotTable::take_made).ok().flatten()?;
        permit.is_usable().then(|| PoolGuard::new(permit))
    }

    /// Makes all slots that have not been made yet, one after the other: so that a service finds
    /// out when it starts whether they can be made, and no request waits for it.
    ///
    /// # Errors
    /// Those of the pool's closure. [`Unavailable`](crate::ErrorKind::Unavailable) when the pool is
    /// [closed](Self::close). Why there is no slot, if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe. Slots that have been made stay, and one that is being made is kept when it is
    /// ready.
    pub async fn warm_up(&self) -> Result<()> {
        self.warm_up_with(async |_slot| Ok(())).await
    }

    /// Makes all slots that have not been made yet, one after the other, and runs each once: `run` writes the
    /// inputs and submits. So a service that starts also compiles kernels, and loads pages of memory, that
    /// only a run needs, before the first request.
    ///
    /// ```
    /// # use wakegraph::service::ExecutablePool;
    /// # use wakegraph::{HostBuffer, Result};
    /// # async fn example(pool: &ExecutablePool<HostBuffer<u32>>) -> Result<()> {
    /// pool.warm_up_with(async |slot| {
    ///     slot.write().await.fill(1);
    ///     slot.submit().await
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`warm_up`](Self::warm_up), and those of `run`.
    ///
    /// # Cancel safety
    /// As [`warm_up`](Self::warm_up).
    pub async fn warm_up_with<F, Fut>(&self, mut run: F) -> Result<()>
    where
        F: FnMut(PoolGuard<T>) -> Fut,
        Fut: Future<Output = Result<()>>,
    {
        // A slot that its run has spoilt is not made again and again.
        for _ in 0..self.status().slots.max(1) {
            let Some(permit) = self.inner.take_unmade()? else { break };
            let mut permit = permit.make().await?;
            // Slots of other devices may fit, or work.
            if !permit.is_usable() {
                continue;
            }
            run(PoolGuard::new(permit)).await?;
        }
        Ok(())
    }

    /// Adds slots on a device, as [`PoolBuilder::device`] does, while the pool is in use: for a device that
    /// has come back after its loss, or another in its place. Requests that wait get these slots at once.
    ///
    /// The pool has given up its own handle of a device that it has found to be lost. When all others are
    /// gone, and the slots that were in use, [`Device::open`] opens it again.
    pub fn add_device(&self, device: &Device, slots: usize) {
        self.inner.add_device(device.clone(), slots);
    }

    /// Takes no more requests: from now on, they fail with [`Unavailable`](crate::ErrorKind::Unavailable) at
    /// once, for all handles of this pool. Requests that wait for a slot get one, and guards stay as they
    /// are.
    pub fn close(&self) {
        self.inner.close();
    }

    /// [Closes](Self::close) the pool, and waits until all requests have ended, for `limit` at most: no one
    /// waits for a slot, all guards are dropped, and nothing runs in a slot or holds a buffer of it.
    ///
    /// Call it when the service has stopped to listen, then [shut down](Device::shutdown) the devices.
    ///
    /// # Errors
    /// [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) with the number of requests and slots that
    /// are left. They go on. [`Unavailable`](crate::ErrorKind::Unavailable) on a tokio runtime without its
    /// timer, if something is left.
    ///
    /// # Cancel safety
    /// The pool stays closed. Call it again to go on waiting.
    pub async fn drain(&self, limit: Duration) -> Result<()> {
        self.inner.close();
        self.inner.drain.wait(limit, || self.inner.what_is_left()).await
    }

    /// Returns the current state of the pool, for metrics and readiness.
    pub fn status(&self) -> PoolStatus {
        let state = self.inner.state.lock();
        let (slots, made) = (state.table.slots(), state.table.made_count());
        PoolStatus {
            slots,
            made,
            idle: state.table.idle(),
            waiting: state.waiting.len(),
            device_memory: state.table.memory(),
        }
    }
}

/// Figures of an [`ExecutablePool`], see [`ExecutablePool::status`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PoolStatus {
    /// Slots that there are: made, being made, or to be made when they are needed. Those of lost
    /// devices are gone.
    pub slots: usize,
    /// Slots that have been made.
    pub made: usize,
    /// Slots that have been made and are free.
    pub idle: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// Bytes of device memory that the slots have.
    pub device_memory: u64,
}

/// A request for a slot, see [`ExecutablePool::prepare`].
#[must_use = "nothing happens until `acquire`"]
pub struct AcquireBuilder<'a, T> {
    pool: &'a Arc<PoolInner<T>>,
    ask: Ask,
    deadline: Option<Deadline>,
}

impl<T: Send + 'static> AcquireBuilder<'_, T> {
    /// Sets how urgent the request is among those that wait for a slot. The most urgent one has its turn, but
    /// after 32 turns in which less urgent ones were passed over, one of these has it. How urgent the slot's
    /// work is on its device is decided where its executable is
    /// [finalized](crate::FinalizeOptions::priority).
    pub fn priority(mut self, priority: Priority) -> Self {
        self.ask.priority = priority;
        self
    }

    /// Sets the owner of the request. Owners with requests of the same priority in the queue take
    /// turns, however many each has.
    pub fn key(mut self, key: impl Hash) -> Self {
        self.ask.key = self.pool.keys.hash_one(key);
        self
    }

    /// Sets until when the answer is worth anything, as a time of [`std::time`] or of [`tokio::time`]. It
    /// holds for the wait for a slot and for all that is submitted in the slot.
    ///
    /// From then on nothing of the request starts. What waits for a slot, or for the end of a run, resolves
    /// to [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded). The error says where the time went: the
    /// queue of the pool, the partition on a device, or the host task that has not ended. A run that is late
    /// is [cancelled](crate::Submission::cancel); its slot comes back when the device lets go of it.
    ///
    /// [`submit_with`](PoolGuard::submit_with) can set an earlier deadline for a submission, but not a later
    /// one. As every deadline of a run, it has the submission handed to its device by a task where it comes
    /// after others; see [`SubmitBuilder::deadline`](crate::SubmitBuilder::deadline).
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use wakegraph::service::ExecutablePool;
    /// # use wakegraph::{HostBuffer, Result};
    /// async fn handle(pool: &ExecutablePool<HostBuffer<u32>>, number: u32) -> Result<u32> {
    ///     let in_time = Instant::now() + Duration::from_millis(50);
    ///     let slot = pool.prepare().deadline(in_time).acquire().await?;
    ///     slot.write().await[0] = number;
    ///     slot.submit().await?;
    ///     Ok(slot.read().await[0])
    /// }
    /// ```
    pub fn deadline(mut self, at: impl Into<Instant>) -> Self {
        self.deadline = Some(Deadline::at(at));
        self
    }

    /// Waits for a free slot.
    ///
    /// # Errors
    /// As [`ExecutablePool::acquire`]. [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) at its
    /// [deadline](Self::deadline), for which a request that has to wait needs the timer of the tokio runtime:
    /// [`Unavailable`](crate::ErrorKind::Unavailable) without.
    ///
    /// # Cancel safety
    /// As [`ExecutablePool::acquire`]. The place in the queue is taken when the future is first
    /// polled.
    pub async fn acquire(self) -> Result<PoolGuard<T>> {
        let Self { pool, mut ask, deadline } = self;
        let slot = acquire(pool, &mut ask);
        match deadline {
            None => slot.await,
            Some(deadline) => {
                let slot = until(Some(deadline.instant()), slot, || late(pool)).await??;
                Ok(slot.with_deadline(Some(deadline)))
            }
        }
    }
}

async fn acquire<T: Send + 'static>(pool: &Arc<PoolInner<T>>, ask: &mut Ask) -> Result<PoolGuard<T>> {
    let mut in_vain = None;
    loop {
        let mut permit = pool.permit(ask, in_vain.take()).await?;
        if permit.made().is_none() {
            permit = permit.make().await?;
        }
        if permit.is_usable() {
            take_turn().await;
            return Ok(PoolGuard::new(permit));
        }
        // It does not fit into the memory, or its device is lost: the request is the next to get another.
        in_vain = Some(permit);
    }
}

/// The error of a request that has no slot by its deadline.
fn late<T>(pool: &PoolInner<T>) -> Error {
    let name = &pool.name;
    let error =
        exceeded(format!("the deadline passed while the request waited for a slot of the pool '{name}'"));
    pool.what_is_left().map_or(error.clone(), |left| error.with_note(&left))
}

impl<T> Clone for ExecutablePool<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T> Debug for ExecutablePool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.lock();
        f.debug_struct("ExecutablePool")
            .field("name", &self.inner.name)
            .field("slots", &state.table.slots())
            .field("idle", &state.table.idle())
            .field("waiting", &state.waiting.len())
            .finish_non_exhaustive()
    }
}

impl<T> Debug for AcquireBuilder<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireBuilder").field("priority", &self.ask.priority).finish_non_exhaustive()
    }
}
