// error: unused `Submission` that must be used
#![deny(unused_must_use)]
use wakegraph::ExecutableGraph;

pub fn run(exec: &ExecutableGraph) {
    exec.submit();
}
