//! Fills with patterns of any length.

use wakegraph::hal::Command;

use super::bench::{Bench, part, read};
use crate::random::Random;
use crate::suite::{Need, Setup, tests};

tests!("fills": &[Need::Results] => [any_pattern, large_fills]);

fn any_pattern(setup: &Setup) {
    let bench = Bench::new(setup);
    for pattern_len in (1..=20).chain([32, 64, 128, 129, 257]) {
        let pattern = Random::new(pattern_len as u64).bytes(pattern_len);
        for (offset, repeats) in [(0, 1), (3, 2), (1, 7)] {
            let len = pattern_len * repeats;
            let memory = bench.memory(&vec![0xEE; offset + len + 5]);
            bench.run(&Command::BufferFill {
                dst: part(&memory, offset, len),
                pattern: pattern.as_slice().into(),
            });
            let bytes = read(&memory);
            let (before, rest) = bytes.split_at(offset);
            let (filled, behind) = rest.split_at(len);
            assert!(before.iter().chain(behind).all(|&byte| byte == 0xEE), "pattern of {pattern_len}");
            assert!(filled.chunks(pattern_len).all(|chunk| chunk == pattern), "pattern of {pattern_len}");
        }
    }
}

fn large_fills(setup: &Setup) {
    let bench = Bench::new(setup);
    for pattern in [&[5][..], &[1, 2], &[1, 2, 3], &[1, 2, 3, 4, 5, 6, 7, 8]] {
        let memory = bench.memory(&vec![0; 3 * 8 * 20_000]);
        bench.run(&Command::BufferFill { dst: memory.clone(), pattern: pattern.into() });
        assert!(read(&memory).chunks(pattern.len()).all(|chunk| chunk == pattern));
    }
}
