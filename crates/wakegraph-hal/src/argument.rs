//! Parameters and arguments of kernels, with the words in which error messages name them.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;

use super::{MemoryView, UsmPointer};
use crate::AccessMode;

/// The kind of argument that a parameter takes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ParamKind {
    /// A value of `size` bytes, passed by copy.
    Value {
        /// Size in bytes.
        size: usize,
    },
    /// A range of memory holding elements of `element_size` bytes.
    Buffer {
        /// How the kernel uses the memory.
        access: AccessMode,
        /// Size of an element in bytes; the argument's length must be a multiple of it.
        element_size: usize,
        /// Alignment of an element in bytes.
        element_align: usize,
    },
    /// Local memory of a work-group, holding elements of `element_size` bytes; the argument gives
    /// the length.
    Local {
        /// Size of an element in bytes.
        element_size: usize,
    },
}

/// One parameter of a kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Param {
    /// The parameter's name, for error messages.
    pub name: Cow<'static, str>,
    /// The kind of argument that it takes.
    pub kind: ParamKind,
}

/// The bytes of a value argument.
pub type ValueBytes = SmallVec<[u8; 16]>;

/// An argument of a kernel launch.
#[derive(Debug)]
pub enum KernelArg {
    /// The bytes of a value.
    Value(ValueBytes),
    /// A range of memory.
    Memory(MemoryView),
    /// A raw pointer, for a [`ParamKind::Buffer`] parameter; null for no bytes.
    Usm(UsmPointer),
    /// Local memory of this many bytes.
    Local(usize),
}

impl Clone for KernelArg {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            // `SmallVec::clone` copies byte by byte.
            Self::Value(bytes) => Self::Value(ValueBytes::from_slice(bytes)),
            Self::Memory(view) => Self::Memory(view.clone()),
            Self::Usm(pointer) => Self::Usm(*pointer),
            Self::Local(bytes) => Self::Local(*bytes),
        }
    }
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { size } => write!(f, "a value of {}", Bytes(*size)),
            Self::Buffer { access, element_size, .. } => {
                let access = match access {
                    AccessMode::Read => "read",
                    AccessMode::Write => "write",
                    AccessMode::ReadWrite => "read and write",
                };
                write!(f, "memory of {element_size}-byte elements to {access}")
            }
            Self::Local { element_size } => write!(f, "local memory of {element_size}-byte elements"),
        }
    }
}

impl fmt::Display for KernelArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(bytes) => write!(f, "a value of {}", Bytes(bytes.len())),
            Self::Memory(view) => write!(f, "memory of {}", Bytes(view.len())),
            Self::Usm(pointer) => write!(f, "a pointer to {}", Bytes(pointer.len())),
            Self::Local(bytes) => write!(f, "local memory of {}", Bytes(*bytes)),
        }
    }
}

/// Displays a number of bytes.
#[derive(Debug)]
pub struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "byte" } else { "bytes" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_a_parameter_takes_and_what_it_was_given() {
        let memory = |access| ParamKind::Buffer { access, element_size: 4, element_align: 4 };
        for (kind, words) in [
            (ParamKind::Value { size: 1 }, "a value of 1 byte"),
            (memory(AccessMode::Read), "memory of 4-byte elements to read"),
            (memory(AccessMode::Write), "memory of 4-byte elements to write"),
            (memory(AccessMode::ReadWrite), "memory of 4-byte elements to read and write"),
            (ParamKind::Local { element_size: 8 }, "local memory of 8-byte elements"),
        ] {
            assert_eq!(kind.to_string(), words);
        }
        assert_eq!(KernelArg::Value(smallvec::smallvec![0; 8]).to_string(), "a value of 8 bytes");
        assert_eq!(KernelArg::Local(16).to_string(), "local memory of 16 bytes");
    }
}
