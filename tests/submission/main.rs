//! Submissions, from submit to completion: order, wait lists, cancelling, dropping, failing, shutting down.
//!
//! No test reads a clock: work is held back and let go by the test, and what must not happen is
//! shown by the order in which things did.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod blocks;
mod building_at_once;
mod cancel;
mod common;
mod deadline;
mod detached;
mod draining;
mod dropping;
mod early_failures;
mod errors;
mod exclusive;
mod failed_enqueues;
mod faulty;
mod finalizing;
mod foreign_executors;
mod guards;
mod health;
mod in_flight;
mod loans;
mod lost_devices;
mod names;
mod native_updates;
mod notifications;
mod order;
mod outside_tokio;
mod run_data;
mod runtimes;
mod shutdown;
mod stream_tasks;
#[path = "../../crates/wakegraph-conformance/src/support/mod.rs"]
mod support;
mod updates;
mod user_values;
mod waiting;
mod waiting_updates;
mod waking;
