//! Tensors of candle in, a graph on their memory, a tensor out. No bytes are copied for that, and no thread
//! waits in between.
//!
//! `scripts/candle.sh build DIR` builds it with an nvcc that it fetches; it runs where a CUDA driver, NVRTC,
//! cuBLAS and cuRAND are.
#![expect(unsafe_code, reason = "hands events and streams of candle to a graph")]

use std::error::Error;

use candle_core::{Device as CandleDevice, Tensor};
use wakegraph::Device;
use with_candle::{graph, import};

const ROWS: usize = 64;
const COLUMNS: usize = 1000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // What the application has already. (The stream of `new_cuda` is another one in each thread.)
    let candle = CandleDevice::new_cuda_with_stream(0)?;
    let y = Tensor::zeros((ROWS, COLUMNS), candle_core::DType::F32, &candle)?;
    let x = y.zeros_like()?;

    // A graph on its tensors, built once.
    let device = Device::open("cuda:0")?;
    let exec = graph(&device, &x, &y)?;
    let (_, stream) = import(&device, &x)?;

    for round in 1..=3_u16 {
        let logits = Tensor::randn(0.0_f32, f32::from(round), (ROWS, COLUMNS), &candle)?;
        x.slice_set(&logits, 0, 0)?;
        let written = stream.record_event(None)?;
        // SAFETY: the event is alive.
        let written = unsafe { device.import_event(written.cu_event().cast()) }?;
        let submission = exec.prepare().after_native(&written).submit();
        // SAFETY: the stream is alive.
        unsafe { submission.join(stream.cu_stream().cast()) }?;
        // What candle enqueues from here on comes after the graph.
        let sums = y.sum(1)?;
        let (result, sums) = (y.to_device(&CandleDevice::Cpu)?, sums.to_vec1::<f32>()?);
        submission.await?;

        // The same on the CPU.
        let halves = (logits.to_device(&CandleDevice::Cpu)? * 0.5)?;
        let exp = halves.broadcast_sub(&halves.max_keepdim(1)?)?.exp()?;
        let expected = (exp.broadcast_div(&exp.sum_keepdim(1)?)? * 100.0)?;
        let error = (result - expected)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        assert!(error < 1e-3, "off by {error}");
        assert!(sums.iter().all(|sum| (sum - 100.0).abs() < 1e-2), "{sums:?}");
        println!("round {round}: {ROWS} rows of 100 percent each, at most {error:.1e} off, on {}", device.info().name);
    }
    Ok(())
}
