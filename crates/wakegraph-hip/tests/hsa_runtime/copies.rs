//! Copies by agents, on a thread of their own: those whose signals are 0, in random order.

use std::sync::{Mutex, Once};

use crate::agents::{Agent, now};
use crate::calls::{hsa, trace};
use crate::settings::shuffle;
use crate::signals::{self, Handle};
use crate::{memory, raw};

/// Bytes, rows and slices at one end of a copy.
#[derive(Clone, Copy)]
struct End {
    base: usize,
    pitch: usize,
    slice: usize,
}

struct Copy {
    to: End,
    from: End,
    /// Bytes, rows, slices.
    size: [usize; 3],
    waits: Vec<Handle>,
    completion: Handle,
}

impl Copy {
    fn is_ready(&self) -> bool {
        self.waits.iter().all(|&signal| signals::is_zero(signal))
    }

    fn run(&self) {
        let start = now();
        let [bytes, rows, slices] = self.size;
        for (slice, row) in (0..slices).flat_map(|slice| (0..rows).map(move |row| (slice, row))) {
            let at = |end: End| end.base + slice * end.slice + row * end.pitch;
            memory::require(at(self.to), bytes, "a copy");
            memory::require(at(self.from), bytes, "a copy");
            raw::copy(at(self.to), at(self.from), bytes);
        }
        signals::complete(self.completion, start);
    }
}

static WAITING: Mutex<Vec<Copy>> = Mutex::new(Vec::new());

fn run_copies() {
    loop {
        let mut ready: Vec<Copy> = Vec::new();
        signals::wait_until(None, || {
            let mut waiting = WAITING.lock().unwrap();
            ready = waiting.extract_if(.., |copy| copy.is_ready()).collect();
            !ready.is_empty()
        });
        shuffle(&mut ready);
        ready.iter().for_each(Copy::run);
    }
}

fn start(copy: Copy) {
    static THREAD: Once = Once::new();
    THREAD.call_once(|| {
        std::thread::Builder::new().name("hsa-copies".into()).spawn(run_copies).unwrap();
    });
    trace!("copy of {:?} bytes, rows, slices after {:x?}", copy.size, copy.waits);
    WAITING.lock().unwrap().push(copy);
    signals::announce();
}

/// `hsa_pitched_ptr_t`.
type Pitched = [usize; 3];
/// `hsa_dim3_t`.
type Dimensions = [u32; 3];

fn start_linear(to: usize, from: usize, bytes: usize, waits: Vec<Handle>, completion: Handle) {
    let end = |base| End { base, pitch: 0, slice: 0 };
    start(Copy { to: end(to), from: end(from), size: [bytes, 1, 1], waits, completion });
}

hsa! {
    fn hsa_amd_memory_async_copy(
        to: usize, _to_agent: Agent, from: usize, _from_agent: Agent, bytes: usize, count: u32,
        waits: *const Handle, completion: Handle,
    ) {
        start_linear(to, from, bytes, raw::list(waits, count as usize), completion);
        Ok(())
    }

    fn hsa_amd_memory_async_copy_on_engine(
        to: usize, _to_agent: Agent, from: usize, _from_agent: Agent, bytes: usize, count: u32,
        waits: *const Handle, completion: Handle, _engine: u32, _force: bool,
    ) {
        start_linear(to, from, bytes, raw::list(waits, count as usize), completion);
        Ok(())
    }

    fn hsa_amd_memory_async_copy_rect(
        to: *const Pitched, to_offset: *const Dimensions, from: *const Pitched, from_offset: *const Dimensions,
        range: *const Dimensions, _agent: Agent, _direction: u32, count: u32, waits: *const Handle,
        completion: Handle,
    ) {
        let end = |memory: *const Pitched, offset: *const Dimensions| {
            let ([base, pitch, slice], [x, y, z]) = (raw::read(memory), raw::read(offset).map(|n| n as usize));
            End { base: base + x + y * pitch + z * slice, pitch, slice }
        };
        let size = raw::read(range).map(|n| n as usize);
        let waits = raw::list(waits, count as usize);
        start(Copy { to: end(to, to_offset), from: end(from, from_offset), size, waits, completion });
        Ok(())
    }

    fn hsa_amd_memory_copy_engine_status(_to: Agent, _from: Agent, engines: *mut u32) {
        raw::write(engines, 3);
        Ok(())
    }

    fn hsa_amd_memory_get_preferred_copy_engine(_to: Agent, _from: Agent, engines: *mut u32) {
        raw::write(engines, 3);
        Ok(())
    }
}
