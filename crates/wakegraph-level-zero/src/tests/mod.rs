//! The device side on every device of this machine. They hold on Intel's drivers without hardware,
//! too, which check every call and compute nothing (`scripts/level-zero.sh`).
#![expect(unsafe_code, reason = "reads and writes memory that nothing else uses")]

mod headers;
mod kernels;

use std::num::NonZeroUsize;
use std::sync::Arc;

use wakegraph_hal::{Backend as _, Device, ErrorKind, MemoryDesc, MemoryKind};

use super::{LevelZeroBackend, LevelZeroOptions};

/// Every device of this machine; without Level Zero none.
fn devices() -> Vec<Arc<dyn Device>> {
    let count = LevelZeroBackend.device_count().unwrap_or(0);
    (0..count).map(|index| super::open(index, LevelZeroOptions::new()).unwrap()).collect()
}

#[test]
fn devices_have_names_and_limits() {
    let names = LevelZeroBackend.device_names().unwrap_or_default();
    for (device, names) in devices().iter().zip(names) {
        let (info, capabilities) = (device.info(), device.capabilities());
        eprintln!("{names}: {info:?} {capabilities:?}");
        assert!(names.contains(&info.name) && names.contains("Level Zero"), "{names}");
        assert!(info.compute_units > 0 && info.memory > 0);
        assert!(capabilities.max_work_group_size > 0 && capabilities.local_memory > 0);
        device.status().unwrap();
        match capabilities.profiling {
            true => assert!(device.clock().unwrap().device <= device.clock().unwrap().device),
            false => assert_eq!(device.clock().unwrap_err().kind(), ErrorKind::FeatureNotSupported),
        }
    }
    let error = super::open(1 << 20, LevelZeroOptions::new()).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[test]
fn memory_is_allocated_and_refused() {
    for device in devices() {
        for kind in [MemoryKind::Device, MemoryKind::Host] {
            let memory = device.allocate(&MemoryDesc::new(1000, kind)).unwrap();
            assert!(device.can_access(&*memory));
            assert_eq!(memory.host_ptr().is_some(), kind == MemoryKind::Host);
            let address = memory.usm().unwrap().address();
            assert_eq!(address % 64, 0);
            device.check_address(address, 1000).unwrap();
            let error = device.check_address(address, 1 << 40).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
            let mut bytes = [1; 10];
            // SAFETY: nothing else uses the memory.
            unsafe { memory.write(990, &[7; 10]) }.unwrap();
            // SAFETY: as above.
            unsafe { memory.read(990, &mut bytes) }.unwrap();
            if kind == MemoryKind::Host {
                assert_eq!(bytes, [7; 10]);
            }
            // SAFETY: as above.
            let error = unsafe { memory.read(991, &mut bytes) }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSize);
            let error = device.allocate(&MemoryDesc::new(1 << 46, kind)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            assert!(error.to_string().contains("zeMemAlloc"), "{error}");
            assert_eq!(
                device.allocate(&MemoryDesc::new(0, kind)).unwrap_err().kind(),
                ErrorKind::InvalidSize
            );
        }
        let unknown = Box::new(0u64);
        let error = device.check_address(std::ptr::from_ref(&*unknown).addr(), 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        device.status().unwrap();
    }
}

#[test]
fn a_device_is_split_only_as_the_hardware_is() {
    for device in devices() {
        let seven = NonZeroUsize::new(7).unwrap();
        let error = device.sub_devices(seven).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}");
        let Ok(parts) = device.sub_devices(NonZeroUsize::MIN.saturating_add(1)) else { continue };
        let memory = parts[0].allocate(&MemoryDesc::new(64, MemoryKind::Device)).unwrap();
        assert!(parts[1].can_wait_for(&*parts[0]) && device.can_wait_for(&*parts[1]));
        eprintln!("{} {:?} {:?}", device.can_access(&*memory), parts[0].info(), parts[1].info());
        assert!(parts[1].can_access(&*memory) && device.can_access(&*memory));
    }
}
