//! Conjugate gradients on a two-dimensional Poisson problem: written once, as commands of a queue, then
//! run by the host iteration by iteration, and recorded and iterated by the device.
//!
//! `cargo run --release --example solver [-- --device host:0] [--grid 63] [--output residual.png]`
//!
//! The eager form has to ask after each iteration whether to go on. The recorded form is one graph: a
//! loop node reads that flag where it is. Both have to give the same result, which is compared with the
//! known solution.

mod gradients;
mod kernels;
mod plot;
mod poisson;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use wakegraph::{BoxError, Device, ExecutableGraph, Graph, HostBuffer, Queue, Result};

use crate::gradients::{Gradients, TOLERANCE};
use crate::poisson::Grid;

/// How often each form is run; the fastest run counts.
const RUNS: usize = 3;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args = Args::parse(std::env::args().skip(1))?;
    let device = match &args.device {
        Some(selector) => Device::open(selector)?,
        None => Device::best()?,
    };
    let grid = Grid::new(args.grid);
    let solver = Gradients::new(&device, grid.n, &grid.right_side())?;
    let queue = device.queue()?;
    let exec = record(&device, &queue, &solver)?;
    println!("{device:?}\n{}", exec.plan_text());

    let flag = device.host_buffer(1)?;
    let (mut eager_time, mut recorded_time) = (Duration::MAX, Duration::MAX);
    for _ in 0..RUNS {
        let start = Instant::now();
        run_eagerly(&queue, &solver, &flag).await?;
        eager_time = eager_time.min(start.elapsed());
        let eager = outcome(&solver).await;

        let start = Instant::now();
        exec.submit().await?;
        recorded_time = recorded_time.min(start.elapsed());
        if outcome(&solver).await != eager {
            return Err("the recorded form gives another result than the eager one".into());
        }
    }

    let (u, residuals) = outcome(&solver).await;
    let Some(last) = residuals.last() else { return Err("no iteration has run".into()) };
    println!("{0} x {0} points, {1} iterations, residual {last:.2e}", grid.n, residuals.len());
    let each = |time: Duration| time.as_secs_f64() * 1e6 / residuals.len() as f64;
    for (form, time) in [("eager", eager_time), ("recorded", recorded_time)] {
        println!("{form:9} {:8.3} ms, {:7.2} us an iteration", time.as_secs_f64() * 1e3, each(time));
    }
    plot::write(&args.output, &residuals)?;
    println!("The residual of each iteration is in {}", args.output.display());

    let errors = grid.errors(&u);
    println!(
        "The largest error is {:.2e}; its bound is {:.2e}: {:.2e} of the grid and {:.2e} of the solver",
        errors.largest,
        errors.of_grid + errors.of_solver,
        errors.of_grid,
        errors.of_solver
    );
    if !(*last <= TOLERANCE && errors.are_within_bounds()) {
        return Err("the result is not the solution".into());
    }
    Ok(())
}

/// Each command runs as it comes, and the host decides when to end.
async fn run_eagerly(queue: &Queue, solver: &Gradients, flag: &HostBuffer<u32>) -> Result<()> {
    solver.start(queue);
    loop {
        queue.copy(&solver.more, flag).await?;
        if flag.read().await[0] == 0 {
            break;
        }
        solver.step(queue);
    }
    solver.end(queue);
    queue.wait().await
}

/// The same calls, recorded: the iterations are a loop node, and the device decides.
fn record(device: &Device, queue: &Queue, solver: &Gradients) -> Result<ExecutableGraph> {
    let mut body = Graph::new(device);
    let recording = body.record([queue])?;
    solver.step(queue);
    drop(recording);

    let mut graph = Graph::new(device);
    let recording = graph.record([queue])?;
    solver.start(queue);
    queue.while_nonzero(&solver.more, &body);
    solver.end(queue);
    drop(recording);
    graph.finalize()
}

/// The result, and the norm of the residual after each iteration in relation to that of b.
async fn outcome(solver: &Gradients) -> (Vec<f32>, Vec<f32>) {
    let out = &solver.out;
    let count = out.count.read().await[0] as usize;
    let history = out.history.read().await;
    let residuals = history.iter().take(count).map(|rr| rr.sqrt()).collect();
    (out.u.read().await.to_vec(), residuals)
}

struct Args {
    device: Option<String>,
    grid: usize,
    output: PathBuf,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, BoxError> {
        let mut args = Self { device: None, grid: 63, output: "residual.png".into() };
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--device" => args.device = Some(value),
                "--grid" => args.grid = value.parse()?,
                "--output" => args.output = value.into(),
                _ => return Err(format!("'{option}' is not an option").into()),
            }
        }
        // Beyond, 32-bit numbers do not resolve the equations well enough for the bound to say much.
        if !(1..=150).contains(&args.grid) {
            return Err("--grid takes a number from 1 to 150".into());
        }
        Ok(args)
    }
}
