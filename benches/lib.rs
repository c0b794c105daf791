//! The benches of wakegraph: ratios to loops of driver calls by hand, which take turns with it in one
//! process. `docs/benchmarks.md` has the rows, their limits and how to run them.

/// The examples that use the packages which the benches compare with.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/interop.md")]
    mod interop {}
}
