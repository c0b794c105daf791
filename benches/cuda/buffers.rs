//! Device memory that is made and dropped, beside the same calls by hand on one stream.
#![expect(unsafe_code, reason = "asks for memory that is not cleared")]

use wakegraph::{Buffer, Device};

use crate::raw::{Raw, RawGraph, passing_memory};
use crate::support::{self, Contender, Report, Row};

const SIZES: [(&str, usize); 3] = [("4_KiB", 4 << 10), ("1_MiB", 1 << 20), ("64_MiB", 64 << 20)];
/// Fewer than a stream takes before a call waits for room.
const IN_A_ROW: usize = 100;

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    raw.keep_freed_memory();
    let kinds: [(_, _, Option<f64>); 2] = [("buffer", true, Some(1.2)), ("buffer_uninit", false, None)];
    for (kind, zeroed, limit) in kinds {
        for (size, bytes) in SIZES {
            let name = format!("{kind}_{size}");
            let row = Row::new(&name).operations(IN_A_ROW).rounds(50, 10);
            let row = limit.map_or(row, |limit| row.limit(limit));
            let (device, stream) = (device.clone(), raw.chain(1));
            let ours = Ours { device, bytes, zeroed };
            report.race(row, &support::current_thread(), ours, ByHand { stream, bytes, zeroed });
        }
    }
}

struct Ours {
    device: Device,
    bytes: usize,
    zeroed: bool,
}

impl Ours {
    fn buffer(&self) -> Buffer<u8> {
        let buffer = match self.zeroed {
            true => self.device.buffer(self.bytes),
            // SAFETY: nothing reads it.
            false => unsafe { self.device.buffer_uninit(self.bytes) },
        };
        buffer.expect("memory")
    }
}

impl Contender for Ours {
    async fn once(&mut self) {
        for _ in 1..IN_A_ROW {
            drop(self.buffer());
        }
        // Waits until all of them are over.
        self.buffer().address();
    }
}

struct ByHand {
    stream: RawGraph,
    bytes: usize,
    zeroed: bool,
}

impl Contender for ByHand {
    async fn once(&mut self) {
        self.stream.bind();
        for _ in 0..IN_A_ROW {
            passing_memory(self.stream.stream(), self.bytes, self.zeroed);
        }
        self.stream.synchronize();
    }
}
