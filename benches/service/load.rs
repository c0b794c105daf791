//! The clients: a process that sends requests, checks the answers, and prints figures as a line of JSON.

use std::io::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep_until;

use crate::http::{self, Connection};
use crate::process;
use crate::shape::{FAILS, Shape};

/// Things that clients do beside asking and waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// One request in twenty is given up: its client closes the connection in the middle of it or behind it.
    HangUps,
    /// One request in a thousand has no answer but an error.
    Failures,
    /// For the middle third of the time there are ten times as many clients more, which are not counted.
    Burst,
}

impl Trouble {
    pub(crate) const ALL: [(&str, Self); 4] = [
        ("none", Self::None),
        ("hang-ups", Self::HangUps),
        ("failures", Self::Failures),
        ("burst", Self::Burst),
    ];

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|(one, _)| *one == name).expect("the name of a trouble").1
    }
}

pub(crate) struct Load {
    pub(crate) server: SocketAddr,
    /// The server's process.
    pub(crate) pid: u32,
    pub(crate) shape: Shape,
    pub(crate) clients: usize,
    pub(crate) time: Duration,
    pub(crate) trouble: Trouble,
}

/// A request and the right answer.
struct Exchange {
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// Counts and latencies of a client. Times are in microseconds.
#[derive(Default)]
struct Outcome {
    latencies: Vec<f64>,
    /// Right answers that came before the end.
    in_time: usize,
    wrong: usize,
    refused: usize,
    failed: usize,
    hung_up: usize,
}

#[derive(Clone, Copy)]
struct Window {
    start: Instant,
    end: Instant,
}

impl Load {
    /// Sends requests for a fifth of the time before anything counts.
    pub(crate) async fn run(self) -> Value {
        let exchanges: Arc<[Exchange]> = (1..=16).map(|number| self.exchange(number)).collect();
        let start = Instant::now() + self.time / 5;
        let window = Window { start, end: start + self.time };
        let load = Arc::new(self);
        let spawn = |count: usize, window, trouble| -> Vec<_> {
            let clients = (0..count).map(|number| Client {
                load: load.clone(),
                exchanges: exchanges.clone(),
                number,
                window,
                trouble,
            });
            clients.map(|client| tokio::spawn(client.run())).collect()
        };
        let clients = spawn(load.clients, window, load.trouble);
        sleep_until(window.start.into()).await;
        process::reset_peak(load.pid);
        let cpu = process::cpu_seconds(load.pid);
        if load.trouble == Trouble::Burst {
            sleep_until((window.start + load.time / 3).into()).await;
            let window = Window { start: window.start, end: window.start + load.time * 2 / 3 };
            drop(spawn(10 * load.clients, window, Trouble::None));
        }
        sleep_until(window.end.into()).await;
        let cores = (process::cpu_seconds(load.pid) - cpu) / load.time.as_secs_f64();
        let threads = process::status(load.pid, "Threads");
        let mut all = Outcome::default();
        for client in clients {
            all.add(client.await.expect("no panic"));
        }
        let mut figures = all.figures(load.time);
        figures["cores"] = json!(cores);
        figures["threads"] = json!(threads);
        figures["peak_mib"] = json!(process::status(load.pid, "VmHWM") / 1024);
        figures
    }

    fn exchange(&self, number: u32) -> Exchange {
        let body = self.shape.request(number);
        Exchange { request: http::request(&body), answer: self.shape.answer(&body) }
    }
}

struct Client {
    load: Arc<Load>,
    exchanges: Arc<[Exchange]>,
    number: usize,
    window: Window,
    trouble: Trouble,
}

impl Client {
    async fn run(self) -> Outcome {
        let mut outcome = Outcome::default();
        let mut connection = None;
        let mut sent = 0;
        while Instant::now() < self.window.end {
            let asked = self.ask(&mut connection, sent, &mut outcome).await;
            if let Err(error) = asked {
                eprintln!("client {}, request {sent}: {error}", self.number);
                outcome.wrong += 1;
            }
            sent += 1;
        }
        outcome
    }

    async fn ask(
        &self,
        connection: &mut Option<Connection>,
        sent: usize,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let mut open = match connection.take() {
            Some(open) => open,
            None => Connection::open(self.load.server).await?,
        };
        let exchange = &self.exchanges[(self.number + sent) % self.exchanges.len()];
        // Over all clients, these numbers come one after the other.
        let number = self.number + sent * self.load.clients;
        match self.trouble {
            Trouble::HangUps if number.is_multiple_of(20) => {
                let half = exchange.request.len() / if number.is_multiple_of(40) { 1 } else { 2 };
                open.send(&exchange.request[..half]).await?;
                outcome.hung_up += 1;
                return Ok(());
            }
            Trouble::Failures if number.is_multiple_of(1000) => self.fail(&mut open, outcome).await?,
            _ => self.exchange(&mut open, exchange, outcome).await?,
        }
        *connection = Some(open);
        Ok(())
    }

    async fn exchange(
        &self,
        open: &mut Connection,
        exchange: &Exchange,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let start = Instant::now();
        open.send(&exchange.request).await?;
        let (status, body) = open.receive().await?;
        let end = Instant::now();
        match status {
            200 if body == exchange.answer => {
                if start >= self.window.start {
                    outcome.latencies.push((end - start).as_secs_f64() * 1e6);
                }
                outcome.in_time += usize::from(end >= self.window.start && end <= self.window.end);
            }
            503 => {
                outcome.refused += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            _ => outcome.wrong += 1,
        }
        Ok(())
    }

    /// Sends a request whose right answer is an error.
    async fn fail(&self, open: &mut Connection, outcome: &mut Outcome) -> Result<()> {
        let mut body = self.load.shape.request(1);
        body[..4].copy_from_slice(&FAILS.to_ne_bytes());
        open.send(&http::request(&body)).await?;
        let (status, _) = open.receive().await?;
        outcome.failed += usize::from(status == 500);
        outcome.wrong += usize::from(status != 500);
        Ok(())
    }
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.in_time += other.in_time;
        self.wrong += other.wrong;
        self.refused += other.refused;
        self.failed += other.failed;
        self.hung_up += other.hung_up;
    }

    fn figures(&mut self, time: Duration) -> Value {
        self.latencies.sort_unstable_by(f64::total_cmp);
        let last = self.latencies.len().saturating_sub(1);
        let at = |share: f64| self.latencies.get((last as f64 * share).round() as usize).map(|us| us.round());
        json!({
            "per_second": (self.in_time as f64 / time.as_secs_f64()).round(),
            "p50_us": at(0.5),
            "p99_us": at(0.99),
            "p999_us": at(0.999),
            "wrong": self.wrong,
            "refused": self.refused,
            "failed": self.failed,
            "hung_up": self.hung_up,
        })
    }
}
