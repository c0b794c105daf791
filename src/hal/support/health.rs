//! Whether a device still works.

use std::sync::OnceLock;

use crate::types::{Error, ErrorKind, Result};

/// Names a device in errors, and remembers the first one that says that it is lost.
#[derive(Debug)]
pub(crate) struct DeviceHealth {
    selector: String,
    lost: OnceLock<Error>,
}

impl DeviceHealth {
    pub(crate) const fn new(selector: String) -> Self {
        Self { selector, lost: OnceLock::new() }
    }

    pub(crate) fn selector(&self) -> &str {
        &self.selector
    }

    /// Names the device in the error. Everything that fails because the device is lost fails for the
    /// first reason.
    pub(crate) fn error(&self, error: impl Into<Error>) -> Error {
        let error = error.into().on_device(&self.selector);
        if error.kind() != ErrorKind::DeviceLost {
            return error;
        }
        if self.lost.set(error.clone()).is_ok() {
            tracing::error!(target: "wakegraph", %error, "a device is lost");
        }
        self.lost.get().cloned().unwrap_or(error)
    }

    /// Why the device is lost, if it is.
    pub(crate) fn lost(&self) -> Option<&Error> {
        self.lost.get()
    }

    /// # Errors
    /// [`DeviceLost`](ErrorKind::DeviceLost) from the first such error on.
    pub(crate) fn status(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loss_is_the_reason_of_all_later_ones() {
        let health = DeviceHealth::new("cuda:3".into());
        assert_eq!(health.error(Error::new(ErrorKind::Driver, "a")).kind(), ErrorKind::Driver);
        health.status().unwrap();
        let first = health.error(Error::new(ErrorKind::DeviceLost, "b"));
        assert!(first.to_string().contains("cuda:3"), "{first}");
        let second = health.error(Error::new(ErrorKind::DeviceLost, "c"));
        assert_eq!((second.message(), health.lost().unwrap().message()), ("b", "b"));
        assert_eq!(health.status().unwrap_err().message(), "b");
        assert_eq!(health.error(Error::new(ErrorKind::Driver, "d")).message(), "d");
    }
}
