//! The lowered commands of a command-buffer, with their order.

use std::sync::Arc;

use smallvec::SmallVec;

use super::context::LevelZeroContext;
use super::lower::{After, LoweredCommand, lower};
use super::operation::Operation;
use crate::hal::Command;
use crate::types::Result;

/// The commands of a command-buffer, lowered, with their order.
#[derive(Debug, Default)]
pub(super) struct CommandList {
    pub(super) commands: Vec<ListedCommand>,
}

/// One command of a list.
#[derive(Debug)]
pub(super) struct ListedCommand {
    pub(super) lowered: LoweredCommand,
    pub(super) enabled: bool,
    /// The earlier commands that it follows.
    after: After,
}

/// One operation in the order of the whole list.
#[derive(Debug)]
pub(super) struct PlannedOperation<'a> {
    pub(super) operation: &'a Operation,
    /// The earlier operations that it follows.
    pub(super) after: SmallVec<[u32; 4]>,
    /// The command that it is of.
    pub(super) command: u32,
}

/// The operation of a disabled command.
static NOTHING: Operation = Operation::Barrier;

impl ListedCommand {
    /// Its operations, each with those before it that it follows.
    fn ordered_operations(&self) -> impl Iterator<Item = (&Operation, &[u32])> {
        let (all, nothing) = match self.enabled {
            true => (&self.lowered.operations[..], None),
            false => (&[][..], Some((&NOTHING, &[][..]))),
        };
        all.iter().map(|ordered| (&ordered.operation, &ordered.after[..])).chain(nothing)
    }
}

impl CommandList {
    /// Appends a command that follows these earlier ones.
    pub(super) fn push(
        &mut self,
        context: &Arc<LevelZeroContext>,
        command: &Command,
        after: After,
    ) -> Result<()> {
        self.commands.push(ListedCommand { lowered: lower(context, command)?, enabled: true, after });
        Ok(())
    }

    /// All operations, in an order in which they can run.
    pub(super) fn plan(&self) -> Vec<PlannedOperation<'_>> {
        let mut plan = Vec::with_capacity(self.commands.len());
        let mut ends: Vec<u32> = Vec::with_capacity(self.commands.len());
        for (number, command) in (0..).zip(&self.commands) {
            let first = plan.len() as u32;
            for (operation, after) in command.ordered_operations() {
                let after = match after {
                    [] => command.after.iter().map(|&earlier| ends[earlier as usize]).collect(),
                    after => after.iter().map(|&earlier| first + earlier).collect(),
                };
                plan.push(PlannedOperation { operation, after, command: number });
            }
            ends.push(plan.len() as u32 - 1);
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::super::lower::OrderedOperation;
    use super::*;

    /// A command of operations that follow these others of the same command.
    fn command(operations: &[&[u32]], after: &[u32]) -> ListedCommand {
        let operations = operations.iter().map(|&after| OrderedOperation {
            operation: Operation::Copy { from: 0, to: 0, len: 1 },
            after: after.into(),
        });
        let lowered = LoweredCommand { operations: operations.collect(), ..LoweredCommand::default() };
        ListedCommand { lowered, enabled: true, after: after.into() }
    }

    fn order(list: &CommandList) -> Vec<(u32, Vec<u32>)> {
        list.plan().iter().map(|planned| (planned.command, planned.after.to_vec())).collect()
    }

    #[test]
    fn operations_follow_the_last_of_the_commands_before() {
        let commands =
            vec![command(&[&[], &[0]], &[]), command(&[&[]], &[]), command(&[&[], &[], &[0, 1]], &[0, 1])];
        let mut list = CommandList { commands };
        let expected =
            [(0, vec![]), (0, vec![0]), (1, vec![]), (2, vec![1, 2]), (2, vec![1, 2]), (2, vec![3, 4])];
        assert_eq!(order(&list), expected);
        list.commands[0].enabled = false;
        assert_eq!(order(&list)[..3], [(0, vec![]), (1, vec![]), (2, vec![0, 1])]);
        assert!(matches!(list.plan()[0].operation, Operation::Barrier), "its place in the order stays");
    }
}
