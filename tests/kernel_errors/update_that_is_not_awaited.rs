// error: unused `Applied` that must be used
#![deny(unused_must_use)]
use wakegraph::{ExecutableGraph, NodeId};

pub fn switch_off(exec: &ExecutableGraph, node: NodeId) {
    exec.update().enabled(node, false).apply();
}
