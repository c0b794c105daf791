//! Calls of a driver's functions that did not succeed.

use std::fmt::Debug;
use std::marker::PhantomData;

use crate::Error;

/// The codes that the functions of a library return.
pub trait DriverCodes: Copy + Eq + Debug + Send + Sync + 'static {
    /// The code of a call that has succeeded.
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
pub struct CallFailure<L> {
    /// The function.
    pub call: &'static str,
    /// What it returned.
    pub code: u32,
    library: PhantomData<L>,
}

impl<L: DriverCodes> CallFailure<L> {
    /// The failure of a call.
    pub fn new(call: &'static str, code: u32) -> Self {
        Self { call, code, library: PhantomData }
    }

    /// The outcome of a call that returned this code.
    pub fn check(call: &'static str, code: u32) -> Result<(), Self> {
        if code == L::SUCCESS { Ok(()) } else { Err(Self::new(call, code)) }
    }

    /// Whether the driver has been unloaded, as the process exits.
    pub fn is_unloaded(self) -> bool {
        self.code == L::UNLOADED
    }

    /// Whether a query that returned this code has found that the work is done.
    pub fn check_ready(call: &'static str, code: u32) -> Result<bool, Self> {
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
