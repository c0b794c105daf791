//! A kernel that writes down how it was launched.

use std::sync::Arc;

use wakegraph::Range;
use wakegraph::hal::{AccessMode, Kernel, KernelArg, MemoryView};

use super::bench::{Bench, read, value, write};
use super::launches::{elements, mixed, number, words};

/// The kernels `record` and `record_too`, and what they write to.
pub(crate) struct Record {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) other: Arc<dyn Kernel>,
    items: MemoryView,
    seen: MemoryView,
}

/// Counts of what the launches since the last call saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Work-items of all of them.
    pub(crate) items: usize,
    /// Of the last: 1 for the kernel, 2 for the other.
    pub(crate) kernel: u64,
    /// Of the last: its argument.
    pub(crate) number: u32,
    /// The arguments of all of them, [mixed] in their order.
    pub(crate) numbers: u32,
    global: [usize; 3],
    offset: [usize; 3],
    local: [usize; 3],
}

impl Seen {
    /// Whether the last launch was over this range. A work-group size that was left to the device may be any.
    pub(crate) fn is(&self, range: Range) -> bool {
        self.global == range.global_size()
            && self.offset == range.offset()
            && range.local_size().is_none_or(|local| local == self.local)
    }
}

const WORDS: usize = 12;

impl Record {
    pub(crate) fn new(bench: &Bench) -> Self {
        Self {
            kernel: load(bench, "record", 1),
            other: load(bench, "record_too", 2),
            items: bench.memory(&[0; 4]),
            seen: bench.memory(&[0; 8 * WORDS]),
        }
    }

    /// Another kernel of the same code.
    pub(crate) fn stranger(bench: &Bench) -> Arc<dyn Kernel> {
        load(bench, "record", 1)
    }

    pub(crate) fn args(&self, n: u32) -> Vec<KernelArg> {
        vec![number(n), KernelArg::Memory(self.items.clone()), KernelArg::Memory(self.seen.clone())]
    }

    /// Returns what has been written down, and sets all of it to 0.
    pub(crate) fn take(&self) -> Seen {
        let seen = read(&self.seen);
        let seen: Vec<u64> =
            seen.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())).collect();
        let three = |first: usize| [0, 1, 2].map(|i| seen[first + i] as usize);
        let items = words(&self.items)[0] as usize;
        write(&self.items, &[0; 4]);
        write(&self.seen, &[0; 8 * WORDS]);
        Seen {
            items,
            kernel: seen[0],
            number: seen[1] as u32,
            numbers: seen[2] as u32,
            global: three(3),
            offset: three(6),
            local: three(9),
        }
    }
}

fn load(bench: &Bench, name: &str, id: u64) -> Arc<dyn Kernel> {
    let (items, seen) =
        (elements("items", 4, AccessMode::ReadWrite), elements("seen", 8, AccessMode::ReadWrite));
    bench.load(name, &[value("number", 4), items, seen], move |range, args| {
        let number: u32 = args.value()?;
        args.write::<u32>()?[0] += range.count() as u32;
        let seen = args.write::<u64>()?;
        seen[..2].copy_from_slice(&[id, number.into()]);
        seen[2] = mixed(seen[2] as u32, number).into();
        let local = range.local_size().unwrap_or_default();
        let sizes = [range.global_size(), range.offset(), local].concat();
        seen[3..].iter_mut().zip(sizes).for_each(|(seen, size)| *seen = size as u64);
        Ok(())
    })
}
