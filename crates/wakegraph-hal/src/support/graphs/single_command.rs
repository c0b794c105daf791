//! Commands outside command-buffers: a graph that is launched once.

use std::sync::Arc;

use parking_lot::Mutex;

use super::objects::{GraphObjects, InstantiatedGraph as _};
use super::recording::CommandNodes;
use crate::support::streams::{DriverContext as _, Kept, Started, StreamQueue, retry_with_room};
use crate::{Command, Error, Result, Signal, WaitList};

/// A command as a graph, and what that needs.
#[derive(Debug)]
struct SingleCommand<D: GraphObjects> {
    exec: Mutex<D::Exec>,
    _graph: Mutex<D::Graph>,
    _command: Arc<Command>,
    _nodes: CommandNodes<D>,
}

/// Enqueues a command. `add` adds its nodes to a graph, with the context bound.
pub fn enqueue_as_graph<D: GraphObjects>(
    queue: &StreamQueue<D>,
    command: &Arc<Command>,
    wait: WaitList<'_>,
    signal: Signal<'_>,
    add: impl FnOnce(&mut D::Graph) -> Result<CommandNodes<D>>,
) -> Result<()> {
    let device = &queue.device;
    let single = device.context().run(|| {
        let mut graph = device.create_graph()?;
        let nodes = add(&mut graph)?;
        let exec = retry_with_room(|| device.trim(), || D::Exec::instantiate(&mut graph))?;
        let (exec, graph) = (Mutex::new(exec), Mutex::new(graph));
        Ok::<_, Error>(SingleCommand { exec, _graph: graph, _command: Arc::clone(command), _nodes: nodes })
    })?;
    let single = Arc::new(single);
    let kept: Kept = Arc::clone(&single) as Kept;
    queue.submit(None, Some(kept), wait, signal, |stream, _| {
        let failure = single.exec.lock().launch(stream)?.map(Error::from);
        Ok(Started { failure, ..Started::default() })
    })
}
