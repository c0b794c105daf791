//! The benches of wakegraph: ratios to loops of driver calls by hand, which take turns with it in one
//! process. `docs/benchmarks.md` has the rows, their limits and how to run them.
