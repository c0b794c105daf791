//! The driver: has contenders take turns, each a server's process of its own, and writes what the clients'
//! processes have seen.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use wakegraph::Device;

use crate::Args;
use crate::load::Trouble;
use crate::server::{CONTENDERS, OURS};
use crate::shape::{SHAPES, Shape};

/// Clients of the rows with trouble, all with the first shape.
const TROUBLED: usize = 64;

pub(crate) struct Driver<'a> {
    args: &'a Args,
    device: &'a str,
    /// Name of an OpenCL device.
    name: String,
    /// Milliseconds that a row takes.
    time: &'a str,
    rounds: usize,
    clients: Vec<usize>,
    stub: SocketAddr,
    halves: Option<[Vec<usize>; 2]>,
    out: File,
    rows: Vec<Value>,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(args: &'a Args, stub: SocketAddr, halves: Option<[Vec<usize>; 2]>) -> Self {
        let quick = args.has("--quick");
        let clients = args.value("--clients").unwrap_or(if quick { "1,64" } else { "1,16,64,256,1024" });
        let device = args.value("--device").unwrap_or("host");
        let name = match device.starts_with("opencl") {
            true => Device::open(device).expect("a device").info().name.clone(),
            false => String::new(),
        };
        Self {
            args,
            device,
            name,
            time: args.value("--time").unwrap_or("1000"),
            rounds: args.number("--rounds").unwrap_or(if quick { 1 } else { 5 }),
            clients: clients.split(',').map(|clients| clients.parse().expect("numbers of clients")).collect(),
            stub,
            halves,
            out: File::create(args.value("--out").unwrap_or("service.jsonl")).expect("a file for the rows"),
            rows: Vec::new(),
        }
    }

    pub(crate) fn run(mut self) -> ExitCode {
        self.describe();
        for round in 0..self.rounds {
            for shape in SHAPES.iter().filter(|shape| self.args.wants("--shapes", shape.name)) {
                for turn in 0..CONTENDERS.len() {
                    let contender = CONTENDERS[(round + turn) % CONTENDERS.len()];
                    if self.args.wants("--contenders", contender) {
                        self.turn(round, *shape, contender);
                    }
                }
            }
        }
        let wrong: u64 = self.rows.iter().filter_map(|row| row["wrong"].as_u64()).sum();
        println!("SERVICE wrong={wrong}");
        let exceeded = self.args.value("--limits").is_some_and(|limits| self.exceeds(limits));
        ExitCode::from(u8::from(self.args.has("--check") && (wrong > 0 || exceeded)))
    }

    /// Writes what the machine is.
    fn describe(&mut self) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let date = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let machine = json!({
            "machine": {
                "device": self.device,
                "cores": std::thread::available_parallelism().map_or(1, usize::from)
                    * if self.halves.is_some() { 2 } else { 1 },
                "server_cores": self.halves.as_ref().map(|[server, _]| server.len()),
                "load": load.split(' ').next(),
                "unix_seconds": date,
                "milliseconds": self.time,
                "rounds": self.rounds,
            }
        });
        self.write(&machine);
    }

    /// All rows of a contender in a round.
    fn turn(&mut self, round: usize, shape: Shape, contender: &str) {
        let server = Server::start(self, shape, contender);
        let rows = self.clients.iter().map(|clients| (*clients, "none"));
        let mut rows: Vec<_> = rows.collect();
        if shape.name == SHAPES[0].name {
            let troubles = Trouble::ALL.iter().filter(|(_, trouble)| *trouble != Trouble::None);
            rows.extend(troubles.map(|(name, _)| (TROUBLED, *name)));
        }
        for (clients, trouble) in rows {
            let mut row = self.load(&server, shape, clients, trouble);
            row["round"] = json!(round);
            row["device"] = json!(server.device);
            row["shape"] = json!(shape.name);
            row["contender"] = json!(contender);
            row["clients"] = json!(clients);
            row["trouble"] = json!(trouble);
            self.write(&row);
            self.rows.push(row);
        }
    }

    fn load(&self, server: &Server, shape: Shape, clients: usize, trouble: &str) -> Value {
        let mut load = this_program();
        load.args(["--load", &server.address, "--pid", &server.process.id().to_string()]);
        load.args(["--shape", shape.name, "--clients", &clients.to_string()]);
        load.args(["--trouble", trouble, "--time", self.time]);
        let output = load.stderr(Stdio::inherit()).output().expect("the clients");
        serde_json::from_slice(&output.stdout).expect("the clients' figures")
    }

    fn write(&mut self, row: &Value) {
        println!("{row}");
        writeln!(self.out, "{row}").expect("room for a row");
    }

    /// Prints how our better contender does beside the better other one. Whether a ratio misses its limit: at
    /// least so many requests a second, at most such a p99, at most so many cores.
    fn exceeds(&self, limits: &str) -> bool {
        let limits: Vec<f64> = limits.split(',').filter_map(|limit| limit.parse().ok()).collect();
        let &[least, p99, cores] = &limits[..] else { panic!("--limits needs three numbers") };
        let mut exceeded = false;
        for (shape, clients) in
            SHAPES.iter().flat_map(|shape| self.clients.iter().map(move |all| (shape, all)))
        {
            let best = |of_ours| {
                let names = CONTENDERS.iter().filter(|name| OURS.contains(name) == of_ours);
                let figures = names.filter_map(|name| self.medians(shape.name, *clients, name));
                figures.max_by(|one, other| one[0].total_cmp(&other[0]))
            };
            let (Some(ours), Some(others)) = (best(true), best(false)) else { continue };
            let ratios = [0, 1, 2].map(|figure| ours[figure] / others[figure]);
            let misses = ratios[0] < least || ratios[1] > p99 || ratios[2] > cores;
            exceeded |= misses;
            let verdict = if misses { " EXCEEDED" } else { "" };
            println!("SERVICE {}_{clients} per_second, p99, cores: {ratios:.2?}{verdict}", shape.name);
        }
        exceeded
    }

    /// Requests a second, p99 and cores without trouble, medians of the rounds.
    fn medians(&self, shape: &str, clients: usize, contender: &str) -> Option<[f64; 3]> {
        let wanted = [json!(shape), json!(contender), json!(clients), json!("none")];
        let is_wanted = |row: &&Value| {
            ["shape", "contender", "clients", "trouble"]
                .iter()
                .zip(&wanted)
                .all(|(key, value)| row[*key] == *value)
        };
        let rows: Vec<_> = self.rows.iter().filter(is_wanted).collect();
        let median = |figure: &str| {
            let mut values: Vec<f64> = rows.iter().filter_map(|row| row[figure].as_f64()).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        Some([median("per_second")?, median("p99_us")?, median("cores")?])
    }
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().expect("a path"))
}

/// A server's process, which ends with this.
struct Server {
    process: Child,
    address: String,
    device: String,
}

impl Server {
    fn start(driver: &Driver<'_>, shape: Shape, contender: &str) -> Self {
        let mut command = this_program();
        command.args(["--serve", contender, "--shape", shape.name, "--device", driver.device]);
        command.args(["--name", &driver.name, "--stub", &driver.stub.to_string()]);
        if let Some([cores, _]) = &driver.halves {
            let cores: Vec<_> = cores.iter().map(usize::to_string).collect();
            command.args(["--cores", &cores.join(",")]);
        }
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = piped.spawn().expect("the server");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("the server's first line");
        let (address, device) = line.trim().split_once(' ').expect("a server that has started");
        let (address, device) = (address.to_owned(), device.to_owned());
        Self { process, address, device }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
