//! The parts of an update: what commands become, what that replaces, and which recordings can stay.

use std::sync::Arc;

use super::command_buffer::OpenclCommandBuffer;
use super::lower::Lowered;
use super::mutate::{self, Change};
use super::record::Recording;
use super::replay::List;
use super::signal::Signal;
use crate::hal::{Command, EventStatus};
use crate::types::Result;

/// What an update has taken out of the list.
pub(super) enum Replaced {
    Ops(Vec<(usize, Lowered)>),
    List(List),
}

impl OpenclCommandBuffer {
    pub(super) fn exchange_commands(&mut self, new: Vec<(usize, Command)>) -> Vec<(usize, Command)> {
        new.into_iter()
            .map(|(index, command)| (index, std::mem::replace(&mut self.commands[index], command)))
            .collect()
    }

    /// Puts what the commands have become into the list; where that changes how many operations
    /// they are, the list is made anew.
    pub(super) fn exchange(&mut self, lowered: Vec<(usize, Lowered)>) -> Result<Replaced> {
        if lowered.iter().all(|(index, lowered)| self.list.fits(*index, lowered)) {
            let old = lowered.into_iter().map(|(index, lowered)| (index, self.list.replace(index, lowered)));
            return Ok(Replaced::Ops(old.collect()));
        }
        let mut list = List::build(&self.shared, &self.commands, &self.after)?;
        list.set_disabled(self.list.disabled().to_vec());
        Ok(Replaced::List(std::mem::replace(&mut self.list, list)))
    }

    /// Changes the recordings themselves, if they are not in flight and the device can: which of
    /// the two it has changed.
    pub(super) fn change_in_place(&mut self, old_commands: &[(usize, Command)], old: &Replaced) -> [bool; 2] {
        let pending = self.pending().is_some();
        let (Replaced::Ops(_), false) = (old, pending) else { return [false; 2] };
        if self.recording.is_none() {
            return [false; 2];
        }
        let changes: Option<Vec<_>> = old_commands
            .iter()
            .map(|(index, old)| match (old, &self.commands[*index]) {
                (Command::Kernel(old), Command::Kernel(new)) => {
                    Some(Change { step: self.list.first_step(*index)?, old, new })
                }
                _ => None,
            })
            .collect();
        let Some(changes) = changes else { return [false; 2] };
        [self.recording.as_ref(), self.out_of_order.get().and_then(Option::as_ref)]
            .map(|recording| recording.is_some_and(|recording| mutate::change(recording, &changes)))
    }

    /// Keeps a recording that has been replaced while an enqueue of it is in flight.
    pub(super) fn retire(&mut self, replaced: Option<Recording>) {
        let pending = self.pending();
        self.run.get_mut().retired.extend(pending.zip(replaced));
    }

    /// The next enqueue that needs such a recording makes it.
    pub(super) fn retire_out_of_order(&mut self) {
        let replaced = std::mem::take(&mut self.out_of_order).into_inner().flatten();
        self.retire(replaced);
    }

    /// After an update that failed: a change that the driver refused may have been made in part, or
    /// in one of the two recordings only, so nobody knows what they do. The list says what the
    /// commands do, and is replayed from now on.
    pub(super) fn retire_recordings(&mut self) {
        let unknown = self.recording.take();
        self.retire(unknown);
        self.retire_out_of_order();
    }

    /// The memory of ours that a replaced list reads is kept while an enqueue of it is in flight.
    pub(super) fn keep_staged(&self, list: List) {
        if let Some(pending) = self.pending() {
            pending.keep(list.into_staged());
        }
    }

    /// The last enqueue, if it is in flight.
    fn pending(&self) -> Option<Arc<Signal>> {
        self.run.lock().last.clone().filter(|last| matches!(last.status(), EventStatus::Pending))
    }
}
