//! What drivers with graphs of explicit nodes have in common, as CUDA's and HIP's: a command-buffer is a
//! graph that is instantiated at finalize, launched at enqueue, and changed by updates.
//!
//! A backend implements [`GraphObjects`], the driver's calls, and [`GraphDevice`], how commands become nodes
//! and how an instance is launched. Each file uses only files before it in this list.
//!
//! | file | what it has |
//! |---|---|
//! | `objects` | the driver's graphs |
//! | `recording` | the commands of a command-buffer, recorded as a graph |
//! | `instance` | what enqueues launch and updates change |
//! | `device` | what differs between drivers |
//! | `update` | how updates change it |
//! | `command_buffer` | the contract's command-buffer |
//! | `single_command` | commands outside command-buffers |

mod command_buffer;
mod device;
mod instance;
mod objects;
mod recording;
mod single_command;
mod update;

pub use command_buffer::GraphCommandBuffer;
pub use device::GraphDevice;
pub use instance::LaunchableGraph;
pub use objects::{GraphObjects, InstantiatedGraph};
pub use recording::{CommandNodes, GraphRecording, GraphState, RecordedCommand};
pub use single_command::enqueue_as_graph;
