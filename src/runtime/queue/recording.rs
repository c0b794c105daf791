//! Recording: commands of queues become nodes of a graph.

use std::fmt::{self, Debug};
use std::panic::Location;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::graph::NodeId;
use crate::runtime::builder::Graph;
use crate::runtime::builder::recorded_queues::RecordedNodes;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::submission::{Event, EventRecording, QueueRecording};
use crate::runtime::queue::{Barrier, Queue, QueueInner, QueueState};
use crate::sync::Ordering;
use crate::util::attachment::Attachment;

impl Graph {
    /// Records the commands of queues: until the guard is dropped, each becomes a node of this graph instead
    /// of running.
    ///
    /// Nodes get the same edges as if they were added one by one: they follow from what the commands read
    /// and write. On an in-order queue, each command also comes after the previous one that the queue has
    /// recorded into this graph, by an earlier recording too. Commands that a queue ran before, and runs
    /// after, have nothing to do with the graph. Other edges are made with [`Queue::after`] and
    /// [`Queue::barrier`].
    ///
    /// Threads may record at once, on one queue or on several. A queue that does not record joins the
    /// recording when a command of it [depends](Queue::after) on a recorded event, until the recording ends.
    ///
    /// What is wrong with a command is kept by the graph, as for nodes that are added one by one, and comes
    /// out of [`finalize`](Self::finalize).
    ///
    /// ```
    /// use wakegraph::{Device, Graph, Queue, Range, read};
    ///
    /// wakegraph::kernel! {
    ///     fn double(x: &mut [u32]) { item: |i, x| x[i] *= 2 }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let x = device.buffer_from(&[1u32, 2, 3])?;
    /// let step = |queue: &Queue| queue.launch(double(&x), Range::linear(3));
    ///
    /// let queue = device.queue()?;
    /// step(&queue).await?; // runs
    ///
    /// let mut graph = Graph::new(&device);
    /// {
    ///     let _recording = graph.record([&queue])?;
    ///     step(&queue);
    ///     step(&queue);
    /// }
    /// assert_eq!(graph.len(), 2);
    /// let exec = graph.finalize()?;
    /// exec.submit().await?;
    /// assert_eq!(x.to_vec().await?, [8, 16, 24]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The guard borrows the graph, so that nothing else can be added meanwhile:
    ///
    /// ```compile_fail,E0499
    /// # use wakegraph::{Device, Graph};
    /// # let device = Device::open("host").unwrap();
    /// # let (queue, x) = (device.queue().unwrap(), device.buffer::<u32>(1).unwrap());
    /// let mut graph = Graph::new(&device);
    /// let recording = graph.record([&queue]).unwrap();
    /// graph.fill(&x, 1);
    /// drop(recording);
    /// ```
    ///
    /// Nor can the graph become a sub-graph of itself:
    ///
    /// ```compile_fail,E0502
    /// # use wakegraph::{Device, Graph};
    /// # let device = Device::open("host").unwrap();
    /// # let queue = device.queue().unwrap();
    /// let mut graph = Graph::new(&device);
    /// let recording = graph.record([&queue]).unwrap();
    /// queue.sub_graph(&graph);
    /// drop(recording);
    /// ```
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) for a queue that is recording; none of the queues
    /// records into this graph then.
    pub fn record<'q>(&mut self, queues: impl IntoIterator<Item = &'q Queue>) -> Result<Recording<'_>> {
        // A recording whose guard was leaked ends.
        self.recorded_queues.set_end(None);
        self.refresh_params();
        self.set_recording(true);
        let empty = Self::new(self.device());
        let inner = Arc::new(RecordingInner::new(std::mem::replace(self, empty)));
        self.recorded_queues.set_end(Some(Box::new(EndOfRecording(Arc::downgrade(&inner)))));
        let recording = Recording { graph: self, inner };
        // If one cannot record, dropping the guard ends the recording of those before it.
        queues.into_iter().try_for_each(|queue| recording.inner.record(&queue.inner))?;
        Ok(recording)
    }
}

/// A recording of queues into a graph, made by [`Graph::record`]. Dropping it ends the recording.
///
/// A guard that is leaked leaves an empty graph behind. Its recording ends when that graph is dropped, or
/// records again.
#[must_use = "dropping it ends the recording"]
pub struct Recording<'g> {
    graph: &'g mut Graph,
    inner: Arc<RecordingInner>,
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.inner.end();
        std::mem::swap(self.graph, &mut *self.inner.graph.lock());
        self.graph.set_recording(false);
    }
}

impl Debug for Recording<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&*self.inner, f)
    }
}

/// Ends a recording with the empty graph that stands in for the recorded one. There is nothing left to end
/// then, unless the guard was leaked.
#[derive(Debug)]
struct EndOfRecording(Weak<RecordingInner>);

impl Drop for EndOfRecording {
    fn drop(&mut self) {
        if let Some(recording) = self.0.upgrade() {
            recording.end();
        }
    }
}

/// The state that a guard, the queues and the events of one recording share.
pub(crate) struct RecordingInner {
    /// The contents of the graph, until the end.
    pub(super) graph: Mutex<Graph>,
    /// The queues that take part, or have; none after the end.
    queues: Mutex<Option<Vec<Weak<QueueInner>>>>,
    refusal: Arc<Run>,
}

impl RecordingInner {
    fn new(graph: Graph) -> Self {
        let why = "the event is of a recorded command, which runs only when its graph does";
        let refusal = invalid(why).help("submit an executable of the graph and await that");
        Self {
            graph: Mutex::new(graph),
            queues: Mutex::new(Some(Vec::new())),
            refusal: Arc::new(Run::failed(refusal)),
        }
    }

    /// Lets a queue record that does not.
    fn record(self: &Arc<Self>, queue: &Arc<QueueInner>) -> Result<()> {
        let mut state = queue.state.lock();
        match state.recorder {
            None => self.attach(queue, &mut state),
            Some(_) => {
                let why = "the queue is already recording into a graph";
                Err(invalid(why).help("end that recording first, by dropping its guard"))
            }
        }
    }

    /// Lets a queue record, for which the caller has checked that it does not.
    fn attach(self: &Arc<Self>, queue: &Arc<QueueInner>, state: &mut QueueState) -> Result<()> {
        match &mut *self.queues.lock() {
            Some(queues) => queues.push(Arc::downgrade(queue)),
            None => {
                let why = "a recorded event was used after the end of its recording";
                let error = Error::new(ErrorKind::InvalidOperation, why);
                return Err(error.help("submit an executable of the graph, and depend on that submission"));
            }
        }
        let nodes = self.graph.lock().recorded_queues.take(queue.id);
        state.recorder = Some(Recorder { recording: self.clone(), nodes });
        queue.is_recording.store(true, Ordering::Release);
        Ok(())
    }

    /// Lets all queues run their commands again.
    fn end(self: &Arc<Self>) {
        // From here on, no queue joins.
        let queues = self.queues.lock().take();
        for queue in queues.iter().flatten().filter_map(Weak::upgrade) {
            let mut state = queue.state.lock();
            let is_own = |recorder: &mut Recorder| Arc::ptr_eq(&recorder.recording, self);
            if let Some(Recorder { nodes, .. }) = state.recorder.take_if(is_own) {
                queue.is_recording.store(false, Ordering::Release);
                self.graph.lock().recorded_queues.keep(queue.id, nodes);
            }
        }
    }

    /// Has a queue take part, because a command of it depends on an event of this recording.
    pub(super) fn join(self: &Arc<Self>, queue: &Arc<QueueInner>) -> Result<()> {
        let mut state = queue.state.lock();
        match state.recorder {
            // It records since a moment ago: then the event is checked as any other.
            Some(_) => Ok(()),
            None => self.attach(queue, &mut state),
        }
    }
}

impl Attachment for QueueRecording {
    type Value = RecordingInner;
}

impl EventRecording for RecordingInner {
    fn get(self: Arc<Self>) -> Arc<Self> {
        self
    }

    fn refusal(&self) -> &Arc<Run> {
        &self.refusal
    }
}

impl Debug for RecordingInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.queues.lock().as_ref().map(Vec::len);
        f.debug_struct("Recording").field("queues", &queues).finish_non_exhaustive()
    }
}

/// Place where a queue records its commands.
pub(super) struct Recorder {
    pub(super) recording: Arc<RecordingInner>,
    pub(super) nodes: RecordedNodes,
}

/// Connects a node that a queue has just recorded with what it comes after: the events of its wait list and
/// what the queue, in order or not, has recorded before.
pub(super) fn connect(
    graph: &mut Graph,
    nodes: &mut RecordedNodes,
    node: NodeId,
    after: &[Event],
    (in_order, barrier): (bool, Barrier),
    location: &'static Location<'static>,
) {
    for event in after {
        let edge = match event.node() {
            Some(earlier) if earlier.graph() == node.graph() => graph.make_edge(earlier, node),
            Some(_) => {
                let why = "a recorded command depends on an event that was recorded into another graph";
                let error = Error::new(ErrorKind::InvalidArgument, why).at(location);
                Err(error.help("add that graph as a sub-graph, or record both commands into one graph"))
            }
            None => {
                let why = "a recorded command depends on the event of a command or submission that runs";
                let error = Error::new(ErrorKind::InvalidArgument, why).at(location);
                Err(error.help("await the event before the graph is submitted, or pass it to `prepare`"))
            }
        };
        graph.keep_error(edge);
    }
    if let Some(last) = nodes.last {
        let edge = graph.make_edge(last, node);
        graph.keep_error(edge);
    }
    if barrier == Barrier::All {
        for leaf in leaves(graph, &nodes.since_barrier) {
            let edge = graph.make_edge(leaf, node);
            graph.keep_error(edge);
        }
        nodes.since_barrier.clear();
    }
    match in_order || barrier != Barrier::None {
        true => nodes.last = Some(node),
        false => nodes.since_barrier.push(node),
    }
}

/// Returns those of `nodes` that none of the others follows directly.
fn leaves(graph: &Graph, nodes: &[NodeId]) -> Vec<NodeId> {
    let is_followed = |node: &NodeId| {
        graph.inner().successors(*node).is_ok_and(|mut all| all.any(|one| nodes.binary_search(&one).is_ok()))
    };
    nodes.iter().copied().filter(|node| !is_followed(node)).collect()
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}
