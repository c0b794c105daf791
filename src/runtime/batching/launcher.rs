//! The reactor's side: launching what was handed over, and looking for its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::Batcher;
use crate::hal;
use crate::runtime::clock::now;
use crate::runtime::device::Device;
use crate::runtime::latch;
use crate::runtime::reaper::Elsewhere;
use crate::runtime::run::Run;
use crate::types::Result;

/// What the reactor's thread launches, and has launched.
#[derive(Default)]
pub(crate) struct Launcher {
    waiting: VecDeque<Arc<Run>>,
    /// Exchanged for the inbox, so that neither side allocates.
    taken: Vec<Arc<Run>>,
    queues: Vec<Arc<dyn hal::Queue>>,
    next_queue: usize,
    /// Oldest first, as are the groups that they form.
    in_flight: VecDeque<Arc<Run>>,
    groups: VecDeque<Group>,
    /// When the oldest group became it.
    head_since: u64,
    /// Memory to gather in.
    wakers: Vec<Waker>,
}

/// Runs launched one after the other on one queue, so that they are over when the last of them is.
struct Group {
    len: usize,
    launched: u64,
}

/// More than one, so that a device has the next launch at hand while it ends another.
const QUEUES: usize = 4;

/// So many make a group, and are launched between two looks: the next are launched before these are over.
const MOST: usize = 8;

/// Nanoseconds after which the runs of the oldest group are looked at one by one.
const LATE: u64 = 20_000;

impl Launcher {
    /// Launches some of what was handed over, and looks at what is in flight. Whether there is anything left to do.
    pub(crate) fn turn(&mut self, batcher: &Batcher) -> bool {
        self.launch(batcher);
        self.look(batcher);
        batcher.wakes.settle(false);
        !self.in_flight.is_empty() || !self.waiting.is_empty()
    }

    fn launch(&mut self, batcher: &Batcher) {
        if self.waiting.is_empty() {
            std::mem::swap(&mut *batcher.inbox.lock(), &mut self.taken);
            self.waiting.extend(self.taken.drain(..));
        }
        let before = self.in_flight.len();
        while self.in_flight.len() - before < MOST
            && let Some(run) = self.waiting.pop_front()
        {
            if run.launch_handed_over(|device| self.queue(device)) {
                self.in_flight.push_back(run);
            }
        }
        let len = self.in_flight.len() - before;
        if len > 0 {
            self.groups.push_back(Group { len, launched: now() });
            self.next_queue = (self.next_queue + 1) % QUEUES;
        }
    }

    /// Looks at the oldest group.
    fn look(&mut self, batcher: &Batcher) {
        let Some(group) = self.groups.front() else { return };
        let Some(last) = self.in_flight.get(group.len - 1) else { return };
        let at = now();
        let head_since = self.head_since.max(group.launched);
        if !last.is_final(0) {
            // It is not over now, and has had the queue for itself since then.
            let each = (at.saturating_sub(head_since)) / group.len as u64;
            if Batcher::is_too_long(each) {
                self.in_flight.iter().take(group.len).for_each(|run| run.set_too_long());
            }
            if at.saturating_sub(head_since) < LATE {
                return;
            }
        }
        self.end_oldest(batcher);
    }

    /// Ends runs of the oldest group, as far as they are over. Whom that lets go on is due to be woken.
    fn end_oldest(&mut self, batcher: &Batcher) {
        let Self { groups, in_flight, wakers, .. } = self;
        let Some(group) = groups.front_mut() else { return };
        {
            // Until they are woken nothing of the user's is to run here that may wait for them.
            let _elsewhere = Elsewhere::enter();
            latch::gather(wakers, || {
                while group.len > 0 && in_flight.front().is_some_and(|run| run.look_at(0)) {
                    group.len -= 1;
                    in_flight.pop_front();
                }
            });
        }
        if group.len == 0 {
            groups.pop_front();
            self.head_since = now();
        }
        batcher.wakes.add(wakers.drain(..));
    }

    /// The queue of the group that is being launched; `None` if the device has none to give.
    fn queue(&mut self, device: &Device) -> Option<Arc<dyn hal::Queue>> {
        if self.queues.is_empty()
            && let Err(error) = self.create_queues(device)
        {
            tracing::warn!(target: "wakegraph", %error, "no queues to share: runs are launched on their own");
        }
        self.queues.get(self.next_queue.checked_rem(self.queues.len())?).cloned()
    }

    fn create_queues(&mut self, device: &Device) -> Result<()> {
        let desc = hal::QueueDesc { order: hal::QueueOrder::InOrder, profiling: false };
        for _ in 0..QUEUES {
            self.queues.push(device.hal().create_queue(&desc)?);
        }
        Ok(())
    }
}
