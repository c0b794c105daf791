//! Allocations.

use std::collections::HashSet;

use wakegraph::ErrorKind;
use wakegraph::hal::{MemoryDesc, MemoryKind, MemoryView};

use super::bench::{Bench, access_outside, read, write};
use crate::suite::{Need, Setup, tests};

tests!("memory":
    &[] => [starts_zeroed, reads_and_writes_stay_inside, host_memory_has_an_address, identities_differ,
        views_stay_inside, impossible_sizes_are_refused],
    &[Need::Execution] => [keeps_what_is_written, trimming_keeps_what_is_in_use]);

const KINDS: [MemoryKind; 2] = [MemoryKind::Device, MemoryKind::Host];

fn allocate(bench: &Bench, len: usize, kind: MemoryKind) -> MemoryView {
    MemoryView::whole(bench.device.allocate(&MemoryDesc::new(len, kind)).unwrap())
}

fn starts_zeroed(setup: &Setup) {
    let bench = Bench::new(setup);
    for kind in KINDS {
        for len in [1, 63, 4096, 100_001] {
            // The second allocation may get the bytes of the first.
            for _ in 0..2 {
                let memory = allocate(&bench, len, kind);
                assert!(read(&memory).iter().all(|&byte| byte == 0), "{kind:?} of {len}");
                write(&memory, &vec![0xA5; len]);
            }
        }
    }
}

fn keeps_what_is_written(setup: &Setup) {
    let bench = Bench::new(setup);
    for kind in KINDS {
        let memory = allocate(&bench, 100, kind);
        let middle = MemoryView::new(memory.memory().clone(), 30, 40).unwrap();
        write(&middle, &[7; 40]);
        let bytes = read(&memory);
        assert!(bytes.iter().enumerate().all(|(i, &byte)| byte == if (30..70).contains(&i) { 7 } else { 0 }));
        assert_eq!((memory.memory().kind(), memory.memory().len()), (kind, 100));
        assert_eq!(memory.memory().device(), bench.device.info().id);
        assert!(bench.device.can_access(&**memory.memory()));
    }
}

fn reads_and_writes_stay_inside(setup: &Setup) {
    let memory = Bench::new(setup).memory(&[1; 10]);
    for (offset, len) in [(0, 11), (10, 1), (11, 0), (usize::MAX, 2)] {
        for result in access_outside(&memory, offset, len) {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidSize, "{len} at {offset}");
        }
    }
    for result in access_outside(&memory, 10, 0) {
        result.unwrap();
    }
}

fn host_memory_has_an_address(setup: &Setup) {
    let bench = Bench::new(setup);
    for len in [1, 65, 5000] {
        let memory = allocate(&bench, len, MemoryKind::Host);
        let address = memory.memory().host_ptr().unwrap().as_ptr() as usize;
        assert_eq!(address % 64, 0);
    }
}

fn identities_differ(setup: &Setup) {
    let bench = Bench::new(setup);
    let all: Vec<_> = (0..20).map(|i| allocate(&bench, 8, KINDS[i % 2])).collect();
    let distinct: HashSet<_> = all.iter().map(|view| view.memory().resource()).collect();
    assert_eq!(distinct.len(), all.len());
    let first = all[0].memory().resource();
    drop(all);
    assert_ne!(allocate(&bench, 8, MemoryKind::Device).memory().resource(), first);
}

fn views_stay_inside(setup: &Setup) {
    let memory = Bench::new(setup).memory(&[0; 10]).memory().clone();
    for (offset, len) in [(11, 0), (0, 11), (10, 1), (usize::MAX, 2), (2, usize::MAX)] {
        let error = MemoryView::new(memory.clone(), offset, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize, "{len} at {offset}");
    }
    let last = MemoryView::new(memory.clone(), 9, 1).unwrap();
    assert_eq!((last.offset(), last.len(), last.end(), last.is_empty()), (9, 1, 10, false));
    let none = MemoryView::new(memory, 10, 0).unwrap();
    assert_eq!((none.offset(), none.len(), none.end(), none.is_empty()), (10, 0, 10, true));
}

fn impossible_sizes_are_refused(setup: &Setup) {
    let device = setup.hal();
    for kind in KINDS {
        assert_eq!(device.allocate(&MemoryDesc::new(0, kind)).unwrap_err().kind(), ErrorKind::InvalidSize);
        let error = device.allocate(&MemoryDesc::new(usize::MAX, kind)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(error.device(), Some(&*device.info().selector));
    }
}

fn trimming_keeps_what_is_in_use(setup: &Setup) {
    let bench = Bench::new(setup);
    let memory = allocate(&bench, 100, MemoryKind::Device);
    write(&memory, &[7; 100]);
    drop(allocate(&bench, 1 << 20, MemoryKind::Device));
    setup.device().trim().unwrap();
    assert_eq!(read(&memory), [7; 100]);
    assert_eq!(read(&allocate(&bench, 10, MemoryKind::Device)), [0; 10]);
}
