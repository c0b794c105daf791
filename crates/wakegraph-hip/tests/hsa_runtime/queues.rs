//! Queues. Each has a thread that processes its packets.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::agents::{Agent, now};
use crate::calls::{hsa, trace};
use crate::packets::{Kind, Packet, Slot};
use crate::settings::{abort, shuffle};
use crate::signals::{self, Handle};
use crate::status::{MEMORY_APERTURE_VIOLATION, Status};
use crate::{kernels, raw};

/// What HIP sees of a queue: `amd_queue_t`, which begins with `hsa_queue_t`.
#[repr(C, align(64))]
struct AmdQueue {
    kind: u32,
    features: u32,
    base: *const Slot,
    doorbell: Handle,
    size: u32,
    reserved: u32,
    id: u64,
    reserved1: [u32; 4],
    write: AtomicU64,
    apertures: [u32; 4],
    legacy: [u64; 2],
    reserved2: [u64; 4],
    read: AtomicU64,
    rest: [u64; 15],
}

const _: () = assert!(size_of::<AmdQueue>() == 256);
const _: () = assert!(std::mem::offset_of!(AmdQueue, write) == 56);
const _: () = assert!(std::mem::offset_of!(AmdQueue, read) == 128);

type OnError = extern "C" fn(Status, *const c_void, *mut c_void);

/// A queue, with what HIP does not see behind it.
#[repr(C)]
struct Queue {
    amd: AmdQueue,
    slots: Box<[Slot]>,
    stop: AtomicBool,
    on_error: OnError,
    data: usize,
    agent: Agent,
}

// SAFETY: `base` is the address of `slots`, which are atomic.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    fn slot(&self, at: u64) -> &Slot {
        &self.slots[at as usize % self.slots.len()]
    }

    fn is_ready(&self, at: u64) -> bool {
        self.slot(at).is_ready() && signals::value(self.amd.doorbell) >= at as i64
    }

    /// Blocks until the condition holds; false when the queue is destroyed first.
    fn wait(&self, mut holds: impl FnMut() -> bool) -> bool {
        signals::wait_until(None, || self.stop.load(SeqCst) || holds());
        !self.stop.load(SeqCst)
    }

    /// Kernels that nothing orders, as far as they are there; or one packet of another kind.
    fn take(&self) -> Vec<Packet> {
        let first = self.amd.read.load(SeqCst);
        let mut taken = Vec::new();
        let mut at = first;
        while self.is_ready(at) {
            let packet = self.slot(at).packet();
            let is_kernel = matches!(packet.kind, Kind::Dispatch(_));
            if at > first && (packet.barrier || !is_kernel) {
                break;
            }
            taken.push(packet);
            self.slot(at).clear();
            at += 1;
            if !is_kernel {
                break;
            }
        }
        self.amd.read.store(at, SeqCst);
        signals::announce();
        taken
    }

    /// Carries out a packet; false when the queue is over.
    fn process(&self, packet: Packet) -> bool {
        let start = now();
        match packet.kind {
            Kind::Dispatch(dispatch) => {
                if let Err(kernels::Fault) = kernels::dispatch(&dispatch, self.amd.id, self.agent) {
                    (self.on_error)(
                        MEMORY_APERTURE_VIOLATION,
                        std::ptr::from_ref(self).cast(),
                        self.data as *mut c_void,
                    );
                    return false;
                }
            }
            Kind::BarrierAnd(waits) => {
                trace!("[queue {}] waits for {waits:x?}", self.amd.id);
                if !self.wait(|| waits.iter().all(|&signal| signals::is_zero(signal))) {
                    return false;
                }
            }
            Kind::BarrierValue { signal, compared, mask, condition } => {
                trace!("[queue {}] waits for a value of {signal:x}", self.amd.id);
                let reached =
                    || signal == 0 || signals::holds(signals::value(signal) & mask, condition, compared);
                if !self.wait(reached) {
                    return false;
                }
            }
            Kind::Unknown(word) => abort(format_args!("queue {}: packet {word:#x}", self.amd.id)),
        }
        signals::complete(packet.completion, start);
        true
    }

    fn run(&self) {
        while self.wait(|| self.is_ready(self.amd.read.load(SeqCst))) {
            let mut packets = self.take();
            shuffle(&mut packets);
            for packet in packets {
                if !self.process(packet) {
                    return;
                }
            }
        }
    }
}

/// A queue that exists, by the address that HIP knows.
type Running = (usize, Arc<Queue>, JoinHandle<()>);

static THREADS: Mutex<Vec<Running>> = Mutex::new(Vec::new());

fn get<'a>(queue: *const c_void) -> &'a Queue {
    raw::borrow(queue.cast())
}

hsa! {
    fn hsa_queue_create(
        agent: Agent, size: u32, kind: u32, on_error: OnError, data: usize, _private: u32, _group: u32,
        result: *mut *const c_void,
    ) {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let id = IDS.fetch_add(1, SeqCst);
        let slots: Box<[Slot]> = (0..size).map(|_| Slot::empty()).collect();
        let amd = AmdQueue {
            kind,
            features: 1,
            base: slots.as_ptr(),
            doorbell: signals::create_doorbell(),
            size,
            reserved: 0,
            id,
            reserved1: [0; 4],
            write: AtomicU64::new(0),
            apertures: [0; 4],
            legacy: [0; 2],
            reserved2: [0; 4],
            read: AtomicU64::new(0),
            rest: [0; 15],
        };
        let queue = Arc::new(Queue { amd, slots, stop: AtomicBool::new(false), on_error, data, agent });
        let address = Arc::as_ptr(&queue);
        let thread = std::thread::Builder::new().name(format!("hsa-queue-{id}"));
        let processed = Arc::clone(&queue);
        let thread = thread.spawn(move || processed.run()).unwrap();
        THREADS.lock().unwrap().push((address as usize, queue, thread));
        raw::write(result, address.cast());
        Ok(())
    }

    fn hsa_queue_destroy(queue: *const c_void) {
        let mut threads = THREADS.lock().unwrap();
        if let Some(at) = threads.iter().position(|(address, ..)| *address == queue as usize) {
            let (_, queue, thread) = threads.swap_remove(at);
            drop(threads);
            queue.stop.store(true, SeqCst);
            signals::announce();
            let _ = thread.join();
        }
        Ok(())
    }

    fn hsa_amd_queue_cu_set_mask(_queue: *const c_void, _count: u32, _mask: *const u32) {
        Ok(())
    }

    fn hsa_amd_queue_set_priority(_queue: *const c_void, _priority: u32) {
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn hsa_queue_add_write_index_screlease(queue: *const c_void, count: u64) -> u64 {
    get(queue).amd.write.fetch_add(count, SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn hsa_queue_load_read_index_relaxed(queue: *const c_void) -> u64 {
    get(queue).amd.read.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn hsa_queue_load_read_index_scacquire(queue: *const c_void) -> u64 {
    get(queue).amd.read.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn hsa_queue_load_write_index_relaxed(queue: *const c_void) -> u64 {
    get(queue).amd.write.load(SeqCst)
}
