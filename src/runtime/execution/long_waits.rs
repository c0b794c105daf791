//! A warning of guards that keep submissions from starting for long.
//!
//! A submission that waits for a guard waits for a task of the user's, and often that is the very task that
//! awaits the submission. No device is at fault, so no error ever tells. While submissions wait on the host,
//! a thread checks all of them now and then. So a wait has neither a timer nor an entry of its own, and a
//! submission that does not wait pays nothing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::runtime::execution::in_flight::runs_on;
use crate::runtime::execution::run::{Fence, Run};
use crate::runtime::resource::device::Device;
use crate::util::panics::catch_and_log;

/// Time between two checks. A wait is reported after one to two of them.
const PERIOD: Duration = Duration::from_secs(5);

/// Whether the thread is on. One of the standard library, as loom has none for statics.
static IS_ON: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// A submission is about to wait on the host: starts the thread, if it is not on.
pub(crate) fn expect() {
    use std::sync::atomic::Ordering::SeqCst;
    if IS_ON.load(SeqCst) || IS_ON.swap(true, SeqCst) {
        return;
    }
    let check = || check_while_any(PERIOD);
    if let Err(error) = thread::Builder::new().name("wakegraph-long-waits".into()).spawn(check) {
        IS_ON.store(false, SeqCst);
        tracing::debug!(target: "wakegraph", %error, "no thread checks for long waits");
    }
}

/// Checks now and then, as long as a submission waits for a guard.
fn check_while_any(period: Duration) {
    use std::sync::atomic::Ordering::SeqCst;
    let mut waits = LongWaits::default();
    loop {
        thread::sleep(period);
        if waits.check_all() {
            continue;
        }
        // A submission that finds the thread on from here on is found by the second check.
        IS_ON.store(false, SeqCst);
        if !waits.check_all() || IS_ON.swap(true, SeqCst) {
            return;
        }
    }
}

/// The guards that submissions waited for at the last check, by address.
#[derive(Default)]
struct LongWaits(HashMap<usize, KnownGuard>);

struct KnownGuard {
    /// Keeps the fence from being used for another guard, so that its address says which one it is.
    _fence: Weak<Fence>,
    is_reported: bool,
}

/// A guard, with a submission that waits for it, and how many do.
struct WaitedFor {
    guard: Arc<Fence>,
    first: Arc<Run>,
    count: usize,
}

impl LongWaits {
    /// Checks all devices, and reports. Returns whether a submission waits for a guard.
    fn check_all(&mut self) -> bool {
        let mut found = false;
        catch_and_log("a listener of warnings", || {
            let waits = waits(&Device::opened());
            found = !waits.is_empty();
            self.check(waits).iter().for_each(WaitedFor::warn);
        });
        found
    }

    /// Takes in what submissions wait for now. Returns what they already waited for at the last check, once.
    fn check(&mut self, mut waits: HashMap<usize, WaitedFor>) -> Vec<WaitedFor> {
        self.0.retain(|address, _| waits.contains_key(address));
        let mut long = Vec::new();
        for (address, waited_for) in waits.drain() {
            let new = || KnownGuard { _fence: Arc::downgrade(&waited_for.guard), is_reported: false };
            match self.0.get_mut(&address) {
                None => _ = self.0.insert(address, new()),
                Some(known) if !known.is_reported => {
                    known.is_reported = true;
                    long.push(waited_for);
                }
                Some(_) => {}
            }
        }
        long
    }
}

/// The guards that submissions on these devices wait for, by address.
fn waits(devices: &[Device]) -> HashMap<usize, WaitedFor> {
    let mut waits: HashMap<usize, WaitedFor> = HashMap::new();
    // All of its devices know an executable, and a queue that it is submitted to knows its runs, too.
    let runs: Vec<_> = devices.iter().flat_map(runs_on).collect();
    let mut seen = HashSet::new();
    for run in runs.iter().filter(|run| seen.insert(Arc::as_ptr(run)) && run.is_behind_guard()) {
        let Some(guard) = run.noted_guard() else { continue };
        let new = WaitedFor { guard: guard.clone(), first: run.clone(), count: 0 };
        waits.entry(Arc::as_ptr(&guard).addr()).or_insert(new).count += 1;
    }
    waits
}

impl WaitedFor {
    fn warn(&self) {
        let Some(progress) = self.first.progress() else { return };
        let (waits_for, submissions) = (&self.guard, self.count);
        tracing::warn!(
            target: "wakegraph::run",
            %waits_for,
            submissions,
            %progress,
            "a guard has kept submissions from starting for {PERIOD:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::mpsc;

    use tracing::field::Field;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

    use super::*;
    use crate::runtime::Graph;

    #[test]
    fn a_guard_is_reported_once_at_the_second_check() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let [device, other] = ["host:964", "host:965"].map(|name| Device::open(name).unwrap());
            let host = other.host_buffer::<u32>(4).unwrap();
            let mut graph = Graph::new(&device);
            graph.copy(device.buffer::<u32>(4).unwrap(), &host);
            let exec = graph.finalize().unwrap();
            let mut long_waits = LongWaits::default();
            let (queue, devices) = (device.queue().unwrap(), [device, other]);
            let mut check = || long_waits.check(waits(&devices));
            for _ in 0..2 {
                let line = line!() + 1;
                let guard = host.write().await;
                let submissions = [exec.submit(), queue.submit(&exec)];
                assert!(check().is_empty());
                let [long] = &*check() else { panic!("one guard is waited for") };
                assert_eq!(long.count, 2);
                let text = long.first.progress().unwrap().to_string();
                assert!(text.contains(&format!("waits for {}", long.guard)), "{text}");
                assert!(text.contains("a `HostMut` of the host buffer #"), "{text}");
                assert!(
                    text.contains(&format!("taken at src/runtime/execution/long_waits.rs:{line}:")),
                    "{text}"
                );
                assert!(check().is_empty(), "reported once");
                drop(guard);
                for submission in submissions {
                    submission.await.unwrap();
                }
            }
            assert!(check().is_empty());
        });
    }
    /// Passes on the warnings.
    struct Listener(mpsc::Sender<String>);

    impl<S: tracing::Subscriber> Layer<S> for Listener {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            let mut text = String::new();
            event.record(&mut |field: &Field, value: &dyn Debug| text += &format!("{field}={value:?} "));
            self.0.send(text).ok();
        }
    }

    #[test]
    fn the_thread_warns_and_ends() {
        let device = Device::open("host:966").unwrap();
        let host = device.host_buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.copy(device.buffer::<u32>(4).unwrap(), &host);
        let exec = graph.finalize().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, warnings) = mpsc::channel();
        runtime.block_on(async {
            let guard = host.write().await;
            let submission = exec.submit();
            let checks = thread::spawn(|| {
                let listener = tracing_subscriber::registry().with(Listener(sender));
                tracing::subscriber::with_default(listener, || check_while_any(Duration::from_millis(1)));
            });
            // Other tests have guards, too.
            let is_ours = |text: &String| text.contains("on host:966), taken at src/runtime");
            let warning = warnings.iter().find(is_ours).unwrap();
            assert!(warning.contains("submissions=1"), "{warning}");
            assert!(warning.contains("a guard has kept submissions from starting"), "{warning}");
            drop(guard);
            submission.await.unwrap();
            checks.join().unwrap();
        });
        assert_eq!(warnings.iter().filter(|text| text.contains("host:966")).count(), 0, "warned once");
    }
}
