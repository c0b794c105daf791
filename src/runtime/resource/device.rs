//! Devices as users open them.

use std::fmt::{self, Debug};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use dashmap::DashMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tokio::sync::watch;
use wakegraph_hal::{
    self as hal, Capabilities, CommandKinds, DeviceId, DeviceInfo, Error, ErrorKind, KindPlace, Result,
};

use crate::backend;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::completion::tuning::WakePolicy;
use crate::runtime::resource::health::{Health, HealthCell, HealthListener, Stall};
use crate::runtime::resource::host_pool::HostPool;
use crate::runtime::resource::kernel_explanation::KernelExplanation;
use crate::util::attachment::Attached;
use crate::util::metrics::DeviceMetrics;
use crate::util::panics::catch;
use crate::util::{TryOnce, fork};

/// An opened device: where buffers live and commands run. Clones are handles to the same device.
///
/// Devices do not survive `fork`, as drivers and threads do not: a child of a process that has opened one
/// can neither open devices nor submit, which fails with [`Unavailable`](ErrorKind::Unavailable). Fork
/// before the first device is opened, or start the child as a program of its own. What was in flight when
/// the process was forked ends in the parent only, so the child awaits nothing of it.
///
/// The guide has pages on [what to install](crate::guide::devices) and on
/// [several devices](crate::guide::several_devices).
///
/// ```
/// use wakegraph::Device;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::best()?; // or Device::open("cuda:H200"), Device::open("host")
/// println!("{} is {}", device.selector(), device.info().name);
/// let x = device.buffer_from(&[1u32, 2, 3])?;
/// assert_eq!(x.to_vec().await?, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Device {
    inner: Arc<DeviceInner>,
}

/// Runs that wait to be submitted to a device, which `execution::submission_queue` defines.
pub(crate) enum DeviceSubmissionQueue {}

/// Sources of work on a device, which `execution::in_flight` defines.
pub(crate) enum DeviceWork {}

struct DeviceInner {
    hal: hal::ValidatedDevice,
    /// As its capabilities say: asked for at each submission.
    notifies: bool,
    wake_policy: AtomicU8,
    reactor: OnceLock<Reactor>,
    submission_queue: Attached<DeviceSubmissionQueue>,
    work: Attached<DeviceWork>,
    health: Arc<HealthCell>,
    metrics: DeviceMetrics,
    host_pool: Arc<HostPool>,
    /// Whether it refuses new work.
    is_shut_down: AtomicBool,
    /// The guards that have it profiled.
    profilers: AtomicU32,
    /// Declared kernels loaded on this device, by the address of their declaration, a static.
    kernels: LoadedKernels,
}

/// A kernel as a device has loaded it.
#[derive(Debug)]
pub(crate) struct LoadedKernel {
    pub(crate) kernel: Arc<dyn hal::Kernel>,
    pub(crate) explanation: Arc<KernelExplanation>,
}

/// Place of a kernel that a device has loaded, or is to load.
pub(crate) type KernelPlace = TryOnce<LoadedKernel>;

/// Kernels by the address of their declaration.
pub(crate) type LoadedKernels = DashMap<usize, Arc<KernelPlace>, FxBuildHasher>;

impl Drop for DeviceInner {
    fn drop(&mut self) {
        self.reactor.get().into_iter().for_each(Reactor::close);
    }
}

/// Devices that are open, so that a device has one reactor however often it is opened.
static OPEN: LazyLock<DashMap<String, Weak<DeviceInner>>> = LazyLock::new(DashMap::new);

/// All devices that there are. The lock is held for bookkeeping only.
static DEVICES: Mutex<Vec<Weak<DeviceInner>>> = Mutex::new(Vec::new());

/// Selectors of the devices that are there, the best first: the GPUs of all backends, then the others. Asks a
/// backend only when it is its turn.
fn selectors<'a>(backends: &'a [&'a dyn hal::Backend]) -> impl Iterator<Item = String> + 'a {
    let gpus = |backend: &dyn hal::Backend| backend.gpu_count().unwrap_or(0);
    let named = |backend: &'a dyn hal::Backend, indices: Range<usize>| {
        indices.map(move |index| format!("{}:{index}", backend.name()))
    };
    let others = move |backend: &dyn hal::Backend| gpus(backend)..backend.device_count().unwrap_or(0);
    let first = backends.iter().flat_map(move |&backend| named(backend, 0..gpus(backend)));
    first.chain(backends.iter().flat_map(move |&backend| named(backend, others(backend))))
}

impl Device {
    /// Opens the best device there is: the first GPU that CUDA, OpenCL, Level Zero or HIP finds, in this
    /// order; without a GPU, the host device `host:0`.
    ///
    /// CUDA and OpenCL come first because GPUs have run these backends. No GPU has run the other two so far.
    /// The host device comes before an OpenCL runtime for the CPU: the examples `photo` and `solver` take
    /// about as long on both, and it needs no library.
    ///
    /// # Errors
    /// Those of opening it. The host device is always there.
    pub fn best() -> Result<Self> {
        let found = selectors(backend::backends()).next();
        Self::open(&found.ok_or_else(|| Error::new(ErrorKind::Unavailable, "no backend has a device"))?)
    }

    /// Opens the device that `selector` means: a backend and an index, as `"host:0"`, or a backend
    /// and a part of a name, as `"cuda:H200"`, `"opencl:intel"` or `"opencl:pocl"`; a backend alone
    /// means its first device.
    ///
    /// A name is searched for in the names of the device, its vendor and its platform, whatever the
    /// case of the letters. Where several devices have it, the one with the lowest index is opened.
    ///
    /// The backend `host` is the CPU: each index is a worker pool of its own, so that graphs over
    /// several devices can be tried without hardware.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when nothing follows the colon;
    /// [`Unavailable`](ErrorKind::Unavailable) when there is no such backend or device, with those
    /// that there are, or when its library is missing; and in a process that was forked off one with open
    /// devices, see [`Device`].
    pub fn open(selector: &str) -> Result<Self> {
        fork::check()?;
        let (backend, index) = backend::resolve(selector)?;
        let canonical = format!("{}:{index}", backend.name());
        // The entry is held while the device is opened, so that of several threads only one opens it.
        let mut entry = OPEN.entry(canonical).or_default();
        if let Some(inner) = entry.upgrade() {
            return Ok(Self { inner });
        }
        let device = Self::from_hal(backend.open(index)?);
        *entry = Arc::downgrade(&device.inner);
        Ok(device)
    }

    /// Opens every device of every backend that is available: GPUs first, in the order of
    /// [`best`](Self::best), then the host device, then the other devices. A GPU that two backends reach is
    /// there twice.
    ///
    /// # Errors
    /// Those of opening a device that was found. Backends that are not available are left out.
    pub fn all() -> Result<Vec<Self>> {
        selectors(backend::backends()).map(|selector| Self::open(&selector)).collect()
    }

    /// A device of the backend contract, whose use is [validated](hal::ValidatedDevice): for backends
    /// outside this repository, and for devices opened with options of their own.
    pub fn from_hal(device: Arc<dyn hal::Device>) -> Self {
        Self::validated(hal::ValidatedDevice::new(device))
    }

    fn validated(hal: hal::ValidatedDevice) -> Self {
        fork::refuse_children();
        let inner = Arc::new(DeviceInner {
            notifies: hal.capabilities().notifies,
            metrics: DeviceMetrics::new(&hal.info().selector),
            hal,
            wake_policy: AtomicU8::new(WakePolicy::default() as u8),
            reactor: OnceLock::new(),
            submission_queue: Default::default(),
            work: Default::default(),
            health: HealthCell::new(),
            host_pool: Arc::default(),
            is_shut_down: AtomicBool::new(false),
            profilers: AtomicU32::new(0),
            kernels: LoadedKernels::default(),
        });
        let mut devices = DEVICES.lock();
        if devices.len() == devices.capacity() {
            devices.retain(|device| device.strong_count() > 0);
            // As many again before the next time.
            let room = devices.len().max(8);
            devices.reserve(room);
        }
        devices.push(Arc::downgrade(&inner));
        drop(devices);
        Self { inner }
    }

    /// Returns the description of the device.
    pub fn info(&self) -> &DeviceInfo {
        self.inner.hal.info()
    }

    /// Returns the selector that opens the device, such as `host:0`.
    pub fn selector(&self) -> &str {
        &self.info().selector
    }

    /// Returns the capabilities of the device.
    pub fn capabilities(&self) -> &Capabilities {
        self.inner.hal.capabilities()
    }

    /// Returns the kinds that nodes on the device may have: those that it records, and hints, which
    /// become empty commands where it has no use for them.
    pub(crate) fn node_kinds(&self) -> CommandKinds {
        let mut kinds = self.capabilities().commands;
        if kinds.contains(CommandKinds::EMPTY) {
            kinds |= CommandKinds::of_rows(|row| row.has_no_effect);
        }
        let on_streams = CommandKinds::of_rows(|row| row.place == KindPlace::Stream);
        kinds.set(on_streams, self.capabilities().stream_tasks);
        kinds
    }

    /// The device of the backend contract, behind its validation. The contract has a
    /// version of its own.
    pub fn hal(&self) -> &hal::ValidatedDevice {
        &self.inner.hal
    }

    /// Splits the device into `count` devices of equal size.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) when it cannot be split so.
    pub fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Self>> {
        Ok(self.inner.hal.sub_devices(count)?.into_iter().map(Self::validated).collect())
    }

    /// Divides the compute units between two devices: a share with at least `units` of them, and the rest.
    /// Kernels of the one never take a unit of the other, so what has to be answered soon runs on the share,
    /// and long work beside it on the rest. On CUDA, a native command keeps to the units only on the stream
    /// that it is lent: kernels on streams of its own, and graphs that it captured elsewhere, may run on all.
    ///
    /// The driver may round up: CUDA to multiples of 8 multiprocessors on an H100 or H200.
    /// [`info().compute_units`](DeviceInfo::compute_units) says how many each device has. This device stays
    /// as it is, and its kernels run on all units, also on those of the share. On CUDA, a second share of
    /// this device gets the same units as the first: for units of its own, divide the rest, which the host
    /// does, and CUDA with driver 580 refuses.
    ///
    /// On CUDA, all of them have the same memory: a kernel of one may use the buffers of another, but
    /// [imported](Self::import) ones only where they were imported. On OpenCL, the share and the rest have
    /// their memory in common, and copies between them and this device go through the host. On the host, both
    /// have workers of their own, and this device keeps its own.
    ///
    /// CUDA keeps 4 MiB of the device's memory for a share, and as much for a rest, until the process ends.
    /// Later shares of the same size use it again.
    ///
    /// ```
    /// use wakegraph::Device;
    /// use wakegraph::backend::host::{self, HostOptions};
    ///
    /// let device = Device::from_hal(host::open(HostOptions::new().threads(4))?);
    /// let (soon, rest) = device.share(1)?;
    /// assert_eq!([soon.info().compute_units, rest.info().compute_units], [1, 3]);
    /// # Ok::<(), wakegraph::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for no units, and for as many as there are or more;
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) on Level Zero and HIP, with CUDA drivers
    /// before 12.4, and where the driver cannot divide the units so; the driver's.
    pub fn share(&self, units: usize) -> Result<(Self, Self)> {
        let [share, rest] = self.observe(self.inner.hal.share(units))?.map(Self::validated);
        Ok((share, rest))
    }

    /// Gives memory back to the system that the device keeps for later allocations.
    ///
    /// All devices keep what dropped [host buffers](Self::host_pool_stats) have left, and some, as CUDA's,
    /// also what dropped buffers have: allocating it again is fast, and other processes cannot have it
    /// meanwhile. Call this after a phase that needed much memory. There is no need to call it when memory
    /// runs out: an allocation that fails does the same and tries again.
    ///
    /// Blocks until what was freed before is free.
    ///
    /// # Errors
    /// The driver's, such as [`DeviceLost`](ErrorKind::DeviceLost).
    pub fn trim(&self) -> Result<()> {
        self.inner.host_pool.trim();
        self.observe(self.inner.hal.trim())
    }

    /// The health of the device, as it is and whenever it changes.
    ///
    /// A device is [`Lost`](Health::Lost) as soon as any call of its driver has said so, whichever
    /// submission, allocation or query made that call. It is [`Stalled`](Health::Stalled) while a submission
    /// is in flight whose [watchdog](crate::SubmitBuilder::watchdog) has found it to hang. Neither asking nor
    /// watching calls the driver in a way that waits, so both are safe on a tokio worker while the device
    /// hangs.
    ///
    /// ```
    /// # let device = wakegraph::Device::open("host")?;
    /// let health = device.health();
    /// assert!(health.borrow().is_healthy()); // what a readiness probe asks for
    /// # Ok::<(), wakegraph::Error>(())
    /// ```
    pub fn health(&self) -> watch::Receiver<Health> {
        self.check_for_loss();
        self.inner.health.subscribe()
    }

    /// Why the device is lost, if that is known. Does not ask the driver.
    pub(crate) fn loss(&self) -> Option<Error> {
        self.inner.health.loss()
    }

    /// Whether a watchdog has found work on the device that does not end.
    pub(crate) fn is_stalled(&self) -> bool {
        self.inner.health.is_stalled()
    }

    /// The error of work on the device that does not end, as a watchdog has found it.
    pub(crate) fn stalled(&self) -> Option<Error> {
        self.inner.health.stalled()
    }

    /// Tells a listener of changes of the device's health.
    pub(crate) fn tell_of_health(&self, listener: Weak<dyn HealthListener>) {
        self.inner.health.tell(listener);
    }

    /// Waits until the device is lost, which may be never, and tells why.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> Error {
        let mut health = self.health();
        let lost = health.wait_for(Health::is_lost).await.ok().and_then(|health| health.error().cloned());
        match lost {
            Some(error) => error,
            // Not while the device is borrowed, which has the sender.
            None => std::future::pending().await,
        }
    }

    /// Passes a result on. If it says that the device is lost, those who watch its health hear of it.
    pub(crate) fn observe<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && error.kind() == ErrorKind::DeviceLost
        {
            self.check_for_loss();
        }
        result
    }

    /// All devices that are open.
    pub(crate) fn opened() -> Vec<Self> {
        let upgrade = |device: &Weak<DeviceInner>| device.upgrade().map(|inner| Self { inner });
        DEVICES.lock().iter().filter_map(upgrade).collect()
    }

    /// Asks whether the device is lost. A driver may lose all of its devices at once, so it asks the
    /// others, too.
    pub(crate) fn check_for_loss(&self) {
        if self.has_news_of_loss() {
            Self::opened().iter().for_each(|device| _ = device.has_news_of_loss());
        }
    }

    /// Whether the device is lost, which was not known before.
    fn has_news_of_loss(&self) -> bool {
        let Err(error) = self.inner.hal.status() else { return false };
        let error = error.on_device(self.selector());
        let is_news = self.inner.health.set_lost(error.clone());
        if is_news {
            // What listens to the log must not keep the runs on the device from ending.
            let _ = catch(|| {
                tracing::error!(target: "wakegraph", %error, device = self.selector(), "a device is lost");
            });
        }
        is_news
    }

    /// A submission hangs on the device, until the value that this returns is dropped.
    pub(crate) fn stall(&self, error: Error) -> Stall {
        self.inner.health.stall(error)
    }

    /// Refuses new work from now on.
    pub(crate) fn set_shut_down(&self) {
        self.inner.is_shut_down.store(true, Ordering::SeqCst);
        self.inner.health.set_shut_down();
    }

    /// Fails if new work is refused.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) after a [shutdown](Self::shutdown), and in a process that was
    /// forked off.
    pub(crate) fn accepts_work(&self) -> Result<()> {
        fork::check()?;
        if !self.inner.is_shut_down.load(Ordering::Relaxed) {
            return Ok(());
        }
        let error =
            Error::new(ErrorKind::Unavailable, "the device has been shut down, and takes no new work");
        Err(error.on_device(self.selector()))
    }

    /// Returns the number of guards that have it [profiled](Self::profile).
    pub(crate) fn profilers(&self) -> &AtomicU32 {
        &self.inner.profilers
    }

    /// Returns the policy for how eagerly completions on this device are noticed.
    pub fn wake_policy(&self) -> WakePolicy {
        WakePolicy::from_repr(self.inner.wake_policy.load(Ordering::Relaxed))
    }

    /// Sets how eagerly completions are noticed, for all handles of this device, from the next
    /// submission on.
    pub fn set_wake_policy(&self, policy: WakePolicy) {
        self.inner.wake_policy.store(policy as u8, Ordering::Relaxed);
        if let Some(reactor) = self.inner.reactor.get() {
            reactor.set_policy(policy);
        }
    }

    /// Has a task of `runtime` poll for the ends of long work on this device in place of a thread. Where the
    /// device is awaited in that runtime anyway, each end then wakes one thread in place of two.
    ///
    /// This saves CPU time and costs latency: tokio's timers have milliseconds, so an end may be seen two of
    /// them late. Work that takes less than 5 ms is not affected.
    ///
    /// ```
    /// # fn main() -> wakegraph::Result<()> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # runtime.block_on(async {
    /// let device = wakegraph::Device::best()?;
    /// device.run_reactor_on(&tokio::runtime::Handle::current())?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// Submissions may still be awaited anywhere. While the runtime does not poll its tasks, as when
    /// one of them blocks, and once it has been shut down, the thread takes over, which may take 0.1 s.
    /// A later call replaces the runtime. On devices that notify there is no reactor: this does nothing.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when the runtime was built without timers, and when the system
    /// has no thread to give.
    ///
    /// # Panics
    /// Does not panic. A runtime without timers makes tokio panic inside this call, which prints
    /// a message and becomes the error. A process that is built to abort on panics ends there.
    pub fn run_reactor_on(&self, runtime: &tokio::runtime::Handle) -> Result<()> {
        self.reactor().map_or(Ok(()), |reactor| {
            reactor.start()?;
            reactor.run_on(runtime)
        })
    }

    /// Whether queues of this device can wait for events of `other` themselves.
    pub(crate) fn can_wait_for(&self, other: &Self) -> bool {
        self.id() == other.id() || self.inner.hal.can_wait_for(&other.inner.hal)
    }

    pub(super) fn host_pool(&self) -> &Arc<HostPool> {
        &self.inner.host_pool
    }

    pub(crate) fn metrics(&self) -> &DeviceMetrics {
        &self.inner.metrics
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.info().id
    }

    /// Whether the runtime polls for the ends of its work, because it does not notify.
    pub(crate) fn is_polled(&self) -> bool {
        !self.inner.notifies
    }

    pub(crate) fn submission_queue(&self) -> &Attached<DeviceSubmissionQueue> {
        &self.inner.submission_queue
    }

    pub(crate) fn work(&self) -> &Attached<DeviceWork> {
        &self.inner.work
    }

    /// The reactor, for a device that is polled.
    pub(crate) fn reactor(&self) -> Option<&Reactor> {
        if !self.is_polled() {
            return None;
        }
        let progress = self.capabilities().progress;
        Some(self.inner.reactor.get_or_init(|| Reactor::new(self.selector(), progress, self.wake_policy())))
    }

    /// Starts the reactor's thread, on a device that is polled.
    pub(crate) fn start_reactor(&self) -> Result<()> {
        self.reactor().map_or(Ok(()), Reactor::start)
    }

    /// The kernels of [`kernel!`](crate::kernel!) that are loaded, by the address of the declaration.
    pub(crate) fn loaded_kernels(&self) -> &LoadedKernels {
        &self.inner.kernels
    }

    pub(crate) fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.inner))
    }
}

/// Names a device without keeping it open.
pub(crate) struct WeakDevice(Weak<DeviceInner>);

impl WeakDevice {
    pub(crate) fn is(&self, device: &Device) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&device.inner))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Debug for WeakDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakDevice").field("is_gone", &self.is_gone()).finish()
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Device {}

impl Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}: {})", self.selector(), self.info().name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    crate::kernel! {
        fn nothing(x: &mut [u32]) { host: |_, x| _ = x }
    }

    /// A backend with so many GPUs and other devices.
    #[derive(Debug)]
    struct Counted(&'static str, Result<[usize; 2]>);

    impl hal::Backend for Counted {
        fn name(&self) -> &'static str {
            self.0
        }

        fn device_names(&self) -> Result<Vec<String>> {
            let [gpus, others] = self.1.clone()?;
            Ok(vec![String::new(); gpus + others])
        }

        fn gpu_count(&self) -> Result<usize> {
            Ok(self.1.clone()?[0])
        }

        fn open(&self, _index: usize) -> Result<Arc<dyn hal::Device>> {
            unreachable!("devices are only counted")
        }
    }

    #[test]
    fn gpus_of_every_backend_come_before_the_cpu() {
        let missing = || Err(Error::new(ErrorKind::Unavailable, "no library"));
        let (host, opencl) = (Counted("host", Ok([0, 1])), Counted("opencl", Ok([2, 1])));
        let cuda = Counted("cuda", Ok([1, 0]));
        let all: Vec<_> = selectors(&[&cuda, &host, &opencl]).collect();
        assert_eq!(all, ["cuda:0", "opencl:0", "opencl:1", "host:0", "opencl:2"]);
        let (cuda, none) = (Counted("cuda", missing()), Counted("opencl", missing()));
        assert_eq!(selectors(&[&cuda, &host, &opencl]).next().unwrap(), "opencl:0");
        assert_eq!(selectors(&[&cuda, &host, &none]).collect::<Vec<_>>(), ["host:0"]);
    }

    #[test]
    fn threads_that_load_a_kernel_at_once_get_the_same_one() {
        for index in 870..if cfg!(miri) { 872 } else { 900 } {
            let (device, all) = (Device::open(&format!("host:{index}")).unwrap(), Barrier::new(4));
            let raw = crate::kernel::RawKernel::new("raw").host(|_, _| Ok(()));
            let x = device.buffer::<u32>(1).unwrap();
            let declared: crate::kernel::KernelCall = nothing(&x);
            for call in [declared, raw.call().into()] {
                let load = || {
                    all.wait();
                    call.kernel.on(&device).unwrap()
                };
                let kernels: Vec<_> = std::thread::scope(|scope| {
                    let threads: Vec<_> = (0..4).map(|_| scope.spawn(load)).collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
                });
                assert!(kernels.iter().all(|kernel| Arc::ptr_eq(kernel, &kernels[0])));
                assert!(Arc::ptr_eq(&call.kernel.on(&device).unwrap(), &kernels[0]));
            }
        }
    }

    #[test]
    fn threads_that_open_a_device_at_once_get_the_same_one() {
        for index in 900..if cfg!(miri) { 902 } else { 930 } {
            let all = Barrier::new(4);
            let open = || {
                all.wait();
                Device::open(&format!("host:{index}")).unwrap()
            };
            let devices: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(devices.iter().all(|device| Arc::ptr_eq(&device.inner, &devices[0].inner)));
        }
    }
}
