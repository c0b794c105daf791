//! One graph over several devices: each computes a part, and a host task joins the results.
//!
//! `cargo run --example several_devices [-- host:0 host:1 cuda:0]`
#![expect(unsafe_code, reason = "declares device code")]

use std::sync::Mutex;

use wakegraph::{Device, Graph, Range, Result, read};

wakegraph::kernel! {
    /// x[i] = first + i, squared
    fn squares(first: u32, x: &mut [u32]) {
        each: |i, first, x| *x = (first + i as u32) * (first + i as u32),
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { "KERNEL(squares, (u32 first, SLICE(u32, x))) {
                         u32 n = first + (u32)GLOBAL_ID(0);
                         x[GLOBAL_ID(0)] = n * n;
                     }" },
    }
}

const PART: usize = 1000;

#[tokio::main]
async fn main() -> Result<()> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let selectors = if named.is_empty() { vec!["host:0".into(), "host:1".into()] } else { named };
    let devices: Vec<Device> = selectors.iter().map(|name| Device::open(name)).collect::<Result<_>>()?;

    // A node runs on the device of its buffers. Nodes of different devices run at the same time.
    static SUM: Mutex<u64> = Mutex::new(0);
    let mut graph = Graph::new(&devices[0]);
    for (index, device) in devices.iter().enumerate() {
        let (x, part) = (device.buffer::<u32>(PART)?, device.host_buffer::<u32>(PART)?);
        graph.launch(squares((index * PART) as u32, &x), Range::linear(PART));
        graph.copy(&x, &part);
        graph.host_task((read(&part),), async |(part,)| {
            *SUM.lock().expect("no task panics") += part.iter().map(|&n| u64::from(n)).sum::<u64>();
        });
    }
    graph
        .host_task((), async |()| println!("sum of squares: {}", SUM.lock().expect("no task panics")))
        .after_leaves();

    let exec = graph.finalize()?;
    println!("{devices:?}\n{}", exec.plan_text());
    exec.submit().await?;
    println!("\n{}", exec.explain());
    let count = (devices.len() * PART) as u64;
    assert_eq!(*SUM.lock().expect("no task panics"), (count - 1) * count * (2 * count - 1) / 6);
    Ok(())
}
