//! The lowered commands of a command-buffer, with their order.

use smallvec::SmallVec;

use super::lowering::{After, DriverOperation, LoweredCommand};

/// The commands of a command-buffer, lowered, with their order.
#[derive(Debug)]
pub struct CommandList<O> {
    /// The commands, in the order in which they were appended.
    pub commands: Vec<ListedCommand<O>>,
}

/// One command of a list.
#[derive(Debug)]
pub struct ListedCommand<O> {
    /// Its operations.
    pub lowered: LoweredCommand<O>,
    /// Disabled commands are passed over.
    pub enabled: bool,
    /// The earlier commands that it follows.
    after: After,
}

/// One operation in the order of the whole list.
#[derive(Debug)]
pub struct PlannedOperation<'a, O> {
    /// The operation to enqueue.
    pub operation: &'a O,
    /// The earlier operations that it follows.
    pub after: SmallVec<[u32; 4]>,
    /// The command that it is of.
    pub command: u32,
}

impl<O: DriverOperation> ListedCommand<O> {
    /// Its operations, each with those before it that it follows.
    fn ordered_operations(&self) -> impl Iterator<Item = (&O, &[u32])> {
        let (all, nothing) = match self.enabled {
            true => (&self.lowered.operations[..], None),
            false => (&[][..], Some((O::NOTHING, &[][..]))),
        };
        all.iter().map(|ordered| (&ordered.operation, &ordered.after[..])).chain(nothing)
    }

    /// Its operations in an order in which they can run.
    pub fn operations(&self) -> impl Iterator<Item = &O> {
        self.ordered_operations().map(|(operation, _)| operation)
    }
}

impl<O> Default for CommandList<O> {
    fn default() -> Self {
        Self { commands: Vec::new() }
    }
}

impl<O> Drop for CommandList<O> {
    fn drop(&mut self) {
        // PoCL keeps the kernels of a program in a linked list with the newest in front, and searches
        // it from there for each one that is released.
        while self.commands.pop().is_some() {}
    }
}

impl<O: DriverOperation> CommandList<O> {
    /// Appends a command that follows these earlier ones.
    pub fn push(&mut self, lowered: LoweredCommand<O>, after: After) {
        self.commands.push(ListedCommand { lowered, enabled: true, after });
    }

    /// All operations, in an order in which they can run.
    pub fn plan(&self) -> impl Iterator<Item = PlannedOperation<'_, O>> {
        // Of each command, the last operation.
        let mut ends: Vec<u32> = Vec::with_capacity(self.commands.len());
        let mut operations = 0;
        (0..).zip(&self.commands).flat_map(move |(number, command)| {
            let first = operations;
            let planned: SmallVec<[_; 1]> = command
                .ordered_operations()
                .map(|(operation, after)| {
                    let after = match after {
                        [] => command.after.iter().map(|&earlier| ends[earlier as usize]).collect(),
                        after => after.iter().map(|&earlier| first + earlier).collect(),
                    };
                    PlannedOperation { operation, after, command: number }
                })
                .collect();
            operations += planned.len() as u32;
            ends.push(operations - 1);
            planned
        })
    }
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::super::lowering::{OrderedOperation, StagedMemory};
    use super::*;

    #[derive(PartialEq, Debug)]
    enum FakeOperation {
        Work,
        Nothing,
    }

    impl DriverOperation for FakeOperation {
        const NOTHING: &'static Self = &Self::Nothing;
    }

    /// Operations that follow these others of the same command.
    fn lowered(operations: &[&[u32]]) -> LoweredCommand<FakeOperation> {
        let operations = operations
            .iter()
            .map(|&after| OrderedOperation { operation: FakeOperation::Work, after: after.into() });
        LoweredCommand { operations: operations.collect(), staged: StagedMemory::default() }
    }

    fn order(list: &CommandList<FakeOperation>) -> Vec<(u32, Vec<u32>)> {
        list.plan().map(|planned| (planned.command, planned.after.to_vec())).collect()
    }

    #[test]
    fn operations_follow_the_last_of_the_commands_before() {
        let mut list = CommandList::default();
        list.push(lowered(&[&[], &[0]]), SmallVec::new());
        list.push(lowered(&[&[]]), SmallVec::new());
        list.push(lowered(&[&[], &[], &[0, 1]]), [0, 1].into_iter().collect());
        let expected =
            [(0, vec![]), (0, vec![0]), (1, vec![]), (2, vec![1, 2]), (2, vec![1, 2]), (2, vec![3, 4])];
        assert_eq!(order(&list), expected);
        list.commands[0].enabled = false;
        assert_eq!(order(&list)[..3], [(0, vec![]), (1, vec![]), (2, vec![0, 1])]);
        let first = list.plan().next().unwrap();
        assert_eq!(*first.operation, FakeOperation::Nothing, "its place in the order stays");
        assert_eq!(list.commands[0].operations().count(), 1);
    }
}
