//! A guard's place in the order between submissions.

use std::sync::Arc;

use crate::runtime::completion::latch::Latch;

/// Closed while a host guard waits for its turn or is held; submissions that conflict with it wait
/// for it to open.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) opened: Latch,
}

impl Gate {
    pub(crate) fn is_open(&self) -> bool {
        self.opened.is_set()
    }
}

/// Opens its gate when dropped.
#[derive(Debug)]
pub(crate) struct GateLease(Arc<Gate>);

impl GateLease {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Gate { opened: Latch::new() }))
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.0
    }
}

impl Drop for GateLease {
    fn drop(&mut self) {
        self.0.opened.set();
    }
}
