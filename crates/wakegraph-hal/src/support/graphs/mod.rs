//! The common part of drivers with graphs of explicit nodes, as CUDA's and HIP's: a command-buffer is a
//! graph that is instantiated at finalize, launched at enqueue, and changed by updates.
//!
//! A backend implements [`GraphObjects`], the driver's calls, and [`GraphDevice`], how commands become nodes
//! and how an instance is launched. Each file uses only files before it in this list.
//!
//! | file | what it has |
//! |---|---|
//! | `graph` | the driver's graphs: how commands become one, its instance, single commands |
//! | `update` | how updates change it |
//! | `command_buffer` | the contract's command-buffer |

mod command_buffer;
mod graph;
mod update;

pub use command_buffer::GraphCommandBuffer;
pub use graph::{
    CommandNodes, GraphDevice, GraphObjects, GraphRecording, GraphState, InstantiatedGraph, LaunchableGraph,
    RecordedCommand, enqueue_as_graph, once_each,
};
