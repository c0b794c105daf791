//! A kernel that spins: the service answers throughout, and the watchdog's error names the kernel.

use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use http_body_util::Empty;
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use wakegraph::{Device, Graph, Range, Result};

use crate::kernels::mix;
use crate::{Bytes, Check};

pub(crate) async fn rows(check: &mut Check, device: &Device, time: Duration) -> Result<()> {
    let (x, y) = (device.buffer::<u32>(1)?, device.buffer::<u32>(1)?);
    let spinning = |rounds| {
        let mut graph = Graph::new(device);
        graph.launch(mix(rounds, &x, &y), Range::linear(1)).name("spins");
        graph.finalize()
    };
    let sample = spinning(1 << 24)?;
    sample.submit().await?;
    let start = Instant::now();
    sample.submit().await?;
    let rounds = f64::from(1 << 24) * time.as_secs_f64() / start.elapsed().as_secs_f64();
    let spinning = spinning(rounds as u32)?;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/livez", get(async || "alive"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);

    let (start, run) = (Instant::now(), spinning.submit());
    let watched = tokio::spawn(spinning.prepare().watchdog(time / 2).submit());
    let mut latencies = Vec::new();
    while !run.is_finished() {
        let asked = Instant::now();
        let request = Request::get("/livez").header("host", "localhost").body(Empty::<Bytes>::new()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), StatusCode::OK);
        latencies.push(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    run.await?;
    let spun = start.elapsed();
    let error = watched.await.unwrap().expect_err("the watchdog is over before the kernel");
    println!("{error}");
    latencies.sort_unstable();
    let [p99, longest] = [latencies.len() * 99 / 100, latencies.len() - 1].map(|at| latencies[at]);
    println!(
        "BENCH spinning_kernel seconds={:.1} livez_requests={} p99_us={} longest_us={}",
        spun.as_secs_f64(),
        latencies.len(),
        p99.as_micros(),
        longest.as_micros()
    );
    check.ratio("spinning_kernel_livez_ms", longest.as_secs_f64() * 1e3, false, 5.0);
    check.ratio("spinning_kernel_is_named", f64::from(error.to_string().contains("spins")), true, 1.0);
    Ok(())
}
