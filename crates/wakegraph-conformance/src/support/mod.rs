//! Tools of several test files: holding work back, counting what is alive, running futures without tokio.
#![allow(dead_code, unused_imports, reason = "each test file uses its own share")]

mod block_on;
mod forget;
mod hold;
mod quiet;
mod tracker;
mod watchdog;

pub(crate) use block_on::block_on;
pub(crate) use forget::forget;
pub(crate) use hold::{Held, Hold};
pub(crate) use quiet::{PANIC, silence_expected_panics};
pub(crate) use tracker::{Token, Tracker};
pub(crate) use watchdog::{must_end, must_end_on_a_small_stack};
