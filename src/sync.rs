//! The synchronisation primitives of the crate, in one place so that loom can stand in for them.

#[cfg(all(test, wakegraph_loom))]
pub(crate) use loom_facade::*;
#[cfg(not(all(test, wakegraph_loom)))]
pub(crate) use real::*;

#[cfg(not(all(test, wakegraph_loom)))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use std::thread_local;

    pub(crate) use parking_lot::Mutex;
}

#[cfg(all(test, wakegraph_loom))]
mod loom_facade {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

    /// loom's mutex with parking_lot's signatures.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }

    /// loom's variables of a thread, with the syntax of the standard library for those that need no code.
    macro_rules! loom_thread_local {
        (static $name:ident: $type:ty = const $value:block;) => {
            loom::thread_local! { static $name: $type = $value; }
        };
    }
    pub(crate) use loom_thread_local as thread_local;
}
