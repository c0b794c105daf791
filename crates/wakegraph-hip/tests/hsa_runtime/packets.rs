//! The 64 bytes that HIP writes to a queue.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::signals::Handle;

/// A place in a queue. Its first 16 bits are the header, which is written last.
#[repr(C, align(64))]
pub(crate) struct Slot([AtomicU64; 8]);

/// The header of a place that holds no packet.
pub(crate) const INVALID: u64 = 1;

impl Slot {
    pub(crate) fn empty() -> Self {
        let slot = Self(Default::default());
        slot.clear();
        slot
    }

    pub(crate) fn clear(&self) {
        self.0[0].store(INVALID, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0[0].load(Ordering::Acquire) & 0xff != INVALID
    }

    pub(crate) fn packet(&self) -> Packet {
        let mut words = [0; 8];
        for (word, from) in words.iter_mut().zip(&self.0) {
            *word = from.load(Ordering::Acquire);
        }
        let completion = words[7];
        let header = words[0] as u16;
        let kind = match header & 0xff {
            2 => Kind::Dispatch(Dispatch::of(&words)),
            3 => Kind::BarrierAnd([words[1], words[2], words[3], words[4], words[5]]),
            // AMD's own: its format is in the third byte.
            0 if words[0] >> 16 & 0xff == 2 => Kind::BarrierValue {
                signal: words[1],
                compared: words[2] as i64,
                mask: words[3] as i64,
                condition: words[4] as u32,
            },
            _ => Kind::Unknown(words[0]),
        };
        Packet { barrier: header & 0x100 != 0, kind, completion }
    }
}

pub(crate) struct Packet {
    /// Starts when all packets before it have ended.
    pub(crate) barrier: bool,
    pub(crate) kind: Kind,
    /// Becomes one less at its end; may be 0.
    pub(crate) completion: Handle,
}

pub(crate) enum Kind {
    Dispatch(Dispatch),
    /// Waits until all these signals are 0, and holds up what comes after it.
    BarrierAnd([Handle; 5]),
    /// Waits for the value of one signal.
    BarrierValue {
        signal: Handle,
        compared: i64,
        mask: i64,
        condition: u32,
    },
    Unknown(u64),
}

/// `hsa_kernel_dispatch_packet_t`.
pub(crate) struct Dispatch {
    pub(crate) group: [u32; 3],
    /// In work-items.
    pub(crate) grid: [u32; 3],
    pub(crate) private_bytes: u32,
    pub(crate) group_bytes: u32,
    pub(crate) kernel: u64,
    pub(crate) arguments: usize,
}

impl Dispatch {
    fn of(words: &[u64; 8]) -> Self {
        Self {
            group: [words[0] >> 32 & 0xffff, words[0] >> 48, words[1] & 0xffff].map(|size| size as u32),
            grid: [words[1] >> 32, words[2] & 0xffff_ffff, words[2] >> 32].map(|size| size as u32),
            private_bytes: words[3] as u32,
            group_bytes: (words[3] >> 32) as u32,
            kernel: words[4],
            arguments: words[5] as usize,
        }
    }
}
