//! Conditionals and loops.

use std::sync::Arc;

use crate::runtime::builder::command::Command;
use crate::runtime::builder::control_flow::{Body, Control, ControlKind};
use crate::runtime::builder::node::NodeBuilder;
use crate::runtime::builder::{Graph, merged_accesses};
use crate::runtime::execution::conflicts;
use crate::runtime::resource::allocation::View;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::memory_arg::{MemoryArg, Operand};
use crate::types::{Access, AccessMode, CommandKind, Error, ErrorKind, Result};

impl Graph {
    /// Adds a conditional: when its turn comes, the device runs a copy of `then` as it is now, if
    /// `flag` is not 0.
    ///
    /// `flag` is one element of a buffer, which earlier nodes may write; the host is not asked. The
    /// body is a graph of commands of one device: kernels, copies, fills, sub-graphs, native
    /// commands, conditionals and loops, but no host tasks. Edges to and from the node hold for all
    /// its commands.
    ///
    /// ```
    /// use wakegraph::{Device, Graph};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let (flag, x) = (device.buffer_from(&[0u32])?, device.buffer_from(&[1u32, 2])?);
    ///
    /// let mut clear = Graph::new(&device);
    /// clear.fill(&x, 0);
    /// let mut graph = Graph::new(&device);
    /// graph.if_nonzero(&flag, &clear);
    ///
    /// let exec = graph.finalize()?;
    /// exec.submit().await?;
    /// assert_eq!(x.to_vec().await?, [1, 2]);
    /// flag.write(&[1]).await?;
    /// exec.submit().await?;
    /// assert_eq!(x.to_vec().await?, [0, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// At finalize: the first of the body's; [`InvalidArgument`](ErrorKind::InvalidArgument),
    /// naming the node, for a host task or a second device in the body;
    /// [`InvalidSize`](ErrorKind::InvalidSize) for a flag that is not one element, and for more
    /// than 63 conditionals and loops inside each other;
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) where the device has no conditionals
    /// ([`CommandKinds::IF`](crate::CommandKinds::IF)), or lacks a command of the body.
    #[track_caller]
    pub fn if_nonzero(&mut self, flag: impl MemoryArg<u32>, then: &Graph) -> NodeBuilder<'_> {
        self.control(flag.operand(), &[then], |mut bodies| ControlKind::If {
            then: bodies.remove(0),
            otherwise: None,
        })
    }

    /// As [`if_nonzero`](Self::if_nonzero), with a copy of `otherwise` to run if `flag` is 0. Both
    /// bodies run on one device.
    ///
    /// # Errors
    /// As [`if_nonzero`](Self::if_nonzero).
    #[track_caller]
    pub fn if_nonzero_else(
        &mut self,
        flag: impl MemoryArg<u32>,
        then: &Graph,
        otherwise: &Graph,
    ) -> NodeBuilder<'_> {
        self.control(flag.operand(), &[then, otherwise], |mut bodies| {
            let then = bodies.remove(0);
            ControlKind::If { then, otherwise: bodies.pop() }
        })
    }

    /// Adds a loop: when its turn comes, the device runs a copy of `body` as it is now, again and
    /// again as long as `flag` is not 0, which it reads before each time, the first one
    /// included.
    ///
    /// The body has to make the flag 0 at some time: nothing else ends the loop, and no submission
    /// behind it on the device gets its turn before. Flag and body as for
    /// [`if_nonzero`](Self::if_nonzero).
    ///
    /// # Errors
    /// As [`if_nonzero`](Self::if_nonzero); the capability is
    /// [`CommandKinds::WHILE`](crate::CommandKinds::WHILE).
    #[track_caller]
    pub fn while_nonzero(&mut self, flag: impl MemoryArg<u32>, body: &Graph) -> NodeBuilder<'_> {
        self.control(flag.operand(), &[body], |mut bodies| ControlKind::While(bodies.remove(0)))
    }

    #[track_caller]
    fn control(
        &mut self,
        Operand(flag): Operand,
        bodies: &[&Graph],
        make: impl FnOnce(Vec<Arc<crate::graph::Graph<Command>>>) -> ControlKind,
    ) -> NodeBuilder<'_> {
        let nodes: Result<Vec<_>> =
            bodies.iter().map(|body| Ok(Arc::new(body.present()?.into_owned()))).collect();
        let nodes = match nodes {
            Ok(nodes) => nodes,
            Err(error) => return self.refuse(CommandKind::Empty, error),
        };
        let accesses = control_accesses(&flag, &nodes);
        let kind = make(nodes);
        let command_kind = kind.command_kind();
        let checked = check(&flag, bodies).and_then(|()| Control::new(flag.clone(), kind));
        let (control, device) = match checked {
            Ok(checked) => checked,
            Err(error) => return self.refuse(command_kind, error),
        };
        let find = |id| bodies.iter().find_map(|body| body.find_device(id));
        let device: Option<Device> = device.and_then(find).or(Some(flag.allocation.device())).cloned();
        self.add(command_kind, device, Ok(accesses), || Command::Control(Arc::new(control)))
    }
}

fn check(flag: &View, bodies: &[&Graph]) -> Result<()> {
    if let Some(error) = bodies.iter().find_map(|body| body.errors.first()) {
        return Err(error.clone());
    }
    if flag.len != size_of::<u32>() {
        let why = format!("the flag has {} elements, not one", flag.len / size_of::<u32>());
        return Err(Error::new(ErrorKind::InvalidSize, why).help("pass a slice of one element"));
    }
    Ok(())
}

/// The flag is read, and the bodies may do all that they can do.
fn control_accesses(flag: &View, bodies: &[Body]) -> Vec<Access> {
    let mut all = vec![flag.access(AccessMode::Read)];
    all.extend(bodies.iter().flat_map(|body| merged_accesses(body)));
    all.sort_by_key(|access| access.resource);
    all.chunk_by(|a, b| a.resource == b.resource).flat_map(conflicts::merged).collect()
}
