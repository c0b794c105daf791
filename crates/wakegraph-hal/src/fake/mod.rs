//! A fake device for tests: work completes when the test says so, time is a counter, and faults
//! are injected.
//!
//! [`FakeDevice::open`] gives a device and the [`FakeControl`] over it. What is enqueued on a
//! [manual](FakeOptions::manual) device stays pending until the control completes it, fails it, or
//! loses the device. No command does anything: memory keeps what the host wrote to it.
//!
//! ```
//! use wakegraph::testing::{FakeDevice, FakeOptions};
//! use wakegraph::{Device, Graph};
//! let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
//! let device = Device::from_hal(device);
//! let x = device.buffer::<u32>(4)?;
//! let mut graph = Graph::new(&device);
//! graph.fill(&x, 1);
//! let submission = graph.finalize()?.submit();
//! assert_eq!(control.pending(), 1);
//! assert!(control.complete_next(None));
//! tokio::runtime::Runtime::new().unwrap().block_on(submission)?;
//! # Ok::<(), wakegraph::Error>(())
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `options` | how the device behaves |
//! | `device` | the device, its memory and kernels, and what a test does to it |
//! | `queue` | queues, command-buffers and events |
//! | `schedule` | what is pending, what may complete next, and the uses of events |

mod device;
mod options;
mod queue;
mod schedule;

pub use device::{FakeControl, FakeDevice};
pub use options::{FakeOptions, FakeTiming};
