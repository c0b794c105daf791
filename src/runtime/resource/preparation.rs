//! Steps before a first run, measured: kernels are compiled and loaded, memory is allocated, graphs are
//! instantiated. Metrics and timelines show it.

use std::time::Duration;

use crate::runtime::completion::clock;
use crate::runtime::resource::device::Device;
use crate::util::event_log::EventLogs;
use crate::util::preparation_step::PreparationStep;

/// A step, as recordings keep it.
#[derive(Clone, Debug)]
pub(crate) struct Preparation {
    pub(crate) step: PreparationStep,
    pub(crate) device: String,
    /// The kernel, memory or command-buffer.
    pub(crate) of: String,
    /// In nanoseconds of the runtime's clock.
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The recordings of these steps.
pub(crate) static PREPARATION_LOGS: EventLogs<Preparation> = EventLogs::new();

/// Does `work`, and measures it if metrics or a timeline want to know. `of` names the kernel, memory or
/// command-buffer.
pub(crate) fn measure<T>(
    device: &Device,
    step: PreparationStep,
    of: impl FnOnce() -> String,
    work: impl FnOnce() -> T,
) -> T {
    if !device.metrics().is_heard() && !PREPARATION_LOGS.is_recording() {
        return work();
    }
    let start = clock::now();
    let done = work();
    note(device, step, of, start, clock::now());
    done
}

/// Tells metrics and timelines that a step has ended. `start` and `end` are nanoseconds of the runtime's
/// clock.
pub(super) fn note(
    device: &Device,
    step: PreparationStep,
    of: impl FnOnce() -> String,
    start: u64,
    end: u64,
) {
    device.metrics().prepared(step, Duration::from_nanos(end.saturating_sub(start)));
    if PREPARATION_LOGS.is_recording() {
        let device = device.selector().to_owned();
        PREPARATION_LOGS.record(&Preparation { step, device, of: of(), start, end });
    }
}
