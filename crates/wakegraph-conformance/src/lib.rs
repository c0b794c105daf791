//! One suite for all backends.
