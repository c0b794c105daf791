//! The core of a service: requests with a value of their own and a deadline, overload, and an orderly end.
//!
//! `cargo run --release --example requests [-- host]`
//!
//! Each request multiplies its numbers by a factor of its own, in one of two slots. `Service::handle` is what
//! a handler of a web framework would call, with the answers and statuses of HTTP; `main` stands for the
//! clients.
#![expect(unsafe_code, reason = "declares device code")]

use std::time::{Duration, Instant};

use wakegraph::service::ExecutablePool;
use wakegraph::update::DynamicParam;
use wakegraph::{BoxError, Device, Error, ErrorKind, FinalizeOptions, Graph, HostBuffer, Range, Result};

wakegraph::kernel! {
    /// x *= factor
    fn scale(factor: f32, x: &mut [f32]) {
        each: |_, factor, x| *x *= factor,
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { "KERNEL(scale, (float factor, SLICE(float, x))) { x[GLOBAL_ID(0)] *= factor; }" },
    }
}

/// Numbers of a request at most.
const LEN: usize = 1024;
/// Requests that run at a time.
const SLOTS: usize = 2;
/// Requests that wait. More are refused.
const QUEUE: usize = 4;
/// How long accepted requests may take once the service is told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// What each slot has of its own.
struct Slot {
    numbers: HostBuffer<f32>,
    factor: DynamicParam<f32>,
}

#[derive(Clone)]
struct Service {
    device: Device,
    pool: ExecutablePool<Slot>,
}

struct Request {
    numbers: Vec<f32>,
    factor: f32,
    /// When the client stops waiting.
    deadline: Instant,
}

impl Service {
    /// A service whose slots have been made and run once.
    async fn start(device: Device) -> Result<Self> {
        let builder = ExecutablePool::builder().device(&device, SLOTS).queue(QUEUE);
        let pool = builder.build(|slot| {
            let device = slot.device()?;
            let (numbers, x) = (device.host_buffer(LEN)?, device.buffer(LEN)?);
            let mut graph = Graph::new(&device);
            let factor = graph.param(1.0f32);
            graph.copy(&numbers, &x);
            graph.launch(scale(1.0, &x), Range::linear(LEN)).param("factor", &factor);
            graph.copy(&x, &numbers);
            let exec = graph.finalize_with(FinalizeOptions::new().updatable(true))?;
            Ok((exec, Slot { numbers, factor }))
        });
        pool.warm_up_with(async |slot| slot.submit().await).await?;
        Ok(Self { device, pool })
    }

    /// Answers a request. If this future is dropped, as a web framework does when the client goes away, what
    /// has not started never does.
    async fn handle(&self, request: Request) -> Result<Vec<f32>> {
        let len = request.numbers.len();
        if len > LEN {
            return Err(Error::new(ErrorKind::InvalidSize, format!("{len} numbers are more than {LEN}")));
        }
        // At once if the queue is full; by the deadline if it is slow.
        let slot = self.pool.prepare().deadline(request.deadline).acquire().await?;
        slot.numbers.write().await[..len].copy_from_slice(&request.numbers);
        let updated = slot.update().param(&slot.factor, request.factor).apply();
        slot.submit().cancel_on_drop().await?;
        updated.await?;
        Ok(slot.numbers.read().await[..len].to_vec())
    }

    /// Takes no more requests, and waits for those that it has taken.
    async fn end(&self) -> Result<()> {
        let start = Instant::now();
        self.pool.drain(GRACE).await?;
        self.device.shutdown(GRACE.saturating_sub(start.elapsed())).await
    }
}

/// The status that a web framework would answer with.
fn status(answer: &Result<Vec<f32>>) -> u16 {
    answer.as_ref().map_or_else(|error| error.kind().http_status(), |_| 200)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let device = match std::env::args().nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let service = Service::start(device).await?;
    let in_time = || Instant::now() + Duration::from_secs(60);
    let request = |factor: f32, deadline| Request { numbers: vec![1.0, 2.0, 3.0], factor, deadline };

    let answer = service.handle(request(10.0, in_time())).await?;
    println!("200: {answer:?}");
    assert_eq!(answer, [10.0, 20.0, 30.0]);

    // A client that has given up already costs the device nothing.
    let late = service.handle(request(1.0, Instant::now())).await;
    println!("{}: {:?}", status(&late), late);
    assert_eq!(status(&late), 504);

    // With all slots and places of the queue taken, the next request is refused.
    let taken = [service.pool.acquire().await?, service.pool.acquire().await?];
    let waiting: Vec<_> =
        (0..QUEUE).map(|number| spawn(&service, request(number as f32, in_time()))).collect();
    while service.pool.status().waiting < QUEUE {
        tokio::task::yield_now().await;
    }
    let refused = service.handle(request(1.0, in_time())).await;
    println!("{}: {:?}", status(&refused), refused);
    assert_eq!(status(&refused), 503);

    // SIGTERM. Those that were accepted are answered, others are not taken.
    service.pool.close();
    assert_eq!(status(&service.handle(request(1.0, in_time())).await), 503);
    drop(taken);
    service.end().await?;
    for (number, answer) in waiting.into_iter().enumerate() {
        let factor = number as f32;
        assert_eq!(answer.await??, [factor, 2.0 * factor, 3.0 * factor]);
    }
    println!("{QUEUE} requests that were accepted have their answers");
    Ok(())
}

/// Handles a request in a task, as a server does.
fn spawn(service: &Service, request: Request) -> tokio::task::JoinHandle<Result<Vec<f32>>> {
    let service = service.clone();
    tokio::spawn(async move { service.handle(request).await })
}
