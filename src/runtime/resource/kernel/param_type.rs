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

impl ParamType {
    /// These bytes as a value of the type, if it is one of Rust's numbers; else as they are.
    pub(super) fn display(&self, bytes: &[u8]) -> String {
        macro_rules! number {
            ($($number:ty)*) => {
                $(if self.id == TypeId::of::<$number>()
                    && let Ok(number) = bytemuck::try_pod_read_unaligned::<$number>(bytes)
                {
                    return number.to_string();
                })*
            };
        }
        number!(f32 f64 u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
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
