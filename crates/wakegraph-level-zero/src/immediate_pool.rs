//! Immediate lists that no queue uses.
//!
//! An event of Intel's driver 26.27 keeps the address of the immediate list that has signalled it. A
//! reset of the event writes there, also when the list has been destroyed. So lists are kept beyond the
//! queues that used them, and are destroyed with the device, after its events.

use parking_lot::Mutex;
use wakegraph_hal::Priority;

use super::sys::{CommandList, Owned};

/// What an immediate list was created for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ImmediateKind {
    /// The group of engines that runs it.
    pub(super) ordinal: u32,
    pub(super) in_order: bool,
    pub(super) priority: Priority,
}

/// The immediate lists of a device that no queue uses. What they were given may still be in flight.
#[derive(Debug, Default)]
pub(super) struct ImmediatePool(Mutex<Vec<(ImmediateKind, Owned<CommandList>)>>);

impl ImmediatePool {
    pub(super) fn take(&self, kind: ImmediateKind) -> Option<Owned<CommandList>> {
        let mut free = self.0.lock();
        let found = free.iter().rposition(|(other, _)| *other == kind)?;
        Some(free.swap_remove(found).1)
    }

    pub(super) fn give_back(&self, kind: ImmediateKind, list: Owned<CommandList>) {
        self.0.lock().push((kind, list));
    }
}
