//! Kernels that are loaded beside each other, as compilers take long for each.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::KernelRef;

/// Loads kernels on their devices, on as many threads as the process can run at a time. One that cannot be
/// loaded stays so: whoever needs it tries again, and gets the error.
pub(crate) fn load_all(kernels: &[(KernelRef, Device)]) {
    let unloaded: Vec<_> = kernels.iter().filter(|(kernel, device)| !kernel.is_on(device)).collect();
    if unloaded.len() > 1 {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        for_each_beside_others(&unloaded, threads, |(kernel, device)| drop(kernel.on(device)));
    }
}

/// Calls `work` for each of these, on this thread and on others, `threads` at most together.
fn for_each_beside_others<T: Sync>(all: &[T], threads: usize, work: impl Fn(&T) + Sync) {
    let (next, span) = (AtomicUsize::new(0), tracing::Span::current());
    let work_off = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(one);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(all.len()) {
            let thread = thread::Builder::new().name("wakegraph-compile".into());
            // Without another thread, this one does it all.
            let _ = thread.spawn_scoped(scope, || span.in_scope(work_off));
        }
        work_off();
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn each_is_worked_on_once_and_beside_others() {
        let counts: [AtomicUsize; 9] = Default::default();
        let three = Barrier::new(3);
        for_each_beside_others(&counts, 3, |count| {
            count.fetch_add(1, Relaxed);
            // Goes on only when three threads are here.
            three.wait();
        });
        assert!(counts.iter().all(|count| count.load(Relaxed) == 1));
    }
}
