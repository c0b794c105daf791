//! Rectangular copies in elements, in all three directions, against a model.

use wakegraph::memory::{Layout, RectCopy};
use wakegraph::{ErrorKind, Graph};

use crate::random::Random;
use crate::suite::{Need, Setup, tests};

tests!("graph/rectangles": &[Need::Results] => [a_tile_of_an_image, random_boxes],
    &[] => [slices_that_are_no_whole_rows_are_refused]);

fn a_tile_of_an_image(setup: &Setup) {
    let device = setup.device();
    let image = device.buffer_from(&(0..48u32).collect::<Vec<_>>()).unwrap();
    let tile = device.host_buffer::<u32>(6).unwrap();
    let mut graph = Graph::new(device);
    graph.copy_rect(&image, &tile, RectCopy::new([3, 2], Layout::rows(8).origin([2, 1]), Layout::rows(3)));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(*tile.read().await, [10, 11, 12, 18, 19, 20]);
        }
    });
}

/// A volume of `size` elements with room around its rows and slices.
struct Volume {
    row: usize,
    slice: usize,
    len: usize,
    origin: [usize; 3],
}

impl Volume {
    fn around(extent: [usize; 3], random: &mut Random) -> Self {
        let origin = [random.below(3), random.below(3), random.below(2)];
        let row = extent[0] + origin[0] + random.below(3);
        let slice = row * (extent[1] + origin[1] + random.below(2));
        Self { row, slice, len: slice * (extent[2] + origin[2]), origin }
    }

    fn layout(&self) -> Layout {
        Layout::rows(self.row).slice(self.slice).origin(self.origin)
    }

    fn at(&self, [x, y, z]: [usize; 3]) -> usize {
        let [x0, y0, z0] = self.origin;
        (z + z0) * self.slice + (y + y0) * self.row + x + x0
    }
}

fn slices_that_are_no_whole_rows_are_refused(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer::<u8>(1000).unwrap(), device.host_buffer::<u8>(1000).unwrap());
    let layout = Layout::rows(10).slice(35);
    for (extent, fits) in [([4, 3, 2], false), ([4, 3, 1], true), ([4, 1, 2], true)] {
        let mut graph = Graph::new(device);
        graph.copy_rect(&x, &y, RectCopy::new(extent, layout, layout)).name("volume");
        match graph.finalize() {
            Ok(_) => assert!(fits, "{extent:?}"),
            Err(error) => {
                assert!(!fits && error.kind() == ErrorKind::InvalidSize, "{error}");
                assert!(error.to_string().contains("volume"), "{error}");
                assert!(error.message().contains("not a multiple of the row pitch of 10"), "{error}");
            }
        }
    }
}

fn random_boxes(setup: &Setup) {
    let device = setup.device();
    for seed in 0..25 {
        let random = &mut Random::new(seed);
        let extent = [random.within(1..=5), random.within(1..=4), random.within(1..=3)];
        let [first, second, third, fourth] = [(); 4].map(|()| Volume::around(extent, random));
        // host -> device -> device -> host, each with its own layout
        let elements: Vec<u16> = (0..first.len).map(|_| random.next() as u16).collect();
        let input = device.host_buffer_from(&elements).unwrap();
        let (a, b) = (device.buffer::<u16>(second.len).unwrap(), device.buffer::<u16>(third.len).unwrap());
        let output = device.host_buffer::<u16>(fourth.len).unwrap();
        let mut graph = Graph::new(device);
        graph.copy_rect(&input, &a, RectCopy::new(extent, first.layout(), second.layout()));
        graph.copy_rect(&a, &b, RectCopy::new(extent, second.layout(), third.layout()));
        graph.copy_rect(&b, &output, RectCopy::new(extent, third.layout(), fourth.layout()));
        let exec = graph.finalize().unwrap();
        let mut expected = vec![0; fourth.len];
        for z in 0..extent[2] {
            for y in 0..extent[1] {
                for x in 0..extent[0] {
                    expected[fourth.at([x, y, z])] = elements[first.at([x, y, z])];
                }
            }
        }
        setup.block_on(async {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                assert_eq!(*output.read().await, expected, "seed {seed}");
            }
        });
    }
}
