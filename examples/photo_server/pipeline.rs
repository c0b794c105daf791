//! The graph that develops a photo: this is the file to read first.

use std::io::Cursor;
use std::mem::take;
use std::sync::Arc;

use axum::body::Bytes;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder, ImageReader, ImageResult, imageops};
use parking_lot::Mutex;
use wakegraph::{
    Device, ExecutableGraph, FinalizeOptions, Graph, HostMut, HostRef, Range, Result, read, write,
};

use crate::kernels::{apply, histogram, sharpen};
use crate::tones::Tones;

/// A slot has room for so many pixels. Larger photos are scaled down.
const PIXELS: usize = 1920 * 1080;

/// Where a request leaves its upload and finds its answer, in the form of files. Each slot has one.
#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) upload: Mutex<Bytes>,
    pub(crate) answer: Mutex<Vec<u8>>,
}

/// A slot of the pool. Edges follow from what the commands read and write, so the graph is a list
/// of stages.
pub(crate) fn slot(device: &Device, tones: &Tones) -> Result<(ExecutableGraph, Arc<Desk>)> {
    let (desk, tones) = (Arc::new(Desk::default()), tones.clone());
    let [uploaded, answered] = [desk.clone(), desk.clone()];

    let mut graph = Graph::new(device);
    let photo = device.host_buffer(3 * PIXELS)?;
    let size = device.host_buffer(2)?;
    let counts = device.host_buffer(256)?;
    let curves = device.host_buffer(3 * 256)?;
    let [raw, sharp, toned] =
        [graph.scratch(3 * PIXELS)?, graph.scratch(3 * PIXELS)?, graph.scratch(3 * PIXELS)?];
    let [extent, bins] = [graph.scratch(2)?, graph.scratch(256)?];
    let table = graph.scratch(3 * 256)?;

    let open = move |(photo, size)| decode(take(&mut *uploaded.upload.lock()), photo, size);
    graph.host_task_blocking((write(&photo), write(&size)), open).name("decode");
    graph.copy(&photo, &raw).name("upload photo");
    graph.copy(&size, &extent).name("upload size");
    graph.launch(sharpen(&extent, &raw, &sharp), Range::linear(3 * PIXELS));
    graph.fill(&bins, 0).name("clear bins");
    graph.launch(histogram(&extent, &sharp, &bins), Range::linear(PIXELS));
    graph.copy(&bins, &counts).name("download bins");

    let ask = async move |(counts, curves)| tones.ask(counts, curves).await;
    graph.host_task((read(&counts), write(&curves)), ask).name("ask for tones");
    graph.copy(&curves, &table).name("upload curves");
    graph.launch(apply(&extent, &table, &sharp, &toned), Range::linear(3 * PIXELS));
    graph.copy(&toned, &photo).name("download photo");

    let save = move |(photo, size)| encode(photo, size).map(|png| *answered.answer.lock() = png);
    graph.host_task_blocking((read(&photo), read(&size)), save).name("encode");

    // For the timeline, which is empty on devices without times.
    let has_times = device.capabilities().profiling;
    Ok((graph.finalize_with(FinalizeOptions::new().profiling(has_times))?, desk))
}

/// Reads a PNG or JPEG file.
fn decode(file: Bytes, mut photo: HostMut<u8>, mut size: HostMut<u32>) -> ImageResult<()> {
    let mut picture = ImageReader::new(Cursor::new(file)).with_guessed_format()?.decode()?.into_rgb8();
    let (width, height) = picture.dimensions();
    let scale = (PIXELS as f64 / (f64::from(width) * f64::from(height))).sqrt();
    if scale < 1.0 {
        let [width, height] = [width, height].map(|side| (f64::from(side) * scale).max(1.0) as u32);
        picture = imageops::thumbnail(&picture, width, height);
    }
    photo[..picture.len()].copy_from_slice(&picture);
    size.copy_from_slice(&[3 * picture.width(), picture.height()]);
    Ok(())
}

/// Writes a PNG file.
fn encode(photo: HostRef<u8>, size: HostRef<u32>) -> ImageResult<Vec<u8>> {
    let [width, height] = [size[0] / 3, size[1]];
    let mut png = Vec::new();
    PngEncoder::new_with_quality(&mut png, CompressionType::Fast, FilterType::Sub).write_image(
        &photo[..3 * (width * height) as usize],
        width,
        height,
        ExtendedColorType::Rgb8,
    )?;
    Ok(png)
}
