//! Linear copies, reads and writes; copies between pointers; hints.

use wakegraph::hal::{Advice, Command};

use super::bench::{Bench, part, read, usm};
use crate::random::Random;
use crate::suite::{Need, Setup, lacks, tests};

tests!("copies": &[Need::Results] => [copies_reads_and_writes, parts_leave_the_rest_alone, random_parts,
    usm_copies, usm_fills, hints_change_nothing]);

/// The name of what a device lacks whose memory has no addresses.
const POINTERS: &str = "pointers to memory";

fn copies_reads_and_writes(setup: &Setup) {
    let bench = Bench::new(setup);
    for len in [1, 2, 255, 4096, 70_001] {
        let bytes = Random::new(len as u64).bytes(len);
        let (input, output) = (bench.host_memory(&bytes), bench.host_memory(&vec![0; len]));
        let (a, b) = (bench.memory(&vec![1; len]), bench.memory(&vec![2; len]));
        bench.run(&Command::BufferWrite { host: input, dst: a.clone() });
        bench.run(&Command::BufferCopy { src: a, dst: b.clone() });
        bench.run(&Command::BufferRead { src: b.clone(), host: output.clone() });
        assert_eq!(read(&output), bytes);
        assert_eq!(read(&b), bytes);
    }
}

fn parts_leave_the_rest_alone(setup: &Setup) {
    let bench = Bench::new(setup);
    let (a, b) = (bench.memory(&[1; 10]), bench.memory(&[2; 10]));
    bench.run(&Command::BufferCopy { src: part(&a, 5, 3), dst: part(&b, 1, 3) });
    assert_eq!(read(&b), [2, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    // Inside one allocation, side by side.
    let c = bench.memory(&[1, 2, 3, 4, 5, 6]);
    bench.run(&Command::BufferCopy { src: part(&c, 0, 3), dst: part(&c, 3, 3) });
    assert_eq!(read(&c), [1, 2, 3, 1, 2, 3]);
}

fn random_parts(setup: &Setup) {
    let bench = Bench::new(setup);
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut model = [random.bytes(64), random.bytes(64)];
        let memory = [bench.memory(&model[0]), bench.memory(&model[1])];
        for _ in 0..10 {
            let len = random.within(1..=40);
            let (from, to) = (random.below(64 - len), random.below(64 - len));
            let direction = random.below(2);
            let bytes = model[direction][from..from + len].to_vec();
            model[1 - direction][to..to + len].copy_from_slice(&bytes);
            let (src, dst) = (part(&memory[direction], from, len), part(&memory[1 - direction], to, len));
            bench.run(&Command::BufferCopy { src, dst });
        }
        for (memory, model) in memory.iter().zip(&model) {
            assert_eq!(&read(memory), model, "seed {seed}");
        }
    }
}

fn usm_copies(setup: &Setup) {
    let bench = Bench::new(setup);
    let (a, b) = (bench.memory(&[1, 2, 3, 4]), bench.memory(&[0; 6]));
    let (Some(src), Some(dst)) = (usm(&a), usm(&part(&b, 1, 5))) else { return lacks(POINTERS) };
    bench.run(&Command::UsmCopy { src, dst, len: 3 });
    assert_eq!(read(&b), [0, 1, 2, 3, 0, 0]);
}

fn usm_fills(setup: &Setup) {
    let bench = Bench::new(setup);
    let memory = bench.memory(&[9; 14]);
    for pattern in [&[1, 2, 3][..], &[7], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]] {
        let Some(dst) = usm(&part(&memory, 1, 12)) else { return lacks(POINTERS) };
        bench.run(&Command::UsmFill { dst, pattern: pattern.into() });
        let bytes = read(&memory);
        assert_eq!((bytes[0], bytes[13]), (9, 9));
        assert!(bytes[1..13].iter().enumerate().all(|(i, &byte)| byte == pattern[i % pattern.len()]));
    }
}

fn hints_change_nothing(setup: &Setup) {
    let bench = Bench::new(setup);
    let memory = bench.memory(&[1, 2, 3]);
    let Some(pointer) = usm(&memory) else { return lacks(POINTERS) };
    bench.run(&Command::UsmPrefetch { memory: pointer });
    for advice in [Advice::Default, Advice::ReadMostly, Advice::PreferDevice, Advice::PreferHost] {
        bench.run(&Command::UsmAdvise { memory: pointer, advice });
    }
    bench.run(&Command::Empty);
    assert_eq!(read(&memory), [1, 2, 3]);
}
