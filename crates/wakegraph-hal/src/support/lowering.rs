//! Lowers commands to operations, for drivers that take one call for each: memory that the operations need
//! beside that of the command, and the lowered commands of a command-buffer with their order.

use std::iter;
use std::slice;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::copies::{doublings, fill_element};
use crate::{Memory, MemoryDesc, MemoryKind, Result};

/// A command in the form in which a driver takes it: one call.
pub trait DriverOperation: Sized + 'static {
    /// Does nothing, in its place in the order.
    const NOTHING: &'static Self;
}

/// Operations that run one after the other.
pub type Operations<O> = SmallVec<[O; 1]>;

/// Indices of earlier commands.
pub type After = SmallVec<[u32; 2]>;

/// The operations that a command becomes.
#[derive(Debug)]
pub struct LoweredCommand<O> {
    /// At least one. Each follows the one before it, the first what the command follows.
    pub operations: Operations<O>,
    /// Memory that the operations use beside the operands.
    pub staged: StagedMemory,
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
        Self { operations: smallvec![operation], staged: StagedMemory::default() }
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
    /// Its operations, each of which follows the one before it.
    pub fn operations(&self) -> impl Iterator<Item = &O> {
        let operations =
            if self.enabled { &self.lowered.operations[..] } else { slice::from_ref(O::NOTHING) };
        operations.iter()
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
            let planned: SmallVec<[_; 1]> = (operations..)
                .zip(command.operations())
                .map(|(place, operation)| {
                    let after = match place == operations {
                        true => command.after.iter().map(|&earlier| ends[earlier as usize]).collect(),
                        false => smallvec![place - 1],
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

    fn lowered(count: usize) -> LoweredCommand<FakeOperation> {
        let operations = (0..count).map(|_| FakeOperation::Work).collect();
        LoweredCommand { operations, staged: StagedMemory::default() }
    }

    fn planned(list: &CommandList<FakeOperation>) -> Vec<(u32, Vec<u32>)> {
        list.plan().map(|planned| (planned.command, planned.after.to_vec())).collect()
    }

    #[test]
    fn operations_follow_the_last_of_the_commands_before() {
        let mut list = CommandList::default();
        list.push(lowered(2), SmallVec::new());
        list.push(lowered(1), SmallVec::new());
        list.push(lowered(3), [0, 1].into_iter().collect());
        let expected = [(0, vec![]), (0, vec![0]), (1, vec![]), (2, vec![1, 2]), (2, vec![3]), (2, vec![4])];
        assert_eq!(planned(&list), expected);
        list.commands[0].enabled = false;
        assert_eq!(planned(&list)[..3], [(0, vec![]), (1, vec![]), (2, vec![0, 1])]);
        let first = list.plan().next().unwrap();
        assert_eq!(*first.operation, FakeOperation::Nothing, "its place in the order stays");
        assert_eq!(list.commands[0].operations().count(), 1);
    }
}
