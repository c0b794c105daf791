//! The Rust types of a kernel's parameters, which its device code knows by their sizes only.

use std::any::TypeId;
use std::fmt;

/// The Rust type that a kernel's parameter is declared with: `T` for a value, `[T]` for memory.
#[derive(Clone, Copy, Debug)]
pub struct ParamType {
    id: TypeId,
    name: &'static str,
}

impl ParamType {
    /// The type itself.
    pub fn of<T: ?Sized + 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: std::any::type_name::<T>() }
    }
}

impl PartialEq for ParamType {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl fmt::Display for ParamType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
