//! Conditionals and loops.

use std::sync::Arc;

use wakegraph_hal::{CommandKind, Error, ErrorKind, Result};

use crate::runtime::builder::Graph;
use crate::runtime::builder::command::{Command, Control, ControlKind};
use crate::runtime::builder::node::NodeBuilder;
use crate::runtime::resource::allocation::View;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::memory_arg::{MemoryArg, Operand};

impl Graph {
    /// Adds a conditional: when its turn comes, a copy of `then` as it is now runs, if `flag` is not 0.
    ///
    /// `flag` is one element of a buffer, which earlier nodes may write. The body is any graph: it may
    /// hold host tasks, nodes of several devices, scratch buffers, conditionals and loops. Edges to and
    /// from the node hold for all that is in it.
    ///
    /// Where the flag and the whole body are on one device that can decide by itself
    /// ([`CommandKinds::IF`](crate::capabilities::CommandKinds::IF)), the device does, and the host is not
    /// asked. Otherwise a task of the runtime reads the flag and submits the body; then the node is a
    /// partition of its own, as a host task is. [`plan_text`](crate::ExecutableGraph::plan_text) shows
    /// which it is.
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
    /// At finalize: the first of the body's; [`InvalidSize`](ErrorKind::InvalidSize) for a flag that is
    /// not one element, and for more than 63 conditionals and loops inside each other;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a flag in a scratch buffer;
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) where a device lacks a command of the body.
    #[track_caller]
    pub fn if_nonzero(&mut self, flag: impl MemoryArg<u32>, then: &Graph) -> NodeBuilder<'_> {
        self.control(flag.operand(), &[then], |mut bodies| ControlKind::If {
            then: bodies.remove(0),
            otherwise: None,
        })
    }

    /// As [`if_nonzero`](Self::if_nonzero), with a copy of `otherwise` to run if `flag` is 0.
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

    /// Adds a loop: when its turn comes, a copy of `body` as it is now runs again and again as long as
    /// `flag` is not 0. The flag is read before each iteration, the first one included.
    ///
    /// The body has to make the flag 0 at some time, and no submission behind it on a device gets its turn
    /// before. Otherwise only [`cancel`](crate::Submission::cancel) and a
    /// [deadline](crate::SubmitBuilder::deadline) end the loop, before its next iteration. Flag and body are
    /// as for [`if_nonzero`](Self::if_nonzero); the capability of a device is
    /// [`CommandKinds::WHILE`](crate::capabilities::CommandKinds::WHILE).
    ///
    /// ```
    /// use wakegraph::{Device, Graph, write};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let left = device.host_buffer_from(&[3u32])?;
    ///
    /// let mut body = Graph::new(&device);
    /// body.host_task((write(&left),), async |(mut left,)| {
    ///     tokio::task::yield_now().await; // ask a server whether to go on, say
    ///     left[0] -= 1;
    /// });
    /// let mut graph = Graph::new(&device);
    /// graph.while_nonzero(&left, &body);
    ///
    /// graph.finalize()?.submit().await?;
    /// assert_eq!(left.read().await[0], 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`if_nonzero`](Self::if_nonzero).
    #[track_caller]
    pub fn while_nonzero(&mut self, flag: impl MemoryArg<u32>, body: &Graph) -> NodeBuilder<'_> {
        self.control(flag.operand(), &[body], |mut bodies| ControlKind::While(bodies.remove(0)))
    }

    #[track_caller]
    fn control(
        &mut self,
        Operand(flag): Operand,
        bodies: &[&Graph],
        make: impl FnOnce(Vec<Arc<Graph>>) -> ControlKind,
    ) -> NodeBuilder<'_> {
        let snapshots: Result<Vec<_>> = bodies.iter().map(|body| body.snapshot().map(Arc::new)).collect();
        let kind = match snapshots {
            Ok(bodies) => make(bodies),
            Err(error) => return self.refuse(CommandKind::Empty, error),
        };
        let command_kind = kind.command_kind();
        let checked = check(&flag, bodies).and_then(|()| Control::new(flag.clone(), kind));
        let (control, device) = match checked {
            Ok(checked) => checked,
            Err(error) => return self.refuse(command_kind, error),
        };
        let accesses = control.accesses();
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
