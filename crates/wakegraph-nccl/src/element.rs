//! The types of elements and the operations that NCCL knows.
#![expect(unsafe_code, reason = "says which number NCCL knows a type by")]

use std::ffi::c_int;

use bytemuck::Pod;

/// A type of elements that NCCL can reduce and move; `f16` and `bf16` are those of the crate `half`.
///
/// # Safety
/// `TYPE` is the `ncclDataType_t` of values with the size and the meaning of this type.
pub unsafe trait Element: Pod {
    /// The number of the type in NCCL's header.
    const TYPE: c_int;
}

macro_rules! elements {
    ($($element:ty = $number:literal;)+) => {$(
        // SAFETY: NCCL's header has this number.
        unsafe impl Element for $element {
            const TYPE: c_int = $number;
        }
    )+};
}

elements! {
    i8 = 0;
    u8 = 1;
    i32 = 2;
    u32 = 3;
    i64 = 4;
    u64 = 5;
    half::f16 = 6;
    f32 = 7;
    f64 = 8;
    half::bf16 = 9;
}

/// An operation that makes one element of those of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reduction {
    /// Their sum. Integers wrap around.
    Sum,
    /// Their product. Integers wrap around.
    Product,
    /// The largest of them.
    Max,
    /// The smallest of them.
    Min,
    /// Their sum, divided by the number of ranks. The sum of integers wraps around first, and the average is
    /// rounded towards zero.
    Average,
}

impl Reduction {
    /// The `ncclRedOp_t`.
    pub(crate) fn number(self) -> c_int {
        match self {
            Self::Sum => 0,
            Self::Product => 1,
            Self::Max => 2,
            Self::Min => 3,
            Self::Average => 4,
        }
    }
}
