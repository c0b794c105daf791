//! Calls of a driver's functions that did not succeed.

use std::fmt::Debug;
use std::marker::PhantomData;

use crate::types::Error;

/// The codes that the functions of a library return.
pub(crate) trait DriverCodes: Copy + Eq + Debug + Send + Sync + 'static {
    const SUCCESS: u32;
    /// A query has found that the work is not done.
    const NOT_READY: u32;
    /// The driver has been unloaded, which is before the last of a process's threads end.
    const UNLOADED: u32;

    /// The error that a failure stands for.
    fn error(failure: CallFailure<Self>) -> Error;
}

/// A call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallFailure<L> {
    /// The function.
    pub(crate) call: &'static str,
    /// What it returned.
    pub(crate) code: u32,
    library: PhantomData<L>,
}

impl<L: DriverCodes> CallFailure<L> {
    pub(crate) fn new(call: &'static str, code: u32) -> Self {
        Self { call, code, library: PhantomData }
    }

    /// The outcome of a call that returned this code.
    pub(crate) fn check(call: &'static str, code: u32) -> Result<(), Self> {
        if code == L::SUCCESS { Ok(()) } else { Err(Self::new(call, code)) }
    }

    /// Whether the driver has been unloaded, as the process exits.
    pub(crate) fn is_unloaded(self) -> bool {
        self.code == L::UNLOADED
    }

    /// Whether a query that returned this code has found that the work is done.
    pub(crate) fn check_ready(call: &'static str, code: u32) -> Result<bool, Self> {
        match code {
            code if code == L::SUCCESS => Ok(true),
            code if code == L::NOT_READY => Ok(false),
            code => Err(Self::new(call, code)),
        }
    }
}

impl<L: DriverCodes> From<CallFailure<L>> for Error {
    fn from(failure: CallFailure<L>) -> Self {
        L::error(failure)
    }
}
