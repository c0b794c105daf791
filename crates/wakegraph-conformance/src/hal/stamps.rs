//! Commands whose results show their order: each has a slot of its own, and mixes into it what
//! those that it follows have in theirs. One that runs early, late, twice or not at all leaves
//! wrong numbers.

use std::sync::Arc;

use wakegraph::Range;
use wakegraph::hal::{AccessMode, Kernel, KernelArg, MemoryView, SyncPoint, ValidatedCommandBuffer};

use super::bench::{Bench, append, launch, part, value};
use super::launches::{elements, number, words};

/// Bytes between slots, so that each can be an argument as it is on every device.
const STRIDE: usize = 128;

/// Most commands that one follows.
pub(crate) const MOST: usize = 3;

/// A command-buffer of such commands, and what should be in their slots.
pub(crate) struct Stamps {
    kernel: Arc<dyn Kernel>,
    slots: MemoryView,
    nothing: MemoryView,
    points: Vec<SyncPoint>,
    edges: Vec<Vec<usize>>,
    model: Vec<u32>,
}

impl Stamps {
    pub(crate) fn new(bench: &Bench, capacity: usize) -> Self {
        let memory = |name, access| elements(name, 4, access);
        let [a, b, c] = ["a", "b", "c"].map(|name| memory(name, AccessMode::Read));
        let params = [value("n", 4), a, b, c, memory("own", AccessMode::ReadWrite)];
        let kernel = bench.load("stamp", &params, |_, args| {
            let n = args.value()?;
            let [a, b, c] = [args.read::<u32>()?[0], args.read::<u32>()?[0], args.read::<u32>()?[0]];
            let own = args.write::<u32>()?;
            own[0] = stamped(own[0], [a, b, c], n);
            Ok(())
        });
        Self {
            kernel,
            slots: bench.memory(&vec![0; STRIDE * capacity]),
            nothing: bench.memory(&[0; 4]),
            points: Vec::new(),
            edges: Vec::new(),
            model: Vec::new(),
        }
    }

    /// Appends a command that follows those with these numbers, at most [`MOST`].
    pub(crate) fn append(&mut self, buffer: &mut ValidatedCommandBuffer, after: &[usize]) {
        assert!(after.len() <= MOST);
        let slot = |id: usize| part(&self.slots, STRIDE * id, 4);
        let id = self.edges.len();
        let mut args = vec![number(id as u32 + 1)];
        let read = |index: usize| after.get(index).map_or(self.nothing.clone(), |&id| slot(id));
        args.extend((0..MOST).map(|index| KernelArg::Memory(read(index))));
        args.push(KernelArg::Memory(slot(id)));
        append(buffer, &launch(&self.kernel, args, Range::linear(1)), &mut self.points, after);
        self.edges.push(after.to_vec());
        self.model.push(0);
    }

    /// The command-buffer has been enqueued once more.
    pub(crate) fn ran(&mut self) {
        for (id, after) in self.edges.iter().enumerate() {
            let mut read = [0; MOST];
            read.iter_mut().zip(after).for_each(|(read, &earlier)| *read = self.model[earlier]);
            self.model[id] = stamped(self.model[id], read, id as u32 + 1);
        }
    }

    #[track_caller]
    pub(crate) fn check(&self, what: &str) {
        let found: Vec<u32> = words(&self.slots).into_iter().step_by(STRIDE / 4).collect();
        assert_eq!(found[..self.model.len()], self.model, "{what}");
    }
}

fn stamped(own: u32, [a, b, c]: [u32; MOST], n: u32) -> u32 {
    let terms = [(31, own), (2, a), (3, b), (5, c)];
    terms.into_iter().fold(n, |sum, (factor, x)| sum.wrapping_add(x.wrapping_mul(factor)))
}
