//! Partitions in tokio-console: one graph that runs again and again, and one that is stuck.
//!
//! ```sh
//! RUSTFLAGS="--cfg tokio_unstable" cargo run -p wakegraph-observability --example console \
//!     --features tokio-console
//! tokio-console   # in another terminal; `r` shows the resources
//! ```
#![cfg_attr(
    all(tokio_unstable, feature = "tokio-console"),
    expect(unsafe_code, reason = "declares device code")
)]

#[cfg(not(all(tokio_unstable, feature = "tokio-console")))]
fn main() {
    println!("tokio-console needs a build with its cfg:");
    println!(
        "RUSTFLAGS=\"--cfg tokio_unstable\" cargo run -p wakegraph-observability --example console --features tokio-console"
    );
}

#[cfg(all(tokio_unstable, feature = "tokio-console"))]
#[tokio::main]
async fn main() -> wakegraph::Result<()> {
    use std::time::Duration;

    use tokio::time::sleep;
    use wakegraph::{Device, Graph, Range, read};

    wakegraph::kernel! {
        fn sharpen(x: &mut [f32]) {
            each: |_, x| *x *= 1.5,
            // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
            c: unsafe { "KERNEL(sharpen, (SLICE(float, x))) { x[GLOBAL_ID(0)] *= 1.5f; }" },
        }
    }

    console_subscriber::init();
    let selector = std::env::args().nth(1).unwrap_or("host:0".into());
    let device = Device::open(&selector)?;

    // What the upstream takes to answer.
    let pipeline = |name: &str, answer: Duration| -> wakegraph::Result<_> {
        let x = device.buffer::<f32>(1 << 16)?;
        let out = device.host_buffer::<f32>(1 << 16)?;
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1.0);
        graph.copy(&x, &out);
        let ask = graph.host_task((read(&out),), async move |_| sleep(answer).await);
        let ask = ask.name(name).id();
        graph.launch(sharpen(&x), Range::linear(1 << 16)).after([ask]);
        graph.finalize()
    };
    let healthy = pipeline("ask a healthy upstream", Duration::from_millis(200))?;
    let stuck = pipeline("ask an upstream that hangs", Duration::from_secs(3600))?;

    let request = async move { stuck.submit().await };
    let _stuck = tokio::task::Builder::new().name("stuck request").spawn(request);
    loop {
        healthy.submit().await?;
        sleep(Duration::from_millis(800)).await;
    }
}
