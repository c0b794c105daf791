//! The trials of the suite: each test on each way to open a device.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use libtest_mimic::{Completion, Failed, Trial};
use parking_lot::RwLock;
use tokio::runtime::Runtime;
use wakegraph::Device;
use wakegraph::hal::QueueOrder;

use crate::in_flight;
use crate::suite::{self, Need, Setup, Test, Variant};

/// Whether `WAKEGRAPH_REQUIRE` lists this backend, or this device of it.
pub fn is_required(name: &str) -> bool {
    let required = std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default();
    required.split(',').any(|listed| listed.trim() == name)
}

/// Where the reactors of some devices run, as long as the process.
static REACTORS: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("a tokio runtime")
});

/// Opens the devices with their reactors on a runtime, where they are polled.
fn polled_in_runtime(variant: &Variant) -> Option<Vec<Device>> {
    let devices: Vec<_> = (variant.open)().ok()?.into_iter().map(Device::from_hal).collect();
    let [device] = &devices[..] else { return None };
    if device.capabilities().notifies {
        return None;
    }
    device.run_reactor_on(REACTORS.handle()).expect("a runtime with timers");
    Some(devices)
}

/// The suite for every device: what is to run, and what is ignored and why. The tests of the
/// contract run once more on out-of-order queues, where the device has such, and those of graphs
/// with the reactor on a runtime.
///
/// `observe` learns of each test that has run to its end on a backend, or that an open device has ignored.
pub fn trials(variants: &[Variant], observe: fn(&'static str, &Test, bool)) -> Vec<Trial> {
    let (contract, graph): (Vec<_>, Vec<_>) =
        (crate::hal::tests().collect(), crate::graph::tests().collect());
    let required = |variant: &Variant| {
        variant.is_required_with_backend && is_required(variant.backend)
            || is_required(&format!("{}/{}", variant.backend, variant.device))
    };
    let (mut trials, mut seen) = (Vec::new(), HashSet::new());
    for variant in variants {
        let Variant { backend, device, .. } = variant;
        match (variant.open)() {
            Ok(devices) => {
                let devices: Vec<_> = devices.into_iter().map(Device::from_hal).collect();
                let info = devices[0].hal().info();
                let is_another_way = !seen.insert((info.name.clone(), info.driver.clone()));
                let setup = |devices: &Vec<Device>, order, is_another_way| {
                    Arc::new(Setup { devices: devices.clone(), can: variant.can, order, is_another_way })
                };
                let in_order = setup(&devices, QueueOrder::InOrder, is_another_way);
                trials.extend(
                    contract.iter().chain(&graph).map(|test| trial(variant, "", test, &in_order, observe)),
                );
                if devices[0].capabilities().out_of_order_queues {
                    let (way, queue) = ("out-of-order-queue/", setup(&devices, QueueOrder::OutOfOrder, true));
                    trials.extend(contract.iter().map(|test| trial(variant, way, test, &queue, observe)));
                }
                if let Some(devices) = polled_in_runtime(variant) {
                    let (way, in_runtime) =
                        ("reactor-on-runtime/", setup(&devices, QueueOrder::InOrder, true));
                    trials.extend(graph.iter().map(|test| trial(variant, way, test, &in_runtime, observe)));
                }
            }
            Err(error) => {
                let fails = required(variant);
                trials.push(Trial::ignorable_test(format!("{backend}/{device}/all"), move || match fails {
                    true => Err(Failed::from(format!("WAKEGRAPH_REQUIRE asks for this device: {error}"))),
                    false => Ok(Completion::ignored_with(error)),
                }));
            }
        }
    }
    trials
}

/// Held by the tests that run: shared, but for those that run alone.
static RUNNING: RwLock<()> = RwLock::new(());

fn trial(
    variant: &Variant,
    way: &str,
    test: &Test,
    setup: &Arc<Setup>,
    observe: fn(&'static str, &Test, bool),
) -> Trial {
    let name = format!("{}/{}/{way}{}/{}", variant.backend, variant.device, test.topic, test.name);
    let missing = test.needs.iter().find(|need| !setup.can(**need));
    let setup = setup.clone();
    let drops = test.needs.contains(&Need::DeferredDrops);
    let (backend, test) = (variant.backend, *test);
    Trial::ignorable_test(name, move || {
        if let Some(missing) = missing {
            // All other needs are known without a device.
            if missing.is_told_by_device() {
                observe(backend, &test, false);
            }
            return Ok(Completion::ignored_with(format!("needs {}", missing.name())));
        }
        let (_alone, _shared) = match test.needs.contains(&Need::Alone) {
            true => (Some(RUNNING.write()), None),
            false => (None, Some(RUNNING.read())),
        };
        let mut lacks = None;
        in_flight::run(|| lacks = suite::run(&test, &setup), drops);
        observe(backend, &test, lacks.is_none());
        Ok(lacks.map_or(Completion::Completed, |what| Completion::ignored_with(format!("needs {what}"))))
    })
}
