//! A photo service: POST a picture, get it back sharper and in warmer tones.
//!
//! `cargo run --release -p photo_server [-- --help]`, then open the address that it prints.
//!
//! One graph serves a request: a host task decodes the upload, kernels sharpen it, a host task asks
//! another HTTP service for tone curves, a kernel applies them, and a host task encodes the answer.
//! A pool has several executables of the graph, so that the copies, kernels and calls of requests
//! overlap.
//!
//! | file | what it holds |
//! |---|---|
//! | `pipeline.rs` | the graph: read this first |
//! | `app.rs` | the routes: deadlines, overload, cancellation, health |
//! | `kernels.rs`, `kernels.c` | what the device computes, for the CPU and for GPUs |
//! | `signal.rs` | when to stop |
//! | `tones.rs` | the other service, and its client |
//! | `figures.rs`, `page.html` | the page to try it |

mod app;
mod figures;
mod kernels;
mod pipeline;
mod signal;
#[cfg(test)]
mod tests;
mod tones;

use std::future::{Future, IntoFuture as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use wakegraph::kernel::KernelCache;
use wakegraph::{BoxError, Device};

use crate::app::{App, Options};
use crate::tones::Tones;

/// How long requests may take to end once the service is told to stop, and as long again for its pool and its
/// device: together less than its supervisor waits before it kills the process.
const GRACE: Duration = Duration::from_secs(10);

const HELP: &str = "\
Develops photos on a GPU, or on the CPU where there is none.

Usage: photo_server [OPTIONS]

  --device NAME    where to run, such as cuda:0, opencl:intel or host [the best there is]
  --port N         where to listen on this machine [8080]
  --slots N        how many requests run at a time [2]
  --kernels FOLDER where compiled kernels are kept for the next start [nowhere]
  --warm           fill that folder, and end
  --help           print this
";

struct Args {
    device: Option<String>,
    port: u16,
    kernels: Option<PathBuf>,
    is_warm_up: bool,
    options: Options,
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match parse(std::env::args().skip(1)) {
        Ok(Some(args)) => run(args).await,
        Ok(None) => {
            print!("{HELP}");
            Ok(())
        }
        Err(error) => Err(format!("{error}; see --help").into()),
    };
    ExitCode::from(exit_code(outcome))
}

/// The exit code of the process: 0, or 1 if it was used in a wrong way or left something without an answer.
fn exit_code(outcome: Result<(), BoxError>) -> u8 {
    outcome.err().map_or(0, |error| {
        eprintln!("error: {error}");
        1
    })
}

/// `None` when help is asked for.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Args>, BoxError> {
    let options = Options::default();
    let mut args = Args { device: None, port: 8080, kernels: None, is_warm_up: false, options };
    while let Some(option) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{option} needs a value"));
        match &*option {
            "--help" | "-h" => return Ok(None),
            "--device" => args.device = Some(value()?),
            "--port" => args.port = value()?.parse()?,
            "--slots" => args.options.slots = value()?.parse()?,
            "--kernels" => args.kernels = Some(value()?.into()),
            "--warm" => args.is_warm_up = true,
            _ => return Err(format!("'{option}' is not an option").into()),
        }
    }
    Ok(Some(args))
}

async fn run(Args { device, port, kernels, is_warm_up, options }: Args) -> Result<(), BoxError> {
    let start = Instant::now();
    // Before the device is opened, as kernels are compiled then.
    if let Some(folder) = kernels {
        KernelCache::at(folder).enable()?;
    }
    // Before the device is opened: the library of an OpenCL device may take the signal over.
    let stop = signal::stop()?;
    // Likewise, so that the device finds the recorder.
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let device = device.map_or_else(Device::best, |name| Device::open(&name))?;
    let (tones, _) = start_tones().await?;
    let app = App::new(device.clone(), tones, metrics.clone(), options);
    // No request waits for a compiler.
    app.warm_up().await?;
    println!("{device:?} is ready after {:.1?}", start.elapsed());
    if is_warm_up {
        return Ok(app.end(GRACE).await?);
    }

    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    tokio::spawn(keep_up(metrics));
    println!("It develops photos at http://{}", listener.local_addr()?);
    serve_until(listener, app, stop, GRACE).await
}

/// Serves until `stop`. Then the service takes no more connections and requests, and has as long as `grace`
/// to answer those that it has taken, and again for the pool and the device.
///
/// # Errors
/// If something has no answer by then, so that the process ends with another exit code.
async fn serve_until(
    listener: TcpListener,
    app: Arc<App>,
    stop: impl Future<Output = ()> + Send + 'static,
    grace: Duration,
) -> Result<(), BoxError> {
    let (stopped, has_stopped) = oneshot::channel();
    let stop = async move {
        stop.await;
        let _ = stopped.send(());
    };
    let server = axum::serve(listener, app::router(app.clone())).with_graceful_shutdown(stop).into_future();
    let end = async {
        let _ = has_stopped.await;
        println!("stopping");
        // A client that neither reads nor hangs up would keep the server.
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        served = server => served?,
        () = end => return Err(format!("connections were open {grace:?} after the signal").into()),
    }
    Ok(app.end(grace).await?)
}

/// Starts the service that the graph asks.
async fn start_tones() -> std::io::Result<(Tones, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, tones::router()).await });
    Ok((Tones::new(address), address))
}

/// Histograms keep their values until they are read; this bounds how many.
async fn keep_up(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        metrics.run_upkeep();
    }
}
