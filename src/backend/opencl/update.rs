//! The parts of an update: what commands become, what that replaces, and which recordings can stay.

use super::command_buffer::OpenclCommandBuffer;
use super::lower::Lowered;
use super::mutate::{self, Change};
use super::record::Recording;
use super::replay::List;
use crate::hal::{Command, EventStatus, KernelLaunch, KernelUpdate};
use crate::types::{Error, ErrorKind, Result};

/// What an update has taken out of the list.
pub(super) enum Replaced {
    Ops(Vec<(usize, Lowered)>),
    List(List),
}

impl OpenclCommandBuffer {
    /// The launches after these updates, by their command. Several updates of one command build on each other.
    pub(super) fn updated(&self, updates: &[KernelUpdate]) -> Result<Vec<(usize, Command)>> {
        let mut launches = Vec::<(usize, KernelLaunch)>::with_capacity(updates.len());
        for update in updates {
            let index = update.handle.index as usize;
            if let Some((_, launch)) = launches.iter_mut().find(|(prepared, _)| *prepared == index) {
                update.apply_to(launch)?;
                continue;
            }
            let Some(Command::Kernel(launch)) = self.commands.get(index) else {
                let why = format!("command {index} is not a kernel launch");
                return Err(Error::new(ErrorKind::InvalidCommandHandle, why));
            };
            let mut launch = (**launch).clone();
            update.apply_to(&mut launch)?;
            launches.push((index, launch));
        }
        Ok(launches.into_iter().map(|(index, launch)| (index, Command::Kernel(Box::new(launch)))).collect())
    }

    pub(super) fn exchange_commands(&mut self, new: Vec<(usize, Command)>) -> Vec<(usize, Command)> {
        new.into_iter()
            .map(|(index, command)| (index, std::mem::replace(&mut self.commands[index], command)))
            .collect()
    }

    /// Puts what the commands have become into the list; where that changes how many operations they are, the list is made
    /// anew.
    pub(super) fn exchange(&mut self, lowered: Vec<(usize, Lowered)>) -> Result<Replaced> {
        if lowered.iter().all(|(index, lowered)| self.list.fits(*index, lowered)) {
            let old = lowered.into_iter().map(|(index, lowered)| (index, self.list.replace(index, lowered)));
            return Ok(Replaced::Ops(old.collect()));
        }
        let list = List::build(&self.shared, &self.commands, &self.after)?;
        Ok(Replaced::List(std::mem::replace(&mut self.list, list)))
    }

    /// Changes the recordings themselves, if they are not in flight and the device can: which of the two it has changed.
    pub(super) fn change_in_place(&mut self, old_commands: &[(usize, Command)], old: &Replaced) -> [bool; 2] {
        let last = self.run.get_mut().last.as_ref();
        let pending = last.is_some_and(|last| matches!(last.status(), EventStatus::Pending));
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
        let run = self.run.get_mut();
        let pending = run.last.clone().filter(|last| matches!(last.status(), EventStatus::Pending));
        run.retired.extend(pending.zip(replaced));
    }
}
