//! Plain values that everything else uses: ids, ranges, accesses, kinds of commands, errors. This module
//! imports from no other module of the crate.

mod access;
mod command_kind;
mod error;
mod error_conversions;
mod range;

pub use access::{Access, AccessMode, CommandBufferId, CommandHandle, DeviceId, ResourceId, SyncPoint};
pub use command_kind::{CommandKind, CommandKinds, KindPlace, KindRow};
pub use error::{BoxError, Error, ErrorKind, Fault, Result};
pub(crate) use range::unfold;
pub use range::{Pitch, Range, RangeBound, Rect};
