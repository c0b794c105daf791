//! Workers and a front as processes, under load, of which one is killed and started again.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::sleep;
use tonic::transport::{Channel, Endpoint};

use crate::BoxError;
use crate::protocol::SmoothRequest;
use crate::protocol::smoother_client::SmootherClient;
use crate::smoother::{HEIGHT, WIDTH, expected};

/// What a process says when it serves, followed by its address.
pub const LISTENING: &str = "listening on ";

/// A worker or a front. Killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pub address: SocketAddr,
}

impl Process {
    /// Starts the program and waits until it serves.
    ///
    /// # Errors
    /// When it does not start, or ends before it serves.
    pub async fn start(program: &Path, arguments: &[String]) -> Result<Self, BoxError> {
        let mut child =
            Command::new(program).args(arguments).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().ok_or("the process has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some(address) = line.strip_prefix(LISTENING) {
                return Ok(Self { child, address: address.parse()? });
            }
        }
        Err(format!("{} {} ended", program.display(), arguments.join(" ")).into())
    }

    /// The id of the process, while it runs.
    pub fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Kills it as `kill -9` does.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn kill(&mut self) -> Result<(), BoxError> {
        Ok(self.child.kill().await?)
    }
}

/// Several workers behind a front.
#[derive(Debug)]
pub struct Cluster {
    program: PathBuf,
    device: String,
    pub workers: Vec<Process>,
    pub front: Process,
}

impl Cluster {
    /// Starts `workers` workers with a device each, and a front.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn start(program: &Path, device: &str, workers: usize) -> Result<Self, BoxError> {
        let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
        let started = (0..workers).map(|_| start_worker(program, any_port, device));
        let workers = try_join_all(started).await?;
        let mut arguments = vec!["front".to_owned(), "--listen".to_owned(), any_port.to_string()];
        for worker in &workers {
            arguments.extend(["--worker".to_owned(), worker.address.to_string()]);
        }
        let front = Process::start(program, &arguments).await?;
        Ok(Self { program: program.to_owned(), device: device.to_owned(), workers, front })
    }

    /// Starts a worker again where it was.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn restart(&mut self, worker: usize) -> Result<(), BoxError> {
        let address = self.workers[worker].address;
        self.workers[worker] = start_worker(&self.program, address, &self.device).await?;
        Ok(())
    }
}

async fn start_worker(program: &Path, address: SocketAddr, device: &str) -> Result<Process, BoxError> {
    let arguments = ["worker", "--listen", &address.to_string(), "--device", device].map(str::to_owned);
    Process::start(program, &arguments).await
}

/// A connection to a process.
///
/// # Errors
/// Those of the connection.
pub async fn connect(address: SocketAddr) -> Result<Channel, BoxError> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true).connect().await?)
}

/// Clients that send one request after the other.
#[derive(Debug, Default)]
pub struct Load {
    stop: AtomicBool,
    number: AtomicU32,
    answered: AtomicUsize,
    /// Errors, and wrong answers.
    failures: Mutex<Vec<String>>,
    /// How many each process has answered.
    by_worker: Mutex<HashMap<u32, usize>>,
    latencies: Mutex<Vec<Duration>>,
}

impl Load {
    async fn client(self: Arc<Self>, channel: Channel) {
        const ROUNDS: u32 = 5;
        let mut client = SmootherClient::new(channel);
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            let pixel = |i: usize| (i as u32).wrapping_mul(number.wrapping_mul(2_654_435_761) | 1) as u8;
            let pixels: Vec<u8> = (0..WIDTH * HEIGHT).map(pixel).collect();
            let right = expected(&pixels, ROUNDS);
            let mut request = tonic::Request::new(SmoothRequest { pixels, rounds: ROUNDS });
            request.set_timeout(Duration::from_secs(30));
            let sent = Instant::now();
            let failure = match client.smooth(request).await.map(tonic::Response::into_inner) {
                Ok(reply) if reply.pixels == right => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    *lock(&self.by_worker).entry(reply.worker).or_default() += 1;
                    lock(&self.latencies).push(sent.elapsed());
                    continue;
                }
                Ok(reply) => format!("request {number}: a wrong answer of worker {}", reply.worker),
                Err(status) => format!("request {number}: {status}"),
            };
            lock(&self.failures).push(failure);
        }
    }

    /// Waits until so many more requests have been answered.
    async fn more(&self, requests: usize) {
        let until = self.answered.load(Ordering::Relaxed) + requests;
        while self.answered.load(Ordering::Relaxed) < until {
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn answered_by(&self, worker: u32) {
        while !lock(&self.by_worker).contains_key(&worker) {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What came of a load during which a worker was killed and started again.
#[derive(Debug)]
pub struct Figures {
    pub answered: usize,
    pub failures: Vec<String>,
    /// How long after each restart the worker answered a request.
    pub back_after: Vec<Duration>,
    /// The most that a request took.
    pub longest: Duration,
    pub p99: Duration,
}

impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests answered, {} failed; ", self.answered, self.failures.len())?;
        write!(f, "p99 {:.1?}, longest {:.1?}; ", self.p99, self.longest)?;
        write!(
            f,
            "killed {} times, back in rotation {:.1?} after the return",
            self.back_after.len(),
            self.back_after
        )?;
        self.failures.iter().take(5).try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

/// Sends requests from `clients` clients all the time. `kills` times, kills a worker, lets `between`
/// requests pass, starts it again, waits until it answers, and lets as many pass again.
///
/// # Errors
/// When a process does not start.
pub async fn kill_and_restart(
    cluster: &mut Cluster,
    clients: usize,
    kills: usize,
    between: usize,
) -> Result<Figures, BoxError> {
    let load = Arc::new(Load::default());
    let mut running = Vec::new();
    for _ in 0..clients {
        running.push(tokio::spawn(load.clone().client(connect(cluster.front.address).await?)));
    }
    for worker in &cluster.workers {
        load.answered_by(worker.id()).await;
    }
    let mut back_after = Vec::new();
    for kill in 0..kills {
        load.more(between).await;
        let worker = kill % cluster.workers.len();
        cluster.workers[worker].kill().await?;
        load.more(between).await;
        cluster.restart(worker).await?;
        let returned = Instant::now();
        load.answered_by(cluster.workers[worker].id()).await;
        back_after.push(returned.elapsed());
    }
    load.more(between).await;
    load.stop.store(true, Ordering::Relaxed);
    for client in running {
        client.await?;
    }
    let mut latencies = std::mem::take(&mut *lock(&load.latencies));
    latencies.sort_unstable();
    Ok(Figures {
        answered: latencies.len(),
        failures: std::mem::take(&mut *lock(&load.failures)),
        back_after,
        longest: latencies.last().copied().unwrap_or_default(),
        p99: latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default(),
    })
}
