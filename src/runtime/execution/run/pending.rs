//! A run as the reactor sees it.

use std::time::Duration;

use crate::runtime::completion::pending::{Pending, Seen};
use crate::runtime::execution::run::Run;

impl Pending for Run {
    fn is_over(&self, partition: usize) -> bool {
        self.is_over(partition)
    }

    fn is_awaited(&self, partition: usize) -> bool {
        self.done.is_awaited() && self.is_last(partition)
    }

    fn ask(&self, partition: usize) -> bool {
        self.ask(partition)
    }

    fn ask_later(&self, partition: usize) {
        self.ask_later(partition);
    }

    fn answer(&self, partition: usize) -> Option<bool> {
        self.answer(partition)
    }

    fn set_near(&self, until: u64) {
        self.set_near(until);
    }

    fn complete(&self, partition: usize, took: Option<Duration>, seen: Seen) {
        // Otherwise another thread has seen it complete before.
        if !self.is_over(partition) {
            self.observe(partition, took, seen);
            self.look_at(partition);
        }
    }
}
