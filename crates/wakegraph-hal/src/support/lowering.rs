//! Lowers commands to operations, for drivers that take one call for each: the order of the commands in a
//! body, memory that the operations need beside that of the command, and the lowered commands of a
//! command-buffer.

use std::iter;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::copies::{doublings, fill_element};
use crate::{Body, Command, Memory, MemoryDesc, MemoryKind, Result};

/// A command in the form in which a driver takes it: one call.
pub trait DriverOperation: Sized + 'static {
    /// Does nothing, in its place in the order.
    const NOTHING: &'static Self;
}

/// Operations that run one after the other.
pub type Operations<O> = SmallVec<[O; 1]>;

/// Indices of earlier commands, or of earlier operations of a command.
pub type After = SmallVec<[u32; 2]>;

/// The operations that a command becomes.
#[derive(Debug)]
pub struct LoweredCommand<O> {
    /// At least one, in an order in which they can run. The last follows all others.
    pub operations: SmallVec<[OrderedOperation<O>; 1]>,
    /// Memory that the operations use beside the operands.
    pub staged: StagedMemory,
}

/// One operation of a command, and those of the same command before it.
#[derive(Debug)]
pub struct OrderedOperation<O> {
    /// The driver's operation.
    pub operation: O,
    /// The earlier operations of the command that it follows. Without any it follows what the
    /// command follows.
    pub after: After,
}

/// Memory of the backend that operations use.
#[derive(Clone, Debug, Default)]
pub struct StagedMemory(SmallVec<[Arc<dyn Memory>; 1]>);

impl StagedMemory {
    /// Device memory of so many bytes, made by `allocate`.
    pub fn allocate<M: Memory>(
        &mut self,
        len: usize,
        allocate: impl FnOnce(&MemoryDesc) -> Result<M>,
    ) -> Result<Arc<M>> {
        let memory = Arc::new(allocate(&MemoryDesc { len, kind: MemoryKind::Device })?);
        self.0.push(Arc::clone(&memory) as _);
        Ok(memory)
    }

    /// A fill of `len` bytes from the address or offset `start` on: one operation where the driver takes an
    /// element of the pattern, which is at most `longest` bytes. Else copies: first from memory that
    /// `allocate` makes, which holds whole patterns, then of what is filled already. `copy` is given the
    /// memory, if it is the source, and the place behind `start` and the length of a copy.
    pub fn fill<O, M: Memory>(
        &mut self,
        (pattern, start, len): (&[u8], u64, usize),
        longest: usize,
        allocate: impl FnOnce(&MemoryDesc) -> Result<M>,
        fill: impl FnOnce(&[u8]) -> O,
        copy: impl Fn(Option<&M>, usize, usize) -> Result<O>,
    ) -> Result<Operations<O>> {
        if let Some(element) = fill_element(pattern, start, len, longest) {
            return Ok(smallvec![fill(element)]);
        }
        let source = self.allocate_pattern(pattern, len, allocate)?;
        let first = source.len().min(len);
        let doublings = doublings(first, len).map(|(at, more)| copy(None, at, more));
        iter::once(copy(Some(&source), 0, first)).chain(doublings).collect()
    }

    /// Device memory that holds whole patterns, from which copies fill `len` bytes.
    #[expect(unsafe_code, reason = "writes memory that nothing else knows")]
    fn allocate_pattern<M: Memory>(
        &mut self,
        pattern: &[u8],
        len: usize,
        allocate: impl FnOnce(&MemoryDesc) -> Result<M>,
    ) -> Result<Arc<M>> {
        /// So that a long fill is a few large copies.
        const BYTES: usize = 4096;
        let bytes = pattern.repeat((BYTES.min(len) / pattern.len()).max(1));
        let memory = self.allocate(bytes.len(), allocate)?;
        // SAFETY: nothing else knows the memory yet.
        unsafe { memory.write(0, &bytes) }?;
        Ok(memory)
    }
}

impl IntoIterator for StagedMemory {
    type Item = Arc<dyn Memory>;
    type IntoIter = smallvec::IntoIter<[Arc<dyn Memory>; 1]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<O> LoweredCommand<O> {
    /// A command that becomes this operation.
    pub fn of_one(operation: O) -> Self {
        let ordered = OrderedOperation { operation, after: After::new() };
        Self { operations: smallvec![ordered], staged: StagedMemory::default() }
    }

    /// Lowers a command. `lower` gives the operations of one without a body: at least one.
    ///
    /// # Errors
    /// The errors of `lower`.
    pub fn of(
        command: &Command,
        mut lower: impl FnMut(&Command, &mut StagedMemory) -> Result<Operations<O>>,
    ) -> Result<Self> {
        let mut lowered = Self { operations: SmallVec::new(), staged: StagedMemory::default() };
        lowered.add(command, After::new(), &mut lower)?;
        Ok(lowered)
    }

    /// Adds the operations of a command. Gives the index of the last.
    fn add(
        &mut self,
        command: &Command,
        after: After,
        lower: &mut impl FnMut(&Command, &mut StagedMemory) -> Result<Operations<O>>,
    ) -> Result<u32> {
        if let Command::Child(body) = command {
            return self.add_body(body, after, lower);
        }
        let mut after = Some(after);
        for operation in lower(command, &mut self.staged)? {
            let previous = self.operations.len().checked_sub(1).map(|last| last as u32);
            let after = after.take().unwrap_or_else(|| previous.into_iter().collect());
            self.operations.push(OrderedOperation { operation, after });
        }
        Ok(self.operations.len() as u32 - 1)
    }

    /// Adds the operations of a child's commands. The recursion is bounded by [`Body::MAX_DEPTH`].
    fn add_body(
        &mut self,
        body: &Body,
        after: After,
        lower: &mut impl FnMut(&Command, &mut StagedMemory) -> Result<Operations<O>>,
    ) -> Result<u32> {
        let mut ends: Vec<u32> = Vec::with_capacity(body.len());
        let mut is_leaf = vec![true; body.len()];
        for (command, befores) in body.commands() {
            let mut behind = after.clone();
            if !befores.is_empty() {
                behind = befores.iter().map(|&before| ends[before as usize]).collect();
                befores.iter().for_each(|&before| is_leaf[before as usize] = false);
            }
            ends.push(self.add(command, behind, lower)?);
        }
        let leaves: After =
            ends.into_iter().zip(is_leaf).filter_map(|(end, leaf)| leaf.then_some(end)).collect();
        if let [leaf] = leaves[..] {
            // The operation that ends the only leaf was added last.
            return Ok(leaf);
        }
        self.add(&Command::Empty, if leaves.is_empty() { after } else { leaves }, lower)
    }
}

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
    use super::*;

    /// The operations that each operation follows, where a command is `count` of them.
    fn order(command: &Command, count: usize) -> Vec<Vec<u32>> {
        let lowered = LoweredCommand::of(command, |_, _| Ok(smallvec![(); count])).unwrap();
        lowered.operations.iter().map(|ordered| ordered.after.to_vec()).collect()
    }

    fn body(commands: &[(Command, &[u32])]) -> Command {
        let mut body = Body::new();
        for (command, after) in commands {
            body.push(command.clone(), after).unwrap();
        }
        Command::Child(Arc::new(body))
    }

    #[test]
    fn operations_of_a_command_follow_each_other() {
        assert_eq!(order(&Command::Empty, 3), [vec![], vec![0], vec![1]]);
    }

    #[test]
    fn a_body_ends_with_one_operation() {
        let chain = body(&[(Command::Empty, &[]), (Command::Empty, &[0])]);
        assert_eq!(order(&chain, 1), [vec![], vec![0]]);
        let fork = body(&[(Command::Empty, &[]), (Command::Empty, &[])]);
        assert_eq!(order(&fork, 1), [vec![], vec![], vec![0, 1]]);
        assert_eq!(order(&body(&[]), 1), [[0_u32; 0]]);
        let nested = body(&[(Command::Empty, &[]), (fork, &[0]), (Command::Empty, &[1])]);
        assert_eq!(order(&nested, 1), [vec![], vec![0], vec![0], vec![1, 2], vec![3]]);
    }

    #[test]
    #[expect(unsafe_code, reason = "lends the device memory of the test's own, and reads it")]
    fn a_staged_pattern_is_whole_patterns() {
        use std::ptr::NonNull;

        use crate::{DeviceId, PlainMemory, UserMemory};

        let allocate = |desc: &MemoryDesc| {
            let mut owner = vec![0_u8; desc.len].into_boxed_slice();
            let start = NonNull::new(owner.as_mut_ptr()).unwrap();
            // SAFETY: the bytes live as long as their owner.
            let memory = unsafe { UserMemory::new(start, desc.len, false, Box::new(owner)) };
            Ok(PlainMemory::new(DeviceId::from_raw(0), memory, true))
        };
        let mut staged = StagedMemory::default();
        for (pattern, len, expected) in
            [(&[1, 2, 3][..], 10, 9), (&[1, 2, 3], 1 << 20, 4095), (&[7; 5], 5, 5)]
        {
            let memory = staged.allocate_pattern(pattern, len, allocate).unwrap();
            let mut bytes = vec![0; memory.len()];
            // SAFETY: nothing writes the memory.
            unsafe { memory.read(0, &mut bytes) }.unwrap();
            assert_eq!(bytes.len(), expected);
            assert!(bytes.chunks(pattern.len()).all(|part| part == pattern));
        }
        assert_eq!(staged.into_iter().count(), 3);
    }

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

    fn planned(list: &CommandList<FakeOperation>) -> Vec<(u32, Vec<u32>)> {
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
        assert_eq!(planned(&list), expected);
        list.commands[0].enabled = false;
        assert_eq!(planned(&list)[..3], [(0, vec![]), (1, vec![]), (2, vec![0, 1])]);
        let first = list.plan().next().unwrap();
        assert_eq!(*first.operation, FakeOperation::Nothing, "its place in the order stays");
        assert_eq!(list.commands[0].operations().count(), 1);
    }
}
