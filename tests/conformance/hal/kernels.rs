//! Launches: index spaces, arguments of every kind.

use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph::hal::{KernelArg, Param, ParamKind, ValueBytes};
use wakegraph::{AccessMode, Range};

use super::bench::{Bench, bytes, launch, part, read, usm, value};
use crate::registry::{Need, Setup, tests};

tests!("kernels": &[Need::Results, Need::Closures] => [index_spaces_arrive, values_and_buffers_arrive, raw_pointers,
    odd_values, local_memory, all_parameters_at_once]);

fn index_spaces_arrive(setup: &Setup) {
    let bench = Bench::new(setup);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let kernel = bench.kernel("ranges", &[], move |range, _| {
        log.lock().push(*range);
        Ok(())
    });
    let ranges = [
        Range::linear(1),
        Range::linear(1000),
        Range::new([3, 5]),
        Range::new([2, 3, 4]),
        Range::linear(64).local([8]),
        Range::new([8, 8]).local([4, 2]).offset([1, 2]),
        Range::new([4, 4, 4]).local([2, 2, 2]).offset([7, 8, 9]),
        Range::linear(5).offset([1 << 40]),
    ];
    for range in ranges {
        bench.run(&launch(&kernel, Vec::new(), range));
        assert_eq!(std::mem::take(&mut *seen.lock()), [range; 3]);
    }
}

fn values_and_buffers_arrive(setup: &Setup) {
    let bench = Bench::new(setup);
    let params = [value("add", 4), bytes("src", AccessMode::Read), bytes("dst", AccessMode::ReadWrite)];
    let kernel = bench.kernel("add", &params, |_, args| {
        let add: u32 = args.value()?;
        let src = args.read::<u8>()?;
        args.write::<u8>()?.iter_mut().zip(src).for_each(|(dst, src)| *dst = src + add as u8);
        Ok(())
    });
    let (src, dst) = (bench.memory(&[1, 2, 3, 4, 5, 6]), bench.memory(&[0; 6]));
    let args = vec![
        KernelArg::Value(ValueBytes::from_slice(&10u32.to_ne_bytes())),
        KernelArg::Memory(part(&src, 2, 3)),
        KernelArg::Memory(part(&dst, 1, 3)),
    ];
    bench.run(&launch(&kernel, args, Range::linear(3)));
    assert_eq!(read(&dst), [0, 13, 14, 15, 0, 0]);
    // Host memory serves as well, and one memory object may be read and written in different parts.
    let host = bench.host_memory(&[1, 1, 0, 0]);
    let args = vec![
        KernelArg::Value(ValueBytes::from_slice(&1u32.to_ne_bytes())),
        KernelArg::Memory(part(&host, 0, 2)),
        KernelArg::Memory(part(&host, 2, 2)),
    ];
    bench.run(&launch(&kernel, args, Range::linear(2)));
    assert_eq!(read(&host), [1, 1, 2, 2]);
}

fn raw_pointers(setup: &Setup) {
    let bench = Bench::new(setup);
    let kernel = bench.kernel("double", &[bytes("data", AccessMode::ReadWrite)], |_, args| {
        args.write::<u8>()?.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(2));
        Ok(())
    });
    let memory = bench.memory(&[1, 2, 3, 4]);
    let Some(pointer) = usm(&part(&memory, 1, 2)) else { return };
    bench.run(&launch(&kernel, vec![KernelArg::Usm(pointer)], Range::linear(2)));
    assert_eq!(read(&memory), [1, 16, 24, 4]);
}

fn odd_values(setup: &Setup) {
    let bench = Bench::new(setup);
    for size in [1, 3, 12, 16, 17, 200] {
        let expected: Vec<u8> = (0..size).map(|i| i as u8).collect();
        let out = bench.memory(&vec![0; size]);
        let params = [value("v", size), bytes("out", AccessMode::ReadWrite)];
        let kernel = bench.kernel("value", &params, move |_, args| {
            // A value whose size is no type's: each of its bytes, through the largest type that fits.
            match size {
                1 => drop(args.value::<[u8; 1]>()?),
                3 => drop(args.value::<[u8; 3]>()?),
                12 => drop(args.value::<[u8; 12]>()?),
                16 => drop(args.value::<[u8; 16]>()?),
                17 => drop(args.value::<[u8; 17]>()?),
                _ => drop(args.value::<[u8; 200]>()?),
            }
            args.write::<u8>()?.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
            Ok(())
        });
        let args = vec![KernelArg::Value(ValueBytes::from_slice(&expected)), KernelArg::Memory(out.clone())];
        bench.run(&launch(&kernel, args, Range::linear(1)));
        assert_eq!(read(&out), expected);
    }
}

fn local_memory(setup: &Setup) {
    let bench = Bench::new(setup);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let params = [Param { name: "scratch".into(), kind: ParamKind::Local { element_size: 4 } }];
    let kernel = bench.kernel("local", &params, move |_, args| {
        log.lock().push(args.local()?);
        Ok(())
    });
    bench.run(&launch(&kernel, vec![KernelArg::Local(64)], Range::linear(16).local([16])));
    assert_eq!(*seen.lock(), [64; 3]);
}

fn all_parameters_at_once(setup: &Setup) {
    let bench = Bench::new(setup);
    let mut params: Vec<Param> = (0..6).map(|_| value("v", 8)).collect();
    params.extend((0..6).map(|_| bytes("m", AccessMode::ReadWrite)));
    let kernel = bench.kernel("many", &params, |_, args| {
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
    bench.run(&launch(&kernel, args, Range::linear(1)));
    assert_eq!(read(&memory), [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
}
