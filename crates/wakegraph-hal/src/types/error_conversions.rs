//! Conversions of errors between wakegraph and other code: `?` on errors of the standard library, and the
//! status of an HTTP response.

use std::array::TryFromSliceError;
use std::char::ParseCharError;
use std::num::{ParseFloatError, ParseIntError, TryFromIntError};
use std::str::{ParseBoolError, Utf8Error};
use std::string::FromUtf8Error;
use std::{fmt, io};

use crate::types::error::{BoxError, Error, ErrorKind};

impl ErrorKind {
    /// The status of an HTTP response to a request that has failed with an error of this kind.
    ///
    /// | status | kinds |
    /// |---|---|
    /// | 400, Bad Request | `InvalidArgument`, `InvalidSize` |
    /// | 503, Service Unavailable | `Overloaded`, `Unavailable`, `OutOfMemory`, `DeviceLost`, `Cancelled` |
    /// | 504, Gateway Timeout | `DeadlineExceeded`, `Stalled` |
    /// | 500, Internal Server Error | all others |
    ///
    /// A handler that knows more answers itself: it may see a missing file in the
    /// [source](std::error::Error::source) of a host task's error, and that a wrong size is its own mistake
    /// rather than the client's.
    pub fn http_status(self) -> u16 {
        match self {
            Self::InvalidArgument | Self::InvalidSize => 400,
            Self::Overloaded | Self::Unavailable | Self::OutOfMemory | Self::DeviceLost | Self::Cancelled => {
                503
            }
            Self::DeadlineExceeded | Self::Stalled => 504,
            Self::InvalidOperation
            | Self::Cycle
            | Self::InvalidSyncPoint
            | Self::InvalidWaitList
            | Self::InvalidCommandHandle
            | Self::FeatureNotSupported
            | Self::Driver
            | Self::HostTaskFailed
            | Self::HostTaskPanicked
            | Self::KernelPanicked
            | Self::NativePanicked
            | Self::Bug => 500,
        }
    }
}

/// The error in the box if it is one of wakegraph. Any other becomes the source of an error of kind
/// [`HostTaskFailed`](ErrorKind::HostTaskFailed), as if a host task had returned it.
impl From<BoxError> for Error {
    fn from(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => *own,
            Err(other) => Self::new(ErrorKind::HostTaskFailed, "other code failed").caused_by(other),
        }
    }
}

/// An error of kind [`OutOfMemory`](ErrorKind::OutOfMemory), or else
/// [`HostTaskFailed`](ErrorKind::HostTaskFailed), with this one as its source. If `error` holds an error of
/// wakegraph, it is that one.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(own) => return own,
            Err(other) => other,
        };
        let kind = match error.kind() {
            io::ErrorKind::OutOfMemory => ErrorKind::OutOfMemory,
            _ => ErrorKind::HostTaskFailed,
        };
        Self::new(kind, "input or output failed").caused_by(error)
    }
}

/// Errors about what a request holds.
macro_rules! invalid_argument {
    ($($error:ty: $why:literal),+ $(,)?) => {
        $(
            /// An error of kind [`InvalidArgument`](ErrorKind::InvalidArgument) with this one as its source.
            impl From<$error> for Error {
                fn from(error: $error) -> Self {
                    Self::new(ErrorKind::InvalidArgument, $why).caused_by(error)
                }
            }
        )+
    };
}

invalid_argument! {
    ParseIntError: "the text is not an integer of the expected type",
    ParseFloatError: "the text is not a number",
    ParseBoolError: "the text is neither `true` nor `false`",
    ParseCharError: "the text is not a single character",
    Utf8Error: "the bytes are not UTF-8 text",
    FromUtf8Error: "the bytes are not UTF-8 text",
    TryFromIntError: "the integer does not fit in the expected type",
    TryFromSliceError: "the slice does not have the expected length",
}

/// An error of kind [`HostTaskFailed`](ErrorKind::HostTaskFailed) with this one as its source.
impl From<fmt::Error> for Error {
    fn from(error: fmt::Error) -> Self {
        Self::new(ErrorKind::HostTaskFailed, "formatting failed").caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn other_errors_become_the_source() {
        let parsed = || -> Result<u32, Error> { Ok("x".parse()?) };
        let error = parsed().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.source().unwrap().is::<ParseIntError>());
        let missing = Error::from(io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(missing.kind(), ErrorKind::HostTaskFailed);
        assert!(missing.source().unwrap().is::<io::Error>());
        let boxed = Error::from(BoxError::from("no such user"));
        assert_eq!(
            (boxed.kind(), boxed.source().unwrap().to_string().as_str()),
            (ErrorKind::HostTaskFailed, "no such user")
        );
    }

    #[test]
    fn an_own_error_comes_out_of_its_box_as_it_was() {
        let own = || Error::new(ErrorKind::Overloaded, "full").on_device("host:0");
        let boxed = Error::from(BoxError::from(own()));
        let inside = Error::from(io::Error::other(own()));
        for error in [boxed, inside] {
            assert_eq!((error.kind(), error.device()), (ErrorKind::Overloaded, Some("host:0")));
        }
    }
}
