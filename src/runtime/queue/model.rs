//! The locks of queues and recordings in miniature, in the model of loom: commands are numbers, and a
//! command that runs is kept by its queue. `scripts/loom.sh` runs it.
//!
//! What must hold: every command is either run or recorded, and recorded only into the graph whose
//! recording the queue takes part in. These changes, each of which breaks that, fail the model:
//!
//! - `end` takes the graph before it detaches the queues: a command is recorded into a list that is dropped;
//! - `end` closes the list of queues after it has detached them: a queue that joins meanwhile records on;
//! - `resume` checks for a recorder under one lock and attaches under another: two recordings have one queue;
//! - `command` does not check for the recorder again under the lock: a command has nowhere to go;
//! - `command` puts the command into the graph after it has let go of the lock: as the first one.

use std::sync::Arc;

use loom::thread;

use crate::sync::{AtomicBool, Mutex, Ordering};

struct ModelQueue {
    is_recording: AtomicBool,
    state: Mutex<ModelState>,
}

#[derive(Default)]
struct ModelState {
    recorder: Option<Arc<ModelRecording>>,
    run: Vec<u32>,
}

struct ModelRecording {
    graph: Mutex<Vec<u32>>,
    /// None after the end.
    queues: Mutex<Option<Vec<Arc<ModelQueue>>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Done {
    Run,
    Recorded,
}

impl ModelQueue {
    fn new() -> Arc<Self> {
        Arc::new(Self { is_recording: AtomicBool::new(false), state: Mutex::new(ModelState::default()) })
    }

    /// As a command without a wait list: the macro `record!`, then `run_on_device`.
    fn command(&self, command: u32) -> Done {
        if self.is_recording.load(Ordering::Acquire) {
            return self.record(command);
        }
        self.run(command)
    }

    /// As a command that depends on a recorded event. `None` if it is refused, because the recording has
    /// ended.
    fn command_after(self: &Arc<Self>, command: u32, recording: &Arc<ModelRecording>) -> Option<Done> {
        if !self.is_recording.load(Ordering::Acquire) && !recording.join(self) {
            return None;
        }
        Some(self.record(command))
    }

    fn record(&self, command: u32) -> Done {
        let state = self.state.lock();
        if let Some(recording) = &state.recorder {
            recording.graph.lock().push(command);
            return Done::Recorded;
        }
        drop(state);
        self.run(command)
    }

    fn run(&self, command: u32) -> Done {
        self.state.lock().run.push(command);
        Done::Run
    }

    fn has_run(&self) -> Vec<u32> {
        let state = self.state.lock();
        assert!(
            state.recorder.is_none() && !self.is_recording.load(Ordering::Relaxed),
            "it records for ever"
        );
        state.run.clone()
    }
}

impl ModelRecording {
    fn new() -> Arc<Self> {
        Arc::new(Self { graph: Mutex::new(Vec::new()), queues: Mutex::new(Some(Vec::new())) })
    }

    /// As `Recording::resume`.
    fn resume(self: &Arc<Self>, queue: &Arc<ModelQueue>) -> bool {
        let mut state = queue.state.lock();
        state.recorder.is_none() && self.attach(queue, &mut state)
    }

    /// As `RecordingInner::join`.
    fn join(self: &Arc<Self>, queue: &Arc<ModelQueue>) -> bool {
        let mut state = queue.state.lock();
        state.recorder.is_some() || self.attach(queue, &mut state)
    }

    /// As `RecordingInner::attach`.
    fn attach(self: &Arc<Self>, queue: &Arc<ModelQueue>, state: &mut ModelState) -> bool {
        match &mut *self.queues.lock() {
            Some(queues) => queues.push(queue.clone()),
            None => return false,
        }
        state.recorder = Some(self.clone());
        queue.is_recording.store(true, Ordering::Release);
        true
    }

    /// As dropping a `Recording`. Returns what the graph has got.
    fn end(self: &Arc<Self>) -> Vec<u32> {
        let queues = self.queues.lock().take();
        for queue in queues.into_iter().flatten() {
            let mut state = queue.state.lock();
            if state.recorder.as_ref().is_some_and(|recording| Arc::ptr_eq(recording, self)) {
                queue.is_recording.store(false, Ordering::Release);
                state.recorder = None;
            }
        }
        std::mem::take(&mut *self.graph.lock())
    }
}

#[test]
fn loom_commands_beside_begin_and_end_are_run_or_recorded_in_order() {
    loom::model(|| {
        let queue = ModelQueue::new();
        let commanding = {
            let queue = queue.clone();
            thread::spawn(move || [1, 2].map(|command| queue.command(command)))
        };
        let recording = ModelRecording::new();
        assert!(recording.resume(&queue));
        assert_eq!(queue.command(3), Done::Recorded);
        let recorded = recording.end();
        assert_eq!(queue.command(4), Done::Run);
        let done = commanding.join().unwrap();
        let run = queue.has_run();
        let of =
            |wanted| (1..).zip(done).filter(move |(_, done)| *done == wanted).map(|(command, _)| command);
        let both = |list: &[u32]| list.iter().copied().filter(|command| *command < 3).collect::<Vec<u32>>();
        assert!(both(&recorded).into_iter().eq(of(Done::Recorded)), "{done:?} {recorded:?}");
        assert!(both(&run).into_iter().eq(of(Done::Run)), "{done:?} {run:?}");
        assert!(recorded.contains(&3) && run.contains(&4));
        assert!(recording.graph.lock().is_empty(), "recorded into a list that is dropped");
    });
}

#[test]
fn loom_a_queue_that_joins_beside_the_end_loses_nothing() {
    loom::model(|| {
        let (queue, joining, recording) = (ModelQueue::new(), ModelQueue::new(), ModelRecording::new());
        assert!(recording.resume(&queue));
        let commanding = {
            let (joining, recording) = (joining.clone(), recording.clone());
            thread::spawn(move || joining.command_after(1, &recording))
        };
        let recorded = recording.end();
        let done = commanding.join().unwrap();
        let run = joining.has_run();
        let expected = |wanted| if done == Some(wanted) { vec![1] } else { vec![] };
        assert_eq!((recorded, run), (expected(Done::Recorded), expected(Done::Run)), "{done:?}");
        assert!(recording.graph.lock().is_empty(), "recorded into a list that is dropped");
    });
}

#[test]
fn loom_two_recordings_of_one_queue_keep_their_commands_apart() {
    loom::model(|| {
        let queue = ModelQueue::new();
        let record = |queue: Arc<ModelQueue>, command: u32| {
            let recording = ModelRecording::new();
            let is_ours = recording.resume(&queue);
            let done = queue.command(command);
            let recorded = recording.end();
            assert!(recording.graph.lock().is_empty(), "recorded into a list that is dropped");
            (is_ours, done, recorded)
        };
        let other = {
            let queue = queue.clone();
            thread::spawn(move || record(queue, 1))
        };
        let all = [record(queue.clone(), 2), other.join().unwrap()];
        let mut seen: Vec<u32> = queue.has_run();
        for ((is_ours, done, recorded), command) in all.iter().zip([2, 1]) {
            assert!(*is_ours || recorded.is_empty(), "{all:?}");
            assert!(!is_ours || *done == Done::Recorded && recorded.contains(&command), "{all:?}");
            seen.extend(recorded);
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2], "{all:?}");
    });
}
