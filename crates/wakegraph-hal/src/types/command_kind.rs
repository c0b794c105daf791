//! The kinds of commands and nodes: a row of a table for each.
//!
//! The rows hold all that the plan, drawings, listings, updates and validation have to know of a kind. A
//! new kind of node is a row, a lowering in the backends where devices run it, and a method of the user's.

use std::fmt;

macro_rules! command_kinds {
    ($(
        $(#[doc = $doc:literal])*
        $variant:ident = $bit:literal, $flag:ident, $name:literal, $shape:literal, $place:ident, [$($is:ident),*];
    )*) => {
        /// The kind of a node or a command.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum CommandKind {
            $($(#[doc = $doc])* $variant = $bit,)*
        }

        bitflags::bitflags! {
            /// A set of [`CommandKind`]s: what a device can put into a command-buffer.
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub struct CommandKinds: u32 {
                $($(#[doc = $doc])* const $flag = 1 << $bit;)*
            }
        }

        impl CommandKind {
            /// All kinds there are.
            pub fn all() -> impl Iterator<Item = Self> {
                [$(Self::$variant,)*].into_iter()
            }

            /// The row of the kind.
            pub const fn row(self) -> &'static KindRow {
                match self {
                    $(Self::$variant => const {
                        &KindRow { $($is: true,)* ..KindRow::new($name, $shape, KindPlace::$place) }
                    },)*
                }
            }
        }

        impl CommandKinds {
            /// The kinds that command-buffers of some device can hold.
            pub const RECORDABLE: Self = Self::from_bits_truncate(
                0 $(| (CommandKind::$variant.row().place.is_in_command_buffers() as u32) << $bit)*,
            );
        }
    };
}

command_kinds! {
    /// A kernel launch.
    Kernel = 0, KERNEL, "kernel", "box", CommandBuffer, [can_be_disabled];
    /// A copy between two pointers of unified shared memory.
    UsmCopy = 1, USM_COPY, "USM copy", "parallelogram", CommandBuffer, [can_be_disabled, is_copy];
    /// A fill of unified shared memory with a pattern.
    UsmFill = 2, USM_FILL, "USM fill", "parallelogram", CommandBuffer, [can_be_disabled];
    /// A copy from device memory to device memory.
    BufferCopy = 3, BUFFER_COPY, "buffer copy", "parallelogram", CommandBuffer, [can_be_disabled, is_copy];
    /// A rectangular copy from device memory to device memory.
    BufferCopyRect = 4, BUFFER_COPY_RECT, "rectangular buffer copy", "parallelogram", CommandBuffer,
        [can_be_disabled, is_copy];
    /// A copy from device memory to host memory.
    BufferRead = 5, BUFFER_READ, "buffer read", "parallelogram", CommandBuffer, [can_be_disabled, is_copy];
    /// A rectangular copy from device memory to host memory.
    BufferReadRect = 6, BUFFER_READ_RECT, "rectangular buffer read", "parallelogram", CommandBuffer,
        [can_be_disabled, is_copy];
    /// A copy from host memory to device memory.
    BufferWrite = 7, BUFFER_WRITE, "buffer write", "parallelogram", CommandBuffer, [can_be_disabled, is_copy];
    /// A rectangular copy from host memory to device memory.
    BufferWriteRect = 8, BUFFER_WRITE_RECT, "rectangular buffer write", "parallelogram", CommandBuffer,
        [can_be_disabled, is_copy];
    /// A fill of device memory with a pattern.
    BufferFill = 9, BUFFER_FILL, "buffer fill", "parallelogram", CommandBuffer, [can_be_disabled];
    /// A hint that unified shared memory will soon be used on the device.
    UsmPrefetch = 10, USM_PREFETCH, "prefetch", "parallelogram", CommandBuffer, [has_no_effect];
    /// A hint on how unified shared memory will be used.
    UsmAdvise = 11, USM_ADVISE, "memory advice", "parallelogram", CommandBuffer, [has_no_effect];
    /// Nothing: a point that other commands wait for.
    Empty = 12, EMPTY, "empty node", "diamond", Elided, [has_no_effect];
    /// A closure of the host; never inside a command-buffer.
    HostTask = 13, HOST_TASK, "host task", "ellipse", Host, [];
    /// Another graph, inlined at finalize; never inside a command-buffer.
    SubGraph = 14, SUB_GRAPH, "sub-graph", "folder", Inlined, [];
    /// Commands that run if a word in memory is not 0, and others if it is.
    If = 15, IF, "conditional", "hexagon", DeviceOrHost, [];
    /// Commands that run again and again as long as a word in memory is not 0.
    While = 16, WHILE, "loop", "hexagon", DeviceOrHost, [];
    /// The user's own work on the backend's stream.
    Native = 17, NATIVE, "native command", "component", CommandBuffer, [is_captured];
    /// The user's own calls in each submission, on a stream that the device lends; never inside a
    /// command-buffer.
    StreamTask = 18, STREAM_TASK, "stream task", "component", Stream, [];
    /// One of several lists of commands, which a word in memory names by its number.
    Switch = 19, SWITCH, "switch", "hexagon", DeviceOrHost, [];
}

/// The properties of a [kind](CommandKind) that do not depend on a command's operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct KindRow {
    /// The name as error messages and drawings show it.
    pub name: &'static str,
    /// The shape in drawings, in the words of Graphviz. As in flow charts, a parallelogram moves data, and a
    /// hexagon decides what the following commands do.
    pub shape: &'static str,
    /// Place where nodes of the kind run.
    pub place: KindPlace,
    /// Whether an update can disable its commands. It can change their operands, too.
    pub can_be_disabled: bool,
    /// Whether it copies memory.
    pub is_copy: bool,
    /// Whether its commands change nothing and only keep their place in the order. A device that cannot run
    /// one of them may run any other in its place.
    pub has_no_effect: bool,
    /// Whether the device captures its work once, when it is recorded.
    pub is_captured: bool,
}

/// Place where nodes of a [kind](CommandKind) run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum KindPlace {
    /// A command-buffer of their device.
    CommandBuffer,
    /// Nowhere, unless the plan keeps one of them as a join in a command-buffer.
    Elided,
    /// Nowhere: the nodes inside them run in their place.
    Inlined,
    /// A command-buffer of a device that can run everything inside them, otherwise on the host. There each
    /// is a partition of its own.
    DeviceOrHost,
    /// A stream that their device lends. Each is a partition of its own.
    Stream,
    /// The host. Each is a partition of its own.
    Host,
}

impl KindPlace {
    const fn is_in_command_buffers(self) -> bool {
        matches!(self, Self::CommandBuffer | Self::Elided | Self::DeviceOrHost)
    }
}

impl KindRow {
    const fn new(name: &'static str, shape: &'static str, place: KindPlace) -> Self {
        Self {
            name,
            shape,
            place,
            can_be_disabled: false,
            is_copy: false,
            has_no_effect: false,
            is_captured: false,
        }
    }
}

impl CommandKind {
    /// The kind's name as error messages and drawings show it.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Set of this kind alone.
    pub const fn as_set(self) -> CommandKinds {
        CommandKinds::from_bits_truncate(1 << self as u8)
    }
}

impl CommandKinds {
    /// Conditionals, switches and loops.
    pub const CONTROL: Self = Self::IF.union(Self::WHILE).union(Self::SWITCH);

    /// The kinds whose rows meet a condition.
    pub fn of_rows(meets: impl Fn(&KindRow) -> bool) -> Self {
        let kinds = CommandKind::all().filter(|kind| meets(kind.row()));
        kinds.fold(Self::empty(), |kinds, kind| kinds | kind.as_set())
    }
}

impl fmt::Display for CommandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_alone_are_never_recorded() {
        let others = CommandKinds::HOST_TASK | CommandKinds::STREAM_TASK | CommandKinds::SUB_GRAPH;
        assert_eq!(CommandKinds::RECORDABLE, CommandKinds::all() - others);
    }

    #[test]
    fn kinds_that_can_be_disabled_are_recorded() {
        let can_be_disabled = CommandKinds::of_rows(|row| row.can_be_disabled);
        assert!(CommandKinds::RECORDABLE.contains(can_be_disabled));
        assert!(!can_be_disabled.intersects(CommandKinds::of_rows(|row| row.has_no_effect)));
    }
}
