//! Graphs in an application that uses CUDA through `cudarc`: on its memory, its events, streams and contexts,
//! with cuBLAS in a native node. Without a device they are ignored by name.
//!
//! That nothing waits on the host is shown in two ways. One is a gate, a function in the application's stream
//! that returns when the test lets it: whatever waited for the device while the gate is closed would never
//! return. The other is CUPTI, where it is installed, which counts the driver's calls of all libraries in the
//! process. The calls of this crate alone are counted in a table of functions by the unit test
//! `backend::cuda::tests::foreign::rounds_between_other_libraries_never_synchronise`, which needs no GPU.
//!
//! `WAKEGRAPH_INTEROP_ROUNDS` sets the number of rounds and of replays: compute-sanitizer takes long for the
//! 10,000.
#![expect(unsafe_code, reason = "hands objects of cudarc to graphs; every test orders what it enqueues")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "prints what it has counted")]

#[path = "cuda_interop/captured.rs"]
mod captured;
#[path = "../../../tests/support/driver_calls.rs"]
mod driver_calls;

use std::ffi::c_void;
use std::process::{Command, ExitCode};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cudarc::cublas::sys::{cublasOperation_t, cublasSetWorkspace_v2};
use cudarc::cublas::{CudaBlas, result as blas};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaSlice, CudaStream, DevicePtr, LaunchConfig, PushKernelArg,
    result, sys,
};
use cudarc::nvrtc::Ptx;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::{Builder, Runtime};
use wakegraph::backend::cuda::open_in_context;
use wakegraph::hal::{AccessMode, NativeStream, UsmPointer};
use wakegraph::interop::{NativeAccess, NativeEvent};
use wakegraph::{Buffer, Device, Error, ErrorKind, ExecutableGraph, Graph, Range, Submission, backend};

wakegraph::kernel! {
    /// x = 2 * x + 1
    fn step(x: &mut [f32]) {
        range: |x| x.len(),
        // SAFETY: a work-item uses the element with its index, which the range bounds.
        c: unsafe { "KERNEL(step, (SLICE(float, x))) { x[GLOBAL_ID(0)] = 2 * x[GLOBAL_ID(0)] + 1; }" },
    }
}

wakegraph::kernel! {
    /// y = 2 * x + 1
    fn step_from(x: &[f32], y: &mut [f32]) {
        range: |_, y| y.len(),
        // SAFETY: a work-item uses the elements with its index, which the shortest slice bounds.
        c: unsafe { "KERNEL(step_from, (SLICE(const float, x), SLICE(float, y))) {
                         y[GLOBAL_ID(0)] = 2 * x[GLOBAL_ID(0)] + 1;
                     }" },
    }
}

/// The application's kernel: sets all elements.
const FILL: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 to, .param .f32 value, .param .u32 len) {
    .reg .pred outside;
    .reg .u32 index, width, block, count;
    .reg .u64 at, offset;
    .reg .f32 what;
    ld.param.u64 at, [to];
    ld.param.f32 what, [value];
    ld.param.u32 count, [len];
    mov.u32 index, %tid.x;
    mov.u32 width, %ntid.x;
    mov.u32 block, %ctaid.x;
    mad.lo.u32 index, block, width, index;
    setp.ge.u32 outside, index, count;
    @outside ret;
    cvta.to.global.u64 at, at;
    mul.wide.u32 offset, index, 4;
    add.u64 at, at, offset;
    st.global.f32 [at], what;
    ret;
}";

const ROUNDS: &str = "rounds_through_both_libraries_never_wait_on_the_host";
const COUNTED: &str = "counted_calls_of_the_rounds_never_synchronise";
const WORKERS: &str = "no_worker_waits_for_the_device";

/// A test, and how many devices it needs.
type Test = (&'static str, usize, fn());

const TESTS: &[Test] = &[
    (ROUNDS, 1, || rounds(false)),
    (COUNTED, 1, || in_a_process_of_its_own(COUNTED)),
    (WORKERS, 1, || in_a_process_of_its_own(WORKERS)),
    ("captured_steps_are_replayed_with_flat_memory", 1, captured::replays),
    ("captured_steps_beside_a_capture_of_the_application", 1, captured::beside_a_capture_of_the_application),
    ("many_short_runs_can_be_joined", 1, many_short_runs_can_be_joined),
    ("host_tasks_wait_for_native_events_too", 1, host_tasks_wait_for_native_events_too),
    ("objects_may_be_released_in_any_order", 1, objects_may_be_released_in_any_order),
    ("an_event_may_be_recorded_again", 1, an_event_may_be_recorded_again),
    ("the_default_stream_can_join", 1, the_default_stream_can_join),
    ("what_is_over_can_be_joined", 1, what_is_over_can_be_joined),
    ("a_loan_is_used_between_submissions", 1, a_loan_is_used_between_submissions),
    ("a_context_of_the_application", 1, a_context_of_the_application),
    ("what_is_current_on_a_thread_stays_so", 1, what_is_current_on_a_thread_stays_so),
    ("a_destroyed_context_harms_no_other_device", 1, a_destroyed_context_harms_no_other_device),
    ("two_objects_of_one_gpu_share_memory", 1, two_objects_of_one_gpu_share_memory),
    ("a_capture_of_the_application_stays_valid", 1, a_capture_of_the_application_stays_valid),
    ("copies_of_other_host_memory_hold_nobody_up", 1, copies_of_other_host_memory_hold_nobody_up),
    ("handles_that_do_not_fit_are_refused", 1, handles_that_do_not_fit_are_refused),
    ("addresses_that_do_not_fit_are_refused", 1, addresses_that_do_not_fit_are_refused),
    ("events_and_streams_of_another_device", 2, events_and_streams_of_another_device),
];

/// The test that the process is for, which counts calls: CUPTI changes all of it.
const COUNTS: &str = "WAKEGRAPH_INTEROP_COUNTS";

fn main() -> ExitCode {
    if let Ok(counted) = std::env::var(COUNTS) {
        if counted == COUNTED {
            rounds(true)
        } else {
            buffers_on_workers()
        }
        return ExitCode::SUCCESS;
    }
    let there = backend::by_name("cuda").and_then(|cuda| cuda.device_count());
    let required = std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default().contains("cuda");
    let trials = TESTS.iter().map(|&(name, needed, test)| {
        let there = there.clone();
        Trial::ignorable_test(name, move || match there {
            Err(error) if required => {
                Err(Failed::from(format!("WAKEGRAPH_REQUIRE asks for this backend: {error}")))
            }
            Err(error) => Ok(Completion::ignored_with(error)),
            Ok(count) if count < needed => {
                Ok(Completion::ignored_with(format!("needs {needed} devices, and there are {count}")))
            }
            Ok(_) if [ROUNDS, COUNTED].contains(&name) && !has_cublas() => {
                Ok(Completion::ignored_with("cuBLAS is not installed"))
            }
            Ok(_) if [COUNTED, WORKERS].contains(&name) && !driver_calls::can_count() => {
                Ok(Completion::ignored_with("CUPTI is not installed"))
            }
            Ok(_) => {
                test();
                Ok(Completion::Completed)
            }
        })
    });
    // One at a time: a gate that is closed holds back host functions of all streams.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn has_cublas() -> bool {
    // SAFETY: the vendor's library, whose initialisers may run on any thread.
    unsafe { cudarc::cublas::sys::is_culib_present() }
}

/// Holds a stream back until it is dropped.
struct Gate(Arc<GateState>);

#[derive(Default)]
struct GateState {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// A closed gate in the stream.
    fn closed(stream: &CudaStream) -> Self {
        /// Far longer than what the host does meanwhile, unless it waits for the device. The gate opens then,
        /// so that such a test fails instead of hanging.
        const LIMIT: Duration = Duration::from_secs(30);

        unsafe extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: `closed` has given a reference for this call.
            let gate = unsafe { Arc::from_raw(gate.cast::<GateState>().cast_const()) };
            let is_open = gate.is_open.lock().unwrap();
            let mut waited = gate.opened.wait_timeout_while(is_open, LIMIT, |is_open| !*is_open).unwrap();
            *waited.0 = true;
        }
        let state = Arc::<GateState>::default();
        let lent = Arc::into_raw(state.clone()).cast_mut().cast();
        stream.context().bind_to_thread().unwrap();
        // SAFETY: the stream is alive, and the function calls nothing of the driver's.
        unsafe { result::stream::launch_host_function(stream.cu_stream(), wait, lent) }.unwrap();
        Self(state)
    }

    /// So that nothing behind it can have run.
    fn assert_closed(&self) {
        assert!(!*self.0.is_open.lock().unwrap(), "something has waited for the device");
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        *self.0.is_open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }
}

/// What an application has that uses CUDA without this crate, and our device.
struct Application {
    runtime: Runtime,
    stream: Arc<CudaStream>,
    fill: CudaFunction,
    device: Device,
}

const LEN: usize = 1001;

impl Application {
    fn new(index: usize) -> Self {
        Self::of(&CudaContext::new(index).unwrap(), Device::open(&format!("cuda:{index}")).unwrap())
    }

    fn of(context: &Arc<CudaContext>, device: Device) -> Self {
        let module = context.load_module(Ptx::from_src(FILL)).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let fill = module.load_function("fill").unwrap();
        let app = Self { runtime, stream: context.new_stream().unwrap(), fill, device };
        // The driver loads code when it is first used, and may wait for the device then.
        app.fill(&mut app.slice(1), 0.0).synchronize().unwrap();
        app
    }

    /// Zeros, which are there.
    fn slice(&self, len: usize) -> CudaSlice<f32> {
        let slice = self.stream.alloc_zeros(len).unwrap();
        self.stream.synchronize().unwrap();
        slice
    }

    /// Starts to fill the slice.
    fn fill(&self, slice: &mut CudaSlice<f32>, value: f32) -> CudaEvent {
        let len = slice.len() as u32;
        let mut launch = self.stream.launch_builder(&self.fill);
        launch.arg(slice).arg(&value).arg(&len);
        // SAFETY: the slice has so many elements.
        unsafe { launch.launch(LaunchConfig::for_num_elems(len)) }.unwrap();
        self.stream.record_event(None).unwrap()
    }

    /// Reads what is in the slice after everything on the application's stream.
    fn read(&self, slice: &CudaSlice<f32>) -> Vec<f32> {
        let values = self.stream.clone_dtoh(slice).unwrap();
        self.stream.synchronize().unwrap();
        values
    }

    fn address(&self, slice: &CudaSlice<f32>) -> usize {
        slice.device_ptr(&self.stream).0 as usize
    }

    fn import(&self, slice: &CudaSlice<f32>) -> Buffer<f32> {
        // SAFETY: the tests keep the memory, and order what uses it.
        unsafe { self.device.import(self.address(slice), slice.len(), ()) }.unwrap()
    }

    fn wait(&self, event: &CudaEvent) -> NativeEvent {
        // SAFETY: the event is alive.
        unsafe { self.device.import_event(event.cu_event().cast()) }.unwrap()
    }

    fn join(&self, submission: &Submission) {
        // SAFETY: the stream is alive.
        unsafe { submission.join(self.stream.cu_stream().cast()) }.unwrap();
    }

    /// One step on the buffer.
    fn step(&self, x: &Buffer<f32>) -> ExecutableGraph {
        let mut graph = Graph::new(&self.device);
        graph.launch(step(x), Range::linear(x.len()));
        graph.finalize().unwrap()
    }
}

/// Rows and columns of the matrices in the rounds.
const N: usize = 32;

/// Enqueues `y = x * x`, matrices of `N` rows and columns.
fn square(
    cublas: &CudaBlas,
    lent: &NativeStream<'_>,
    [x, y, workspace]: [UsmPointer; 3],
) -> wakegraph::Result<()> {
    let (handle, n, one, zero) = (*cublas.handle(), N as i32, 1.0, 0.0);
    let plain = cublasOperation_t::CUBLAS_OP_N;
    let [x, y] = [x, y].map(|matrix| ptr::with_exposed_provenance_mut(matrix.address()));
    let room = ptr::with_exposed_provenance_mut(workspace.address());
    // SAFETY: the stream is alive.
    let on_stream = unsafe { blas::set_stream(handle, lent.stream().cast()) };
    on_stream
        // SAFETY: the workspace has so many bytes. Without one, cuBLAS would allocate.
        .and_then(|()| unsafe { cublasSetWorkspace_v2(handle, room, workspace.len()) }.result())
        // SAFETY: the matrices have so many elements.
        .and_then(|()| unsafe { blas::sgemm(handle, plain, plain, n, n, n, &one, x, n, x, n, &zero, y, n) })
        .map_err(|error| Error::new(ErrorKind::Driver, "cuBLAS failed").caused_by(error))
}

/// A step on `x`, then `y` becomes the square of that matrix.
fn step_and_square(app: &Application, x: &Buffer<f32>, y: &Buffer<f32>) -> ExecutableGraph {
    let mut graph = Graph::new(&app.device);
    graph.launch(step(x), Range::linear(N * N));
    let workspace = app.device.buffer::<u8>(32 << 20).unwrap();
    let accesses = [NativeAccess::read(x), NativeAccess::write(y), NativeAccess::write(&workspace)];
    let cublas = CudaBlas::new(app.stream.clone()).unwrap();
    // SAFETY: cuBLAS uses what is declared, and enqueues on the stream that it is given.
    unsafe { graph.native("product", accesses, move |lent, memory| square(&cublas, lent, memory)) };
    graph.finalize().unwrap()
}

fn round_count() -> usize {
    let rounds = std::env::var("WAKEGRAPH_INTEROP_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    rounds.unwrap_or(10_000)
}

/// Their kernel fills, our graph works on it, cuBLAS in a node of it, they read: each round in the order of
/// the device. The gate is closed while the host enqueues a window of rounds.
///
/// With `counted`, CUPTI counts the driver's calls, and they are printed.
fn rounds(counted: bool) {
    const WINDOW: usize = 16;
    let rounds = round_count();
    let app = Application::new(0);
    let (mut x, y, mut results) = (app.slice(N * N), app.slice(N * N), app.slice(rounds));
    let exec = step_and_square(&app, &app.import(&x), &app.import(&y));
    app.runtime.block_on(async {
        // One round without a gate, for the code of cuBLAS.
        let filled = app.fill(&mut x, 0.0);
        let submission = exec.prepare().after_native(&app.wait(&filled)).submit();
        app.join(&submission);
        app.stream.memcpy_dtod(&y.slice(..1), &mut results.slice_mut(..1)).unwrap();
        submission.await.unwrap();
        if counted {
            driver_calls::start();
            driver_calls::take();
        }
        let mut done = 0;
        while done < rounds {
            let window = done..rounds.min(done + WINDOW);
            let gate = Gate::closed(&app.stream);
            let mut submissions = Vec::with_capacity(WINDOW);
            for round in window.clone() {
                let filled = app.fill(&mut x, (round % 100) as f32);
                let submission = exec.prepare().after_native(&app.wait(&filled)).submit();
                app.join(&submission);
                // Another place each time.
                let at = round % (N * N);
                let mut to = results.slice_mut(round..=round);
                app.stream.memcpy_dtod(&y.slice(at..=at), &mut to).unwrap();
                submissions.push(submission);
            }
            assert!(submissions.iter().all(|submission| !submission.is_finished()));
            gate.assert_closed();
            drop(gate);
            for submission in submissions {
                submission.await.unwrap();
            }
            done = window.end;
        }
    });
    if counted {
        assert_no_waits(rounds);
    }
    let expected = |round: usize| {
        let step = 2.0 * (round % 100) as f32 + 1.0;
        N as f32 * step * step
    };
    assert_eq!(app.read(&results), (0..rounds).map(expected).collect::<Vec<_>>());
}

/// Nothing has waited for the device since calls are counted.
fn assert_no_waits(rounds: usize) {
    let calls = driver_calls::take();
    println!("driver calls in {rounds} rounds:");
    calls.iter().for_each(|(function, count)| println!("{count:>8} {function}"));
    assert!(calls.values().sum::<usize>() > 4 * rounds, "the calls are not counted: {calls:?}");
    let waits: Vec<_> = calls.keys().filter(|function| driver_calls::synchronises(function)).collect();
    assert!(waits.is_empty(), "{waits:?}");
}

/// Makes, uses and drops buffers on a worker of tokio's, some with work in flight.
fn buffers_on_workers() {
    const ROUNDS: usize = 200;
    let device = Device::open("cuda:0").unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let queue = device.queue().unwrap();
    // Pinned memory for the copies, more than are in flight at a time.
    drop([(); 16].map(|()| device.host_buffer::<f32>(LEN).unwrap()));
    let round = async move |len: usize| {
        let [x, y] = [(); 2].map(|()| device.buffer::<f32>(len).unwrap());
        queue.launch(step(&x), Range::linear(len));
        assert_eq!(x.to_vec().await.unwrap(), vec![1.0; len]);
        y.write(&vec![2.0; len]).await.unwrap();
        // SAFETY: the copy writes all elements before any is read.
        let z = unsafe { device.buffer_uninit::<f32>(len) }.unwrap();
        queue.copy(&y, &z);
        let last = queue.launch(step(&z), Range::linear(len));
        drop((x, y, device.buffer::<u8>(len)));
        assert_eq!(z.to_vec().await.unwrap(), vec![5.0; len]);
        drop(z);
        last.await.unwrap();
    };
    let rounds = async move {
        // The first has code loaded.
        round(LEN).await;
        driver_calls::start();
        driver_calls::take();
        for _ in 0..ROUNDS {
            round(LEN).await;
        }
        assert_no_waits(ROUNDS);
    };
    runtime.block_on(runtime.spawn(rounds)).unwrap();
}

fn in_a_process_of_its_own(test: &str) {
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this).env(COUNTS, test).output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// Enough of them that the runtime launches some in batches, and counts others in memory.
fn many_short_runs_can_be_joined() {
    const EXECUTABLES: usize = 24;
    const ROUNDS: usize = 40;
    let app = Application::new(0);
    let buffers: Vec<_> = (0..EXECUTABLES).map(|_| app.device.buffer::<f32>(LEN).unwrap()).collect();
    let execs: Vec<_> = buffers.iter().map(|x| app.step(x)).collect();
    app.runtime.block_on(async {
        let mut expected = 0.0;
        for _ in 0..ROUNDS {
            let submissions: Vec<_> = execs.iter().map(ExecutableGraph::submit).collect();
            submissions.iter().for_each(|submission| app.join(submission));
            expected = 2.0 * expected + 1.0;
            let copies: Vec<_> = buffers.iter().map(|x| read_ours(&app, x)).collect();
            for submission in submissions {
                submission.await.unwrap();
            }
            copies.into_iter().for_each(|copy| assert_eq!(app.read(&copy), [expected; LEN]));
        }
    });
}

/// A copy of our memory on the application's stream.
fn read_ours(app: &Application, x: &Buffer<f32>) -> CudaSlice<f32> {
    let copy = app.stream.alloc_zeros::<f32>(x.len()).unwrap();
    let (from, to) = (x.address().unwrap() as u64, app.address(&copy) as u64);
    // SAFETY: both have so many elements, and the stream comes after what uses them.
    unsafe { result::memcpy_dtod_async(to, from, 4 * x.len(), app.stream.cu_stream()) }.unwrap();
    copy
}

fn host_tasks_wait_for_native_events_too() {
    let app = Application::new(0);
    let mut theirs = app.slice(LEN);
    let seen = Arc::new(AtomicUsize::new(0));
    let x = app.import(&theirs);
    let mut graph = Graph::new(&app.device);
    let sees = seen.clone();
    let host = graph.host_task((), async move |()| _ = sees.fetch_add(1, Ordering::SeqCst)).id();
    graph.launch(step(&x), Range::linear(LEN)).after([host]);
    let exec = graph.finalize().unwrap();
    let gate = Gate::closed(&app.stream);
    let filled = app.fill(&mut theirs, 4.0);
    app.runtime.block_on(async {
        let submission = exec.prepare().after_native(&app.wait(&filled)).submit();
        // SAFETY: the stream is alive.
        let early = unsafe { submission.join(app.stream.cu_stream().cast()) };
        assert_eq!(early.unwrap_err().kind(), ErrorKind::InvalidOperation);
        assert!(!submission.is_finished());
        assert_eq!(seen.load(Ordering::SeqCst), 0);
        drop(gate);
        submission.await.unwrap();
    });
    assert_eq!((seen.load(Ordering::SeqCst), app.read(&theirs)), (1, vec![9.0; LEN]));
}

fn objects_may_be_released_in_any_order() {
    let app = Application::new(0);
    for round in 0..6_u8 {
        let (theirs, result) = (Arc::new(app.slice(LEN)), app.device.host_buffer::<f32>(LEN).unwrap());
        // SAFETY: the clone keeps the memory; the event orders what uses it.
        let x = unsafe { app.device.import::<f32>(app.address(&theirs), LEN, theirs.clone()) }.unwrap();
        let mut graph = Graph::new(&app.device);
        graph.launch(step(&x), Range::linear(LEN));
        graph.copy(&x, &result);
        let exec = graph.finalize().unwrap();
        let gate = Gate::closed(&app.stream);
        let (address, word) = (app.address(&theirs) as u64, f32::from(round).to_bits());
        // SAFETY: so many words are there.
        unsafe { sys::cuMemsetD32Async(address, word, LEN, app.stream.cu_stream()) }.result().unwrap();
        let filled = app.stream.record_event(None).unwrap();
        let native = app.wait(&filled);
        match round % 3 {
            0 => drop((theirs, filled, x, graph)),
            1 => drop((x, graph, filled, theirs)),
            _ => drop((filled, graph, theirs, x)),
        }
        app.runtime.block_on(async {
            let submission = exec.prepare().after_native(&native).submit();
            app.join(&submission);
            drop((exec, native));
            if round % 2 == 0 {
                let event = submission.event();
                drop((submission, gate));
                event.await.unwrap();
            } else {
                drop(gate);
                submission.await.unwrap();
            }
            assert_eq!(*result.read().await, [2.0 * f32::from(round) + 1.0; LEN]);
        });
    }
}

fn an_event_may_be_recorded_again() {
    let app = Application::new(0);
    let mut theirs = app.slice(LEN);
    let exec = app.step(&app.import(&theirs));
    let other = app.stream.context().new_stream().unwrap();
    app.fill(&mut theirs, 0.0);
    let gate = Gate::closed(&app.stream);
    let filled = app.fill(&mut theirs, 4.0);
    let native = app.wait(&filled);
    filled.record(&other).unwrap();
    app.runtime.block_on(async {
        let submission = exec.prepare().after_native(&native).submit();
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert!(!submission.is_finished());
        }
        drop(gate);
        submission.await.unwrap();
    });
    assert_eq!(app.read(&theirs), [9.0; LEN]);
}

fn the_default_stream_can_join() {
    let app = Application::new(0);
    let mut theirs = app.slice(LEN);
    let exec = app.step(&app.import(&theirs));
    let default = app.stream.context().default_stream();
    app.fill(&mut theirs, 0.0);
    let gate = Gate::closed(&app.stream);
    let filled = app.fill(&mut theirs, 4.0);
    app.runtime.block_on(async {
        let submission = exec.prepare().after_native(&app.wait(&filled)).submit();
        // SAFETY: null is the default stream.
        unsafe { submission.join(ptr::null_mut()) }.unwrap();
        let over = default.record_event(None).unwrap();
        assert!(!over.is_complete());
        drop(gate);
        over.synchronize().unwrap();
        assert!(submission.is_finished());
    });
    assert_eq!(app.read(&theirs), [9.0; LEN]);
}

fn what_is_over_can_be_joined() {
    let app = Application::new(0);
    let theirs = app.slice(LEN);
    let exec = app.step(&app.import(&theirs));
    app.runtime.block_on(async {
        let submission = exec.submit();
        submission.event().await.unwrap();
        app.join(&submission);
    });
    assert_eq!(app.read(&theirs), [1.0; LEN]);
}

/// Our memory in their calls: they set it, between two submissions that use it, in the order of the device.
fn a_loan_is_used_between_submissions() {
    const ROUNDS: u16 = 20;
    let app = Application::new(0);
    let x = app.device.buffer::<f32>(LEN).unwrap();
    let (exec, queue) = (app.step(&x), app.stream.cu_stream());
    let (address, words) = (x.address().unwrap() as u64, LEN);
    let set = |value: f32| {
        // SAFETY: so many words of memory that is lent to the stream.
        unsafe { sys::cuMemsetD32Async(address, value.to_bits(), words, queue) }.result().unwrap();
        app.stream.record_event(None).unwrap()
    };
    app.runtime.block_on(async {
        exec.submit().await.unwrap();
        let results: Vec<_> = (0..ROUNDS).map(|_| app.slice(LEN)).collect();
        set(0.0).synchronize().unwrap();
        let gate = Gate::closed(&app.stream);
        let mut submissions = Vec::new();
        for (round, result) in results.iter().enumerate() {
            // SAFETY: the stream is alive.
            let mut loan = unsafe { x.lend_to(AccessMode::ReadWrite, queue.cast()) }.unwrap();
            let written = set(round as f32);
            loan.hold_until(&app.wait(&written)).unwrap();
            drop((loan, written));
            submissions.push(exec.submit());
            // SAFETY: the stream is alive.
            let mut loan = unsafe { x.lend_to(AccessMode::Read, queue.cast()) }.unwrap();
            let to = app.address(result) as u64;
            // SAFETY: both have so many bytes; the one is lent to the stream.
            unsafe { result::memcpy_dtod_async(to, address, 4 * words, queue) }.unwrap();
            loan.hold_until(&app.wait(&app.stream.record_event(None).unwrap())).unwrap();
        }
        assert!(submissions.iter().all(|submission| !submission.is_finished()));
        gate.assert_closed();
        drop(gate);
        for submission in submissions {
            submission.await.unwrap();
        }
        for (round, result) in results.iter().enumerate() {
            assert_eq!(app.read(result), [2.0 * round as f32 + 1.0; LEN]);
        }
    });
}

fn a_context_of_the_application() {
    // SAFETY: null is refused.
    let null = unsafe { open_in_context(ptr::null_mut(), ()) };
    assert_eq!(null.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let context = CudaContext::new_non_primary(0, 0).unwrap();
    // SAFETY: the clone keeps the context.
    let device = unsafe { open_in_context(context.cu_ctx().cast(), context.clone()) }.unwrap();
    let app = Application::of(&context, Device::from_hal(device));
    drop(context);
    let mut theirs = app.slice(LEN);
    let (exec, own) = (app.step(&app.import(&theirs)), app.device.buffer_from(&[1.0_f32; LEN]).unwrap());
    let ours = app.step(&own);
    app.runtime.block_on(async {
        for round in 0..100_u8 {
            let filled = app.fill(&mut theirs, f32::from(round));
            let submission = exec.prepare().after_native(&app.wait(&filled)).submit();
            app.join(&submission);
            assert_eq!(app.read(&theirs), [2.0 * f32::from(round) + 1.0; LEN]);
            submission.await.unwrap();
        }
        ours.submit().await.unwrap();
        assert_eq!(own.to_vec().await.unwrap(), [3.0; LEN]);
    });
}

/// The context that is current on this thread.
fn current() -> usize {
    let mut context = ptr::null_mut();
    // SAFETY: the place is that of a handle.
    unsafe { sys::cuCtxGetCurrent(&raw mut context) }.result().unwrap();
    context.addr()
}

fn what_is_current_on_a_thread_stays_so() {
    let app = Application::new(0);
    let theirs = CudaContext::new_non_primary(0, 0).unwrap();
    let exec = app.step(&app.device.buffer::<f32>(LEN).unwrap());
    for theirs in [None, Some(theirs)] {
        // A thread of its own has no context at first.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                theirs.iter().for_each(|theirs| theirs.bind_to_thread().unwrap());
                let before = current();
                assert_eq!(before == 0, theirs.is_none());
                let x = app.device.buffer_from(&[1.0_f32; LEN]).unwrap();
                assert_eq!(current(), before, "a buffer");
                let own = app.step(&x);
                assert_eq!(current(), before, "finalize");
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    for exec in [&own, &exec] {
                        exec.submit().await.unwrap();
                    }
                    assert_eq!(x.to_vec().await.unwrap(), [3.0; LEN]);
                });
                assert_eq!(current(), before, "submissions and copies");
                drop((own, x));
                assert_eq!(current(), before, "drops");
            });
        });
    }
}

fn a_destroyed_context_harms_no_other_device() {
    let ours = Device::open("cuda:0").unwrap();
    let context = CudaContext::new_non_primary(0, 0).unwrap();
    // SAFETY: the clone keeps the context.
    let theirs = unsafe { open_in_context(context.cu_ctx().cast(), context.clone()) }.unwrap();
    let theirs = Device::from_hal(theirs);
    std::thread::scope(|scope| {
        let ours = &ours;
        scope.spawn(move || {
            drop(theirs.buffer::<u32>(16).unwrap());
            // With the last device that uses it, the context is destroyed.
            drop((theirs, context));
            assert_eq!(current(), 0);
            ours.buffer::<u32>(16).unwrap();
        });
    });
    assert!(ours.health().borrow().is_healthy());
}

fn two_objects_of_one_gpu_share_memory() {
    let app = Application::new(0);
    let context = CudaContext::new_non_primary(0, 0).unwrap();
    // SAFETY: the clone keeps the context.
    let other = unsafe { open_in_context(context.cu_ctx().cast(), context.clone()) }.unwrap();
    let other = Device::from_hal(other);
    let (x, y) = (app.device.buffer_from(&[1.0_f32; LEN]).unwrap(), other.buffer::<f32>(LEN).unwrap());
    app.runtime.block_on(async {
        // A launch goes to the device of its first buffer, with memory of the other one.
        for (from, to) in [(&x, &y), (&y, &x)] {
            let mut graph = Graph::new(&other);
            graph.launch(step_from(from, to), Range::linear(LEN));
            graph.finalize().unwrap().submit().await.unwrap();
        }
        assert_eq!((y.to_vec().await.unwrap(), x.to_vec().await.unwrap()), (vec![3.0; LEN], vec![7.0; LEN]));
    });
}

const CAPTURE_MODES: [sys::CUstreamCaptureMode; 3] = [
    sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
    sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
];

fn a_capture_of_the_application_stays_valid() {
    let app = Application::new(0);
    let x = app.device.buffer::<f32>(LEN).unwrap();
    let (exec, captured) = (app.step(&x), app.stream.context().new_stream().unwrap());
    app.runtime.block_on(async {
        for mode in CAPTURE_MODES {
            let gate = Gate::closed(&app.stream);
            let opened = app.stream.record_event(None).unwrap();
            let submission = exec.prepare().after_native(&app.wait(&opened)).submit();
            // SAFETY: the stream is alive.
            unsafe { result::stream::begin_capture(captured.cu_stream(), mode) }.unwrap();
            // SAFETY: as above.
            let joined = unsafe { submission.join(captured.cu_stream().cast()) };
            // SAFETY: as above.
            let lent = unsafe { x.lend_to(AccessMode::Read, captured.cu_stream().cast()) };
            // SAFETY: as above.
            let graph = unsafe { result::stream::end_capture(captured.cu_stream()) };
            assert_eq!(joined.unwrap_err().kind(), ErrorKind::InvalidOperation);
            assert_eq!(lent.map(drop).unwrap_err().kind(), ErrorKind::InvalidOperation);
            // SAFETY: the graph is not used any more.
            unsafe { sys::cuGraphDestroy(graph.unwrap()) }.result().unwrap();
            drop(gate);
            submission.await.unwrap();
        }
        // The memory can be lent again.
        // SAFETY: the stream is alive.
        drop(unsafe { x.lend_to(AccessMode::Read, captured.cu_stream().cast()) }.unwrap());
        exec.submit().await.unwrap();
    });
}

/// A graph and a queue copy from and to memory of another device's, which CUDA has not allocated.
fn copies_of_other_host_memory_hold_nobody_up() {
    let app = Application::new(0);
    let host = Device::open("host").unwrap();
    for len in [16, 2 << 20] {
        let [x, y] = [(); 2].map(|()| app.device.buffer::<f32>(len).unwrap());
        let plain = host.host_buffer_from(&vec![1.0_f32; len]).unwrap();
        let mut graph = Graph::new(&app.device);
        graph.copy(&plain, &x);
        graph.launch(step(&x), Range::linear(len));
        graph.copy(&x, &plain);
        graph.copy(&plain, &y);
        let (exec, queue) = (graph.finalize().unwrap(), app.device.queue().unwrap());
        app.runtime.block_on(async {
            // Code is loaded when it is first used.
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), vec![3.0; len]);
            let gate = Gate::closed(&app.stream);
            let opened = app.stream.record_event(None).unwrap();
            let submission = exec.prepare().after_native(&app.wait(&opened)).submit();
            let copied = queue.copy(&plain, &x);
            gate.assert_closed();
            drop(gate);
            submission.await.unwrap();
            copied.await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), vec![7.0; len], "{len}");
            assert_eq!(y.to_vec().await.unwrap(), vec![7.0; len], "{len}");
        });
    }
}

fn handles_that_do_not_fit_are_refused() {
    let app = Application::new(0);
    let host = Device::open("host").unwrap();
    let event = app.stream.record_event(None).unwrap();
    for (device, handle, kind) in [
        (&app.device, ptr::null_mut(), ErrorKind::InvalidArgument),
        (&host, event.cu_event().cast(), ErrorKind::FeatureNotSupported),
    ] {
        // SAFETY: the handle is null or that of a live event.
        let error = unsafe { device.import_event(handle) }.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    // SAFETY: it is refused.
    let memory = unsafe { app.device.import_memory::<f32>(ptr::dangling_mut(), 1) };
    assert_eq!(memory.unwrap_err().kind(), ErrorKind::FeatureNotSupported);
    // An event that tells of nothing but a place in a capture.
    let captured = app.stream.context().new_stream().unwrap();
    let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    unsafe { result::stream::begin_capture(captured.cu_stream(), relaxed) }.unwrap();
    event.record(&captured).unwrap();
    // SAFETY: the event is alive.
    let error = unsafe { app.device.import_event(event.cu_event().cast()) }.unwrap_err();
    assert!([ErrorKind::Driver, ErrorKind::InvalidArgument].contains(&error.kind()), "{error}");
    // SAFETY: the stream is alive. The capture may have become invalid.
    let _ = unsafe { result::stream::end_capture(captured.cu_stream()) };
    app.runtime.block_on(async {
        let exec = app.step(&app.device.buffer::<f32>(LEN).unwrap());
        let (open, waits) = tokio::sync::oneshot::channel::<()>();
        let submission = exec.prepare().after_future(async move { _ = waits.await }).submit();
        // SAFETY: the stream is alive.
        let early = unsafe { submission.join(app.stream.cu_stream().cast()) };
        assert_eq!(early.unwrap_err().kind(), ErrorKind::InvalidOperation);
        open.send(()).unwrap();
        submission.await.unwrap();
    });
}

fn addresses_that_do_not_fit_are_refused() {
    let app = Application::new(0);
    let import = |address: usize, len: usize| {
        // SAFETY: the memory is not used.
        unsafe { app.device.import::<f32>(address, len, ()) }
    };
    let refused = |address, len, kind: ErrorKind, found: &str| {
        let error = import(address, len).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(found), "{error}");
    };
    let (invalid, size) = (ErrorKind::InvalidArgument, ErrorKind::InvalidSize);
    let theirs = app.slice(LEN);
    let address = app.address(&theirs);
    import(address, LEN).unwrap();
    import(address + 4, LEN - 1).unwrap();
    refused(address, 1 << 40, size, "ends after");
    let plain = vec![0.0_f32; LEN];
    refused(plain.as_ptr().addr(), LEN, invalid, "no memory");
    // SAFETY: the context is current.
    let pinned = unsafe { result::malloc_host(4 * LEN, 0) }.unwrap();
    import(pinned.addr(), LEN).unwrap();
    // SAFETY: allocated above, and not used.
    unsafe { result::free_host(pinned) }.unwrap();
    refused(pinned.addr(), LEN, invalid, "no memory");
    // SAFETY: the context is current.
    let device = unsafe { result::malloc_sync(4 * LEN) }.unwrap();
    import(device as usize, LEN).unwrap();
    // The driver may have rounded the length up.
    refused(device as usize, LEN + 128, size, "ends after 40");
    refused(device as usize + 4, LEN + 127, size, "ends after 40");
    // SAFETY: allocated above, and not used.
    unsafe { result::free_sync(device) }.unwrap();
}

fn events_and_streams_of_another_device() {
    let [one, other] = [0, 1].map(Application::new);
    let mut theirs = one.slice(LEN);
    let exec = one.step(&one.import(&theirs));
    one.fill(&mut theirs, 4.0);
    one.stream.synchronize().unwrap();
    let gate = Gate::closed(&other.stream);
    let opened = other.stream.record_event(None).unwrap();
    one.runtime.block_on(async {
        let submission = exec.prepare().after_native(&one.wait(&opened)).submit();
        let joins = other.stream.context().new_stream().unwrap();
        // SAFETY: the stream is alive.
        unsafe { submission.join(joins.cu_stream().cast()) }.unwrap();
        let over = joins.record_event(None).unwrap();
        assert!(!over.is_complete() && !submission.is_finished());
        drop(gate);
        over.synchronize().unwrap();
        assert!(submission.is_finished());
    });
    assert_eq!(one.read(&theirs), [9.0; LEN]);
    let elsewhere = other.slice(LEN);
    // SAFETY: it is refused.
    let error = unsafe { one.device.import::<f32>(other.address(&elsewhere), LEN, ()) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("CUDA device 1"), "{error}");
}
