//! The server: one contender behind axum.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::sync::mpsc;
use wakegraph::Device;
use wakegraph::service::{Batcher, ExecutablePool};

use crate::by_hand::ByHand;
use crate::http::{self, Stub};
use crate::shape::{Answer, Shape, first_word};
use crate::{batcher, blocking, ours, pool, thread};

/// A contender and what it is named on the command line.
pub(crate) const CONTENDERS: [&str; 4] = ["pool", "batcher", "thread", "blocking"];

/// The contenders that use wakegraph; the others contain no line of it.
pub(crate) const OURS: [&str; 2] = ["pool", "batcher"];

enum Contender {
    Pool(ExecutablePool<ours::Memory>),
    Batcher(Batcher<Bytes, Answer>),
    Thread(mpsc::Sender<thread::Request>),
    Blocking(blocking::Blocking),
}

struct Service {
    contender: Contender,
    shape: Shape,
    stub: Arc<Stub>,
}

/// Serves until standard input ends. The first line of standard output has the address and the device.
pub(crate) async fn serve(name: &str, shape: Shape, (selector, device): (&str, &str), stub: SocketAddr) {
    let stub = Arc::new(Stub::new(stub));
    let (contender, device) = match name {
        "pool" | "batcher" => {
            let device = Device::open(selector).expect("a device");
            let contender = match name {
                "pool" => pool::start(&device, shape, &stub).await.map(Contender::Pool),
                _ => batcher::start(&device, shape).await.map(Contender::Batcher),
            };
            (contender.expect("slots"), device.info().name.clone())
        }
        _ => {
            let device = ByHand::open(selector, device);
            let contender = match name {
                "thread" => Contender::Thread(thread::start(&device, shape)),
                _ => Contender::Blocking(blocking::start(&device, shape)),
            };
            (contender, device.name())
        }
    };
    let service = Arc::new(Service { contender, shape, stub });
    let address = http::serve(Router::new().route("/", post(handle)).with_state(service)).await;
    println!("{address} {device}");
    std::io::stdout().flush().expect("an open pipe");
    let end = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tokio::task::spawn_blocking(end).await.expect("no panic").expect("an open pipe");
}

async fn handle(State(service): State<Arc<Service>>, body: Bytes) -> Answer {
    if body.len() != service.shape.bytes() {
        return Err(StatusCode::BAD_REQUEST);
    }
    let answer = service.contender.call(body).await?;
    // The pool's graph has made the call itself.
    if !service.shape.calls || matches!(service.contender, Contender::Pool(_)) {
        return Ok(answer);
    }
    let word = service.stub.ask(first_word(&answer)).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let mut half = answer.to_vec();
    half[..4].copy_from_slice(&word.to_ne_bytes());
    service.contender.call(half.into()).await
}

impl Contender {
    async fn call(&self, body: Bytes) -> Answer {
        match self {
            Self::Pool(pool) => pool::call(pool, body).await,
            Self::Batcher(batcher) => batcher.call(body).await.map_err(ours::status)?,
            Self::Thread(thread) => thread::call(thread, body).await,
            Self::Blocking(blocking) => blocking::call(blocking, body).await,
        }
    }
}
