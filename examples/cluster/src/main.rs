//! A service in several processes: workers with a device each, and a front that balances among them.
//!
//! ```sh
//! cargo run --release --manifest-path examples/cluster/Cargo.toml   # three workers and a front, under load
//!
//! cluster worker --listen 127.0.0.1:5001 --device cuda:0
//! cluster worker --listen 127.0.0.1:5002 --device cuda:1
//! cluster front --listen 0.0.0.0:5000 --worker 127.0.0.1:5001 --worker 127.0.0.1:5002
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use wakegraph::Device;
use wakegraph_cluster::processes::{Cluster, LISTENING, kill_and_restart};
use wakegraph_cluster::{BoxError, balance, front, worker};

/// The slots of a worker's pool: one request's copies overlap with the kernels of another.
const SLOTS: usize = 2;

/// How soon after its return a worker has requests again.
const BACK_WITHIN: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("worker") => run_worker(Options::parse(words)?).await,
        Some("front") => run_front(Options::parse(words)?).await,
        Some("demo") => demo(Options::parse(words)?).await,
        None => demo(Options::parse(words)?).await,
        Some(other) => Err(format!("{other} is none of worker, front, demo").into()),
    }
}

#[derive(Default)]
struct Options {
    listen: Option<SocketAddr>,
    device: Option<String>,
    workers: Vec<SocketAddr>,
    kills: Option<usize>,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, BoxError> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--listen" => options.listen = Some(value.parse()?),
                "--device" => options.device = Some(value),
                "--worker" => options.workers.push(value.parse()?),
                "--kills" => options.kills = Some(value.parse()?),
                _ => return Err(format!("{word} is none of --listen, --device, --worker, --kills").into()),
            }
        }
        Ok(options)
    }

    /// Listens, and says where.
    async fn listener(&self) -> Result<TcpListener, BoxError> {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        Ok(TcpListener::bind(self.listen.unwrap_or(any)).await?)
    }
}

async fn run_worker(options: Options) -> Result<(), BoxError> {
    let device = match &options.device {
        Some(selector) => Device::open(selector)?,
        None => Device::best()?,
    };
    let listener = options.listener().await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        let _ = terminate.recv().await;
    };
    println!("{LISTENING}{}", listener.local_addr()?);
    worker::serve(device, SLOTS, listener, stop).await
}

async fn run_front(options: Options) -> Result<(), BoxError> {
    let listener = options.listener().await?;
    let workers = balance::workers(options.workers.iter().copied());
    println!("{LISTENING}{}", listener.local_addr()?);
    front::serve(workers, listener).await
}

async fn demo(options: Options) -> Result<(), BoxError> {
    const WORKERS: usize = 3;
    const CLIENTS: usize = 16;
    let device = options.device.as_deref().unwrap_or("host");
    let mut cluster = Cluster::start(&std::env::current_exe()?, device, WORKERS).await?;
    println!("{WORKERS} workers on {device}, {CLIENTS} clients");
    let figures = kill_and_restart(&mut cluster, CLIENTS, options.kills.unwrap_or(10), 500).await?;
    println!("{figures}");
    let is_back = figures.back_after.iter().all(|back| *back <= BACK_WITHIN);
    match figures.failures.is_empty() && is_back {
        true => Ok(()),
        false => Err("a request failed, or a worker was not back in time".into()),
    }
}
