//! Memory pools, and what HIP asks about addresses.

use std::ffi::c_void;

use crate::agents::{Agent, CPU, FIRST_GPU, check};
use crate::calls::hsa;
use crate::status::{INVALID_ALLOCATION, INVALID_ARGUMENT, OUT_OF_RESOURCES, Status};
use crate::{memory, raw, settings};

/// `hsa_amd_memory_pool_t`: its agent's number times ten, plus its kind.
type Pool = u64;

/// Of the CPU: fine-grained, coarse-grained, and for arguments of kernels. Of a GPU: its memory,
/// and that of a work-group.
const FINE: Pool = CPU * 10 + 1;
const ARGUMENTS: Pool = CPU * 10 + 3;
const GROUP: u64 = 2;
/// Local memory of a work-group.
pub(crate) const GROUP_BYTES: usize = 65536;

fn agent_of(pool: Pool) -> Agent {
    pool / 10
}

fn is_group(pool: Pool) -> bool {
    agent_of(pool) >= FIRST_GPU && pool % 10 == GROUP
}

/// The pool that a GPU's own memory comes from.
pub(crate) fn of_gpu(agent: Agent) -> Pool {
    agent * 10 + 1
}

fn size(pool: Pool) -> usize {
    if is_group(pool) {
        GROUP_BYTES
    } else if agent_of(pool) == CPU {
        64 << 30
    } else {
        settings::get().memory
    }
}

/// Memory of a GPU that is not in use.
pub(crate) fn free_memory(agent: Agent) -> usize {
    let pool = of_gpu(agent);
    size(pool).saturating_sub(memory::used(pool))
}

/// Bits of `hsa_amd_memory_pool_global_flag_t`.
fn flags(pool: Pool) -> u32 {
    match pool {
        FINE => 2,
        ARGUMENTS => 1 | 2,
        _ => 4,
    }
}

/// `hsa_amd_pointer_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PointerInfo {
    size: u32,
    kind: u32,
    agent_base: usize,
    host_base: usize,
    bytes: usize,
    user_data: usize,
    owner: Agent,
    flags: u32,
}

hsa! {
    fn hsa_amd_agent_iterate_memory_pools(
        agent: Agent, visit: extern "C" fn(Pool, *mut c_void) -> Status, data: *mut c_void,
    ) {
        let kinds = if agent == CPU { 1..=3 } else { 1..=2 };
        kinds.into_iter().try_for_each(|kind| check(visit(agent * 10 + kind, data)))
    }

    fn hsa_amd_memory_pool_get_info(pool: Pool, info: u32, value: *mut c_void) {
        match info {
            // Segment: global or a work-group's.
            0x0 => raw::write(value.cast(), if is_group(pool) { 3_u32 } else { 0 }),
            0x1 => raw::write(value.cast(), flags(pool)),
            0x2 | 0x10 => raw::write(value.cast(), size(pool)),
            0x5 => raw::write(value.cast(), !is_group(pool)),
            // Granularity and alignment.
            0x6 | 0x7 | 0x12 => raw::write(value.cast(), 4096_usize),
            0xf => raw::write(value.cast(), agent_of(pool) == CPU),
            0x11 => raw::write(value.cast(), u32::from(agent_of(pool) != CPU)),
            _ => return Err(INVALID_ARGUMENT),
        }
        Ok(())
    }

    fn hsa_amd_agent_memory_pool_get_info(agent: Agent, pool: Pool, info: u32, value: *mut c_void) {
        let owner = agent_of(pool);
        match info {
            // Never allowed, allowed by default, or not before it is asked for.
            0 => raw::write(value.cast(), match owner == agent || owner == CPU {
                true => 1_u32,
                false if agent != CPU && !settings::get().peers => 0,
                false => 2,
            }),
            1 => raw::write(value.cast(), u32::from(owner != agent)),
            // One link: latencies, bandwidths, kind, NUMA distance, and that 32- and 64-bit atomics
            // cross it.
            _ => raw::write(value.cast(), [0_u32; 7]),
        }
        Ok(())
    }

    fn hsa_amd_memory_pool_allocate(pool: Pool, bytes: usize, _flags: u32, address: *mut usize) {
        if bytes > size(pool).saturating_sub(memory::used(pool)) {
            return Err(OUT_OF_RESOURCES);
        }
        let base = memory::allocate(bytes, pool).ok_or(OUT_OF_RESOURCES)?;
        raw::write(address, base);
        Ok(())
    }

    fn hsa_amd_memory_pool_free(address: usize) {
        memory::free(address).then_some(()).ok_or(INVALID_ALLOCATION)
    }

    fn hsa_amd_agents_allow_access(count: u32, agents: *const Agent, _flags: *const u32, address: usize) {
        let agents = raw::list(agents, count as usize);
        memory::allow(address, &agents).then_some(()).ok_or(INVALID_ALLOCATION)
    }

    fn hsa_amd_memory_lock_to_pool(
        host: usize, bytes: usize, _agents: *mut Agent, _count: i32, _pool: Pool, _flags: u32, agent: *mut usize,
    ) {
        memory::lock(host, bytes);
        raw::write(agent, host);
        Ok(())
    }

    fn hsa_amd_memory_unlock(host: usize) {
        memory::unlock(host).then_some(()).ok_or(INVALID_ALLOCATION)
    }

    fn hsa_memory_register(address: usize, bytes: usize) {
        memory::lock(address, bytes);
        Ok(())
    }

    fn hsa_memory_deregister(address: usize, _bytes: usize) {
        memory::unlock(address);
        Ok(())
    }

    fn hsa_memory_copy(to: usize, from: usize, bytes: usize) {
        raw::copy(to, from, bytes);
        Ok(())
    }

    fn hsa_amd_pointer_info(
        address: usize, info: *mut c_void, _allocate: *const c_void, count: *mut u32, _agents: *mut *mut Agent,
    ) {
        const KNOWN: u32 = 1;
        const LOCKED: u32 = 2;
        let room = raw::read::<u32>(info.cast());
        let mut answer =
            PointerInfo { size: room, kind: 0, agent_base: 0, host_base: 0, bytes: 0, user_data: 0, owner: 0, flags: 0 };
        if let Some(region) = memory::region_of(address) {
            let pool = if region.pool == 0 { FINE } else { region.pool };
            answer.kind = if region.pool == 0 { LOCKED } else { KNOWN };
            answer.agent_base = region.base;
            answer.host_base = region.base;
            answer.bytes = region.bytes;
            answer.owner = agent_of(pool);
            answer.flags = flags(pool);
        }
        let bytes = (room as usize).min(size_of::<PointerInfo>());
        raw::copy(info as usize, &raw const answer as usize, bytes);
        if !count.is_null() {
            raw::write(count, 0);
        }
        Ok(())
    }
}
