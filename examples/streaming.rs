//! Streaming: two frames in flight through one executable, each in host buffers of its own. An update
//! between two submissions points the executable at the next frame's buffers.
//!
//! `cargo run --release --example streaming [-- host:0]`
//!
//! While the device works on a frame, the host fetches the result of the frame before and prepares the
//! next. Nothing waits for an update: it takes its place behind the submissions already made.
#![expect(unsafe_code, reason = "declares device code")]

use wakegraph::update::Applied;
use wakegraph::{BoxError, Device, FinalizeOptions, Graph, HostBuffer, Range, Submission};

wakegraph::kernel! {
    /// y = gain * x + offset
    fn adjust(gain: f32, offset: f32, x: &[f32], y: &mut [f32]) {
        each: |i, gain, offset, x, y| *y = gain * x[i] + offset,
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { "KERNEL(adjust, (float gain, float offset, SLICE(const float, x), SLICE(float, y))) {
                         y[GLOBAL_ID(0)] = gain * x[GLOBAL_ID(0)] + offset;
                     }" },
    }
}

const LEN: usize = 1 << 16;
const FRAMES: u32 = 20;

/// The host's buffers for every other frame.
struct Slot {
    input: HostBuffer<f32>,
    output: HostBuffer<f32>,
    /// The frame that they are in use for.
    frame: Option<Frame>,
}

struct Frame {
    number: u32,
    update: Applied,
    submission: Submission,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let device = match std::env::args().nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let slot = || Ok(Slot { input: device.host_buffer(LEN)?, output: device.host_buffer(LEN)?, frame: None });
    let mut slots = [slot(), slot()].into_iter().collect::<wakegraph::Result<Vec<_>>>()?;
    let (x, y) = (device.buffer::<f32>(LEN)?, device.buffer::<f32>(LEN)?);

    let mut graph = Graph::new(&device);
    let gain = graph.param(1.0f32);
    let upload = graph.copy(&slots[0].input, &x).id();
    graph.launch(adjust(1.0, 0.5, &x, &y), Range::linear(LEN)).param("gain", &gain);
    let download = graph.copy(&y, &slots[0].output).id();
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true))?;

    let (mut checked, mut most_in_flight) = (0, 0);
    for number in 0..FRAMES {
        let slot = &mut slots[number as usize % 2];
        // The slot is free when its last frame, two before this one, is over.
        checked += slot.finish().await?;
        slot.input.write().await.fill(pixel(number));

        let (Slot { input, output, .. }, factor) = (&*slot, amplification(number));
        let update = exec.update().copy(upload, input, &x).copy(download, &y, output).param(&gain, factor);
        let frame = Frame { number, update: update.apply(), submission: exec.submit() };
        slot.frame = Some(frame);
        most_in_flight = most_in_flight.max(slots.iter().filter(|slot| slot.frame.is_some()).count());
    }
    for slot in &mut slots {
        checked += slot.finish().await?;
    }
    println!("{device:?}: {checked} frames are as they should be, {most_in_flight} at a time in flight");
    if (checked, most_in_flight) != (FRAMES, 2) {
        return Err("frames are missing".into());
    }
    Ok(())
}

impl Slot {
    /// Waits for the slot's frame and checks its result. Returns how many frames that were.
    async fn finish(&mut self) -> Result<u32, BoxError> {
        let Some(Frame { number, update, submission }) = self.frame.take() else { return Ok(0) };
        update.await?;
        submission.await?;
        let expected = amplification(number) * pixel(number) + 0.5;
        match self.output.read().await.iter().find(|&&pixel| pixel != expected) {
            None => Ok(1),
            Some(pixel) => Err(format!("a pixel of frame {number} is {pixel}, not {expected}").into()),
        }
    }
}

fn pixel(frame: u32) -> f32 {
    frame as f32
}

fn amplification(frame: u32) -> f32 {
    (1 + frame % 7) as f32
}
