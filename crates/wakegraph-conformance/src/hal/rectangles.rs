//! Rectangular copies, reads and writes with pitches and offsets, against a byte-by-byte model.

use wakegraph::hal::{Command, MemoryView, Pitch, Rect};

use super::bench::{Bench, part, read};
use crate::random::Random;
use crate::suite::{Need, Setup, tests};

tests!("rectangles": &[Need::Results] => [device_to_device, device_to_host, host_to_device, inside_one_image,
    a_single_row_needs_no_pitch]);

struct Case {
    rect: Rect,
    src: Pitch,
    dst: Pitch,
    src_len: usize,
    dst_len: usize,
}

fn random_case(random: &mut Random) -> Case {
    let rect =
        Rect { width: random.within(1..=9), height: random.within(1..=5), depth: random.within(1..=4) };
    let mut pitch = || {
        let row = rect.width + random.below(4);
        Pitch { offset: random.below(12), row, slice: row * (rect.height + random.below(3)) }
    };
    let (src, dst) = (pitch(), pitch());
    let (src_len, dst_len) =
        (rect.end(&src).unwrap() + random.below(5), rect.end(&dst).unwrap() + random.below(5));
    Case { rect, src, dst, src_len, dst_len }
}

fn model(case: &Case, src: &[u8], dst: &mut [u8]) {
    for z in 0..case.rect.depth {
        for y in 0..case.rect.height {
            for x in 0..case.rect.width {
                let at = |pitch: &Pitch| pitch.offset + z * pitch.slice + y * pitch.row + x;
                dst[at(&case.dst)] = src[at(&case.src)];
            }
        }
    }
}

/// Runs random cases; `host` says which of the two sides is host memory, `make` makes the command.
fn check(setup: &Setup, host: [bool; 2], make: impl Fn(&Case, MemoryView, MemoryView) -> Command) {
    let bench = Bench::new(setup);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let case = random_case(&mut random);
        let (src_bytes, mut dst_bytes) = (random.bytes(case.src_len), random.bytes(case.dst_len));
        // The views start inside their allocations, so offsets of both kinds add up.
        let view = |bytes: &[u8], host: bool| {
            let padded = [&[0xAA; 3][..], bytes].concat();
            let memory = if host { bench.host_memory(&padded) } else { bench.memory(&padded) };
            part(&memory, 3, bytes.len())
        };
        let (src, dst) = (view(&src_bytes, host[0]), view(&dst_bytes, host[1]));
        bench.run(&make(&case, src.clone(), dst.clone()));
        model(&case, &src_bytes, &mut dst_bytes);
        assert_eq!(read(&dst), dst_bytes, "seed {seed}");
        assert_eq!(read(&src), src_bytes, "seed {seed}");
    }
}

fn device_to_device(setup: &Setup) {
    check(setup, [false, false], |case, src, dst| {
        let Case { rect, src: src_pitch, dst: dst_pitch, .. } = *case;
        Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch }
    });
}

fn device_to_host(setup: &Setup) {
    check(setup, [false, true], |case, src, host| {
        let Case { rect, src: src_pitch, dst: host_pitch, .. } = *case;
        Command::BufferReadRect { src, host, rect, src_pitch, host_pitch }
    });
}

fn host_to_device(setup: &Setup) {
    check(setup, [true, false], |case, host, dst| {
        let Case { rect, src: host_pitch, dst: dst_pitch, .. } = *case;
        Command::BufferWriteRect { host, dst, rect, host_pitch, dst_pitch }
    });
}

// a b . .      a b a b
// c d . .  ->  c d c d
fn inside_one_image(setup: &Setup) {
    let bench = Bench::new(setup);
    let image = bench.memory(&[1, 2, 0, 0, 3, 4, 0, 0]);
    let pitch = |offset| Pitch { offset, row: 4, slice: 8 };
    bench.run(&Command::BufferCopyRect {
        src: image.clone(),
        dst: image.clone(),
        rect: Rect { width: 2, height: 2, depth: 1 },
        src_pitch: pitch(0),
        dst_pitch: pitch(2),
    });
    assert_eq!(read(&image), [1, 2, 1, 2, 3, 4, 3, 4]);
}

fn a_single_row_needs_no_pitch(setup: &Setup) {
    let bench = Bench::new(setup);
    let (src, dst) = (bench.memory(&[1, 2, 3]), bench.memory(&[0; 3]));
    let rect = Rect { width: 2, height: 1, depth: 1 };
    let pitch = |offset| Pitch { offset, row: 0, slice: 0 };
    bench.run(&Command::BufferCopyRect {
        src,
        dst: dst.clone(),
        rect,
        src_pitch: pitch(1),
        dst_pitch: pitch(0),
    });
    assert_eq!(read(&dst), [2, 3, 0]);
}
