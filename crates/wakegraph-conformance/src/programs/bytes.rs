//! Programs from bytes: also on devices that are polled, and on a fake one that completes work when the
//! program says.

use std::sync::{LazyLock, OnceLock};

use wakegraph::Device;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::testing::{FakeDevice, FakeOptions};

use super::choices::Choices;
use super::interpreter::run;
use super::settings::Settings;

/// Runs the program that the bytes are. The first of them choose the device and the kind of programs.
///
/// # Panics
/// Where the crate does something else than the model, and where something does not end.
pub fn run_bytes(bytes: &[u8]) {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
    });
    let mut choices = Choices::from_bytes(bytes);
    let (device, control) = match choices.below(4) {
        0 | 1 => (shared_device(false), None),
        2 => (shared_device(true), None),
        _ => {
            let options = FakeOptions::new().manual(true).notifies(choices.chance(2));
            let (device, control) = FakeDevice::open(options);
            (Device::from_hal(device), Some(control))
        }
    };
    let settings = Settings {
        executables: choices.within(1..=3),
        scratch: choices.chance(4),
        updates: true,
        faults: choices.chance(2),
        control,
    };
    RUNTIME.block_on(run(choices, &[device], &settings));
}

/// Devices that all programs share: starting threads takes longer than a program.
fn shared_device(polled: bool) -> Device {
    static DEVICES: [OnceLock<Device>; 2] = [OnceLock::new(), OnceLock::new()];
    let device = DEVICES[usize::from(polled)].get_or_init(|| {
        let options = HostOptions::new().threads(2).polled(polled);
        Device::from_hal(host::open(options).expect("a host device"))
    });
    device.clone()
}
