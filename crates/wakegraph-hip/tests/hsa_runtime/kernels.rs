//! Kernels that are loaded, and packets that run them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use crate::agents::{Agent, MAX_GROUP};
use crate::calls::trace;
use crate::host_kernels::{self, HostKernel};
use crate::packets::Dispatch;
use crate::settings::{self, abort};
use crate::{builtin_kernels, memory, pools, raw};

/// A kernel as its code object describes it.
pub(crate) struct Kernel {
    pub(crate) name: String,
    /// The symbol of its descriptor.
    pub(crate) symbol: String,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) argument_bytes: usize,
    pub(crate) group_bytes: u32,
    pub(crate) private_bytes: u32,
    /// The same, for the host.
    pub(crate) host: Option<HostKernel>,
}

/// Where an argument lies in the segment.
#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

impl Kernel {
    fn argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.name == name)
    }

    /// A number or an address that a launch passes.
    pub(crate) fn value(&self, segment: usize, name: &str) -> Option<u64> {
        let argument = self.argument(name)?;
        let at = segment + argument.offset;
        Some(match argument.size {
            4 => u64::from(raw::read(at as *const u32)),
            _ => raw::read(at as *const u64),
        })
    }

    /// Four numbers.
    pub(crate) fn values(&self, segment: usize, name: &str) -> Option<[u64; 4]> {
        Some(raw::read((segment + self.argument(name)?.offset) as *const [u64; 4]))
    }
}

/// By the address of the descriptor.
static KERNELS: RwLock<Option<HashMap<u64, Arc<Kernel>>>> = RwLock::new(None);

pub(crate) fn add(address: u64, kernel: Arc<Kernel>) {
    KERNELS.write().unwrap().get_or_insert_default().insert(address, kernel);
}

pub(crate) fn remove(address: u64) {
    KERNELS.write().unwrap().get_or_insert_default().remove(&address);
}

/// The kernel that the environment has fault.
pub(crate) struct Fault;

/// Checks a packet, and runs its kernel to the end.
pub(crate) fn dispatch(packet: &Dispatch, queue: u64, agent: Agent) -> Result<(), Fault> {
    let found = KERNELS.read().unwrap().as_ref().and_then(|all| all.get(&packet.kernel).cloned());
    let Some(kernel) = found else { abort(format_args!("no kernel at {:#x}", packet.kernel)) };
    check(packet, &kernel);
    trace!("[queue {queue}, agent {agent}] {} {:?} {:?}", kernel.name, packet.grid, packet.group);
    if builtin_kernels::run(&kernel, packet) {
        return Ok(());
    }
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let nth = STARTED.fetch_add(1, Ordering::Relaxed) + 1;
    if settings::get().fault == Some(nth) {
        return Err(Fault);
    }
    let Some(host) = &kernel.host else {
        abort(format_args!("kernel {} was not compiled for the host", kernel.name));
    };
    host_kernels::run(host, &kernel, packet);
    Ok(())
}

/// Ends the process when the packet contradicts the code object, or no GPU could run it.
fn check(packet: &Dispatch, kernel: &Kernel) {
    let name = &kernel.name;
    let items: u64 = packet.group.iter().map(|&size| u64::from(size)).product();
    if items == 0 || items > u64::from(MAX_GROUP) || packet.grid.contains(&0) {
        abort(format_args!("kernel {name}: work-groups of {:?} in {:?}", packet.group, packet.grid));
    }
    let most = pools::GROUP_BYTES as u32;
    if packet.group_bytes < kernel.group_bytes || packet.group_bytes > most {
        abort(format_args!(
            "kernel {name}: {} bytes of local memory, not {}",
            packet.group_bytes, kernel.group_bytes
        ));
    }
    if packet.private_bytes < kernel.private_bytes {
        abort(format_args!("kernel {name}: {} bytes of private memory", packet.private_bytes));
    }
    memory::require(
        packet.arguments,
        kernel.argument_bytes,
        &format!("kernel {name}: the segment of arguments"),
    );
}
