//! A worker: a pool behind gRPC, with the health of its device.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use wakegraph::service::ExecutablePool;
use wakegraph::{Device, ErrorKind, Health};

use crate::BoxError;
use crate::deadline::deadline;
use crate::protocol::smoother_server::{Smoother, SmootherServer};
use crate::protocol::{SmoothReply, SmoothRequest, StatusReply, StatusRequest};
use crate::smoother::{Buffers, check, pool, to_bytes};

/// The name of the service, for health checks.
pub const SERVICE: &str = <SmootherServer<Worker> as NamedService>::NAME;

/// How long a worker that is told to stop waits for the requests that it has.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a balancer may take to notice that a worker does not serve.
const NOTICE: Duration = Duration::from_millis(200);

/// The gRPC service of a worker.
#[derive(Debug)]
pub struct Worker {
    pool: ExecutablePool<Buffers>,
    device: Device,
    figures: Arc<Figures>,
}

#[derive(Debug, Default)]
struct Figures {
    present: AtomicU64,
    answered: AtomicU64,
    given_up: AtomicU64,
}

/// A request in the worker. Dropped before its answer, it counts as given up.
struct Present {
    figures: Arc<Figures>,
    is_answered: bool,
}

impl Present {
    fn new(figures: &Arc<Figures>) -> Self {
        figures.present.fetch_add(1, Ordering::Relaxed);
        Self { figures: figures.clone(), is_answered: false }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let ended = if self.is_answered { &self.figures.answered } else { &self.figures.given_up };
        ended.fetch_add(1, Ordering::Relaxed);
        self.figures.present.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tonic::async_trait]
impl Smoother for Worker {
    /// tonic drops this future when the caller resets the stream, loses its connection, or when its
    /// `grpc-timeout` is over. With it goes the place in the queue, or the run on the device.
    async fn smooth(&self, request: Request<SmoothRequest>) -> Result<Response<SmoothReply>, Status> {
        let mut present = Present::new(&self.figures);
        let deadline = deadline(request.metadata());
        let SmoothRequest { pixels, rounds } = request.into_inner();
        check(&pixels).map_err(Status::invalid_argument)?;
        let slot = self.pool.acquire().await.map_err(status)?;
        let mut image = slot.image.write().await;
        image.iter_mut().zip(&pixels).for_each(|(to, from)| *to = (*from).into());
        drop(image);
        slot.rounds.write().await[0] = rounds;
        let submission = slot.submit_with(|submit| match deadline {
            Some(at) => submit.deadline(at),
            None => submit,
        });
        submission.cancel_on_drop().await.map_err(status)?;
        let pixels = to_bytes(&slot.smoothed.read().await);
        present.is_answered = true;
        Ok(Response::new(SmoothReply { pixels, worker: std::process::id() }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Ok(Response::new(StatusReply {
            answered: self.figures.answered.load(Ordering::Relaxed),
            given_up: self.figures.given_up.load(Ordering::Relaxed),
            present: self.figures.present.load(Ordering::Relaxed),
            in_flight: self.device.in_flight().len() as u64,
            worker: std::process::id(),
        }))
    }
}

/// Whether a caller should try again, here or elsewhere, is in the code.
fn status(error: wakegraph::Error) -> Status {
    let message = error.to_string();
    match error.kind() {
        ErrorKind::Overloaded => Status::resource_exhausted(message),
        ErrorKind::DeadlineExceeded => Status::deadline_exceeded(message),
        ErrorKind::DeviceLost | ErrorKind::Unavailable => Status::unavailable(message),
        _ => Status::internal(message),
    }
}

/// Serves until `stop` resolves: then reports that it does not serve, and ends when the requests are
/// over that it has.
///
/// # Errors
/// When the slots cannot be made, and those of the listener.
pub async fn serve(
    device: Device,
    slots: usize,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), BoxError> {
    let pool = pool(&device, slots);
    pool.warm_up().await?;
    let (reporter, health) = tonic_health::server::health_reporter();
    let known = device.health().borrow().clone();
    report_health(&known, &reporter).await;
    let reporting = tokio::spawn(keep_reporting(device.clone(), reporter.clone()));
    let figures = Arc::<Figures>::default();
    let worker = Worker { pool, device: device.clone(), figures: figures.clone() };
    let server = Server::builder().add_service(health).add_service(SmootherServer::new(worker));
    // Not shut down by tonic, which would wait for those who watch the health.
    let serving = server.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)));
    let stopped = async {
        stop.await;
        reporting.abort();
        report(&reporter, ServingStatus::NotServing).await;
        let finish = async {
            loop {
                // Balancers that have not noticed yet send some more.
                tokio::time::sleep(NOTICE).await;
                if figures.present.load(Ordering::Relaxed) == 0 {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(PATIENCE, finish).await;
    };
    tokio::select! {
        result = serving => Ok(result?),
        () = stopped => Ok(()),
    }
}

/// Reports to health clients what is known of the device, now and whenever it changes.
async fn keep_reporting(device: Device, reporter: HealthReporter) {
    let mut health = device.health();
    loop {
        let known = health.borrow_and_update().clone();
        report_health(&known, &reporter).await;
        if health.changed().await.is_err() {
            return;
        }
    }
}

async fn report_health(health: &Health, reporter: &HealthReporter) {
    let status = if health.is_healthy() { ServingStatus::Serving } else { ServingStatus::NotServing };
    report(reporter, status).await;
}

async fn report(reporter: &HealthReporter, status: ServingStatus) {
    // The empty name stands for the whole server.
    for name in ["", SERVICE] {
        reporter.set_service_status(name, status).await;
    }
}
