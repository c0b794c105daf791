//! Updates of recorded commands. A launch keeps the driver's kernel where possible, which gets only the new
//! arguments.

use std::sync::Arc;

use wakegraph_hal::support::list_update::UpdateBackend;
use wakegraph_hal::support::lowering::LoweredCommand;
use wakegraph_hal::{Command, CommandUpdate, KernelArg, KernelLaunch, Result};

use super::context::OpenclContext;
use super::kernel::{OpenclKernel, is_plain};
use super::lower::lower;
use super::operation::OpenclOperation;

impl UpdateBackend for OpenclContext {
    type Operation = OpenclOperation;

    fn lower(self: &Arc<Self>, command: &Command) -> Result<LoweredCommand<OpenclOperation>> {
        lower(self, command)
    }

    /// Parts of buffers would have to live as long as the driver's kernel.
    fn takes_arguments<'a>(
        self: &Arc<Self>,
        operation: &OpenclOperation,
        mut args: impl Iterator<Item = &'a KernelArg>,
    ) -> bool {
        matches!(operation, OpenclOperation::Kernel(launch) if launch.instance.is_plain())
            && args.all(|arg| is_plain(self, arg))
    }

    fn set_launch(
        self: &Arc<Self>,
        operation: &mut OpenclOperation,
        launch: &KernelLaunch,
        update: Option<&CommandUpdate>,
    ) -> Result<()> {
        let OpenclOperation::Kernel(operation) = operation else { return Ok(()) };
        let kernel = OpenclKernel::of(&*launch.kernel, self)?;
        if update.is_none_or(CommandUpdate::changes_range) {
            (operation.local, operation.range) = (kernel.local_size(&launch.range)?, launch.range);
        }
        let set = |index| kernel.set_argument(&operation.instance, index, &launch.args[index]);
        match update {
            Some(update) => update.args.iter().try_for_each(|(index, _)| set(*index)),
            None => (0..launch.args.len()).try_for_each(set),
        }
    }
}
