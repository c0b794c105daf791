//! What a device can do, read from the driver.

use wakegraph_hal::{Capabilities, CommandKinds, Progress, UpdateCapabilities};

use super::options::OpenclOptions;
use super::query::{Query, extension};
use super::sys::{self, DriverResult};

/// Features that only this backend needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenclFeatures {
    /// Memory is shared virtual memory that the host sees at all times.
    pub(super) shared_memory: bool,
    /// `cl_khr_command_buffer`.
    pub(super) recording: Option<RecordingFeatures>,
    /// Whether arguments can be parts of buffer objects (`clCreateSubBuffer`).
    pub(super) sub_buffers: bool,
    /// Alignment in bytes of such a part.
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
    /// The version of OpenCL that the device has.
    pub(super) version: (u32, u32),
    /// Whether the driver's out-of-order queues can be used.
    pub(super) out_of_order_queues: bool,
    /// Whether the slices of a rectangle have to lie in the buffer object as a whole, with the bytes
    /// between the rectangle and the pitch.
    pub(super) whole_slices: bool,
    /// Whether the driver knows when markers and barriers began and ended.
    pub(super) marker_times: bool,
    /// Whether a write reads memory that is not the driver's when it has its turn, and not before.
    pub(super) defers_writes: bool,
    /// Whether the times of an event may become available a moment after it is complete.
    pub(super) late_times: bool,
    /// Whether the markers in a queue are complete when `clFinish` returns.
    pub(super) finish_completes_markers: bool,
    /// Whether a command that waits for an event that fails is over at once, what waits for it is skipped and
    /// reported as complete, and what comes after either runs.
    pub(super) failure_skips: bool,
    /// Whether a thread that waits for an event takes part in the kernels before it.
    pub(super) waiting_runs_kernels: bool,
    /// Whether a queue can be created with a priority.
    pub(super) queue_priorities: bool,
}

/// How a device records command-buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordingFeatures {
    /// A recording can be enqueued again, behind its last run, while that is pending.
    pub(super) repeats: bool,
    /// Such a recording has to be made for simultaneous use.
    pub(super) simultaneous: bool,
    /// What can be changed in a recording: bits of `CL_MUTABLE_DISPATCH_*`.
    pub(super) mutable: sys::cl_mutable_dispatch_fields_khr,
}

const fn version(major: u32, minor: u32, patch: u32) -> sys::cl_version {
    (major << 22) | (minor << 12) | patch
}

impl OpenclFeatures {
    pub(super) fn read(device: &impl Query, platform: &str, options: &OpenclOptions) -> Self {
        let svm = device.value::<sys::cl_bitfield>(sys::CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0);
        let numeric = device.text(sys::CL_DEVICE_VERSION).map_or((1, 2), |text| parse_version(&text));
        Self {
            shared_memory: options.shared_memory && svm & sys::CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0,
            recording: RecordingFeatures::read(device),
            // NVIDIA's driver (580) crashes when it releases some of those that several queues have used,
            // also if nothing uses them or their buffer object any more.
            sub_buffers: platform != NVIDIA,
            // The driver counts in bits.
            part_alignment: device
                .value::<u32>(sys::CL_DEVICE_MEM_BASE_ADDR_ALIGN)
                .map_or(1, |bits| (bits as usize / 8).max(1)),
            migrates_shared_memory: numeric >= (2, 1),
            unified_memory: extension(device, "cl_intel_unified_shared_memory").is_some(),
            spirv: device.text(sys::CL_DEVICE_IL_VERSION).is_ok_and(|il| il.contains("SPIR-V")),
            version: numeric,
            timer: numeric >= (2, 1),
            queue_properties: numeric >= (2, 0),
            // Intel's CPU runtime sometimes deadlocks while it releases one: its last task waits for
            // itself.
            out_of_order_queues: platform != INTEL,
            // NVIDIA's driver (580) refuses some rectangles that lie in the buffer by the specification's
            // formula.
            whole_slices: platform == NVIDIA,
            // That driver reports the times of something earlier, or none at all.
            marker_times: platform != NVIDIA,
            defers_writes: platform != NVIDIA,
            late_times: platform == NVIDIA,
            finish_completes_markers: platform != NVIDIA,
            failure_skips: platform == INTEL,
            waiting_runs_kernels: platform == INTEL && is_cpu(device).unwrap_or(false),
            queue_priorities: numeric >= (2, 0) && extension(device, "cl_khr_priority_hints").is_some(),
        }
    }
}

impl RecordingFeatures {
    fn read(device: &impl Query) -> Option<Self> {
        // Before 0.9.5 the functions had other signatures: such a device replays.
        let reported = extension(device, "cl_khr_command_buffer")?;
        if reported < version(0, 9, 5) {
            return None;
        }
        let bits = |what| device.value::<sys::cl_bitfield>(what).unwrap_or(0);
        if bits(sys::CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR) != 0 {
            // Recordings are made for in-order queues without profiling.
            return None;
        }
        let capabilities = bits(sys::CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR);
        // Before 0.9.2 updates were passed as a linked list: such a device makes a new recording.
        let updates = extension(device, "cl_khr_command_buffer_mutable_dispatch").unwrap_or(0);
        // From then on, simultaneous use is that of runs without an order between them, which there
        // are none of.
        let repeats_by_itself = reported >= version(0, 9, 8);
        let simultaneous = capabilities & sys::CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR != 0;
        Some(Self {
            repeats: repeats_by_itself || simultaneous,
            simultaneous: simultaneous && !repeats_by_itself,
            mutable: match updates >= version(0, 9, 2) {
                true => bits(sys::CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR),
                false => 0,
            },
        })
    }
}

fn is_cpu(device: &impl Query) -> DriverResult<bool> {
    Ok(device.value::<sys::cl_device_type>(sys::CL_DEVICE_TYPE)? & sys::CL_DEVICE_TYPE_CPU != 0)
}

/// The two numbers in "OpenCL 3.0 some text"; without them, the oldest version that is supported.
fn parse_version(text: &str) -> (u32, u32) {
    let number = text.split_whitespace().nth(1).and_then(|number| number.split_once('.'));
    let parsed = number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.unwrap_or((1, 2))
}

const INTEL: &str = "Intel(R) OpenCL";

const NVIDIA: &str = "NVIDIA CUDA";

/// Bytes of local memory that are left for the gaps between a kernel's arguments.
const LOCAL_GAPS: usize = 1024;

pub(super) const POCL: &str = "Portable Computing Language";

/// `alone` is whether the device is the only one of its context.
pub(super) fn capabilities(
    device: &impl Query,
    platform: &str,
    features: &OpenclFeatures,
    alone: bool,
) -> DriverResult<Capabilities> {
    // OpenCL has no control flow on the device, and cannot capture what others enqueue on a queue.
    let mut commands = CommandKinds::all()
        - CommandKinds::HOST_TASK
        - CommandKinds::SUB_GRAPH
        - CommandKinds::IF
        - CommandKinds::WHILE
        - CommandKinds::STREAM_TASK
        - CommandKinds::NATIVE;
    if !features.shared_memory {
        commands -= CommandKinds::USM_COPY
            | CommandKinds::USM_FILL
            | CommandKinds::USM_PREFETCH
            | CommandKinds::USM_ADVISE;
    }
    let nvidia = platform == NVIDIA;
    let bytes = |what| Ok(device.value::<u64>(what)?.try_into().unwrap_or(usize::MAX));
    let queues = device.value::<sys::cl_bitfield>(sys::CL_DEVICE_QUEUE_ON_HOST_PROPERTIES)?;
    let sizes = device.values::<usize>(sys::CL_DEVICE_MAX_WORK_ITEM_SIZES)?;
    let is_cpu = is_cpu(device)?;
    Ok(Capabilities {
        commands,
        update: UpdateCapabilities::all(),
        profiling: true,
        // These call back on the thread that completes an event. A waiting task is then woken as soon as by
        // the driver's own wait, and no thread has to poll while kernels run on all cores. Others may do so
        // only while a thread waits for them, as oclgrind does.
        notifies: platform == POCL || (platform == INTEL && is_cpu),
        // Intel's takes longer for the callback than for a small kernel.
        prefers_polls: platform != POCL,
        progress: if is_cpu { Progress::HostCores } else { Progress::Device },
        batches: false,
        queue_priorities: features.queue_priorities,
        stream_tasks: true,
        out_of_order_queues: queues & sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0,
        max_work_group_size: device.value(sys::CL_DEVICE_MAX_WORK_GROUP_SIZE)?,
        max_work_item_sizes: std::array::from_fn(|dimension| sizes.get(dimension).copied().unwrap_or(1)),
        max_work_groups: [usize::MAX; 3],
        // NVIDIA's driver (580) cuts an offset to 32 bits without a word.
        max_global_index: if nvidia { u32::MAX as usize } else { usize::MAX },
        // Unless it is shared virtual memory, the specification leaves undefined what happens to a
        // buffer object that several devices of a context use at once, or that one device uses
        // beside a part of it that is a buffer object of its own.
        concurrent_parts: features.shared_memory || alone && !features.sub_buffers,
        global_offset: true,
        // `lower.rs` passes a copy of a part that the driver does not accept.
        view_alignment: 1,
        // NVIDIA's driver aligns each argument, and counts the gaps.
        local_memory: bytes(sys::CL_DEVICE_LOCAL_MEM_SIZE)?.saturating_sub(if nvidia {
            LOCAL_GAPS
        } else {
            0
        }),
        max_allocation: bytes(sys::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?,
    })
}

#[cfg(test)]
#[expect(unsafe_code, reason = "answers as a driver does")]
mod tests {
    use std::ffi::c_void;

    use super::*;

    #[test]
    fn versions_are_read_from_texts() {
        assert_eq!(parse_version("OpenCL 3.0 PoCL HSTR: pthread"), (3, 0));
        assert_eq!(parse_version("OpenCL 1.2"), (1, 2));
        assert_eq!(parse_version("nonsense"), (1, 2));
    }

    /// A device that has version 0.9.`patch` of command-buffers, with these capabilities.
    fn recording(patch: u32, capabilities: sys::cl_bitfield) -> Option<RecordingFeatures> {
        let mut entry = version(0, 9, patch).to_ne_bytes().to_vec();
        entry.extend(b"cl_khr_command_buffer");
        entry.resize(4 + sys::CL_NAME_VERSION_MAX_NAME_SIZE, 0);
        let device = |what, size, place: *mut c_void, needed: *mut usize| {
            let answer = match what {
                sys::CL_DEVICE_EXTENSIONS_WITH_VERSION => entry.clone(),
                sys::CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR => capabilities.to_ne_bytes().to_vec(),
                _ => vec![0; size],
            };
            if !needed.is_null() {
                // SAFETY: the place is that of a number.
                unsafe { needed.write(answer.len()) };
            }
            if !place.is_null() {
                // SAFETY: the caller has asked for the size.
                unsafe { place.cast::<u8>().copy_from_nonoverlapping(answer.as_ptr(), answer.len()) };
            }
            Ok(())
        };
        RecordingFeatures::read(&device)
    }

    #[test]
    fn recordings_repeat_as_their_version_says() {
        let simultaneous = sys::CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR;
        assert!(recording(4, simultaneous).is_none());
        for (patch, capabilities, repeats, flag) in [
            (5, 0, false, false),
            (5, simultaneous, true, true),
            (7, 0, false, false),
            (8, 0, true, false),
            (8, simultaneous, true, false),
        ] {
            let found = recording(patch, capabilities).unwrap();
            assert_eq!((found.repeats, found.simultaneous), (repeats, flag), "0.9.{patch}");
        }
    }

    #[test]
    fn versions_are_packed_as_the_driver_does() {
        assert_eq!(version(1, 0, 0), 0x40_0000);
        assert_eq!(version(0, 9, 3), 0x9003);
    }
}
