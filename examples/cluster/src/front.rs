//! The service that callers see: it passes requests on to workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::time::timeout_at;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};
use tower::ServiceExt;

use crate::BoxError;
use crate::balance::{Call, Workers};
use crate::deadline::{deadline, time_left};
use crate::protocol::smoother_server::{Smoother, SmootherServer};
use crate::protocol::{SmoothReply, SmoothRequest, StatusReply, StatusRequest};

/// The deadline of requests that have none.
const LONGEST: Duration = Duration::from_secs(60);

/// The gRPC service of a front.
#[derive(Debug)]
pub struct Front {
    workers: Workers,
}

#[tonic::async_trait]
impl Smoother for Front {
    async fn smooth(&self, request: Request<SmoothRequest>) -> Result<Response<SmoothReply>, Status> {
        let deadline = deadline(request.metadata()).unwrap_or_else(|| Instant::now() + LONGEST);
        let call = Call { request: Arc::new(request.into_inner()), deadline: Some(deadline) };
        let reply = timeout_at(deadline.into(), self.workers.clone().oneshot(call)).await;
        let too_late = || Status::deadline_exceeded("no worker has answered in time");
        match reply.map_err(|_| too_late())? {
            Ok(reply) => Ok(Response::new(reply)),
            Err(error) => Err(match error.downcast::<Status>() {
                // So tonic tells of a timeout of its own.
                Ok(status) if status.code() == Code::Cancelled && time_left(deadline).is_zero() => too_late(),
                Ok(status) => Status::new(status.code(), status.message()),
                Err(error) => Status::unavailable(error.to_string()),
            }),
        }
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Err(Status::unimplemented("ask a worker"))
    }
}

/// Passes requests on to workers.
///
/// # Errors
/// Those of the listener.
pub async fn serve(workers: Workers, listener: TcpListener) -> Result<(), BoxError> {
    let server = Server::builder().add_service(SmootherServer::new(Front { workers }));
    Ok(server.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await?)
}
