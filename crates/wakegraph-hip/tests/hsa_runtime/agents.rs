//! The system and its agents: one CPU and the GPUs.

use std::ffi::{c_char, c_void};

use crate::calls::hsa;
use crate::status::{ERROR, INVALID_ARGUMENT, Status};
use crate::{raw, settings};

/// `hsa_agent_t`.
pub(crate) type Agent = u64;
pub(crate) const CPU: Agent = 1;
/// The GPUs follow the CPU.
pub(crate) const FIRST_GPU: Agent = 2;

/// The architecture that the GPUs claim to have, and its only instruction set.
const ARCHITECTURE: &str = "gfx1030";
const ISA_NAME: &str = "amdgcn-amd-amdhsa--gfx1030\0";
const ISA: u64 = 77;
/// How many work-items a work-group may have.
pub(crate) const MAX_GROUP: u32 = 1024;

/// All agents of the system.
pub(crate) fn all() -> impl Iterator<Item = Agent> {
    CPU..FIRST_GPU + settings::get().gpus
}

/// Nanoseconds of the one clock that host and GPUs have here.
pub(crate) fn now() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

const EXTENSION_AMD_LOADER: u16 = 0x201;

hsa! {
    fn hsa_init() {
        crate::host_kernels::name_kernels_in_faults();
        Ok(())
    }

    fn hsa_shut_down() {
        Ok(())
    }

    fn hsa_iterate_agents(visit: extern "C" fn(Agent, *mut c_void) -> Status, data: *mut c_void) {
        all().try_for_each(|agent| check(visit(agent, data)))
    }

    fn hsa_agent_extension_supported(_e: u16, _a: Agent, _major: u16, _minor: u16, result: *mut bool) {
        raw::write(result, false);
        Ok(())
    }

    fn hsa_system_extension_supported(extension: u16, _major: u16, _minor: u16, result: *mut bool) {
        raw::write(result, extension == EXTENSION_AMD_LOADER);
        Ok(())
    }

    fn hsa_system_get_info(info: u32, value: *mut c_void) {
        match info {
            0x0 | 0x1 => raw::write(value.cast(), 1_u16),
            0x2 => raw::write(value.cast(), now()),
            // Frequency of the clock.
            0x3 => raw::write(value.cast(), 1_000_000_000_u64),
            // The longest wait.
            0x4 => raw::write(value.cast(), u64::MAX),
            // Memory that moves by itself, and virtual memory: neither.
            0x201 | 0x202 | 0x205 => raw::write(value.cast(), false),
            _ => return Err(INVALID_ARGUMENT),
        }
        Ok(())
    }

    fn hsa_system_get_major_extension_table(
        extension: u16, _major: u16, size: usize, table: *mut c_void,
    ) {
        if extension != EXTENSION_AMD_LOADER {
            return Err(ERROR);
        }
        (0..size).for_each(|byte| raw::write(table.wrapping_byte_add(byte).cast(), 0_u8));
        let entry: extern "C" fn(*const c_void, *mut *const c_void) -> Status = host_address;
        raw::write(table.cast(), entry);
        Ok(())
    }

    fn hsa_agent_iterate_isas(
        _agent: Agent, visit: extern "C" fn(u64, *mut c_void) -> Status, data: *mut c_void,
    ) {
        check(visit(ISA, data))
    }

    fn hsa_isa_get_info_alt(_isa: u64, info: u32, value: *mut c_void) {
        match info {
            0 => raw::write(value.cast(), ISA_NAME.len() as u32),
            1 => raw::write_text(value.cast(), ISA_NAME),
            _ => return Err(INVALID_ARGUMENT),
        }
        Ok(())
    }

    fn hsa_agent_get_info(agent: Agent, info: u32, value: *mut c_void) {
        let gpu = agent.saturating_sub(CPU) as u32;
        let u16s = |number| raw::write(value.cast(), number);
        let u32s = |number: u32| raw::write(value.cast(), number);
        let u64s = |number: u64| raw::write(value.cast(), number);
        let text = |text: &str| raw::write_text(value.cast(), &format!("{text}\0"));
        match info {
            // Name, vendor, features, and the base profile.
            0x0 => text(if gpu > 0 { ARCHITECTURE } else { "host" }),
            0x1 => text("AMD"),
            0x2 => u32s(1),
            0x4 => u32s(0),
            // Wavefronts and the largest groups and grids.
            0x6 => u32s(32),
            0x7 => raw::write(value.cast(), [MAX_GROUP as u16; 3]),
            0x8 => u32s(MAX_GROUP),
            0xa => u32s(u32::MAX),
            // Queues, and packets in each.
            0xc => u32s(128),
            0xe => u32s(1 << 17),
            // Node, kind, caches, extensions, version.
            0x10 | 0xa004 => u32s(gpu),
            0x11 => u32s(u32::from(gpu > 0)),
            0x12 => raw::write(value.cast(), [16384_u32, 4 << 20, 0, 0]),
            0x14 => raw::write(value.cast(), [0_u8; 128]),
            0x15 | 0x16 => u16s(1_u16),
            // Chip, cache line, compute units, clocks.
            0xa000 => u32s(0x73bf),
            0xa001 => u32s(64),
            0xa002 | 0xa014 => u32s(8),
            0xa003 | 0xa008 => u32s(1000),
            // Position on the bus, and the width of the memory.
            0xa006 => u32s(0x300 + gpu * 0x100),
            0xa007 => u32s(256),
            0xa009 => text("wakegraph test GPU"),
            // Waves, and what they run on.
            0xa00a => u32s(32),
            0xa00b => u32s(2),
            0xa00c | 0xa00d | 0xa111 | 0xa012 => u32s(1),
            // Registers for flushes: none.
            0xa00e => raw::write(value.cast(), [0_usize; 2]),
            0xa00f | 0xa10b | 0xa110 => u32s(0),
            0xa010 | 0xa013 => raw::write(value.cast(), false),
            0xa011 => text(&format!("GPU-0123456789abcd{gpu:02}")),
            0xa015 => u64s(crate::pools::free_memory(agent) as u64),
            0xa016 => u64s(1_000_000_000),
            0xa107..=0xa109 => u32s(100),
            0xa10a => u32s(2),
            0xa112 => u32s(7),
            0xa113 => u64s(CPU),
            0xa114 | 0xa115 => u64s(0),
            0xa116 | 0xa117 => u64s(1 << 30),
            _ => {
                crate::calls::trace!("unknown property {info:#x} of an agent");
                return Err(INVALID_ARGUMENT);
            }
        }
        Ok(())
    }

    fn hsa_amd_enable_logging(_flags: *mut u8, _file: *mut c_void) {
        Ok(())
    }

    fn hsa_amd_coherency_set_type(_agent: Agent, _kind: u32) {
        Ok(())
    }
}

/// The loader's extension: code is where it is.
extern "C" fn host_address(device: *const c_void, host: *mut *const c_void) -> Status {
    raw::write(host, device);
    0
}

/// The status of a function of the caller's, as a result.
pub(crate) fn check(status: Status) -> Result<(), Status> {
    if status == 0 { Ok(()) } else { Err(status) }
}

/// Options that functions take and that change nothing.
pub(crate) type Options = *const c_char;
