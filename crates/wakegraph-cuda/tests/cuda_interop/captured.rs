//! Captured steps that allocate are replayed while other work is in flight, shapes change, captures fail, and
//! executables and graphs are dropped; and beside a capture of the application.

use std::sync::atomic::AtomicU64;

use wakegraph::FinalizeOptions;

use super::*;

/// Submissions of captured steps that are in flight at a time, with as many of other work.
const WINDOW: usize = 16;
const STEPS: usize = 4;
const LENGTHS: [usize; 4] = [1, 1001, 20_000, 1 << 18];
/// Bytes by which the most memory in use may grow from the first half to the second. A kilobyte that is lost
/// in each replay of 10,000 is more.
const TOLERANCE: usize = 4 << 20;

wakegraph::kernel! {
    /// x = x + by
    fn increase(by: f32, x: &mut [f32]) {
        range: |_, x| x.len(),
        // SAFETY: a work-item uses the element with its index, which the range bounds.
        c: unsafe { "KERNEL(increase, (float by, SLICE(float, x))) { x[GLOBAL_ID(0)] += by; }" },
    }
}

pub(super) fn replays() {
    let (app, rounds) = (Application::new(0), round_count());
    let (mut choices, mut replays) = (Choices(1), 0);
    let mut steps: Vec<_> = (0..STEPS).map(|index| Step::new(&app, LENGTHS[index])).collect();
    let (mut theirs, other) = (app.slice(LEN), app.step(&app.device.buffer::<f32>(LEN).unwrap()));
    let mut most = [InUse::default(); 2];
    app.runtime.block_on(async {
        let tensor = Tensor::new(&app).await;
        while replays < rounds {
            let mut submissions = Vec::with_capacity(2 * WINDOW);
            for _ in 0..WINDOW {
                let step = &mut steps[choices.below(STEPS)];
                submissions.extend([step.submit(), other.submit()]);
                app.fill(&mut theirs, replays as f32);
                match choices.below(32) {
                    0 => step.change_shape(&app, choices.below(LENGTHS.len())).await,
                    1 => {
                        let new = Step::new(&app, LENGTHS[choices.below(LENGTHS.len())]);
                        std::mem::replace(step, new).end(choices.below(3)).await;
                    }
                    2 => step.graph = None,
                    // The run goes on.
                    3 => drop(submissions.swap_remove(choices.below(submissions.len()))),
                    4 => step.check().await,
                    5 => Mistake::ALL[choices.below(Mistake::ALL.len())].is_named(&app),
                    _ => {}
                }
                replays += 1;
            }
            tensor.check(replays as f32).await;
            for submission in submissions {
                submission.await.unwrap();
            }
            most[usize::from(2 * replays > rounds)].take(&app);
        }
        for step in steps {
            step.end(choices.below(3)).await;
        }
        tensor.end(&app);
    });
    assert_eq!(app.read(&theirs), [(replays - 1) as f32; LEN]);
    let [first, second] = most;
    println!("{replays} replays, most in use in the first half and in the second: {first:?}, {second:?}");
    // Fewer take memory for the first time in the second half, too.
    if rounds >= 1000 {
        assert!(second.device <= first.device + TOLERANCE, "memory of the device is lost");
        assert!(second.host <= first.host + TOLERANCE, "memory of the host is lost");
    }
}

/// Their capture is of this thread, in each mode. Neither makes the other one invalid, not even one that
/// fails, unless it draws the other one in.
pub(super) fn beside_a_capture_of_the_application() {
    let app = Application::new(0);
    let theirs = app.stream.context().new_stream().unwrap();
    let mistakes = [Mistake::Fails, Mistake::Waits, Mistake::EndsTheCapture, Mistake::LeavesABranchOpen];
    for mode in CAPTURE_MODES {
        let branches = mistakes.map(|_| app.stream.context().new_stream().unwrap());
        // SAFETY: the stream is alive.
        unsafe { result::stream::begin_capture(theirs.cu_stream(), mode) }.unwrap();
        let mut step = Step::new(&app, LEN);
        for (mistake, branch) in mistakes.into_iter().zip(&branches) {
            mistake.is_named_with(&app, branch.clone());
        }
        app.runtime.block_on(async {
            step.submit().await.unwrap();
            step.end(0).await;
        });
        end_capture(theirs.cu_stream()).unwrap();
    }
}

/// Numbers that look random, the same in each run.
struct Choices(u64);

impl Choices {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }
}

/// The most bytes in use.
#[derive(Clone, Copy, Default, Debug)]
struct InUse {
    device: usize,
    host: usize,
}

impl InUse {
    fn take(&mut self, app: &Application) {
        app.stream.context().bind_to_thread().unwrap();
        let (free, total) = result::mem_get_info().unwrap();
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0);
        self.device = self.device.max(total - free);
        self.host = self.host.max(4096 * resident);
    }
}

/// An executable of a kernel, a captured step that allocates, and another kernel, on memory of its own.
struct Step {
    x: Buffer<f32>,
    y: Buffer<f32>,
    graph: Option<Graph>,
    exec: ExecutableGraph,
    /// The elements of the two once all that has been submitted has ended.
    values: [f32; 2],
}

const AT_FIRST: [f32; 2] = [1.0, 2.0];

impl Step {
    fn new(app: &Application, len: usize) -> Self {
        let (x, y, graph) = between_kernels(app, len);
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        Self { x, y, graph: Some(graph), exec, values: AT_FIRST }
    }

    fn submit(&mut self) -> Submission {
        self.values = [self.values[1] + 10.0, self.values[0] + 1.0];
        self.exec.submit()
    }

    /// Has the step captured again, for memory of another length. Runs with the old one are in flight.
    async fn change_shape(&mut self, app: &Application, length: usize) {
        let (x, y, graph) = between_kernels(app, LENGTHS[length]);
        self.exec.update_from(&graph).await.unwrap();
        self.check().await;
        (self.x, self.y, self.graph, self.values) = (x, y, Some(graph), AT_FIRST);
    }

    async fn check(&self) {
        for (buffer, value) in [&self.x, &self.y].into_iter().zip(self.values) {
            assert_eq!(buffer.to_vec().await.unwrap(), vec![value; buffer.len()]);
        }
    }

    /// Drops its parts in one of three orders, and checks what its runs, which are in flight, leave behind.
    async fn end(self, order: usize) {
        let Self { x, y, graph, exec, values } = self;
        match order {
            0 => drop((exec, graph)),
            1 => drop((graph, exec)),
            _ => {
                drop((x.clone(), exec, y.clone()));
                drop(graph);
            }
        }
        for (buffer, value) in [x, y].into_iter().zip(values) {
            assert_eq!(buffer.to_vec().await.unwrap(), vec![value; buffer.len()]);
        }
    }
}

// add 1 to x -> exchange x and y -> add 10 to x
fn between_kernels(app: &Application, len: usize) -> (Buffer<f32>, Buffer<f32>, Graph) {
    let [x, y] = AT_FIRST.map(|value| app.device.buffer_from(&vec![value; len]).unwrap());
    let mut graph = Graph::new(&app.device);
    graph.launch(increase(1.0, &x), Range::linear(len));
    let accesses = [NativeAccess::write(&x), NativeAccess::write(&y)];
    // SAFETY: it copies between the two and memory that it allocates and frees on the stream.
    unsafe { graph.native("exchange", accesses, |lent, [x, y]| exchange(lent, x, y)) };
    graph.launch(increase(10.0, &x), Range::linear(len));
    (x, y, graph)
}

/// Exchanges two buffers by a workspace.
fn exchange(lent: &NativeStream<'_>, x: UsmPointer, y: UsmPointer) -> wakegraph::Result<()> {
    let workspace = allocate(lent, x.len())?;
    copy(lent, x.address(), workspace as usize, x.len())?;
    copy(lent, y.address(), x.address(), x.len())?;
    copy(lent, workspace as usize, y.address(), x.len())?;
    // SAFETY: allocated above, freed once.
    unsafe { result::free_async(workspace, lent.stream().cast()) }.map_err(refused)
}

/// Allocates in the order of the stream.
fn allocate(lent: &NativeStream<'_>, len: usize) -> wakegraph::Result<u64> {
    // SAFETY: the stream is alive.
    unsafe { result::malloc_async(lent.stream().cast(), len) }.map_err(refused)
}

fn copy(lent: &NativeStream<'_>, from: usize, to: usize, len: usize) -> wakegraph::Result<()> {
    // SAFETY: so many bytes are at both, as the command's accesses and allocations say.
    unsafe { result::memcpy_dtod_async(to as u64, from as u64, len, lent.stream().cast()) }.map_err(refused)
}

fn refused(error: result::DriverError) -> Error {
    Error::new(ErrorKind::Driver, "the driver refused a call").caused_by(error)
}

/// A result that a captured step allocates and leaves to its owner, and a graph that reads it.
struct Tensor {
    x: Buffer<f32>,
    exec: ExecutableGraph,
    address: u64,
    copy: Buffer<f32>,
    reader: ExecutableGraph,
}

impl Tensor {
    async fn new(app: &Application) -> Self {
        let [x, copied] = [(); 2].map(|()| app.device.buffer::<f32>(LEN).unwrap());
        let address = Arc::new(AtomicU64::new(0));
        let allocated = address.clone();
        let mut graph = Graph::new(&app.device);
        // SAFETY: it copies to memory that it allocates on the stream.
        unsafe {
            graph.native("tensor", [NativeAccess::read(&x)], move |lent, [x]| {
                let tensor = allocate(lent, x.len())?;
                allocated.store(tensor, Ordering::Relaxed);
                copy(lent, x.address(), tensor as usize, x.len())
            })
        };
        let exec = graph.finalize().unwrap();
        exec.submit().await.unwrap();
        let address = address.load(Ordering::Relaxed);
        // SAFETY: the memory lives until it is freed by `end`, and each submission is awaited.
        let tensor = unsafe { app.device.import::<f32>(address as usize, LEN, ()) }.unwrap();
        let mut reader = Graph::new(&app.device);
        reader.copy(&tensor, &copied);
        Self { x, exec, address, copy: copied, reader: reader.finalize().unwrap() }
    }

    async fn check(&self, value: f32) {
        self.x.write(&[value; LEN]).await.unwrap();
        self.exec.submit().await.unwrap();
        self.reader.submit().await.unwrap();
        assert_eq!(self.copy.to_vec().await.unwrap(), [value; LEN]);
    }

    fn end(self, app: &Application) {
        let Self { x, exec, address, copy, reader } = self;
        drop((reader, exec, x, copy));
        // SAFETY: the step has allocated the memory, and nothing uses it any more.
        unsafe { result::free_async(address, app.stream.cu_stream()) }.unwrap();
        app.stream.synchronize().unwrap();
    }
}

/// A mistake that a closure makes after it has allocated.
#[derive(Clone, Copy, Debug)]
enum Mistake {
    Fails,
    Waits,
    EndsTheCapture,
    LeavesABranchOpen,
    DrawsAnotherCaptureIn,
}

impl Mistake {
    const ALL: [Self; 5] = [
        Self::Fails,
        Self::Waits,
        Self::EndsTheCapture,
        Self::LeavesABranchOpen,
        Self::DrawsAnotherCaptureIn,
    ];

    fn make(self, lent: &NativeStream<'_>, branch: &CudaStream) -> wakegraph::Result<()> {
        let stream: sys::CUstream = lent.stream().cast();
        allocate(lent, 4096)?;
        match self {
            Self::Fails => Err(Error::new(ErrorKind::Driver, "no workspace left")),
            // SAFETY: the stream is alive.
            Self::Waits => unsafe { result::stream::synchronize(stream) }.map_err(refused),
            Self::EndsTheCapture => end_capture(stream),
            Self::LeavesABranchOpen => {
                branch_off(stream, branch)?;
                // SAFETY: the stream is alive.
                unsafe { result::malloc_async(branch.cu_stream(), 4096) }.map(drop).map_err(refused)
            }
            Self::DrawsAnotherCaptureIn => {
                let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
                // SAFETY: the stream is alive.
                unsafe { result::stream::begin_capture(branch.cu_stream(), relaxed) }.map_err(refused)?;
                let drawn = branch_off(stream, branch);
                // It is invalid now.
                let _ = end_capture(branch.cu_stream());
                drawn
            }
        }
    }

    /// A part of the error.
    fn name(self) -> &'static str {
        match self {
            Self::Fails => "no workspace left",
            Self::Waits => "STREAM_CAPTURE_UNSUPPORTED",
            Self::EndsTheCapture => "the closure has ended the capture",
            Self::LeavesABranchOpen => "does not join",
            Self::DrawsAnotherCaptureIn => "STREAM_CAPTURE_MERGE",
        }
    }

    /// Fails to finalize a graph with it.
    fn is_named(self, app: &Application) {
        self.is_named_with(app, app.stream.context().new_stream().unwrap());
    }

    fn is_named_with(self, app: &Application, branch: Arc<CudaStream>) {
        let x = app.device.buffer::<f32>(LEN).unwrap();
        let mut graph = Graph::new(&app.device);
        // SAFETY: what the closure enqueues never runs.
        unsafe {
            graph.native("mistaken", [NativeAccess::write(&x)], move |lent, [_]| self.make(lent, &branch))
        };
        let error = graph.finalize().unwrap_err();
        drop(graph);
        // cudarc keeps what the driver says of streams and events that are destroyed after their capture has
        // failed.
        let _ = app.stream.context().check_err();
        assert_eq!(error.kind(), ErrorKind::Driver, "{self:?}: {error}");
        let text = error.to_string();
        assert!(text.contains("'mistaken'") && text.contains(self.name()), "{self:?}: {text}");
    }
}

fn end_capture(stream: sys::CUstream) -> wakegraph::Result<()> {
    // SAFETY: the stream is alive.
    let graph = unsafe { result::stream::end_capture(stream) }.map_err(refused)?;
    // SAFETY: the graph is not used any more.
    unsafe { sys::cuGraphDestroy(graph) }.result().map_err(refused)
}

/// Makes the branch wait for the stream.
fn branch_off(stream: sys::CUstream, branch: &CudaStream) -> wakegraph::Result<()> {
    let event = branch.context().new_event(None).map_err(refused)?;
    // SAFETY: both are alive.
    unsafe { result::event::record(event.cu_event(), stream) }.map_err(refused)?;
    branch.wait(&event).map_err(refused)
}
