//! The memory that executables of a cache take when they share a scratch arena.

use std::sync::atomic::Ordering;
use std::thread;

use wakegraph::memory::ScratchArena;
use wakegraph::service::ExecutableCache;
use wakegraph::{Device, ExecutableGraph, Graph, Result};

use crate::{LARGE, LARGE_BLOCKS};

const SHAPES: usize = 64;

/// Shape `n` needs `n` times as much as shape 1.
fn executable(device: &Device, shape: usize, arena: Option<&ScratchArena>) -> Result<ExecutableGraph> {
    let mut graph = Graph::new(device);
    if let Some(arena) = arena {
        graph.share_scratch(arena);
    }
    let [a, b] = [graph.scratch::<u8>(shape * LARGE)?, graph.scratch::<u8>(shape * LARGE)?];
    graph.fill(&a, 1);
    graph.copy(&a, &b);
    graph.finalize()
}

/// The bytes of all executables of a cache, when each has been asked for twice.
fn bytes_of_all(
    device: &Device,
    shapes: impl Iterator<Item = usize> + Clone,
    arena: Option<ScratchArena>,
) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let before = LARGE_BLOCKS.load(Ordering::Relaxed);
    let of_cache = device.clone();
    let cache =
        ExecutableCache::new(u64::MAX, move |&shape| Ok((executable(&of_cache, shape, arena.as_ref())?, ())));
    runtime.block_on(async {
        for shape in shapes.clone().chain(shapes) {
            cache.get(&shape).await.unwrap();
        }
    });
    drop(runtime);
    assert_eq!(cache.len(), SHAPES);
    let bytes = LARGE_BLOCKS.load(Ordering::Relaxed) - before;
    // The blocks are a little larger, for their alignment.
    assert!((bytes - cache.device_memory() as usize) < LARGE);
    drop(cache);
    // The thread that made the last executable may drop the cache later than this one does.
    while LARGE_BLOCKS.load(Ordering::Relaxed) > before {
        thread::yield_now();
    }
    bytes
}

pub(crate) fn shapes_that_share_an_arena_take_the_memory_of_the_largest() {
    let device = Device::open("host").unwrap();
    let before = LARGE_BLOCKS.load(Ordering::Relaxed);
    let exec = executable(&device, SHAPES, None).unwrap();
    let largest = LARGE_BLOCKS.load(Ordering::Relaxed) - before;
    drop(exec);
    let apart = bytes_of_all(&device, 1..=SHAPES, None);
    let ascending = bytes_of_all(&device, 1..=SHAPES, Some(ScratchArena::new()));
    let descending = bytes_of_all(&device, (1..=SHAPES).rev(), Some(ScratchArena::new()));
    println!("largest {largest}, {SHAPES} shapes apart {apart}, with an arena {ascending} and {descending}");
    assert_eq!((ascending, descending), (largest, largest));
    assert_eq!(apart / largest, SHAPES.div_ceil(2));
}
