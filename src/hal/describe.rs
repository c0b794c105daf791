//! Parameters and arguments of kernels in words, as error messages lay them side by side.

use std::fmt;

use super::{KernelArg, ParamKind};
use crate::types::AccessMode;

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

/// So many bytes.
pub(crate) struct Bytes(pub(crate) usize);

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
