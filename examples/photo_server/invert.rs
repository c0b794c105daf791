//! A service in thirty lines: a pool of executables behind axum. Two requests run at a time, others wait in a
//! bounded queue, and when that is full they get an answer at once.
//!
//! `cargo run --release -p photo_server --example invert`, then
//! `curl --data-binary @file 127.0.0.1:8080 | xxd`

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use wakegraph::service::ExecutablePool;
use wakegraph::{BoxError, Graph, HostBuffer, Range, Result};

wakegraph::kernel! {
    fn invert(x: &mut [u8]) { each: |_, x| *x = 255 - *x }
}

const PIXELS: usize = 2 << 20; // axum accepts no more

type Pool = ExecutablePool<HostBuffer<u8>>;

async fn handle(State(pool): State<Pool>, body: Bytes) -> Result<Vec<u8>, StatusCode> {
    let pixels = pool.acquire().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    pixels.write().await[..body.len()].copy_from_slice(&body);
    pixels.submit().await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(pixels.read().await[..body.len()].to_vec())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let pool = ExecutablePool::new(2, |slot| {
        let device = slot.device()?;
        let (pixels, x) = (device.host_buffer(PIXELS)?, device.buffer(PIXELS)?);
        let mut graph = Graph::new(&device);
        graph.copy(&pixels, &x);
        graph.launch(invert(&x), Range::linear(PIXELS));
        graph.copy(&x, &pixels);
        Ok((graph.finalize()?, pixels))
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, Router::new().route("/", post(handle)).with_state(pool)).await?;
    Ok(())
}
