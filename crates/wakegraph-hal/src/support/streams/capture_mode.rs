//! Keeps the calls of this thread and the stream captures of other threads apart.

use std::marker::PhantomData;

use super::call_failure::{CallFailure, DriverCodes};
use crate::Error;

/// A driver whose threads have a capture mode: how the calls of a thread and the captures of other threads
/// affect each other.
pub trait CaptureModes {
    /// The driver's codes.
    type Codes: DriverCodes;
    /// They do not.
    const RELAXED: u32;

    /// Sets this thread's mode, and writes the mode until now to its place.
    fn exchange_mode(&self, mode: &mut u32) -> Result<(), CallFailure<Self::Codes>>;
}

/// While this lives, calls of this thread and stream captures of other threads do not disturb each
/// other.
///
/// While any thread captures a stream in the default mode, as PyTorch does, the driver otherwise
/// refuses queries, allocations and instantiations on all threads, even for streams that have
/// nothing to do with the capture, and invalidates that capture.
#[must_use = "the thread's mode is relaxed only as long as this lives"]
#[derive(Debug)]
pub struct CaptureRelaxed<'a, D: CaptureModes> {
    driver: &'a D,
    /// The mode to restore.
    before: u32,
    /// The mode belongs to the thread, so this value stays on it.
    thread: PhantomData<*const ()>,
}

impl<'a, D: CaptureModes> CaptureRelaxed<'a, D> {
    /// Changes the thread's mode until the value is dropped.
    pub fn enter(driver: &'a D) -> Result<Self, CallFailure<D::Codes>> {
        let mut before = D::RELAXED;
        driver.exchange_mode(&mut before)?;
        Ok(Self { driver, before, thread: PhantomData })
    }
}

impl<D: CaptureModes> Drop for CaptureRelaxed<'_, D> {
    fn drop(&mut self) {
        if self.before != D::RELAXED
            && let Err(failure) = self.driver.exchange_mode(&mut self.before)
        {
            let error = Error::from(failure);
            tracing::warn!(target: "wakegraph", %error, "a thread's capture mode could not be restored");
        }
    }
}
