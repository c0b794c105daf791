//! What a worker runs: an image is smoothed so many times, in a loop on the device.
#![expect(unsafe_code, reason = "declares device code")]

use wakegraph::service::ExecutablePool;
use wakegraph::{Device, Graph, HostBuffer, Range, Result};

/// The sides of the images.
pub const WIDTH: usize = 64;
pub const HEIGHT: usize = 64;

const SOURCE: &str = include_str!("kernels.c");

wakegraph::kernel! {
    /// Each pixel becomes the mean of its neighbours. Those at the sides have themselves beside them.
    fn smooth(width: u32, from: &[u32], to: &mut [u32]) {
        range: |width, from, to| match width as usize {
            width if width > 0 && from.len() == to.len() => [width, from.len() / width],
            _ => [0, 0],
        },
        each: |[x, y], width, from, to| *to = mean(width as usize, x, y, from),
        // SAFETY: a work-item writes its pixel, and compares the places of the others with the sides
        // and with the length, which both slices have. The bound keeps it on whole rows.
        c: unsafe { SOURCE },
    }
    fn count_down(left: &mut [u32]) {
        each: |_, left| *left -= 1,
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { SOURCE },
    }
}

fn mean(width: usize, x: usize, y: usize, from: &[u32]) -> u32 {
    let i = y * width + x;
    let left = if x > 0 { from[i - 1] } else { from[i] };
    let right = if x + 1 < width { from[i + 1] } else { from[i] };
    let above = if y > 0 { from[i - width] } else { from[i] };
    let below = from.get(i + width).copied().unwrap_or(from[i]);
    (left + right + above + below) / 4
}

/// What each slot of the pool has of its own.
#[derive(Debug)]
pub struct Buffers {
    pub image: HostBuffer<u32>,
    pub rounds: HostBuffer<u32>,
    pub smoothed: HostBuffer<u32>,
}

/// A pool of `slots` slots on a device.
pub fn pool(device: &Device, slots: usize) -> ExecutablePool<Buffers> {
    const PIXELS: usize = WIDTH * HEIGHT;
    ExecutablePool::builder().device(device, slots).queue(64).build(|slot| {
        let device = slot.device()?;
        let buffers = Buffers {
            image: device.host_buffer(PIXELS)?,
            rounds: device.host_buffer(1)?,
            smoothed: device.host_buffer(PIXELS)?,
        };
        let mut graph = Graph::new(&device);
        let [before, after] = [device.buffer(PIXELS)?, device.buffer(PIXELS)?];
        let left = device.buffer(1)?;
        let mut round = Graph::new(&device);
        round.launch(smooth(WIDTH as u32, &before, &after), Range::new([WIDTH, HEIGHT]));
        round.copy(&after, &before);
        round.launch(count_down(&left), Range::linear(1));
        graph.copy(&buffers.image, &before);
        graph.copy(&buffers.rounds, &left);
        graph.while_nonzero(&left, &round); // a cancelled run stops before the next round
        graph.copy(&before, &buffers.smoothed);
        Ok((graph.finalize()?, buffers))
    })
}

/// What an image should become, for tests.
pub fn expected(pixels: &[u8], rounds: u32) -> Vec<u8> {
    let mut image: Vec<u32> = pixels.iter().map(|&pixel| pixel.into()).collect();
    for _ in 0..rounds {
        image = (0..image.len()).map(|i| mean(WIDTH, i % WIDTH, i / WIDTH, &image)).collect();
    }
    to_bytes(&image)
}

/// The pixels of a result.
pub fn to_bytes(image: &[u32]) -> Vec<u8> {
    image.iter().map(|&pixel| pixel as u8).collect()
}

/// Checks the size of an image.
///
/// # Errors
/// A message for the caller.
pub fn check(pixels: &[u8]) -> Result<(), String> {
    match pixels.len() {
        len if len == WIDTH * HEIGHT => Ok(()),
        len => Err(format!("an image has {WIDTH} x {HEIGHT} pixels, and not {len}")),
    }
}
