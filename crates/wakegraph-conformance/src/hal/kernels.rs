//! Launches: index spaces, arguments of every kind.

use wakegraph::Range;
use wakegraph::hal::{AccessMode, KernelArg, Param, ParamKind, ValueBytes};

use super::bench::{Bench, bytes, launch, part, read, usm, value};
use super::launches::{elements, mixed, number, words};
use super::records::Record;
use crate::suite::{Need, Setup, lacks, tests};

tests!("kernels": &[Need::Results] => [index_spaces_arrive, values_and_buffers_arrive, raw_pointers, odd_values,
    lengths_of_raw_pointers, local_memory, all_parameters_at_once, threads_launch_one_kernel_at_once]);

fn index_spaces_arrive(setup: &Setup) {
    let bench = Bench::new(setup);
    let record = Record::new(&bench);
    let ranges = [
        Range::linear(1),
        Range::linear(1000),
        Range::new([3, 5]),
        Range::new([2, 3, 4]),
        Range::linear(64).local([8]),
        Range::new([8, 8]).local([4, 2]).starting_at([1, 2]),
        Range::new([4, 4, 4]).local([2, 2, 2]).starting_at([7, 8, 9]),
    ];
    let far = Range::linear(5).starting_at([1 << 40]);
    let counts_far = bench.device.capabilities().max_global_index > 1 << 41;
    for range in ranges.into_iter().chain(counts_far.then_some(far)) {
        bench.run(&launch(&record.kernel, record.args(7), range));
        let seen = record.take();
        assert!(seen.is(range), "{seen:?} is not {range}");
        assert_eq!(seen.items, 3 * range.count(), "{range}");
        assert_eq!(seen.number, 7);
    }
}

fn values_and_buffers_arrive(setup: &Setup) {
    let bench = Bench::new(setup);
    let params = [value("n", 4), bytes("x", AccessMode::Read), bytes("y", AccessMode::ReadWrite)];
    let kernel = bench.load("add_bytes", &params, |_, args| {
        let n: u32 = args.value()?;
        let x = args.read::<u8>()?;
        args.write::<u8>()?.iter_mut().zip(x).for_each(|(y, x)| *y = x.wrapping_add(n as u8));
        Ok(())
    });
    let (src, dst) = (bench.memory(&[1, 2, 3, 4, 5, 6]), bench.memory(&[0; 6]));
    let args = vec![number(10), KernelArg::Memory(part(&src, 2, 3)), KernelArg::Memory(part(&dst, 1, 3))];
    bench.run(&launch(&kernel, args, Range::linear(3)));
    assert_eq!(read(&dst), [0, 13, 14, 15, 0, 0]);
    // Host memory serves as well, and one memory object may be read and written in different parts.
    let host = bench.host_memory(&[1, 1, 0, 0]);
    let args = vec![number(1), KernelArg::Memory(part(&host, 0, 2)), KernelArg::Memory(part(&host, 2, 2))];
    bench.run(&launch(&kernel, args, Range::linear(2)));
    assert_eq!(read(&host), [1, 1, 2, 2]);
}

fn raw_pointers(setup: &Setup) {
    let bench = Bench::new(setup);
    let kernel = bench.load("double_bytes", &[bytes("x", AccessMode::ReadWrite)], |_, args| {
        args.write::<u8>()?.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(2));
        Ok(())
    });
    let memory = bench.memory(&[1, 2, 3, 4]);
    let Some(pointer) = usm(&part(&memory, 1, 2)) else { return lacks("pointers to memory") };
    bench.run(&launch(&kernel, vec![KernelArg::Usm(pointer)], Range::linear(2)));
    assert_eq!(read(&memory), [1, 16, 24, 4]);
}

fn lengths_of_raw_pointers(setup: &Setup) {
    let bench = Bench::new(setup);
    let (bytes, numbers) = (bench.memory(&[0; 300]), bench.memory(&[0; 80]));
    let out = bench.memory(&[0; 40]);
    let Some(pointer) = usm(&part(&bytes, 3, 200)) else { return lacks("pointers to memory") };
    let numbers = usm(&part(&numbers, 16, 48)).unwrap();
    let tile = Param { name: "tile".into(), kind: ParamKind::Local { element_size: 2 } };
    let params = [
        self::bytes("bytes", AccessMode::Read),
        value("before", 4),
        elements("numbers", 8, AccessMode::Read),
        tile,
        elements("out", 8, AccessMode::ReadWrite),
    ];
    let kernel = bench.load("lengths", &params, |_, args| {
        let bytes = args.read::<u8>()?.len();
        let before: u32 = args.value()?;
        let (numbers, tile) = (args.read::<u64>()?.len(), args.local()? / 2);
        let out = args.write::<u64>()?;
        let all = [bytes, numbers, tile, out.len() + before as usize];
        out.iter_mut().zip(all).for_each(|(out, len)| *out = len as u64);
        Ok(())
    });
    let args = vec![
        KernelArg::Usm(pointer),
        number(0),
        KernelArg::Usm(numbers),
        KernelArg::Local(10),
        KernelArg::Memory(out.clone()),
    ];
    bench.run(&launch(&kernel, args, Range::linear(1)));
    let lengths: Vec<u64> = [200u64, 6, 5, 5, 0].into();
    assert_eq!(read(&out), bytemuck::cast_slice::<u64, u8>(&lengths));
}

fn odd_values(setup: &Setup) {
    let bench = Bench::new(setup);
    for size in [1, 3, 12, 16, 17, 200] {
        let expected: Vec<u8> = (0..size).map(|i| i as u8).collect();
        let out = bench.memory(&vec![0; size]);
        let params = [value("value", size), bytes("out", AccessMode::ReadWrite)];
        let kernel = bench.load(&format!("value{size}"), &params, move |_, args| {
            let value: Vec<u8> = match size {
                1 => args.value::<[u8; 1]>()?.into(),
                3 => args.value::<[u8; 3]>()?.into(),
                12 => args.value::<[u8; 12]>()?.into(),
                16 => args.value::<[u8; 16]>()?.into(),
                17 => args.value::<[u8; 17]>()?.into(),
                _ => args.value::<[u8; 200]>()?.into(),
            };
            args.write::<u8>()?.copy_from_slice(&value);
            Ok(())
        });
        let args = vec![KernelArg::Value(ValueBytes::from_slice(&expected)), KernelArg::Memory(out.clone())];
        bench.run(&launch(&kernel, args, Range::linear(1)));
        assert_eq!(read(&out), expected);
    }
}

fn local_memory(setup: &Setup) {
    let bench = Bench::new(setup);
    let local = Param { name: "numbers".into(), kind: ParamKind::Local { element_size: 4 } };
    let params = [local, elements("sums", 4, AccessMode::ReadWrite)];
    let kernel = bench.load("share", &params, |_, args| {
        let items = (args.local()? / 4) as u32;
        args.write::<u32>()?.fill((0..items).sum());
        Ok(())
    });
    let sums = bench.memory(&[0; 64]);
    let args = vec![KernelArg::Local(64), KernelArg::Memory(sums.clone())];
    bench.run(&launch(&kernel, args, Range::linear(16).local([16])));
    assert_eq!(words(&sums), [120; 16]);
}

fn all_parameters_at_once(setup: &Setup) {
    let bench = Bench::new(setup);
    let mut params: Vec<Param> = (0..6).map(|_| value("v", 8)).collect();
    params.extend((0..6).map(|_| bytes("m", AccessMode::ReadWrite)));
    let kernel = bench.load("many", &params, |_, args| {
        let values = (0..6).map(|_| args.value::<u64>()).collect::<wakegraph::Result<Vec<_>>>()?;
        for value in values {
            args.write::<u8>()?.fill(value as u8);
        }
        assert_eq!(args.remaining(), 0);
        Ok(())
    });
    let memory = bench.memory(&[0; 12]);
    let mut args: Vec<_> =
        (0..6u64).map(|i| KernelArg::Value(ValueBytes::from_slice(&(i + 1).to_ne_bytes()))).collect();
    args.extend((0..6).map(|i| KernelArg::Memory(part(&memory, 2 * i, 2))));
    bench.run(&launch(&kernel, args, Range::linear(2)));
    assert_eq!(read(&memory), [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
}

// HIP's versions before 6.3 mix up the arguments of launches by several threads.
fn threads_launch_one_kernel_at_once(setup: &Setup) {
    const THREADS: u32 = 4;
    const RUNS: u32 = 200;
    let bench = Bench::new(setup);
    let params = [value("n", 4), elements("x", 4, AccessMode::ReadWrite)];
    let kernel = bench.load("mix", &params, |_, args| {
        let n: u32 = args.value()?;
        args.write::<u32>()?.iter_mut().for_each(|x| *x = mixed(*x, n));
        Ok(())
    });
    let run = |n: u32| {
        let bench = Bench::new(setup);
        let x = bench.memory(&[0; 16]);
        let args = || vec![number(n), KernelArg::Memory(x.clone())];
        let mut buffer = bench.recorded(&[launch(&kernel, args(), Range::linear(4))]);
        for run in 0..RUNS {
            if run % 8 == 0 {
                // Others add nodes meanwhile.
                buffer = bench.recorded(&[launch(&kernel, args(), Range::linear(4))]);
            }
            bench.run_buffer(&buffer);
        }
        let expected = (0..RUNS).fold(0, |x, _| mixed(x, n));
        assert_eq!(words(&x), [expected; 4], "thread {n}");
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|n| _ = scope.spawn(move || run(n))));
}
