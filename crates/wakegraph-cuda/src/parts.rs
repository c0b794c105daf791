//! Where the graph of a command-buffer is parted: a copy by an engine begins another part.
//!
//! Inside a graph, most changes between kernels and copies by an engine take the driver 7 us, and between two
//! launches on a stream 1 us: copy, kernel and copy back took 17.4 and 10 us (4 KiB, H100). Each part comes
//! after all of the one before it, so a graph is parted only where its commands do anyway.
//! `docs/adr/0025-copies-between-graphs.md` has the figures.

use smallvec::SmallVec;
use wakegraph_hal::support::graphs::RecordedCommand;
use wakegraph_hal::support::once_each::once_each;
use wakegraph_hal::{Command, CommandKind};

use super::device_inner::CudaDeviceInner;
use super::low_latency::stays_on_device;
use super::node_place::NodePlace;

/// What a recording knows about the parts of its graph.
#[derive(Default, Debug)]
pub(super) struct PartOrder {
    /// Whether the graph has one part in any case.
    pub(super) is_whole: bool,
    /// How many commands of the last part no other one follows.
    open: usize,
    /// Those of the part before, when it ended.
    before: Ends,
    /// Whether some command could run beside one of an earlier part, if the graph had one part.
    pub(super) is_slower: bool,
}

/// The numbers of the commands at the end of a part, which no other one of the part follows.
pub(super) type Ends = SmallVec<[u32; 1]>;

impl PartOrder {
    /// If a command behind these others begins another part, the ends of the last one, which has this number:
    /// a copy by an engine does, if it comes after all of the part and after something else than such copies.
    pub(super) fn ended(
        &self,
        device: &CudaDeviceInner,
        commands: &[RecordedCommand<CudaDeviceInner>],
        last: u32,
        command: &Command,
        after: &[u32],
    ) -> Option<Ends> {
        if self.is_whole || !is_by_engine(device, command) {
            return None;
        }
        let is_end = |place: &NodePlace| place.part == last && !place.is_followed;
        let ends = after.iter().copied().filter(|&earlier| is_end(&commands[earlier as usize].place));
        let ends = once_each(ends.collect());
        let is_other = |&end: &u32| {
            let RecordedCommand { command, nodes, .. } = &commands[end as usize];
            !nodes.ends.is_empty() && !is_by_engine(device, command)
        };
        (ends.len() == self.open && ends.iter().any(is_other)).then_some(ends)
    }

    /// Takes note of a command that has been added to a part behind these others. `ended` has the ends of the
    /// part before, if the command begins another one. The others do not count as followed by it yet.
    pub(super) fn added(
        &mut self,
        commands: &[RecordedCommand<CudaDeviceInner>],
        after: &[u32],
        part: u32,
        ended: Option<Ends>,
    ) {
        if let Some(ended) = ended {
            (self.before, self.open) = (ended, 0);
        }
        let here = after.iter().copied().filter(|&earlier| commands[earlier as usize].place.part == part);
        let here = once_each(here.collect());
        let followed = here.iter().filter(|&&earlier| !commands[earlier as usize].place.is_followed);
        self.open = self.open + 1 - followed.count();
        self.is_slower |= here.is_empty() && !self.before.iter().all(|end| after.contains(end));
    }
}

/// Whether a copy engine does the command, and no kernel of the driver's.
fn is_by_engine(device: &CudaDeviceInner, command: &Command) -> bool {
    let is_copy = matches!(
        command.kind(),
        CommandKind::UsmCopy
            | CommandKind::BufferCopy
            | CommandKind::BufferCopyRect
            | CommandKind::BufferRead
            | CommandKind::BufferReadRect
            | CommandKind::BufferWrite
            | CommandKind::BufferWriteRect
    );
    is_copy && !stays_on_device(device, command)
}
