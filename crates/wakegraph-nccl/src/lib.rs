//! NCCL's collectives as nodes of a graph: all-reduce, all-gather, reduce-scatter and broadcast over the CUDA
//! devices of one process, a buffer on each.
//!
//! ```no_run
//! use wakegraph::{Device, Graph};
//! use wakegraph_nccl::{Communicator, Reduction};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> wakegraph::Result<()> {
//! let devices = [Device::open("cuda:0")?, Device::open("cuda:1")?];
//! let sums = [devices[0].buffer_from(&[1.0f32; 1000])?, devices[1].buffer_from(&[2.0f32; 1000])?];
//! let nccl = Communicator::new(&devices)?;
//!
//! let mut graph = Graph::new(&devices[0]);
//! nccl.all_reduce(&mut graph, Reduction::Sum, &sums, &sums);
//! graph.finalize()?.submit().await?;
//! assert_eq!(sums[1].to_vec().await?, [3.0; 1000]);
//! # Ok(())
//! # }
//! ```
//!
//! A collective is one node, on the device of the first rank. At finalize, NCCL is called once for each rank,
//! all in one group, while streams of all devices are captured into one graph of the driver, so one launch
//! starts all ranks. An update, a cancellation or a failure concerns the node, and so all ranks.
//!
//! # Why ranks do not wait for each other forever
//! NCCL's kernels wait on their GPUs for those of the other ranks. They hang where some rank never starts, or
//! where two GPUs start two collectives in different orders. By design, neither can be written with this
//! crate, which has not run on two GPUs yet:
//!
//! - All ranks of a collective start by one launch, behind all that the node comes after on any device. So a
//!   node before it that fails or is cancelled keeps all of them from starting, and no rank is enqueued
//!   before something that another rank waits for.
//! - Every collective declares to write one word on each of its devices, the same for all communicators. So
//!   nodes and submissions that share a device are ordered as all that write the same memory are, in one
//!   order for all devices, whatever graph, thread or communicator they are of.
//!
//! NCCL's documentation advises against capturing several GPUs in one process, since the launch of one
//! rank's graph may block that of the next. Here there is one launch. Calls of NCCL by other libraries in the
//! process are not ordered against these.
//!
//! # Requirements
//! - NCCL 2.20 or newer as `libnccl.so.2`, which is loaded at run time.
//! - Devices that can access each other's memory, where there are several, all opened by
//!   [`Device::open`](wakegraph::Device::open). [Imported](wakegraph::Device::import) buffers are taken on
//!   the first of them only.
//! - A decision on two variables of the environment, where there are several devices:
//!
//! | variable | 0 | NCCL's default |
//! |---|---|---|
//! | `NCCL_NVLS_ENABLE` | NVLink's multicast is off: the safe choice on machines that others share | 2: on, where it is there |
//! | `NCCL_GRAPH_MIXING_SUPPORT` | what this crate needs, as it orders all collectives | 1: NCCL orders them as well, which by its documentation may lead to deadlocks |

mod clique;
mod collective;
mod element;
mod exit;
mod sys;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::fmt::{self, Debug};
use std::sync::Arc;

pub use element::{Element, Reduction};
use wakegraph::interop::{NativeAccess, NativeStream, UsmPointer};
use wakegraph::{Buffer, Device, Error, ErrorKind, Graph, NodeBuilder, Result};

use crate::clique::Clique;
use crate::collective::{Collective, Operation};
use crate::sys::Functions;

/// Variables of the environment that have to be set for several ranks.
const DECISIONS: [&str; 2] = ["NCCL_NVLS_ENABLE", "NCCL_GRAPH_MIXING_SUPPORT"];

/// NCCL's communicators of some devices, which are its ranks in their order. Clones are handles to the same.
///
/// Graphs and executables keep it. When nothing does any more, a thread destroys it.
#[derive(Clone)]
pub struct Communicator(Arc<Clique>);

impl Communicator {
    /// Connects the devices.
    ///
    /// This takes a second or so, and waits for the devices: call it where a thread may block.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) where NCCL is missing or too old;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for no devices, for devices other than CUDA's, for the
    /// same twice without `NCCL_MULTI_RANK_GPU_ENABLE=1`, and for several ranks where one of the
    /// [variables](crate#requirements) of the environment is not set;
    /// [`Driver`](ErrorKind::Driver) where NCCL fails.
    pub fn new(devices: &[Device]) -> Result<Self> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidArgument, why);
        if devices.is_empty() {
            return Err(invalid("a communicator of no devices".into()));
        }
        let is_again = |(index, device): (usize, &Device)| {
            devices[..index].iter().any(|other| other.selector() == device.selector())
        };
        let may_share = std::env::var_os("NCCL_MULTI_RANK_GPU_ENABLE").is_some_and(|value| value == "1");
        if !may_share && devices.iter().enumerate().any(is_again) {
            return Err(invalid("two ranks on one device".into())
                .help("NCCL 2.30 allows it, as an experiment, with NCCL_MULTI_RANK_GPU_ENABLE=1"));
        }
        let is_open = |name: &&&str| devices.len() > 1 && std::env::var_os(**name).is_none();
        if let Some(name) = DECISIONS.iter().find(is_open) {
            return Err(invalid(format!("several ranks, and {name} is not set")).help(
                "set it before the program starts, mostly to 0; see \"Requirements\" in the documentation",
            ));
        }
        Ok(Self(Arc::new(Clique::new(Functions::load()?, devices)?)))
    }

    /// The devices, in the order of the ranks.
    pub fn devices(&self) -> &[Device] {
        &self.0.devices
    }

    /// Adds a node that writes the reduction of all inputs, element by element, to each output.
    ///
    /// Buffers are in the order of the ranks, all of one length. An output may be the rank's input. Without
    /// elements, the node is an empty one.
    ///
    /// # Errors
    /// At finalize: [`InvalidArgument`](ErrorKind::InvalidArgument) for a wrong number of buffers, and for
    /// one of another length, on another device than its rank's, or that overlaps in another way;
    /// [`Driver`](ErrorKind::Driver) where NCCL fails.
    #[track_caller]
    pub fn all_reduce<'g, T: Element>(
        &self,
        graph: &'g mut Graph,
        by: Reduction,
        inputs: &[impl Borrow<Buffer<T>>],
        outputs: &[impl Borrow<Buffer<T>>],
    ) -> NodeBuilder<'g> {
        self.add(graph, Collective::AllReduce(by), &borrowed(inputs), &borrowed(outputs))
    }

    /// Adds a node that writes to each output the rank's part of the reduction of all inputs.
    ///
    /// Inputs are as long as all outputs together. An output may be that part of the rank's input.
    ///
    /// # Errors
    /// As for [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce_scatter<'g, T: Element>(
        &self,
        graph: &'g mut Graph,
        by: Reduction,
        inputs: &[impl Borrow<Buffer<T>>],
        outputs: &[impl Borrow<Buffer<T>>],
    ) -> NodeBuilder<'g> {
        self.add(graph, Collective::ReduceScatter(by), &borrowed(inputs), &borrowed(outputs))
    }

    /// Adds a node that writes all inputs, one behind the other, to each output.
    ///
    /// Outputs are as long as all inputs together. An input may be the rank's part of its output.
    ///
    /// # Errors
    /// As for [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_gather<'g, T: Element>(
        &self,
        graph: &'g mut Graph,
        inputs: &[impl Borrow<Buffer<T>>],
        outputs: &[impl Borrow<Buffer<T>>],
    ) -> NodeBuilder<'g> {
        self.add(graph, Collective::AllGather, &borrowed(inputs), &borrowed(outputs))
    }

    /// Adds a node that writes the input, which is on the device of rank `root`, to each output.
    ///
    /// All are of one length. The root's output may be the input.
    ///
    /// # Errors
    /// As for [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn broadcast<'g, T: Element>(
        &self,
        graph: &'g mut Graph,
        root: usize,
        input: &Buffer<T>,
        outputs: &[impl Borrow<Buffer<T>>],
    ) -> NodeBuilder<'g> {
        self.add(graph, Collective::Broadcast(root), &[input], &borrowed(outputs))
    }

    #[track_caller]
    #[expect(unsafe_code, reason = "vouches for NCCL")]
    fn add<'g, T: Element>(
        &self,
        graph: &'g mut Graph,
        collective: Collective,
        inputs: &[&Buffer<T>],
        outputs: &[&Buffer<T>],
    ) -> NodeBuilder<'g> {
        let clique = self.0.clone();
        let devices: Vec<_> = clique.devices.iter().map(Device::selector).collect();
        let operation = Operation::new(collective, &devices, inputs, outputs);
        if operation.as_ref().is_ok_and(Operation::is_empty) {
            return graph.empty().name(collective.name());
        }
        // The first one says which device the node is on.
        let written = outputs.iter().map(|output| NativeAccess::write(*output));
        let read = inputs.iter().map(|input| NativeAccess::read(*input));
        let tokens = clique.tokens.iter().map(|token| NativeAccess::write(&**token));
        let accesses: Vec<_> = written.chain(read).chain(tokens).collect();
        let record = move |lent: &NativeStream<'_>, pointers: Vec<UsmPointer>| {
            let operation = operation.as_ref().map_err(Error::clone)?;
            let addresses: Vec<_> = pointers.into_iter().map(UsmPointer::address).collect();
            operation.record(&clique, lent, &addresses)
        };
        // SAFETY: NCCL enqueues on the streams that it is given, which branch off the lent one and join it,
        // and uses the elements of the buffers, and memory of its own, which the communicator keeps. All that
        // uses the communicator is ordered by the tokens.
        unsafe { graph.native(collective.name(), accesses, record) }
    }
}

impl Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator").field("devices", &self.0.devices).finish_non_exhaustive()
    }
}

fn borrowed<T: Element>(buffers: &[impl Borrow<Buffer<T>>]) -> Vec<&Buffer<T>> {
    buffers.iter().map(Borrow::borrow).collect()
}
