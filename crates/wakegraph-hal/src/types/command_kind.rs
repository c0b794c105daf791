//! The kinds of command a graph node or a command-buffer can hold.

use std::fmt;

macro_rules! command_kinds {
    ($($(#[doc = $doc:literal])* $variant:ident = $bit:literal, $flag:ident, $name:literal;)*) => {
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

            /// The command's name as error messages and drawings show it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

command_kinds! {
    /// A kernel launch.
    Kernel = 0, KERNEL, "kernel";
    /// A copy between two pointers of unified shared memory.
    UsmCopy = 1, USM_COPY, "USM copy";
    /// A fill of unified shared memory with a pattern.
    UsmFill = 2, USM_FILL, "USM fill";
    /// A copy from device memory to device memory.
    BufferCopy = 3, BUFFER_COPY, "buffer copy";
    /// A rectangular copy from device memory to device memory.
    BufferCopyRect = 4, BUFFER_COPY_RECT, "rectangular buffer copy";
    /// A copy from device memory to host memory.
    BufferRead = 5, BUFFER_READ, "buffer read";
    /// A rectangular copy from device memory to host memory.
    BufferReadRect = 6, BUFFER_READ_RECT, "rectangular buffer read";
    /// A copy from host memory to device memory.
    BufferWrite = 7, BUFFER_WRITE, "buffer write";
    /// A rectangular copy from host memory to device memory.
    BufferWriteRect = 8, BUFFER_WRITE_RECT, "rectangular buffer write";
    /// A fill of device memory with a pattern.
    BufferFill = 9, BUFFER_FILL, "buffer fill";
    /// A hint that unified shared memory will soon be used on the device.
    UsmPrefetch = 10, USM_PREFETCH, "prefetch";
    /// A hint on how unified shared memory will be used.
    UsmAdvise = 11, USM_ADVISE, "memory advice";
    /// Nothing: a point that other commands wait for.
    Empty = 12, EMPTY, "empty node";
    /// A closure of the host; never inside a command-buffer.
    HostTask = 13, HOST_TASK, "host task";
    /// Another graph, inlined at finalize; never inside a command-buffer.
    SubGraph = 14, SUB_GRAPH, "sub-graph";
    /// Commands inside a command, as if they stood in its place.
    Child = 15, CHILD, "child graph";
    /// Commands that run if a word in memory is not 0, and others if it is.
    If = 16, IF, "conditional";
    /// Commands that run again and again as long as a word in memory is not 0.
    While = 17, WHILE, "loop";
    /// The user's own work on the backend's stream.
    Native = 18, NATIVE, "native command";
    /// The user's own calls in each submission, on a stream that the device lends; never inside a
    /// command-buffer.
    StreamTask = 19, STREAM_TASK, "stream task";
}

impl CommandKind {
    /// This kind as a set of one.
    pub const fn as_set(self) -> CommandKinds {
        CommandKinds::from_bits_truncate(1 << self as u8)
    }
}

impl fmt::Display for CommandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
