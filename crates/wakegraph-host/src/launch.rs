//! Launches: a kernel's closure runs one in a single call, or in blocks, which several workers may share.
#![expect(unsafe_code, reason = "calls kernels with the memory that a launch names")]

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wakegraph_hal::support::errors::{foreign, stopped_kernel};
use wakegraph_hal::util::panics::catch;
use wakegraph_hal::{
    Block, BlockFn, BlockUnit, CpuLevel, Error, ErrorKind, HostArgs, HostCode, HostFn, Kernel, KernelDesc,
    KernelLaunch, Param, Result,
};

/// Work that several workers do together.
pub(super) trait SharedWork: Sync {
    /// Does a part of what is left. Returns whether anything was left to do.
    fn step(&self) -> bool;

    /// Leaves undone what no worker has begun, if anything is left.
    fn stop(&self);

    /// Percentage that workers have begun.
    fn percent(&self) -> u8;
}

/// Services of a worker for the commands that it runs.
pub(super) trait WorkerControl {
    /// Whether loops, and kernels that run in blocks, are to end.
    fn is_stopped(&mut self) -> bool;

    /// Steps through `work` until nothing is left, or it is to end.
    fn step_through(&mut self, work: &dyn SharedWork);

    /// Workers of the device.
    fn workers(&self) -> usize;

    /// Work of one thread that is worth a second one.
    fn worth_sharing(&self) -> Duration;

    /// Steps through `work` together with workers that have nothing else to do, `most` of them. Returns
    /// when it is done or stopped, and no other worker uses it any more.
    fn share(&mut self, work: &dyn SharedWork, most: usize);
}

/// The time that a kernel takes for a unit, by its last blocks, in nanoseconds; 0 until the first has run.
#[derive(Debug, Default)]
pub(super) struct UnitTime(AtomicU32);

impl UnitTime {
    fn nanoseconds(&self) -> f32 {
        f32::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Records a block. One that was over at once tells more about the clock than about the kernel, so it
    /// only lowers the time.
    fn record(&self, units: usize, took: Duration) {
        let (old, new) = (self.nanoseconds(), took.as_nanos().max(1) as f32 / units as f32);
        let merged = match () {
            () if old == 0.0 => new,
            () if took < PRECISE => old.min(new),
            () => (3.0 * old + new) / 4.0,
        };
        self.0.store(merged.to_bits(), Ordering::Relaxed);
    }
}

/// The shortest block whose time says how long a unit takes.
const PRECISE: Duration = Duration::from_micros(2);

/// Time that blocks take. The longest are short enough to be stopped between two, the shortest long enough
/// that taking one costs nothing beside it.
const LONGEST: Duration = Duration::from_micros(200);
const SHORTEST: Duration = Duration::from_micros(10);

/// The least number of blocks for each worker, where there is so much to do: the last ones end at about the
/// same time.
const BLOCKS_PER_WORKER: usize = 8;

/// Runs a launch.
///
/// # Errors
/// The closure's own, with [`Driver`](ErrorKind::Driver) in the place of a loss that it claims;
/// [`KernelPanicked`](ErrorKind::KernelPanicked); [`Cancelled`](ErrorKind::Cancelled) if it was stopped.
///
/// # Safety
/// The arguments are in bounds and valid, and nothing else accesses the bytes in a conflicting way until this
/// returns.
pub(super) unsafe fn run_kernel(launch: &KernelLaunch, control: &mut dyn WorkerControl) -> Result<()> {
    let kernel = HostKernel::of(&*launch.kernel)?;
    match &kernel.code {
        LoadedCode::Whole(function) => {
            // SAFETY: the caller vouched for the memory until the launch returns, and the arguments live no
            // longer.
            let mut args = unsafe { HostArgs::new(&launch.args, kernel.params()) };
            call(kernel, || function(&launch.range, &mut args))
        }
        LoadedCode::Blocks { unit, run } => {
            let mut work = DividedLaunch::new(launch, kernel, *run, *unit);
            let helpers = work.helpers_wanted(control);
            work.workers = helpers + 1;
            match helpers {
                0 => control.step_through(&work),
                helpers => control.share(&work, helpers),
            }
            work.outcome()
        }
    }
}

/// Calls a kernel's code. What it leaves half done is its buffers' contents, and the failed event says so.
fn call(kernel: &dyn Kernel, code: impl FnOnce() -> Result<()>) -> Result<()> {
    let name = kernel.name();
    match catch(code) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Error::of_closure(error, format!("kernel '{name}' failed"))),
        Err(panic) => {
            Err(Error::new(ErrorKind::KernelPanicked, format!("kernel '{name}' panicked: {panic}")))
        }
    }
}

/// A launch that runs in blocks.
struct DividedLaunch<'a> {
    launch: &'a KernelLaunch,
    kernel: &'a HostKernel,
    run: BlockFn,
    unit: BlockUnit,
    units: usize,
    /// Number of workers on it.
    workers: usize,
    /// The first unit that no worker has taken.
    next: AtomicUsize,
    /// Whether the rest is left undone, because of a failure or a stop.
    ends_early: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl<'a> DividedLaunch<'a> {
    fn new(launch: &'a KernelLaunch, kernel: &'a HostKernel, run: BlockFn, unit: BlockUnit) -> Self {
        Self {
            launch,
            kernel,
            run,
            unit,
            units: unit.count(&launch.range),
            workers: 1,
            next: AtomicUsize::new(0),
            ends_early: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Number of other workers that the launch is worth. A kernel that has never run is taken for long.
    fn helpers_wanted(&self, control: &dyn WorkerControl) -> usize {
        let most = control.workers().min(self.units).saturating_sub(1);
        let time = self.kernel.unit_time.nanoseconds() * self.units as f32;
        match () {
            () if most == 0 || time == 0.0 => most,
            // Not worth asking the schedule.
            () if time < SHORTEST.as_nanos() as f32 => 0,
            () => most.min((time / control.worth_sharing().as_nanos() as f32) as usize),
        }
    }

    /// Units of the next block, where so many are left.
    fn block_size(&self, left: usize) -> usize {
        let unit = self.kernel.unit_time.nanoseconds();
        if unit == 0.0 {
            return 1;
        }
        let each = unit * left as f32 / (self.workers * BLOCKS_PER_WORKER) as f32;
        let (shortest, longest) = (SHORTEST.as_nanos() as f32, LONGEST.as_nanos() as f32);
        let time = match self.workers {
            1 => longest,
            _ => each.clamp(shortest, longest),
        };
        ((time / unit) as usize).max(1)
    }

    fn take_block(&self) -> Option<Block> {
        let mut first = self.next.load(Ordering::Relaxed);
        while first < self.units && !self.ends_early.load(Ordering::Relaxed) {
            let left = self.units - first;
            let end = first + self.block_size(left).min(left);
            match self.next.compare_exchange_weak(first, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Block::new(self.launch.range, self.unit, first..end)),
                Err(now) => first = now,
            }
        }
        None
    }

    fn run_block(&self, block: Block) -> Result<()> {
        let (args, params) = (&self.launch.args, self.kernel.params());
        // SAFETY: the caller of `run_kernel` vouched for the memory until that returns, which is after all
        // blocks; blocks have no unit in common.
        let mut args = unsafe { HostArgs::of_block(args, params, block) };
        call(self.kernel, || {
            // SAFETY: `BlockCode::version` has chosen a version that this processor can run.
            unsafe { (self.run)(block, &mut args) }
        })
    }

    fn outcome(self) -> Result<()> {
        match self.failure.into_inner() {
            Some(error) => Err(error),
            None if self.next.into_inner() < self.units => Err(stopped_kernel()),
            None => Ok(()),
        }
    }
}

impl SharedWork for DividedLaunch<'_> {
    fn step(&self) -> bool {
        let Some(block) = self.take_block() else { return false };
        let start = Instant::now();
        match self.run_block(block) {
            Ok(()) => self.kernel.unit_time.record(block.len(), start.elapsed()),
            Err(error) => {
                self.failure.lock().get_or_insert(error);
                self.stop();
            }
        }
        true
    }

    fn stop(&self) {
        self.ends_early.store(true, Ordering::Relaxed);
    }

    fn percent(&self) -> u8 {
        let begun = self.next.load(Ordering::Relaxed).min(self.units);
        (begun as u128 * 100 / self.units.max(1) as u128) as u8
    }
}

/// A kernel's code with its signature.
pub(super) struct HostKernel {
    name: String,
    params: Vec<Param>,
    code: LoadedCode,
    max_work_group_size: usize,
    unit_time: UnitTime,
}

/// A kernel's code, in the version for this processor.
enum LoadedCode {
    Whole(HostFn),
    Blocks { unit: BlockUnit, run: BlockFn },
}

impl HostKernel {
    /// Loads a kernel, in its newest version up to `level` that this processor can run.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) when there is no Rust code.
    pub(super) fn load(
        desc: &KernelDesc<'_>,
        max_work_group_size: usize,
        level: Option<CpuLevel>,
    ) -> Result<Self> {
        let Some(code) = desc.sources.host.clone() else {
            let why = format!("kernel '{}' has no variant for the host", desc.name);
            return Err(Error::new(ErrorKind::FeatureNotSupported, why)
                .help("add Rust code to the kernel's sources (`each: |i, ...| ...`)"));
        };
        let code = match code {
            HostCode::Whole(function) => LoadedCode::Whole(function),
            HostCode::Blocks(code) => LoadedCode::Blocks { unit: code.unit(), run: code.version(level) },
        };
        let (name, params) = (desc.name.into(), desc.params.into());
        Ok(Self { name, params, code, max_work_group_size, unit_time: UnitTime::default() })
    }

    /// The kernel behind the contract's object.
    pub(super) fn of(kernel: &dyn Kernel) -> Result<&Self> {
        kernel.downcast_ref().ok_or_else(|| foreign("kernel"))
    }
}

impl Debug for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKernel").field("name", &self.name).field("params", &self.params).finish()
    }
}

impl Kernel for HostKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn params(&self) -> &[Param] {
        &self.params
    }

    fn max_work_group_size(&self) -> usize {
        self.max_work_group_size
    }

    fn can_be_stopped(&self) -> bool {
        matches!(self.code, LoadedCode::Blocks { .. })
    }
}
