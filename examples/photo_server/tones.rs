//! The other service: it gets the histogram of a photo and answers with a tone curve for each
//! colour. Here it runs in the same process; it stands for any service that a graph has to ask on
//! its way.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;
use wakegraph::{BoxError, HostMut, HostRef};

/// How long the service may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A client of the service.
#[derive(Clone)]
pub(crate) struct Tones {
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Tones {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// Sends the histogram, and writes the answer to `curves`.
    pub(crate) async fn ask(&self, counts: HostRef<u32>, mut curves: HostMut<u8>) -> Result<(), BoxError> {
        let body: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        let request = Request::post(format!("http://{}/tones", self.address)).body(Full::from(body))?;
        let answer = timeout(PATIENCE, self.client.request(request)).await??;
        if answer.status() != StatusCode::OK {
            return Err(format!("the tone service answered {}", answer.status()).into());
        }
        let answer = timeout(PATIENCE, answer.into_body().collect()).await??.to_bytes();
        if answer.len() != curves.len() {
            return Err(format!("the tone service sent {} bytes", answer.len()).into());
        }
        curves.copy_from_slice(&answer);
        Ok(())
    }
}

/// The routes of the service.
pub(crate) fn router() -> Router {
    Router::new().route("/tones", post(handle))
}

async fn handle(body: Bytes) -> Result<Vec<u8>, StatusCode> {
    let (counts, []) = body.as_chunks::<4>() else { return Err(StatusCode::BAD_REQUEST) };
    let counts: Vec<u32> = counts.iter().map(|&count| u32::from_le_bytes(count)).collect();
    if counts.len() == 256 { Ok(curves(&counts).concat()) } else { Err(StatusCode::BAD_REQUEST) }
}

/// Curves for red, green and blue that spread the tones of a photo, and make bright ones warmer.
fn curves(counts: &[u32]) -> [Vec<u8>; 3] {
    let pixels = counts.iter().map(|&count| u64::from(count)).sum::<u64>().max(1);
    let mut darker = 0;
    let spread = counts.iter().zip(0u64..).map(|(&count, level)| {
        darker += u64::from(count);
        (level + darker * 255 / pixels) / 2 // half-way to as many pixels of each brightness
    });
    let spread: Vec<u64> = spread.collect();
    let warmth = |tone: u64| tone * (255 - tone) / 255 / 3;
    let curve =
        |change: fn(u64, u64) -> u64| spread.iter().map(|&tone| change(tone, warmth(tone)) as u8).collect();
    [curve(|tone, warmth| tone + warmth), curve(|tone, _| tone), curve(|tone, warmth| tone - warmth)]
}
