//! Panics of users' code, which end neither a thread of the runtime or a backend nor a run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the user's, which is not used again if it panics.
///
/// # Errors
/// The message of the panic.
pub fn catch<R>(code: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(message)
}

/// Runs code that may call the user's. `what` names it in the log if it panics.
pub fn catch_and_log(what: &str, code: impl FnOnce()) {
    if let Err(panic) = catch(code) {
        // What listens to the log may be what has panicked.
        let _ = catch(|| tracing::error!(target: "wakegraph", panic, "{what} panicked"));
    }
}

/// The message of a panic. Drops its payload, which is a value of the user's as well.
pub fn message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a panic without a message").to_owned();
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    // Dropping the second payload may panic in turn, and so on. All but a plain message, whose drop
    // cannot panic, is leaked.
    if let Err(another) = dropped
        && !another.is::<&str>()
        && !another.is::<String>()
    {
        std::mem::forget(another);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    struct Endless;

    impl Drop for Endless {
        fn drop(&mut self) {
            panic_any(Self);
        }
    }

    #[test]
    fn a_panic_says_its_message() {
        assert_eq!(catch(|| panic!("plain")), Err("plain".to_owned()));
        assert_eq!(catch(|| panic!("formatted {}", 1)), Err("formatted 1".to_owned()));
        assert_eq!(catch(|| 7), Ok(7));
    }

    /// Panics at every event.
    struct Panicking;

    impl tracing::Subscriber for Panicking {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            panic!("on purpose")
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn a_log_that_panics_as_well_ends_nothing() {
        tracing::subscriber::with_default(Panicking, || catch_and_log("a test", || panic!("on purpose")));
    }

    #[test]
    fn a_payload_whose_drop_panics_is_dropped_inside() {
        assert_eq!(catch(|| panic_any(Endless)), Err("a panic without a message".to_owned()));
    }
}
