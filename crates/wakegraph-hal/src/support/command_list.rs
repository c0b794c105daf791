//! Command-buffers that become a list of operations, for drivers that take one call for each.
//!
//! Commands are lowered to operations, which may need memory beside that of the command. They are recorded
//! in a list with their order, and updated there. Each update takes effect at once. The parts that it
//! replaces
//! are kept until all have succeeded, and then as long as the device uses them; a new value that still uses a
//! part of the old one keeps it itself.

use std::sync::Arc;
use std::{iter, mem, ptr, slice};

use smallvec::{SmallVec, smallvec};

use super::errors::{
    append_after_finalize, enqueue_before_finalize, finalized_twice, half_updated, next_command,
    unknown_command, update_before_finalize,
};
use super::memory::{doublings, fill_element};
use crate::{
    Appended, Command, CommandBufferDesc, CommandBufferId, CommandBufferInfo, CommandBufferState,
    CommandUpdate, DeviceId, Error, KernelArg, KernelLaunch, LaunchBefore, Memory, MemoryDesc, MemoryKind,
    Result, SyncPoint,
};

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
    /// Operations, at least one. Each follows the one before it, the first what the command follows.
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
        let memory = Arc::new(allocate(&MemoryDesc::new(len, MemoryKind::Device))?);
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
    /// Operations of the command.
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
    /// Iterates over the operations, each of which follows the one before it.
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

/// The commands of a command-buffer, and its state.
#[derive(Debug)]
pub struct RecordedCommands<O> {
    id: CommandBufferId,
    /// Descriptor that the command-buffer was created with.
    pub desc: CommandBufferDesc,
    state: CommandBufferState,
    /// Keeps the operands of the commands alive, and is what updates build on.
    pub commands: Vec<Command>,
    /// The lowered commands.
    pub list: CommandList<O>,
    /// The reason why it must not be enqueued any more.
    broken: Option<Error>,
}

impl<O: DriverOperation> RecordedCommands<O> {
    /// A command-buffer without commands.
    pub fn new(desc: CommandBufferDesc) -> Self {
        let (id, state) = (CommandBufferId::unique(), CommandBufferState::Recording);
        Self { id, desc, state, commands: Vec::new(), list: CommandList::default(), broken: None }
    }

    /// Returns true once the command-buffer can be enqueued.
    pub fn is_finalized(&self) -> bool {
        self.state == CommandBufferState::Executable
    }

    /// Describes the command-buffer: how it was lowered, and why it is not lowered better.
    pub fn info(&self, device: DeviceId, lowering: &'static str, reason: &'static str) -> CommandBufferInfo {
        let info = CommandBufferInfo::new(self.id, device, self.desc, lowering);
        info.state(self.state).commands(self.commands.len()).reason(reason)
    }

    /// Appends a command, which `lower` lowers.
    ///
    /// # Errors
    /// The errors of `lower`; [`InvalidSyncPoint`](crate::ErrorKind::InvalidSyncPoint);
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) after finalize.
    pub fn append(
        &mut self,
        command: &Command,
        after: &[SyncPoint],
        lower: impl FnOnce(&Command) -> Result<LoweredCommand<O>>,
    ) -> Result<Appended> {
        if self.is_finalized() {
            return Err(append_after_finalize());
        }
        let (index, mut after) = next_command(self.id, self.commands.len(), after)?;
        if self.desc.in_order {
            after = index.checked_sub(1).into_iter().collect();
        }
        self.list.push(lower(command)?, after);
        self.commands.push(command.clone());
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    /// Checks that it can be finalized.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) after finalize.
    pub fn check_finalize(&self) -> Result<()> {
        if self.is_finalized() { Err(finalized_twice()) } else { Ok(()) }
    }

    /// Takes note that it has been finalized.
    pub fn set_finalized(&mut self) {
        self.state = CommandBufferState::Executable;
    }

    /// Checks that it can be enqueued.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) before finalize; that of an update that could
    /// not be undone.
    pub fn check_enqueue(&self) -> Result<()> {
        if self.is_finalized() { self.check_intact() } else { Err(enqueue_before_finalize()) }
    }

    fn check_intact(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// The error of an update that has failed. If it could not be undone, nothing is enqueued from now on.
    pub(super) fn failed_update(&mut self, error: Error, undone: Result<()>) -> Error {
        let Err(cause) = undone else { return error };
        let error = half_updated(&error, &cause).help("finalize the graph again");
        self.broken.insert(error).clone()
    }

    /// Checks that it can be updated.
    ///
    /// # Errors
    /// As for [`check_enqueue`](Self::check_enqueue).
    pub fn check_update(&self) -> Result<()> {
        if self.is_finalized() { self.check_intact() } else { Err(update_before_finalize()) }
    }
}

/// The backend's part in an update of commands.
pub trait UpdateBackend: Sized {
    /// The operation that a command is lowered to.
    type Operation: DriverOperation;

    /// The operations of a command that takes the place of another one.
    fn lower(self: &Arc<Self>, command: &Command) -> Result<LoweredCommand<Self::Operation>>;

    /// Whether the operation of a launch can be given these arguments, for the same kernel.
    fn takes_arguments<'a>(
        self: &Arc<Self>,
        _operation: &Self::Operation,
        _args: impl Iterator<Item = &'a KernelArg>,
    ) -> bool {
        false
    }

    /// Makes an operation that takes the arguments do what the launch says: in all that the `update`
    /// names, or without one in everything. After an error it may have been changed in part.
    fn set_launch(
        self: &Arc<Self>,
        _operation: &mut Self::Operation,
        _launch: &KernelLaunch,
        _update: Option<&CommandUpdate>,
    ) -> Result<()> {
        Ok(())
    }
}

/// The parts that an update has replaced, oldest first, each with the index of its command.
#[derive(Debug)]
pub struct ReplacedParts<O>(pub Vec<(usize, ReplacedOperation<O>)>);

/// One part that an update has replaced.
#[derive(Debug)]
pub enum ReplacedOperation<O> {
    /// State of a launch that has kept its operation.
    Launch(LaunchBefore),
    /// A whole command, with its operations.
    Command(Box<(Command, LoweredCommand<O>)>),
    /// Whether the command was enabled.
    Enabled(bool),
}

/// The commands of a command-buffer while they are updated.
struct ListUpdate<'a, B: UpdateBackend> {
    backend: &'a Arc<B>,
    recorded: &'a mut RecordedCommands<B::Operation>,
    replaced: Vec<(usize, ReplacedOperation<B::Operation>)>,
}

impl<O: DriverOperation> RecordedCommands<O> {
    /// Makes all of the changes, or on an error none.
    ///
    /// # Errors
    /// The errors of `backend`, and of updates that do not fit their commands;
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) before finalize.
    pub fn update<B: UpdateBackend<Operation = O>>(
        &mut self,
        backend: &Arc<B>,
        updates: &[CommandUpdate],
    ) -> Result<ReplacedParts<O>> {
        self.change(backend, |list| {
            updates.iter().try_for_each(|update| {
                list.change(update).map_err(|error| error.at_command(update.handle.index))
            })
        })
    }

    /// Makes all commands those of another command-buffer, or on an error none.
    ///
    /// # Errors
    /// As for [`update`](Self::update).
    pub fn update_from<B: UpdateBackend<Operation = O>>(
        &mut self,
        backend: &Arc<B>,
        other: &Self,
    ) -> Result<ReplacedParts<O>> {
        self.change(backend, |list| {
            let mut all = other.commands.iter().zip(&other.list.commands).enumerate();
            all.try_for_each(|(index, (command, listed))| {
                list.enable(index, listed.enabled)?;
                list.replace(index, command.clone())
            })
        })
    }

    fn change<B: UpdateBackend<Operation = O>>(
        &mut self,
        backend: &Arc<B>,
        change: impl FnOnce(&mut ListUpdate<'_, B>) -> Result<()>,
    ) -> Result<ReplacedParts<O>> {
        self.check_update()?;
        let mut update = ListUpdate { backend, recorded: self, replaced: Vec::new() };
        let changed = change(&mut update);
        let replaced = ReplacedParts(update.replaced);
        match changed {
            Ok(()) => Ok(replaced),
            Err(error) => Err(replaced.restore(backend, self, error)),
        }
    }

    /// The launch that a command is, with its operation, if it is only one.
    fn launch_mut(&mut self, index: usize) -> Option<(&mut KernelLaunch, &mut O)> {
        let listed = self.list.commands.get_mut(index)?;
        match (self.commands.get_mut(index)?, &mut listed.lowered.operations[..]) {
            (Command::Kernel(launch), [operation]) => Some((Arc::make_mut(launch), operation)),
            _ => None,
        }
    }
}

impl<B: UpdateBackend> ListUpdate<'_, B> {
    /// Changes a command as `update` says. After an error it may be changed in part.
    fn change(&mut self, update: &CommandUpdate) -> Result<()> {
        let index = update.handle.index as usize;
        if !self.recorded.commands.get(index).is_some_and(Command::can_be_updated) {
            return Err(unknown_command(index));
        }
        if let Some(enabled) = update.enabled {
            self.enable(index, enabled)?;
        }
        if let Some(new) = &update.command {
            self.replace(index, Command::clone(new))?;
        }
        if !update.changes_launch() || self.change_launch(index, update)? {
            return Ok(());
        }
        let Some(Command::Kernel(launch)) = self.recorded.commands.get(index) else {
            return Err(unknown_command(index));
        };
        let mut new = KernelLaunch::clone(launch);
        update.apply_to(&mut new)?;
        self.replace(index, Command::Kernel(Arc::new(new)))
    }

    /// Changes a launch that keeps its operation. False, and without effect, if it cannot keep it.
    fn change_launch(&mut self, index: usize, update: &CommandUpdate) -> Result<bool> {
        let Self { backend, recorded, replaced } = self;
        let Some((launch, operation)) = recorded.launch_mut(index) else { return Ok(false) };
        let args = update.args.iter();
        if update.kernel.is_some()
            || args.clone().any(|(index, _)| *index >= launch.args.len())
            || !backend.takes_arguments(operation, args.map(|(_, arg)| arg))
        {
            return Ok(false);
        }
        update.exchange(launch, |before| replaced.push((index, ReplacedOperation::Launch(before))))?;
        backend.set_launch(operation, launch, Some(update)).map(|()| true)
    }

    /// Makes a command another one.
    fn replace(&mut self, index: usize, new: Command) -> Result<()> {
        let Self { backend, recorded, replaced } = self;
        match (new, recorded.launch_mut(index)) {
            (Command::Kernel(mut new), Some((launch, operation)))
                if ptr::addr_eq(Arc::as_ptr(&launch.kernel), Arc::as_ptr(&new.kernel))
                    && backend.takes_arguments(operation, new.args.iter()) =>
            {
                mem::swap(launch, Arc::make_mut(&mut new));
                replaced.push((index, ReplacedOperation::Launch(LaunchBefore::Launch(new))));
                backend.set_launch(operation, launch, None)
            }
            (new, _) => {
                let lowered = backend.lower(&new)?;
                let RecordedCommands { commands, list, .. } = &mut **recorded;
                let command = commands.get_mut(index).ok_or_else(|| unknown_command(index))?;
                let old = mem::replace(&mut list.commands[index].lowered, lowered);
                let old = Box::new((mem::replace(command, new), old));
                replaced.push((index, ReplacedOperation::Command(old)));
                Ok(())
            }
        }
    }

    /// Enables or disables a command.
    fn enable(&mut self, index: usize, enabled: bool) -> Result<()> {
        let listed = self.recorded.list.commands.get_mut(index).ok_or_else(|| unknown_command(index))?;
        if listed.enabled != enabled {
            listed.enabled = enabled;
            self.replaced.push((index, ReplacedOperation::Enabled(!enabled)));
        }
        Ok(())
    }
}

impl<O: DriverOperation> ReplacedParts<O> {
    /// Puts everything back after an error, and gives the error. If the driver refuses that, the
    /// command-buffer is of no more use.
    pub fn restore<B: UpdateBackend<Operation = O>>(
        self,
        backend: &Arc<B>,
        recorded: &mut RecordedCommands<O>,
        error: Error,
    ) -> Error {
        let mut undone = Ok(());
        for (index, part) in self.0.into_iter().rev() {
            match part {
                ReplacedOperation::Enabled(before) => recorded.list.commands[index].enabled = before,
                ReplacedOperation::Command(before) => {
                    (recorded.commands[index], recorded.list.commands[index].lowered) = *before;
                }
                ReplacedOperation::Launch(before) => {
                    let Some((launch, operation)) = recorded.launch_mut(index) else { continue };
                    before.restore(launch);
                    undone = undone.and(backend.set_launch(operation, launch, None));
                }
            }
        }
        recorded.failed_update(error, undone)
    }

    /// The memory of the backend that the replaced commands use.
    pub fn into_memory(self) -> impl Iterator<Item = StagedMemory> {
        self.0.into_iter().filter_map(|(_, part)| match part {
            ReplacedOperation::Command(old) => Some(old.1.staged),
            _ => None,
        })
    }
}

/// Whether the new launch has all kernels and memory of the old one, so that nothing has to be kept
/// for launches in flight.
pub fn keeps_objects(old: &Command, new: &Command) -> bool {
    let (Command::Kernel(old), Command::Kernel(new)) = (old, new) else { return false };
    launch_keeps_objects(old, new)
}

/// Checks as [`keeps_objects`] does, for a part of a launch that an update has replaced.
pub fn keeps_replaced(before: &LaunchBefore, new: &KernelLaunch) -> bool {
    match before {
        LaunchBefore::Launch(old) => launch_keeps_objects(old, new),
        LaunchBefore::Argument(index, old) => new.args.get(*index).is_some_and(|new| keeps_memory(old, new)),
        LaunchBefore::Range(_) => true,
    }
}

fn launch_keeps_objects(old: &KernelLaunch, new: &KernelLaunch) -> bool {
    Arc::ptr_eq(&old.kernel, &new.kernel)
        && old.args.len() == new.args.len()
        && old.args.iter().zip(&new.args).all(|(old, new)| keeps_memory(old, new))
}

/// Whether the new argument has the memory of the old one, if that has any.
pub fn keeps_memory(old: &KernelArg, new: &KernelArg) -> bool {
    match (old, new) {
        (KernelArg::Memory(old), KernelArg::Memory(new)) => Arc::ptr_eq(old.memory(), new.memory()),
        (KernelArg::Memory(_), _) => false,
        _ => true,
    }
}

/// Values that enqueued work may still use, each with a fence that ends with that work.
#[derive(Debug)]
pub struct Retired<F, T>(Vec<(F, T)>);

impl<F, T> Default for Retired<F, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F, T> Retired<F, T> {
    /// Keeps the value until the fence has ended.
    pub fn keep(&mut self, fence: F, value: T) {
        self.0.push((fence, value));
    }

    /// Drops the values whose fence has ended.
    #[inline]
    pub fn purge(&mut self, is_over: impl Fn(&F) -> bool) {
        // Mostly there are none.
        if self.0.is_empty() {
            return;
        }
        self.0.retain(|(fence, _)| !is_over(fence));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_when_their_fence_is_over() {
        let values = [1, 2, 3].map(Arc::new);
        let mut retired = Retired::default();
        values.iter().for_each(|value| retired.keep(**value, Arc::clone(value)));
        retired.purge(|&fence| fence != 2);
        assert_eq!(values.each_ref().map(Arc::strong_count), [1, 2, 1]);
        retired.purge(|_| true);
        assert_eq!(Arc::strong_count(&values[1]), 1);
    }
}

#[cfg(test)]
mod lowering_tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "lends the device memory of the test's own, and reads it")]
    fn a_staged_pattern_is_whole_patterns() {
        use std::ptr::NonNull;

        use crate::{DeviceId, PlainMemory, UserMemory};

        let allocate = |desc: &MemoryDesc| {
            // A vector may move with what it owns borrowed by address, a box may not.
            let mut owner = vec![0_u8; desc.len];
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
