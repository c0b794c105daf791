//! Kernels that are loaded in parallel where compilers take long for each.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use wakegraph_hal as hal;
use wakegraph_hal::{CodeOrigin, Compilation, KernelCache, KernelDesc, Result};

use crate::runtime::completion::clock;
use crate::runtime::resource::device::{Device, LoadedKernel};
use crate::runtime::resource::kernel::{KernelCall, KernelRef};
use crate::runtime::resource::kernel_explanation::KernelExplanation;
use crate::runtime::resource::preparation::note;
use crate::util::preparation_step::PreparationStep;

/// Compiles kernels for devices and loads them, in parallel on all cores, before a service opens its
/// port. A graph that launches them is finalized without a compiler then. The arguments do
/// not matter, and buffers may be empty.
///
/// Blocks until all are loaded. With a [`KernelCache`](super::KernelCache), this is also how to fill its
/// folder for an image. What a device compiles at the first run only, as some of OpenCL do, it still has to:
/// [`warm_up_with`](crate::service::ExecutablePool::warm_up_with) runs each executable once.
///
/// ```
/// use wakegraph::{Device, kernel};
///
/// wakegraph::kernel! {
///     fn double(x: &mut [u32]) { each: |_, x| *x *= 2 }
///     fn scale(by: f32, x: &mut [f32]) { each: |_, by, x| *x *= by }
/// }
///
/// # fn main() -> wakegraph::Result<()> {
/// let device = Device::best()?;
/// let (integers, floats) = (device.buffer(0)?, device.buffer(0)?);
/// kernel::compile_all([&device], [double(&integers), scale(1.0, &floats)])?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Of the kernels that cannot be loaded the first one's error, with the names of kernel and device:
/// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) for one without a variant for the device;
/// the compiler's and the driver's. All others are loaded.
pub fn compile_all<'d, C: Into<KernelCall>>(
    devices: impl IntoIterator<Item = &'d Device>,
    calls: impl IntoIterator<Item = C>,
) -> Result<()> {
    let kernels: Vec<KernelRef> = calls.into_iter().map(|call| call.into().kernel).collect();
    let on_each = |device: &'d Device| kernels.iter().map(|kernel| (kernel.clone(), device.clone()));
    let all: Vec<_> = devices.into_iter().flat_map(on_each).collect();
    load_all(&all);
    all.iter().try_for_each(|(kernel, device)| match kernel.on(device) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.in_node(format!("kernel '{}'", kernel.name())).on_device(device.selector())),
    })
}

/// Loads a kernel on a device, and measures it.
pub(super) fn load(device: &Device, desc: &KernelDesc<'_>) -> Result<LoadedKernel> {
    let start = clock::now();
    let kernel = device.observe(device.hal().create_kernel(desc))?;
    let (end, Compilation { origin, time }) = (clock::now(), kernel.compilation());
    let compiled = (start + clock::nanoseconds(time)).min(end);
    let of = || format!("kernel '{}'", desc.name);
    if origin != CodeOrigin::Given {
        note(device, PreparationStep::Compile, of, start, compiled);
    }
    note(device, PreparationStep::Load, of, compiled, end);
    device.metrics().kernel_loaded(origin);
    let (kernel_name, selector) = (desc.name.to_owned(), device.selector().to_owned());
    let load = Duration::from_nanos(end - compiled);
    let explanation =
        KernelExplanation { kernel: kernel_name, device: selector, origin, compile: time, load };
    Ok(LoadedKernel { kernel, explanation: Arc::new(explanation) })
}

/// Loads kernels on their devices, on as many threads as the process can run at a time. One that cannot be
/// loaded is left: the next use of it tries again, and gets the error.
pub(crate) fn load_all(kernels: &[(KernelRef, Device)]) {
    let unloaded: Vec<_> =
        kernels.iter().filter(|(kernel, device)| kernel.place(device).get().is_none()).collect();
    let rest = match KernelCache::is_enabled() {
        true => {
            behind_the_quick(&unloaded, |(kernel, device)| kernel.on(device).is_ok_and(|it| is_quick(&*it)))
        }
        false => &unloaded,
    };
    if rest.len() > 1 {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        for_each_in_parallel(rest, threads, &HELPERS, |(kernel, device)| drop(kernel.on(device)));
    }
}

/// Whether the kernel needed no compiler.
fn is_quick(kernel: &dyn hal::Kernel) -> bool {
    matches!(kernel.compilation().origin, CodeOrigin::Disk | CodeOrigin::Memory)
}

/// Loads one after another, until one was not quick, and returns the others. Code from disk takes a driver
/// microseconds, under a lock: threads beside this one would cost more than they save.
fn behind_the_quick<T>(all: &[T], mut load: impl FnMut(&T) -> bool) -> &[T] {
    let first_slow = all.iter().position(|one| !load(one));
    first_slow.map_or(&[], |slow| &all[slow + 1..])
}

/// Number of threads in the process that help to load kernels. Without a common number, a hundred graphs that
/// are finalized at once would start a hundred times as many threads as there are cores.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// One of the helpers that a number counts.
struct Helper<'a>(&'a AtomicUsize);

impl<'a> Helper<'a> {
    /// Counts one more, unless there are `most`.
    fn count(helpers: &'a AtomicUsize, most: usize) -> Option<Self> {
        let more = |now| (now < most).then_some(now + 1);
        helpers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(helpers))
    }
}

impl Drop for Helper<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls `work` for each of these, on this thread and on others: `threads` at most, of which all callers with
/// the same `helpers` share the others.
fn for_each_in_parallel<T: Sync>(all: &[T], threads: usize, helpers: &AtomicUsize, work: impl Fn(&T) + Sync) {
    let (next, span) = (AtomicUsize::new(0), tracing::Span::current());
    let work_off = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(one);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(all.len()) {
            let Some(helper) = Helper::count(helpers, threads - 1) else { break };
            let thread = thread::Builder::new().name("wakegraph-compile".into());
            let (span, work_off) = (&span, &work_off);
            // Without another thread, this one does it all.
            let _ = thread.spawn_scoped(scope, move || {
                span.in_scope(work_off);
                drop(helper);
            });
        }
        work_off();
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::Ordering::Relaxed;

    use wakegraph_hal::ErrorKind;
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    use super::*;
    use crate::kernel::RawKernel;
    use crate::{Graph, Range};

    #[test]
    fn what_is_compiled_before_is_not_when_a_graph_is_finalized() {
        let open = || FakeDevice::open(FakeOptions::new().logs_calls(true));
        let ((first, calls), (second, calls_of_second)) = (open(), open());
        let devices = [first, second].map(Device::from_hal);
        let loads = |calls: &wakegraph_hal::fake::FakeControl| {
            calls.take_calls().iter().filter(|call| call.starts_with("create kernel")).count()
        };
        let kernels = ["a", "b", "c"].map(|name| RawKernel::new(name).writes::<u32>("x").build());
        let empty = devices[0].buffer::<u32>(0).unwrap();
        compile_all(&devices, kernels.each_ref().map(|kernel| kernel.call().memory::<u32>(&empty))).unwrap();
        assert_eq!((loads(&calls), loads(&calls_of_second)), (3, 3));
        let x = devices[0].buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&devices[0]);
        for kernel in &kernels {
            graph.launch(kernel.call().memory::<u32>(&x), Range::linear(4));
        }
        graph.finalize().unwrap();
        assert_eq!(loads(&calls), 0);
    }

    #[test]
    fn a_kernel_that_cannot_be_compiled_is_named_and_no_other_left_out() {
        let device = Device::open("host:863").unwrap();
        let [bad, worse] = ["bad", "worse"].map(|name| RawKernel::new(name).build());
        let good = RawKernel::new("good").host(|_, _| Ok(()));
        let error = compile_all([&device], [bad.call(), worse.call(), good.call()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
        assert_eq!((error.node(), error.device()), (Some("kernel 'bad'"), Some("host:863")));
        assert!(KernelRef::Raw(good).place(&device).get().is_some());
    }

    #[test]
    fn threads_come_behind_the_first_that_is_not_quick() {
        let mut loaded = Vec::new();
        let mut rest = |quick: &[bool]| {
            loaded.clear();
            let load = |&is_quick: &bool| {
                loaded.push(is_quick);
                is_quick
            };
            (behind_the_quick(quick, load).len(), loaded.len())
        };
        assert_eq!(rest(&[true; 3]), (0, 3));
        assert_eq!(rest(&[true, false, true, false, true]), (3, 2));
        assert_eq!(rest(&[false]), (0, 1));
        assert_eq!(rest(&[]), (0, 0));
    }

    #[test]
    fn each_is_worked_on_once_and_beside_others() {
        let counts: [AtomicUsize; 9] = Default::default();
        let three = Barrier::new(3);
        for_each_in_parallel(&counts, 3, &AtomicUsize::new(0), |count| {
            count.fetch_add(1, Relaxed);
            // Goes on only when three threads are here.
            three.wait();
        });
        assert!(counts.iter().all(|count| count.load(Relaxed) == 1));
    }

    #[test]
    fn callers_share_the_helpers() {
        let (caller, helpers) = (thread::current().id(), AtomicUsize::new(2));
        for_each_in_parallel(&[(); 9], 3, &helpers, |()| assert_eq!(thread::current().id(), caller));
        assert_eq!(helpers.load(Relaxed), 2);
    }
}
