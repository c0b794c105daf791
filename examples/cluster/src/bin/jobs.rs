//! Durable jobs over NATS JetStream: for work that has to be done even if nobody waits for it, and
//! every process involved may be killed. Requests that a caller waits for need no broker.
//!
//! ```sh
//! scripts/jobs.sh                             # installs nats-server, and shows what follows
//!
//! jobs worker --nats nats://host:4222 --device cuda:0
//! jobs demo                                   # a server, two workers, of which one is killed with a job
//! ```
//!
//! A job is a message of a stream in files. A worker takes one, and the server gives it to no other
//! as long as the worker says every now and then that it works on it. When it has published the
//! result, it acknowledges the job, which ends it. A worker that is killed says nothing any more, so
//! the server gives its job to another one. A result has the number of its job, and the stream of
//! results takes each number once within two minutes, which is its window for duplicates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{self, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, AckKind, Context, Message};
use futures::StreamExt;
use futures::future::{Either, select};
use prost::Message as _;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{interval, sleep};
use wakegraph::Device;
use wakegraph::service::ExecutablePool;
use wakegraph_cluster::BoxError;
use wakegraph_cluster::protocol::{SmoothReply, SmoothRequest};
use wakegraph_cluster::smoother::{Buffers, HEIGHT, WIDTH, check, expected, pool, to_bytes};

/// A worker that has said nothing about its job for so long is taken for dead.
const SILENCE: Duration = Duration::from_secs(2);

/// A job that has been given to so many workers is given to no other: it may be what kills them.
const MOST_DELIVERIES: i64 = 5;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).map(String::as_str)
    };
    let device = option("--device").unwrap_or("host");
    match words.first().map(String::as_str) {
        Some("worker") => work(option("--nats").unwrap_or("nats://127.0.0.1:4222"), device).await,
        Some("demo") | None => demo(device).await,
        Some(other) => Err(format!("{other} is none of worker, demo").into()),
    }
}

/// The streams of jobs and of results, which are made if they are not there.
async fn streams(nats: &Context) -> Result<(stream::Stream, stream::Stream), BoxError> {
    let jobs = stream::Config {
        name: "JOBS".into(),
        subjects: vec!["jobs.*".into()],
        // A job is gone when it has been acknowledged.
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        ..Default::default()
    };
    let results = stream::Config {
        name: "RESULTS".into(),
        subjects: vec!["results.*".into()],
        storage: StorageType::File,
        ..Default::default()
    };
    Ok((nats.get_or_create_stream(jobs).await?, nats.get_or_create_stream(results).await?))
}

/// Works on one job after the other.
async fn work(nats: &str, device: &str) -> Result<(), BoxError> {
    let nats = jetstream::new(async_nats::connect(nats).await?);
    let (jobs, _) = streams(&nats).await?;
    let workers = pull::Config {
        durable_name: Some("workers".into()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: SILENCE,
        max_deliver: MOST_DELIVERIES,
        ..Default::default()
    };
    let consumer: PullConsumer = jobs.get_or_create_consumer("workers", workers).await?;
    let pool = pool(&Device::open(device)?, 1);
    pool.warm_up().await?;
    loop {
        // One at a time: what a worker has taken beside it would wait when the worker is killed.
        let mut taken = consumer.fetch().max_messages(1).expires(SILENCE).messages().await?;
        while let Some(job) = taken.next().await {
            let job = job?;
            let delivery = job.info()?.delivered;
            let number = job.subject.strip_prefix("jobs.").unwrap_or_default().to_owned();
            println!("begin {number} {delivery}");
            match run(&job, &pool).await {
                Ok(reply) => {
                    let result =
                        PublishMessage::build().payload(reply.encode_to_vec().into()).message_id(&number);
                    // Acknowledged when the result is in a file.
                    nats.send_publish(format!("results.{number}"), result).await?.await?;
                    job.double_ack().await?;
                    println!("end {number} {delivery}");
                }
                Err(error) => {
                    eprintln!("job {number}: {error}");
                    job.ack_with(AckKind::Nak(Some(SILENCE))).await?;
                }
            }
        }
    }
}

/// Runs a job. Meanwhile tells the server that it is worked on.
async fn run(job: &Message, pool: &ExecutablePool<Buffers>) -> Result<SmoothReply, BoxError> {
    let SmoothRequest { pixels, rounds } = SmoothRequest::decode(job.payload.clone())?;
    check(&pixels)?;
    let slot = pool.acquire().await?;
    let mut image = slot.image.write().await;
    image.iter_mut().zip(&pixels).for_each(|(to, from)| *to = (*from).into());
    drop(image);
    slot.rounds.write().await[0] = rounds;
    let mut running = slot.submit();
    let mut progress = interval(SILENCE / 4);
    loop {
        match select(running, Box::pin(progress.tick())).await {
            Either::Left((result, _)) => break result?,
            Either::Right((_, still_running)) => running = still_running,
        }
        job.ack_with(AckKind::Progress).await?;
    }
    let pixels = to_bytes(&slot.smoothed.read().await);
    Ok(SmoothReply { pixels, worker: std::process::id() })
}

/// What a worker says: that it begins or ends a job, of which this is the how manieth delivery.
#[derive(Debug)]
struct Said {
    worker: usize,
    is_end: bool,
    job: usize,
    delivery: i64,
}

fn start_worker(
    worker: usize,
    arguments: &[&str],
    said: &mpsc::UnboundedSender<Said>,
) -> Result<Child, BoxError> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(arguments).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("the worker has no output")?).lines();
    let said = said.clone();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            let words: Vec<&str> = line.split(' ').collect();
            if let [verb, job, delivery] = words[..]
                && let (Ok(job), Ok(delivery)) = (job.parse(), delivery.parse())
            {
                let _ = said.send(Said { worker, is_end: verb == "end", job, delivery });
            }
        }
    });
    Ok(child)
}

/// Starts a server of its own, with its files in a folder of its own.
async fn start_server(folder: &Path) -> Result<(Child, String), BoxError> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let program = ["nats-server", "/usr/sbin/nats-server"].map(PathBuf::from);
    for program in program {
        let mut command = Command::new(program);
        command.args(["--jetstream", "--addr", "127.0.0.1", "--port", &port, "--store_dir"]).arg(folder);
        if let Ok(server) = command.stderr(Stdio::null()).kill_on_drop(true).spawn() {
            let url = format!("nats://127.0.0.1:{port}");
            while async_nats::connect(&url).await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
            return Ok((server, url));
        }
    }
    Err("there is no nats-server; scripts/jobs.sh installs it".into())
}

/// Kills a worker that has begun a job, and checks that each job has one result, and that only this
/// job has been delivered again, once.
async fn demo(device: &str) -> Result<(), BoxError> {
    const JOBS: usize = 20;
    const ROUNDS: u32 = 10_000;
    let folder = std::env::temp_dir().join(format!("wakegraph-jobs-{}", std::process::id()));
    let (_server, url) = start_server(&folder).await?;
    let nats = jetstream::new(async_nats::connect(&url).await?);
    let (jobs, mut results) = streams(&nats).await?;
    let job = |number: usize| {
        let pixels = (0..WIDTH * HEIGHT).map(|pixel| (pixel * (number + 1)) as u8).collect();
        SmoothRequest { pixels, rounds: ROUNDS }
    };
    for number in 0..JOBS {
        let job = PublishMessage::build()
            .payload(job(number).encode_to_vec().into())
            .message_id(number.to_string());
        nats.send_publish(format!("jobs.{number}"), job).await?.await?;
    }

    let (sender, mut said) = mpsc::unbounded_channel();
    let arguments = ["worker", "--nats", &url, "--device", device];
    let mut victim = start_worker(0, &arguments, &sender)?;
    let _other = start_worker(1, &arguments, &sender)?;
    let (mut deliveries, mut killed, mut ended) = (BTreeMap::<usize, i64>::new(), None, 0);
    while ended < JOBS {
        let Said { worker, is_end, job, delivery } = said.recv().await.ok_or("both workers have ended")?;
        ended += usize::from(is_end);
        deliveries.entry(job).and_modify(|most| *most = delivery.max(*most)).or_insert(delivery);
        let has_worked = deliveries.len() > 4;
        if worker == 0 && !is_end && has_worked && killed.is_none() {
            victim.kill().await?;
            println!("job {job} was with a worker that has been killed");
            killed = Some((job, Instant::now()));
        } else if let Some((lost, at)) = killed
            && job == lost
            && !is_end
        {
            println!("job {job} is with another worker after {:.1?}, delivery {delivery}", at.elapsed());
        }
    }
    let again: Vec<_> = deliveries.iter().filter(|(_, deliveries)| **deliveries > 1).collect();
    println!("{JOBS} jobs; delivered more than once, with how often: {again:?}");
    let lost = killed.ok_or("no worker was killed")?.0;
    let left = jobs.get_info().await?.state.messages;
    let count = results.info().await?.state.messages;
    println!("{count} results, {left} jobs left");
    for number in [lost, 0] {
        let reply = results.get_last_raw_message_by_subject(&format!("results.{number}")).await?;
        let reply = SmoothReply::decode(reply.payload)?;
        if reply.pixels != expected(&job(number).pixels, ROUNDS) {
            return Err(format!("job {number} has a wrong result").into());
        }
    }
    let _ = std::fs::remove_dir_all(folder);
    match again[..] == [(&lost, &2)] && count == JOBS as u64 && left == 0 {
        true => Ok(()),
        false => Err("a job was delivered too often, or has not one result".into()),
    }
}
