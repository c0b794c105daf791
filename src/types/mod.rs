//! Layer 0: the words every other module speaks. Plain values with no dependency inside the crate.
//!
//! Anyone may enter; nothing here may import from another module of the crate.

mod access;
mod command_kind;
mod device_id;
mod error;
mod range;
mod range_bound;
mod rect;

pub use access::{Access, AccessMode, ResourceId};
pub use command_kind::{CommandKind, CommandKinds};
pub use device_id::DeviceId;
pub use error::{BoxError, Error, ErrorKind, Fault, Result};
pub use range::Range;
pub use range_bound::RangeBound;
pub use rect::{Pitch, Rect};
