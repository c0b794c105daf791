//! Panics that tests cause on purpose, on threads that libtest does not capture.

use std::panic;
use std::sync::Once;

/// The beginning of such a panic's message.
pub(crate) const PANIC: &str = "a panic on purpose";

/// Keeps panics that begin with [`PANIC`] out of the output; others are printed as ever.
pub(crate) fn silence_expected_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let payload = info.payload();
            let formatted = payload.downcast_ref::<String>().map(String::as_str);
            let text = formatted.or_else(|| payload.downcast_ref::<&str>().copied());
            if !text.is_some_and(|text| text.starts_with(PANIC)) {
                print(info);
            }
        }));
    });
}
