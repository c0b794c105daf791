//! The pipeline as a graph.

use std::sync::Arc;

use wakegraph::{Buffer, Device, Graph, HostBuffer, Range, Result, read, write};

use crate::files::{Sink, Source};
use crate::kernels::{blur_columns, blur_rows, gaussian, grayscale, histogram, sobel, threshold};
use crate::otsu::choose_level;

/// Standard deviation of the blur, in pixels: enough to keep grain from appearing as edges.
pub(crate) const SIGMA: f32 = 1.0;

/// The graph, and where its data is.
pub(crate) struct Pipeline {
    pub(crate) graph: Graph,
    pub(crate) buffers: Buffers,
}

/// What the stages read and write. Images are rows of bytes, one a pixel; `frame` and `rgb` have three.
pub(crate) struct Buffers {
    pub(crate) frame: HostBuffer<u8>,
    pub(crate) rgb: Buffer<u8>,
    pub(crate) gray: Buffer<u8>,
    /// The blur's weights.
    pub(crate) taps: Buffer<f32>,
    /// Blurred along the rows only.
    pub(crate) smeared: Buffer<u8>,
    pub(crate) blurred: Buffer<u8>,
    pub(crate) gradient: Buffer<u8>,
    /// The gradient's histogram, on the device and on the host.
    pub(crate) bins: Buffer<u32>,
    pub(crate) counts: HostBuffer<u32>,
    /// The threshold, on the host and on the device.
    pub(crate) chosen: HostBuffer<u8>,
    pub(crate) level: Buffer<u8>,
    /// White on black, on the device and on the host.
    pub(crate) edges: Buffer<u8>,
    pub(crate) picture: HostBuffer<u8>,
}

impl Pipeline {
    /// The graph's edges follow from what its commands read and write, so building it is listing the stages.
    pub(crate) fn new(device: &Device, source: Source, sink: Sink) -> Result<Self> {
        let (width, height) = source.size();
        let pixels = Range::new([width as usize, height as usize]);
        let in_one_row = Range::linear(pixels.count());
        let (source, sink) = (Arc::new(source), Arc::new(sink));

        let buffers = Buffers::new(device, pixels.count())?;
        let Buffers { frame, rgb, gray, taps, smeared, blurred, gradient, .. } = &buffers;
        let Buffers { bins, counts, chosen, level, edges, picture, .. } = &buffers;
        let mut graph = Graph::new(device);

        graph.host_task((write(frame),), async move |(rgb,)| source.next(rgb).await).name("read frame");
        graph.copy(frame, rgb).name("upload frame");
        graph.launch(grayscale(rgb, gray), in_one_row);
        graph.launch(blur_rows(taps, gray, smeared), pixels);
        graph.launch(blur_columns(taps, smeared, blurred), pixels);
        graph.launch(sobel(blurred, gradient), pixels);

        graph.fill(bins, 0).name("clear bins");
        graph.launch(histogram(gradient, bins), pixels);
        graph.copy(bins, counts).name("download bins");
        graph.host_task((read(counts), write(chosen)), choose_level).name("choose level");
        graph.copy(chosen, level).name("upload level");

        graph.launch(threshold(level, gradient, edges), in_one_row);
        graph.copy(edges, picture).name("download edges");
        graph.host_task((read(picture),), async move |(edges,)| sink.write(edges).await).name("write edges");

        Ok(Self { graph, buffers })
    }
}

impl Buffers {
    fn new(device: &Device, pixels: usize) -> Result<Self> {
        Ok(Self {
            frame: device.host_buffer(3 * pixels)?,
            rgb: device.buffer(3 * pixels)?,
            gray: device.buffer(pixels)?,
            taps: device.buffer_from(&gaussian(SIGMA))?,
            smeared: device.buffer(pixels)?,
            blurred: device.buffer(pixels)?,
            gradient: device.buffer(pixels)?,
            bins: device.buffer(256)?,
            counts: device.host_buffer(256)?,
            chosen: device.host_buffer(1)?,
            level: device.buffer(1)?,
            edges: device.buffer(pixels)?,
            picture: device.host_buffer(pixels)?,
        })
    }
}
