//! Updates of one kernel's arguments and sizes, without a copy of the launch: what comes before
//! every enqueue, where anything does.

use smallvec::SmallVec;

use super::command_buffer::CudaCommandBuffer;
use super::instance::Replaced;
use super::lower::lower_kernel;
use super::prompt::stays_on;
use super::update::keeps_memory;
use crate::hal::{Command, CommandUpdate, KernelArg};
use crate::types::Result;

impl CudaCommandBuffer {
    /// Changes a node of the instance, or nothing on an error. Gives none, and has changed nothing,
    /// where the update is of another kind. The caller has bound the context.
    pub(super) fn update_in_place(&mut self, update: &CommandUpdate) -> Option<Result<()>> {
        let instance = self.instance.as_mut()?.get_mut();
        let recorded = self.commands.get_mut(update.handle.index as usize)?;
        let (Command::Kernel(launch), Some((node, current))) = (&mut recorded.command, &mut recorded.kernel)
        else {
            return None;
        };
        let is_there = |(index, _): &(usize, KernelArg)| *index < launch.args.len();
        if update.kernel.is_some() || update.enabled.is_some() || !update.args.iter().all(is_there) {
            return None;
        }
        let range = launch.range;
        let old: SmallVec<[(usize, KernelArg); 2]> =
            update.args.iter().map(|(index, _)| (*index, launch.args[*index].clone())).collect();
        let mut change = || -> Result<()> {
            update.apply_to(launch)?;
            let lowered = lower_kernel(&self.shared, launch)?;
            instance.change(
                |exec| exec.set_kernel(*node, &lowered),
                |exec| Ok(exec.set_kernel(*node, current)?),
            )?;
            *current = lowered;
            Ok(())
        };
        if let Err(error) = { change }() {
            launch.range = range;
            old.into_iter().for_each(|(index, arg)| launch.args[index] = arg);
            return Some(Err(self.shared.context.error(error)));
        }
        let gone = old.into_iter().filter(|(index, old)| !keeps_memory(old, &launch.args[*index]));
        let mut replaced = Replaced::default();
        replaced.args.extend(gone.map(|(_, arg)| arg));
        instance.retire(replaced, &self.shared.context);
        self.as_recorded = false;
        let stays = stays_on(&self.shared, &recorded.command);
        self.outside += usize::from(!stays);
        self.outside -= usize::from(!recorded.stays);
        recorded.stays = stays;
        Some(Ok(()))
    }
}
