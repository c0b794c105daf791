//! Forgetting, in a way that leak checkers can tell from a leak.

use parking_lot::Mutex;

static FORGOTTEN: Mutex<Vec<Box<dyn Send>>> = Mutex::new(Vec::new());

/// As [`std::mem::forget`]: the destructor never runs. The thing itself stays reachable, though, so
/// that a leak checker only reports what others should have freed and did not.
pub(crate) fn forget<T: Send + 'static>(thing: T) {
    FORGOTTEN.lock().push(Box::new(thing));
}
