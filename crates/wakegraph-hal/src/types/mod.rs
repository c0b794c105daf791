//! Layer 0: plain value types that all other modules use: ids, ranges, accesses, errors.
//!
//! This module imports from no other module of the crate.

mod access;
mod command_kind;
mod device_id;
mod error;
mod priority;
mod range;
mod range_bound;
mod rect;

pub use access::{Access, AccessMode, ResourceId};
pub use command_kind::{CommandKind, CommandKinds};
pub use device_id::DeviceId;
pub use error::{BoxError, Error, ErrorKind, Fault, Result};
pub use priority::Priority;
pub use range::Range;
pub use range_bound::RangeBound;
pub use rect::{Pitch, Rect};
