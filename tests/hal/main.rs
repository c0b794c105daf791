//! The host backend and the fake device through the contract of `wakegraph::hal`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/mod.rs"]
mod common;
mod fake;
mod host;
mod host_commands;
