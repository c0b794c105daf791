//! Local memory: a matrix product in tiles and a sum in work-groups, for CPU and GPUs.
//!
//! `cargo run --release --example local_memory [-- host:0]`
//!
//! The work-items of a group bring what they share into local memory once, wait for each other at a
//! barrier, and then read it many times. On the CPU one closure does the work of a whole group, so a loop
//! takes the place of the work-items, and the end of a loop that of a barrier.
#![expect(unsafe_code, reason = "declares device code")]

use wakegraph::{Device, Graph, Local, Range, Result};

/// Rows and columns of a tile; as in `local_memory.c`.
const TILE: usize = 16;
/// Work-items of a group that adds up: a power of two.
const GROUP: usize = 256;

wakegraph::kernel! {
    /// c = a b, for matrices of `n` rows and columns, row by row. A work-group computes a tile of `c`.
    fn product(n: u32, a: &[f32], b: &[f32], tile_a: Local<f32>, tile_b: Local<f32>, c: &mut [f32]) {
        range: |n, a, b, _tile_a, _tile_b, c| {
            let n = n as usize;
            let fits = n.is_multiple_of(TILE) && [a.len(), b.len(), c.len()] == [n * n; 3];
            [if fits { n } else { 0 }; 2]
        },
        group: |group, n, a, b, tile_a, tile_b, c| {
            let (n, [left, top, _]) = (n as usize, group.offset());
            (0..TILE).for_each(|y| c.row(y, 0).fill(0.0));
            for k in (0..n).step_by(TILE) {
                for y in 0..TILE {
                    tile_a[y * TILE..][..TILE].copy_from_slice(&a[(top + y) * n + k..][..TILE]);
                    tile_b[y * TILE..][..TILE].copy_from_slice(&b[(k + y) * n + left..][..TILE]);
                }
                // Device code has a barrier here.
                for y in 0..TILE {
                    for (a, b) in tile_a[y * TILE..].iter().zip(tile_b.chunks(TILE)) {
                        c.row(y, 0).iter_mut().zip(b).for_each(|(c, b)| *c += a * b);
                    }
                }
            }
        },
        // SAFETY: the bound is 0 unless all matrices have `n` rows and columns of whole tiles, and keeps the
        // indices below `n`. The code compares the sizes of the group and of its tiles, with the same outcome
        // for all work-items of a group. A work-item writes its own elements, and reads those of others
        // between two barriers.
        c: unsafe { include_str!("local_memory.c") },
    }

    /// The sum of each work-group's elements, added in pairs. Groups have a power of two work-items.
    fn sum_groups(x: &[f32], tile: Local<f32>, sums: &mut [f32]) {
        range: |x, _tile, _sums| [x.len()],
        group: |group, x, tile, sums| {
            tile.copy_from_slice(&x[group.indices()]);
            let mut step = tile.len() / 2;
            while step > 0 {
                let (first, second) = tile.split_at_mut(step);
                first.iter_mut().zip(second).for_each(|(x, y)| *x += *y);
                step /= 2;
            }
            sums[0] = tile[0]; // a group owns the element with its number
        },
        // SAFETY: the bound keeps the index below the length of `x`; the code compares the size of the group
        // and its number with the other lengths, with the same outcome for all work-items of a group. A
        // work-item reads what others have written behind a barrier.
        c: unsafe { include_str!("local_memory.c") },
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    multiply(&device).await?;
    add_up(&device).await
}

async fn multiply(device: &Device) -> Result<()> {
    let n = 8 * TILE;
    // Small whole numbers, whose sums are exact.
    let matrix = |step: usize| -> Vec<f32> { (0..n * n).map(|i| (i * step % 7) as f32).collect() };
    let (a, b) = (matrix(3), matrix(5));
    let [on_device_a, on_device_b] = [device.buffer_from(&a)?, device.buffer_from(&b)?];
    let c = device.buffer::<f32>(n * n)?;

    let mut graph = Graph::new(device);
    let tile = Local::new(TILE * TILE);
    let call = product(n as u32, &on_device_a, &on_device_b, tile, tile, &c);
    graph.launch(call, Range::new([n, n]).local([TILE, TILE]));
    graph.finalize()?.submit().await?;

    let c = c.to_vec().await?;
    for (y, row) in c.chunks(n).enumerate() {
        for (x, element) in row.iter().enumerate() {
            let expected: f32 = (0..n).map(|k| a[y * n + k] * b[k * n + x]).sum();
            assert_eq!(*element, expected, "row {y}, column {x}");
        }
    }
    println!("{device:?}: a product of {n} x {n} elements, as a plain loop has it");
    Ok(())
}

async fn add_up(device: &Device) -> Result<()> {
    let x: Vec<f32> = (0..GROUP * GROUP).map(|i| (i % 10) as f32).collect();
    let on_device = device.buffer_from(&x)?;
    let total = device.buffer::<f32>(1)?;

    let mut graph = Graph::new(device);
    let of_groups = graph.scratch::<f32>(GROUP)?;
    graph.launch(sum_groups(&on_device, Local::new(GROUP), &of_groups), groups(GROUP));
    graph.launch(sum_groups(&of_groups, Local::new(GROUP), &total), groups(1));
    graph.finalize()?.submit().await?;

    let total = total.to_vec().await?[0];
    assert_eq!(total, x.iter().sum());
    println!("{device:?}: the sum of {} elements is {total}, as a plain loop has it", x.len());
    Ok(())
}

fn groups(count: usize) -> Range {
    Range::linear(count * GROUP).local([GROUP])
}
