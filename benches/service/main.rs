//! An HTTP service as people write it, on wakegraph and without it: the same requests, behind the same axum.
//!
//! `cargo run --release -p wakegraph-bench-service -- [--device host] [--quick] [--check]`
//!
//! | contender | the handler |
//! |---|---|
//! | `pool` | acquires a slot of an `ExecutablePool` and submits; where the request calls another service, a host task of the graph does |
//! | `batcher` | calls a `Batcher` |
//! | `thread` | sends the request through a channel to a thread that owns the device, batches what waits, and answers through a oneshot each |
//! | `blocking` | takes a permit of a semaphore, and runs the request in `spawn_blocking` on a stream or queue of its own |
//!
//! The last two contain no wakegraph: they use `cudarc` on CUDA, `opencl3` on OpenCL, and rayon and plain
//! loops on the CPU.
//!
//! | shape | a request |
//! |---|---|
//! | `1k` | 1 KB up, a kernel, 1 KB down |
//! | `200k` | 200 KB up, three kernels, 200 KB down |
//! | `call` | as `1k`, a call of a stub that answers after 2 ms, and as `1k` again with what it says |
//!
//! Contenders take turns, each in a process of its own. Clients are another process, on other cores if
//! there are four or more, and check every answer.
//!
//! | option | what it does |
//! |---|---|
//! | `--out FILE` | a line of JSON for each row goes there, not to `service.jsonl`; `scripts/benchmarks.py` makes tables and a picture of it |
//! | `--time MS`, `--rounds N` | how long a row takes, and how often |
//! | `--clients 1,64`, `--shapes 1k`, `--contenders pool,thread` | choose rows |
//! | `--check` | fails on wrong answers |
//! | `--limits PER_SECOND,P99,CORES` | with `--check`, fails where the ratios of our better contender to the better other one miss these |
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

mod batcher;
mod blocking;
mod by_cudarc;
mod by_hand;
mod by_opencl3;
mod by_rayon;
mod driver;
mod http;
mod load;
mod ours;
mod pool;
mod process;
mod server;
mod shape;
mod thread;

use std::process::ExitCode;
use std::time::Duration;

use load::{Load, Trouble};
use shape::Shape;
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    let args = Args(std::env::args().skip(1).collect());
    process::allow_connections();
    if let Some(contender) = args.value("--serve") {
        serve(&args, contender);
        ExitCode::SUCCESS
    } else if let Some(server) = args.value("--load") {
        load(&args, server);
        ExitCode::SUCCESS
    } else {
        let halves = process::halves();
        halves.iter().for_each(|[_, clients]| process::keep_to(clients));
        let runtime = runtime();
        let stub = runtime.block_on(http::serve_stub());
        driver::Driver::new(&args, stub, halves).run()
    }
}

fn serve(args: &Args, contender: &str) {
    if let Some(cores) = args.value("--cores") {
        let cores: Vec<_> = cores.split(',').filter_map(|core| core.parse().ok()).collect();
        process::keep_to(&cores);
    }
    let stub = args.value("--stub").and_then(|stub| stub.parse().ok()).expect("an address");
    let device = (args.value("--device").unwrap_or("host"), args.value("--name").unwrap_or_default());
    runtime().block_on(server::serve(contender, args.shape(), device, stub));
}

fn load(args: &Args, server: &str) {
    let load = Load {
        server: server.parse().expect("an address"),
        pid: args.number("--pid").expect("a process") as u32,
        shape: args.shape(),
        clients: args.number("--clients").unwrap_or(1),
        time: Duration::from_millis(args.number("--time").unwrap_or(1000) as u64),
        trouble: Trouble::named(args.value("--trouble").unwrap_or("none")),
    };
    println!("{}", runtime().block_on(load.run()));
}

fn runtime() -> Runtime {
    Runtime::new().expect("a tokio runtime")
}

/// The arguments of the command line.
pub(crate) struct Args(Vec<String>);

impl Args {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|argument| argument == name)
    }

    /// The argument behind that name.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|argument| argument == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.value(name).map(|value| value.parse().expect("a number"))
    }

    /// Whether `one` is in the list behind that name, or there is none.
    pub(crate) fn wants(&self, name: &str, one: &str) -> bool {
        self.value(name).is_none_or(|list| list.split(',').any(|wanted| wanted == one))
    }

    fn shape(&self) -> Shape {
        Shape::named(self.value("--shape").expect("a shape"))
    }
}
