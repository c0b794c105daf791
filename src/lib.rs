//! Graphs of GPU commands and async host tasks, awaited inside tokio.

pub mod hal;
mod types;

pub use types::{
    Access, AccessMode, BoxError, CommandKind, CommandKinds, DeviceId, Error, ErrorKind, Fault, Pitch, Range,
    Rect, ResourceId, Result,
};
