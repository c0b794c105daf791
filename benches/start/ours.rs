//! A process of ours: from `main` to the first awaited result.

use std::path::Path;
use std::time::Instant;

use wakegraph::kernel::{KernelCache, RawKernel};
use wakegraph::{Device, Graph, HostBuffer, HostMut, HostRef, Range, Result, read, write};

use crate::Started;
use crate::photo::{blur_columns, blur_rows, grayscale, histogram, sobel, threshold};
use crate::work::{ELEMENTS, KERNELS, PIXELS, TAPS, WIDTH, Work, body, checksum, frame, kernel_name, level};

/// Runs the graph once. Compiled kernels are kept in `folder`, if there is one.
pub(crate) async fn run(start: Instant, work: Work, device: &str, folder: Option<&Path>) -> Result<Started> {
    folder.map_or(Ok(()), |folder| KernelCache::at(folder).enable())?;
    let device = Device::open(device)?;
    let opened = start.elapsed();
    let (total, checksum) = match work {
        Work::Photo => photo(start, &device).await?,
        Work::Chain => chain(start, &device).await?,
    };
    Ok(Started { total, opened, checksum })
}

type Outcome = Result<(std::time::Duration, u64)>;

async fn photo(start: Instant, device: &Device) -> Outcome {
    let pixels = Range::new([WIDTH, WIDTH]);
    let in_one_row = Range::linear(PIXELS);
    let frame = device.host_buffer_from(&frame())?;
    let [gray, smeared, blurred, gradient, edges] = [(); 5].map(|()| device.buffer::<u8>(PIXELS));
    let (gray, smeared, blurred, gradient, edges) = (gray?, smeared?, blurred?, gradient?, edges?);
    let (rgb, taps) = (device.buffer::<u8>(3 * PIXELS)?, device.buffer_from(&TAPS)?);
    let (bins, counts) = (device.buffer::<u32>(256)?, device.host_buffer::<u32>(256)?);
    let (chosen, on_device) = (device.host_buffer::<u8>(1)?, device.buffer::<u8>(1)?);
    let picture: HostBuffer<u8> = device.host_buffer(PIXELS)?;

    let mut graph = Graph::new(device);
    graph.copy(&frame, &rgb);
    graph.launch(grayscale(&rgb, &gray), in_one_row);
    graph.launch(blur_rows(&taps, &gray, &smeared), pixels);
    graph.launch(blur_columns(&taps, &smeared, &blurred), pixels);
    graph.launch(sobel(&blurred, &gradient), pixels);
    graph.fill(&bins, 0);
    graph.launch(histogram(&gradient, &bins), pixels);
    graph.copy(&bins, &counts);
    let choose = async |(counts, mut chosen): (HostRef<u32>, HostMut<u8>)| chosen[0] = level(&counts);
    graph.host_task((read(&counts), write(&chosen)), choose);
    graph.copy(&chosen, &on_device);
    graph.launch(threshold(&on_device, &gradient, &edges), in_one_row);
    graph.copy(&edges, &picture);
    graph.finalize_async().await?.submit().await?;
    let total = start.elapsed();
    Ok((total, checksum(&picture.read().await)))
}

async fn chain(start: Instant, device: &Device) -> Outcome {
    let x = device.buffer::<u32>(ELEMENTS)?;
    let out = device.host_buffer::<u32>(ELEMENTS)?;
    let mut graph = Graph::new(device);
    for number in 0..KERNELS {
        let (name, body) = (kernel_name(number), body(number));
        let source = format!(
            "KERNEL({name}, (SLICE(u32, x))) {{ u32 w = x[GLOBAL_ID(0)]; {body} x[GLOBAL_ID(0)] = w; }}"
        );
        // SAFETY: a work-item uses the element with its index, which the slice bounds.
        let kernel = unsafe { RawKernel::new(name).writes::<u32>("x").with_c(source) };
        let kernel = kernel.host(move |range, args| {
            for w in &mut args.write::<u32>()?[range.indices()] {
                for _ in 0..number % 7 + 1 {
                    *w = (*w ^ (*w >> 15)).wrapping_mul(0x2c1b_3c6d).rotate_left(7);
                }
                *w = w.wrapping_add(number as u32);
            }
            Ok(())
        });
        graph.launch(kernel.call().memory::<u32>(&x), Range::linear(ELEMENTS));
    }
    graph.copy(&x, &out);
    graph.finalize_async().await?.submit().await?;
    let total = start.elapsed();
    Ok((total, checksum(bytemuck::cast_slice(&out.read().await))))
}
