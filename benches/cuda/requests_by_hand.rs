//! The services that `requests` compares with: `cudarc` and tokio, as services write them today.
#![expect(unsafe_code, reason = "launches kernels and takes pinned memory")]

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg as _,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::requests::{QUEUE, Request, Shape, Words};

const SOURCE: &str = r#"
extern "C" __global__ void mix(const unsigned* x, unsigned* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned word = x[i];
    for (unsigned round = 0; round < 16; round++) {
        word = (word ^ (word >> 15)) * 0x2c1b3c6du;
        word = (word << 7) | (word >> 25);
    }
    y[i] = word;
}"#;

/// The context, the kernel, and what a request needs.
pub(crate) struct Cudarc {
    context: Arc<CudaContext>,
    mix: CudaFunction,
    shape: Shape,
}

/// The host memory that a contender copies from and to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Plain,
    Pinned,
}

impl Cudarc {
    pub(crate) fn open(shape: Shape) -> Self {
        let context = CudaContext::new(0).expect("a GPU");
        let program = cudarc::nvrtc::compile_ptx(SOURCE).expect("a valid kernel");
        let module = context.load_module(program).expect("a valid module");
        let mix = module.load_function("mix").expect("the kernel of the module");
        Self { context, mix, shape }
    }
}

/// A stream with memory for some requests.
struct Worker {
    stream: Arc<CudaStream>,
    mix: CudaFunction,
    kernels: usize,
    from: CudaSlice<u32>,
    to: CudaSlice<u32>,
    pinned: Option<[PinnedHostSlice<u32>; 2]>,
    plain: Vec<u32>,
}

impl Worker {
    fn new(cudarc: &Cudarc, memory: Memory, items: usize) -> Self {
        let stream = cudarc.context.new_stream().expect("a stream");
        let len = cudarc.shape.words * items;
        let pinned = (memory == Memory::Pinned).then(|| {
            // SAFETY: each run writes the memory before it reads it.
            [(); 2]
                .map(|()| unsafe { cudarc.context.alloc_pinned_with_flags(len, 0) }.expect("pinned memory"))
        });
        Self {
            from: stream.alloc_zeros(len).expect("device memory"),
            to: stream.alloc_zeros(len).expect("device memory"),
            mix: cudarc.mix.clone(),
            kernels: cudarc.shape.kernels,
            plain: Vec::with_capacity(len),
            stream,
            pinned,
        }
    }

    fn run(&mut self, requests: &[Words]) -> Vec<Vec<u32>> {
        let words = requests[0].len();
        let len = words * requests.len();
        match self.pinned.take() {
            Some([mut input, mut output]) => {
                let to = input.as_mut_slice().expect("pinned memory");
                to.chunks_mut(words).zip(requests).for_each(|(to, request)| to.copy_from_slice(request));
                self.stream.memcpy_htod(&to[..len], &mut self.from).expect("a copy");
                self.launch(len);
                let result = &mut output.as_mut_slice().expect("pinned memory")[..len];
                self.stream.memcpy_dtoh(&self.from.slice(..len), result).expect("a copy");
                self.stream.synchronize().expect("the end of the run");
                let answers = answers(result, words, requests.len());
                self.pinned = Some([input, output]);
                answers
            }
            None => {
                self.plain.clear();
                requests.iter().for_each(|request| self.plain.extend_from_slice(request));
                self.stream.memcpy_htod(&self.plain, &mut self.from).expect("a copy");
                self.launch(len);
                self.stream.memcpy_dtoh(&self.from.slice(..len), &mut self.plain).expect("a copy");
                self.stream.synchronize().expect("the end of the run");
                answers(&self.plain, words, requests.len())
            }
        }
    }

    /// Leaves the result in `from`.
    fn launch(&mut self, len: usize) {
        let len = len as u32;
        let config =
            LaunchConfig { grid_dim: (len.div_ceil(256), 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        for _ in 0..self.kernels {
            let mut launch = self.stream.launch_builder(&self.mix);
            launch.arg(&self.from).arg(&mut self.to).arg(&len);
            // SAFETY: both slices have `len` elements, which the kernel checks.
            unsafe { launch.launch(config) }.expect("a launch");
            std::mem::swap(&mut self.from, &mut self.to);
        }
    }
}

fn answers(words: &[u32], each: usize, count: usize) -> Vec<Vec<u32>> {
    words.chunks(each).take(count).map(<[u32]>::to_vec).collect()
}

/// A thread that owns the GPU, a channel, and a oneshot for each request. It takes what waits, up to a batch.
#[derive(Clone)]
pub(crate) struct GpuThread(mpsc::Sender<Request>);

impl GpuThread {
    /// Starts the thread, which ends when the last handle is dropped.
    pub(crate) fn start(cudarc: &Cudarc, memory: Memory, items: usize) -> Self {
        let (sender, mut requests) = mpsc::channel::<Request>(QUEUE);
        let mut worker = Worker::new(cudarc, memory, items);
        std::thread::spawn(move || {
            let mut batch = Vec::new();
            while requests.blocking_recv_many(&mut batch, items) > 0 {
                let (inputs, callers): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
                for (caller, answer) in callers.into_iter().zip(worker.run(&inputs)) {
                    let _ = caller.send(answer);
                }
            }
        });
        Self(sender)
    }

    pub(crate) async fn call(&self, request: Words) -> Vec<u32> {
        let (caller, answer) = oneshot::channel();
        assert!(self.0.send((request, caller)).await.is_ok(), "the thread has ended");
        answer.await.expect("an answer")
    }
}

/// Threads of tokio's blocking pool, behind a semaphore, with a stream for each permit.
#[derive(Clone)]
pub(crate) struct Blocking(Arc<BlockingInner>);

struct BlockingInner {
    permits: Semaphore,
    idle: Mutex<Vec<Worker>>,
}

impl Blocking {
    pub(crate) fn new(cudarc: &Cudarc, permits: usize) -> Self {
        let idle = (0..permits).map(|_| Worker::new(cudarc, Memory::Pinned, 1)).collect();
        Self(Arc::new(BlockingInner { permits: Semaphore::new(permits), idle: Mutex::new(idle) }))
    }

    pub(crate) async fn call(&self, request: Words) -> Vec<u32> {
        let _permit = self.0.permits.acquire().await.expect("an open semaphore");
        let inner = self.0.clone();
        let run = move || {
            let mut worker = inner.idle.lock().pop().expect("a worker for each permit");
            let answer = worker.run(&[request]).remove(0);
            inner.idle.lock().push(worker);
            answer
        };
        tokio::task::spawn_blocking(run).await.expect("an answer")
    }
}
