//! The Level Zero backend: Intel's GPUs through the loader of their drivers, loaded at run time.
//!
//! Imports `types` and `hal` only.

#[allow(dead_code, unused_imports, unused_macros, reason = "the backend does not use all of it yet")]
mod sys;
