//! What a device can do, from what it reports.

use super::options::OpenclOptions;
use super::query::DeviceQuery;
use super::sys::{self, Failure};
use crate::hal::{Capabilities, Progress, UpdateCapabilities};
use crate::types::CommandKinds;

/// What the backend itself asks about a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    /// Memory is shared virtual memory that the host sees at all times.
    pub(super) shared_memory: bool,
    /// `cl_khr_command_buffer`.
    pub(super) recording: Option<Recording>,
    /// What the part of a buffer object that is an argument must start at a multiple of, in bytes.
    pub(super) part_alignment: usize,
    /// Whether shared virtual memory can be moved to the device ahead of its use (2.1).
    pub(super) migrates_shared_memory: bool,
    /// Whether there may be memory of `cl_intel_unified_shared_memory`.
    pub(super) unified_memory: bool,
    /// Whether programs can be SPIR-V.
    pub(super) spirv: bool,
    /// Whether device and host clock can be read together.
    pub(super) timer: bool,
    /// Whether a queue can be created with properties (2.0), or only the old way.
    pub(super) queue_properties: bool,
    /// Whether out-of-order queues of the driver's can be used.
    pub(super) out_of_order_queues: bool,
}

/// How a device records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recording {
    /// The commands other than kernels have a `properties` argument.
    pub(super) properties: bool,
    /// Commands on shared virtual memory can be recorded.
    pub(super) pointers: bool,
    /// A recording can be enqueued again while it is pending.
    pub(super) simultaneous: bool,
    /// What can be changed in a recording: bits of `CL_MUTABLE_DISPATCH_*`.
    pub(super) mutable: sys::cl_mutable_dispatch_fields_khr,
    /// A recording can be made for, and enqueued on, an out-of-order queue.
    pub(super) out_of_order: bool,
}

/// The capability bit for out-of-order queues, which later versions replaced by a query of queue properties.
const CAPABILITY_OUT_OF_ORDER: sys::cl_bitfield = 1 << 3;

const fn version(major: u32, minor: u32, patch: u32) -> sys::cl_version {
    (major << 22) | (minor << 12) | patch
}

impl Features {
    pub(super) fn read(device: DeviceQuery<'_>, platform: &str, options: &OpenclOptions) -> Self {
        let svm = device.value::<sys::cl_bitfield>(sys::CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0);
        let numeric = device.text(sys::CL_DEVICE_VERSION).map_or((1, 2), |text| parse_version(&text));
        Self {
            shared_memory: options.shared_memory && svm & sys::CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0,
            recording: Recording::read(device),
            // Told in bits.
            part_alignment: device
                .value::<u32>(sys::CL_DEVICE_MEM_BASE_ADDR_ALIGN)
                .map_or(1, |bits| (bits as usize / 8).max(1)),
            migrates_shared_memory: numeric >= (2, 1),
            unified_memory: device.extension("cl_intel_unified_shared_memory").is_some(),
            spirv: device.text(sys::CL_DEVICE_IL_VERSION).is_ok_and(|il| il.contains("SPIR-V")),
            timer: numeric >= (2, 1),
            queue_properties: numeric >= (2, 0),
            // Intel's runtime for CPUs deadlocks now and then when one is released: its last task
            // waits for itself.
            out_of_order_queues: platform != INTEL,
        }
    }
}

impl Recording {
    fn read(device: DeviceQuery<'_>) -> Option<Self> {
        let reported = device.extension("cl_khr_command_buffer")?;
        let capabilities =
            device.value::<sys::cl_bitfield>(sys::CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR).unwrap_or(0);
        let required = device
            .value::<sys::cl_bitfield>(sys::CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR)
            .unwrap_or(0);
        if required != 0 {
            // Recordings are made for in-order queues without profiling; one that needs more is replayed.
            return None;
        }
        let out_of_order = if reported >= version(0, 9, 6) {
            let what = sys::CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR;
            device.value::<sys::cl_bitfield>(what).unwrap_or(0) & sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
        } else {
            capabilities & CAPABILITY_OUT_OF_ORDER
        };
        let updates = device.extension("cl_khr_command_buffer_mutable_dispatch").unwrap_or(0);
        // Before 0.9.2 updates were passed as a linked list: such a device records anew.
        let mutable = match updates >= version(0, 9, 2) {
            true => device.value(sys::CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR).unwrap_or(0),
            false => 0,
        };
        Some(Self {
            mutable,
            properties: reported >= version(0, 9, 5),
            pointers: reported >= version(0, 9, 4),
            simultaneous: capabilities & sys::CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR != 0,
            out_of_order: out_of_order != 0,
        })
    }
}

/// The two numbers in "OpenCL 3.0 some text"; of a text without them, the lowest version that works at all.
fn parse_version(text: &str) -> (u32, u32) {
    let number = text.split_whitespace().nth(1).and_then(|number| number.split_once('.'));
    let parsed = number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.unwrap_or((1, 2))
}

const INTEL: &str = "Intel(R) OpenCL";

pub(super) const POCL: &str = "Portable Computing Language";

/// PoCL's threads call back as they complete an event: whoever waits is woken as soon as by the
/// driver's own wait, and no thread has to look, for which there is no core to spare where kernels
/// run on all of them.
fn calls_back(platform: &str) -> bool {
    platform == POCL
}

fn progress(device: DeviceQuery<'_>) -> Progress {
    match device.value::<sys::cl_device_type>(sys::CL_DEVICE_TYPE).unwrap_or(0) & sys::CL_DEVICE_TYPE_CPU {
        0 => Progress::Device,
        _ => Progress::HostCores,
    }
}

/// `alone` is whether the device is the only one of its context.
pub(super) fn capabilities(
    device: DeviceQuery<'_>,
    platform: &str,
    features: &Features,
    alone: bool,
) -> Result<Capabilities, Failure> {
    // OpenCL has no commands that decide on the device, and nothing that takes down what others
    // enqueue on a queue.
    let mut commands = CommandKinds::all()
        - CommandKinds::HOST_TASK
        - CommandKinds::SUB_GRAPH
        - CommandKinds::IF
        - CommandKinds::WHILE
        - CommandKinds::NATIVE;
    if !features.shared_memory {
        commands -= CommandKinds::USM_COPY
            | CommandKinds::USM_FILL
            | CommandKinds::USM_PREFETCH
            | CommandKinds::USM_ADVISE;
    }
    let queues = device.value::<sys::cl_bitfield>(sys::CL_DEVICE_QUEUE_ON_HOST_PROPERTIES)?;
    let sizes = device.values::<usize>(sys::CL_DEVICE_MAX_WORK_ITEM_SIZES)?;
    Ok(Capabilities {
        commands,
        update: UpdateCapabilities::all(),
        profiling: true,
        notifies: calls_back(platform),
        progress: progress(device),
        batches: false,
        out_of_order_queues: queues & sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0,
        max_work_group_size: device.value(sys::CL_DEVICE_MAX_WORK_GROUP_SIZE)?,
        max_work_item_sizes: std::array::from_fn(|dimension| sizes.get(dimension).copied().unwrap_or(1)),
        max_work_groups: [usize::MAX; 3],
        // OpenCL leaves open what becomes of a buffer object that several devices use at once,
        // unless it is memory that they share. What is the only device of its context shares with
        // none.
        concurrent_parts: features.shared_memory || alone,
        global_offset: true,
        // What cannot be passed as it is, is passed as a copy (`lower.rs`).
        view_alignment: 1,
        local_memory: device.value::<u64>(sys::CL_DEVICE_LOCAL_MEM_SIZE)?.try_into().unwrap_or(usize::MAX),
        max_allocation: device
            .value::<u64>(sys::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?
            .try_into()
            .unwrap_or(usize::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_texts() {
        assert_eq!(parse_version("OpenCL 3.0 PoCL HSTR: pthread"), (3, 0));
        assert_eq!(parse_version("OpenCL 1.2"), (1, 2));
        assert_eq!(parse_version("nonsense"), (1, 2));
    }

    #[test]
    fn versions_are_packed_as_the_driver_does() {
        assert_eq!(version(1, 0, 0), 0x40_0000);
        assert_eq!(version(0, 9, 3), 0x9003);
    }
}
