//! Descriptions that devices, queues and command-buffers give of themselves.

use std::num::NonZeroUsize;

use wakegraph::ErrorKind;
use wakegraph::hal::{Command, CommandBufferDesc, CommandBufferState, CommandKinds, GraphSupport};

use super::bench::Bench;
use crate::suite::{Setup, tests};

tests!("info": &[] => [devices, command_buffers, sub_devices, waiting_for_itself]);

fn devices(setup: &Setup) {
    for device in &setup.devices {
        let info = device.info();
        assert!(!info.backend.is_empty() && !info.selector.is_empty() && !info.name.is_empty(), "{info:?}");
        assert!(info.selector.starts_with(info.backend), "{info:?}");
        let capabilities = device.capabilities();
        assert!(!capabilities.commands.intersects(CommandKinds::HOST_TASK | CommandKinds::SUB_GRAPH));
        assert!(capabilities.max_work_group_size > 0 && capabilities.max_allocation > 0);
        assert!(capabilities.max_work_item_sizes.iter().all(|&size| size > 0));
        let support = capabilities.graph_support();
        assert_eq!(
            support == GraphSupport::Full,
            !capabilities.commands.is_empty() && !capabilities.update.is_empty()
        );
        device.hal().status().unwrap();
    }
    let mut ids: Vec<_> = setup.devices.iter().map(|device| device.info().id).collect();
    ids.dedup();
    assert_eq!(ids.len(), setup.devices.len());
}

fn command_buffers(setup: &Setup) {
    let bench = Bench::new(setup);
    for updatable in [false, !bench.device.capabilities().update.is_empty()] {
        let desc = CommandBufferDesc::new().updatable(updatable).in_order(true);
        let mut buffer = bench.buffer(desc);
        let info = buffer.info();
        assert_eq!((info.device, info.desc), (bench.device.info().id, desc));
        assert_eq!((info.state, info.commands), (CommandBufferState::Recording, 0));
        for index in 0..3 {
            let appended = buffer.append(&Command::Empty, &[]).unwrap();
            assert_eq!((appended.sync_point.buffer, appended.sync_point.index), (info.id, index));
            assert!(appended.handle.is_none(), "only kernels can be updated");
        }
        assert_eq!(buffer.info().commands, 3);
        buffer.finalize().unwrap();
        let after = buffer.info();
        assert_eq!((after.id, after.state, after.commands), (info.id, CommandBufferState::Executable, 3));
        assert!(!after.lowering.is_empty());
        assert_ne!(bench.buffer(desc).info().id, info.id);
    }
}

fn sub_devices(setup: &Setup) {
    let device = setup.hal();
    let absurd = NonZeroUsize::new(1 << 20).unwrap();
    assert_eq!(device.sub_devices(absurd).unwrap_err().kind(), ErrorKind::FeatureNotSupported);
    match device.sub_devices(NonZeroUsize::MIN) {
        Ok(parts) => {
            assert_eq!(parts.len(), 1);
            assert_ne!(parts[0].info().id, device.info().id);
            let bench = Bench::on(&parts[0]);
            bench.run(&Command::Empty);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::FeatureNotSupported),
    }
}

fn waiting_for_itself(setup: &Setup) {
    for device in &setup.devices {
        assert!(device.hal().can_wait_for(device.hal()));
    }
}
