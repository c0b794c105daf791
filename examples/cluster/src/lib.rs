//! The parts of the example `cluster`: a service in several worker processes.
//!
//! | module | holds |
//! |---|---|
//! | [`smoother`] | the graph and the pool of a worker |
//! | [`worker`] | the gRPC service of a worker, with its health |
//! | [`balance`] | from one client to many workers: discovery, balance, retries |
//! | [`front`] | the gRPC service that callers see |
//! | [`deadline`] | deadlines of calls |
//! | [`processes`] | starting workers and killing them |

pub mod balance;
pub mod deadline;
pub mod front;
pub mod processes;
pub mod smoother;
pub mod worker;

/// The messages and services of `proto/smoother.proto`.
#[allow(clippy::all, missing_debug_implementations, unreachable_pub, reason = "generated")]
pub mod protocol {
    tonic::include_proto!("wakegraph.cluster");
}

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
