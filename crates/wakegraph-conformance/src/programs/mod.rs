//! Random programs: a few executables over the same memory, which are submitted, updated, cancelled and
//! dropped among commands of queues and guards, against a model that runs all of it one after the other.
//!
//! [`run`] carries out one program. [`Choices`] make it, from a seed or from bytes: the suite runs seeds on
//! every device, and `tests/programs.rs` and the fuzz target run bytes. The storm, in which no order is
//! known, takes only the steps of its graphs from here.
//!
//! | file | what it has |
//! |---|---|
//! | `choices` | where choices come from |
//! | `step` | the vocabulary: the steps that nodes and commands of queues carry out |
//! | `generate` | the generator of steps |
//! | `model` | what steps do, as numbers |
//! | `world` | the memory, and steps as nodes of graphs and commands of queues |
//! | `subject` | an executable with what it does now, its updates and their expected outcomes |
//! | `settings` | the kinds of programs |
//! | `interpreter` | the program: what is asked for, and its comparison with the model |
//! | `bytes` | the devices and settings of programs from bytes |

mod bytes;
mod choices;
mod generate;
mod interpreter;
mod model;
mod settings;
mod step;
mod subject;
mod world;

pub use bytes::run_bytes;
pub use choices::Choices;
pub use generate::Mixture;
pub use interpreter::run;
pub use settings::Settings;
pub use step::{LEN, Node, ON_DEVICES, ON_HOST};
pub use world::{World, add_node};
