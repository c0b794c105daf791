//! From one client to many workers.
//!
//! A task for each worker watches its health, over gRPC, and tells the balancer: a worker is there
//! while it reports that it serves. When the connection breaks, or a call on it, the worker is out at
//! once, and the task builds a new channel. So neither does a dead worker count as ready, as it would
//! with the lists of tonic's channels, nor is one that comes back forgotten, as by tower's cache of
//! ready services.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Sleep, sleep};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, TimeoutExpired};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower::balance::p2c::Balance;
use tower::discover::Change;
use tower::load::{CompleteOnResponse, PendingRequestsDiscover};
use tower::retry::Policy;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceBuilder};

use crate::BoxError;
use crate::deadline::time_left;
use crate::protocol::smoother_client::SmootherClient;
use crate::protocol::{SmoothReply, SmoothRequest};
use crate::worker::SERVICE;

/// How long after a failure a worker is tried again.
const RECONNECT: Duration = Duration::from_millis(50);

/// A worker that does not answer for so long is out. A process that is killed is out at once.
const SILENCE: Duration = Duration::from_secs(1);

/// How many calls may wait for a worker.
const QUEUE: usize = 1024;

/// A request, for whichever worker takes it.
#[derive(Clone, Debug)]
pub struct Call {
    pub request: Arc<SmoothRequest>,
    pub deadline: Option<Instant>,
}

/// All workers as one service, which retries what fails with a worker.
pub type Workers = BoxCloneSyncService<Call, SmoothReply, BoxError>;

/// Balances calls among the workers at these addresses, of which any may be down.
pub fn workers(addresses: impl IntoIterator<Item = SocketAddr>) -> Workers {
    let (changes, discovered) = mpsc::unbounded_channel();
    for address in addresses {
        tokio::spawn(keep_watch(address, changes.clone()));
    }
    let discovered = UnboundedReceiverStream::new(discovered).map(Ok::<_, Infallible>);
    // Of two workers chosen at random, the one with fewer requests gets the next.
    let balance = Balance::new(PendingRequestsDiscover::new(discovered, CompleteOnResponse::default()));
    BoxCloneSyncService::new(ServiceBuilder::new().retry(Retries::default()).buffer(QUEUE).service(balance))
}

type Changes = mpsc::UnboundedSender<Change<SocketAddr, WorkerClient>>;

/// Tells the balancer about one worker, as long as there is a balancer.
async fn keep_watch(address: SocketAddr, changes: Changes) {
    while !changes.is_closed() {
        // Whatever has gone wrong, a new channel is the remedy.
        let _ = serve_while_healthy(address, &changes).await;
        sleep(RECONNECT).await;
    }
}

/// Connects, and has the balancer use the connection while the worker serves.
async fn serve_while_healthy(address: SocketAddr, changes: &Changes) -> Result<(), BoxError> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(SILENCE)
        .http2_keep_alive_interval(SILENCE)
        .keep_alive_timeout(SILENCE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    let channel = endpoint.connect().await?;
    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    let mut health = HealthClient::new(channel.clone()).watch(request).await?.into_inner();
    let mut inserted = None;
    loop {
        let broken = async {
            match &mut inserted {
                Some(Inserted { broken, .. }) => drop(broken.wait_for(|is_broken| *is_broken).await),
                None => std::future::pending().await,
            }
        };
        let status = tokio::select! {
            status = health.message() => status?,
            () = broken => return Ok(()),
        };
        let Some(status) = status else { return Ok(()) };
        match status.status() {
            ServingStatus::Serving if inserted.is_none() => {
                let (sender, broken) = watch::channel(false);
                let client = WorkerClient { client: SmootherClient::new(channel.clone()), broken: sender };
                changes.send(Change::Insert(address, client))?;
                inserted = Some(Inserted { address, changes, broken });
            }
            ServingStatus::Serving => {}
            _ => inserted = None,
        }
    }
}

/// A worker that the balancer knows. Dropping this takes it out.
struct Inserted<'a> {
    address: SocketAddr,
    changes: &'a Changes,
    /// Whether a call has found the connection broken.
    broken: watch::Receiver<bool>,
}

impl Drop for Inserted<'_> {
    fn drop(&mut self) {
        let _ = self.changes.send(Change::Remove(self.address));
    }
}

/// One worker, over one connection.
#[derive(Clone, Debug)]
pub struct WorkerClient {
    client: SmootherClient<Channel>,
    broken: watch::Sender<bool>,
}

impl Service<Call> for WorkerClient {
    type Response = SmoothReply;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<SmoothReply, Status>> + Send>>;

    /// Fails for good when a call has failed with the connection, which takes the worker out.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(match *self.broken.borrow() {
            true => Err(Status::unavailable("the connection to the worker is broken")),
            false => Ok(()),
        })
    }

    /// Dropping the future resets the stream, so that the worker cancels the run.
    fn call(&mut self, call: Call) -> Self::Future {
        let Self { mut client, broken } = self.clone();
        async move {
            let mut request = Request::new(SmoothRequest::clone(&call.request));
            if let Some(deadline) = call.deadline {
                request.set_timeout(time_left(deadline));
            }
            let result = client.smooth(request).await.map(tonic::Response::into_inner);
            if result.as_ref().is_err_and(is_local) {
                broken.send_replace(true);
            }
            result
        }
        .boxed()
    }
}

/// Whether the connection has failed, not the worker answered with an error. A call that the connection did
/// not take before it broke is cancelled, like one whose time is up, which is not the connection's fault.
fn is_local(status: &Status) -> bool {
    let Some(source) = std::error::Error::source(status) else { return false };
    let mut sources = std::iter::successors(Some(source), |error| error.source());
    status.code() != Code::DeadlineExceeded && !sources.any(|error| error.is::<TimeoutExpired>())
}

/// Tries a call again with another worker. The calls are idempotent.
#[derive(Clone, Debug)]
struct Retries {
    left: u32,
    wait: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { left: 10, wait: Duration::from_millis(5) }
    }
}

impl Policy<Call, SmoothReply, BoxError> for Retries {
    type Future = Sleep;

    fn retry(&mut self, call: &mut Call, result: &mut Result<SmoothReply, BoxError>) -> Option<Sleep> {
        let status = result.as_ref().err()?.downcast_ref::<Status>()?;
        let may_succeed = is_local(status) || status.code() == Code::Unavailable;
        let is_in_time = call.deadline.is_none_or(|deadline| time_left(deadline) > self.wait);
        if !may_succeed || !is_in_time || self.left == 0 {
            return None;
        }
        let wait = self.wait;
        *self = Self { left: self.left - 1, wait: 2 * wait };
        Some(sleep(wait))
    }

    fn clone_request(&mut self, call: &Call) -> Option<Call> {
        Some(call.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_retried(source: Option<BoxError>) -> bool {
        let mut status = Status::cancelled("");
        if let Some(source) = source {
            status.set_source(source.into());
        }
        let mut call = Call { request: Arc::default(), deadline: None };
        let mut result = Err(BoxError::from(status));
        Retries::default().retry(&mut call, &mut result).is_some()
    }

    #[tokio::test]
    async fn what_a_broken_connection_cancels_is_retried() {
        assert!(is_retried(Some("the connection closed before the request was sent".into())));
    }

    #[tokio::test]
    async fn what_the_worker_or_a_timeout_cancels_is_not_retried() {
        assert!(!is_retried(None));
        assert!(!is_retried(Some(TimeoutExpired(()).into())));
    }
}
