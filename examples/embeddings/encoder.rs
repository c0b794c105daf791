//! A BERT encoder on `cudarc` and cuBLAS, as an application has it: every step enqueues on the encoder's
//! stream and allocates its result there. Nothing here knows of graphs.

use std::error::Error;
use std::sync::Arc;

use cudarc::cublas::{CudaBlas, Gemm as _, GemmConfig, StridedBatchedConfig, sys::cublasOperation_t};
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg as _};
use cudarc::nvrtc::compile_ptx;

// The shape of bert-base.
pub(crate) const HIDDEN: usize = 768;
const LAYERS: usize = 12;
const HEADS: usize = 12;
const HEAD: usize = HIDDEN / HEADS;
const INNER: usize = 3072;
const VOCABULARY: usize = 30_522;
const LONGEST: usize = 512;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// One block of 256 threads for each row, except for `random`.
const SOURCE: &str = r#"
typedef unsigned u32;

__device__ float sum_of(float x) {
    __shared__ float parts[8];
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int part = 0; part < 8; part++) x += parts[part];
    __syncthreads();
    return x;
}

__device__ float largest_of(float x) {
    __shared__ float parts[8];
    for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    for (int part = 0; part < 8; part++) x = fmaxf(x, parts[part]);
    __syncthreads();
    return x;
}

extern "C" __global__ void random(float *to, u32 len, u32 seed, float scale) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= len) return;
    u32 x = i * 2654435761u + seed * 40503u;
    x = (x ^ x >> 16) * 2246822519u;
    x = (x ^ x >> 13) * 3266489917u;
    to[i] = scale * ((x ^ x >> 16) / 2147483648.0f - 1);
}

extern "C" __global__ void embed(const u32 *tokens, const float *words, const float *places, float *to, u32 len,
                                 u32 columns, u32 vocabulary) {
    u32 row = blockIdx.x, token = tokens[row] % vocabulary;
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x)
        to[row * columns + i] = words[token * columns + i] + places[row % len * columns + i];
}

extern "C" __global__ void add_bias(float *x, const float *bias, u32 columns) {
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) x[blockIdx.x * columns + i] += bias[i];
}

extern "C" __global__ void gelu(const float *x, const float *bias, float *to, u32 columns) {
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) {
        float y = x[blockIdx.x * columns + i] + bias[i];
        to[blockIdx.x * columns + i] = 0.5f * y * (1 + erff(y * 0.70710678f));
    }
}

extern "C" __global__ void softmax(const float *x, float *to, u32 columns, float scale) {
    const float *from = x + blockIdx.x * columns;
    float largest = -1e30f, sum = 0;
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, scale * from[i]);
    largest = largest_of(largest);
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(scale * from[i] - largest);
    sum = sum_of(sum);
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x)
        to[blockIdx.x * columns + i] = expf(scale * from[i] - largest) / sum;
}

/* The normalised sum of two rows and a bias. */
extern "C" __global__ void add_and_normalise(const float *x, const float *y, const float *bias, float *to,
                                             u32 columns) {
    x += blockIdx.x * columns, y += blockIdx.x * columns, to += blockIdx.x * columns;
    float mean = 0, variance = 0;
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) mean += x[i] + y[i] + bias[i];
    mean = sum_of(mean) / columns;
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) {
        float off = x[i] + y[i] + bias[i] - mean;
        variance += off * off;
    }
    float factor = rsqrtf(sum_of(variance) / columns + 1e-12f);
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) to[i] = (x[i] + y[i] + bias[i] - mean) * factor;
}

/* The mean of the `len` rows of each text. */
extern "C" __global__ void mean_of_rows(const float *x, float *to, u32 len, u32 columns) {
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) {
        float sum = 0;
        for (u32 row = 0; row < len; row++) sum += x[(blockIdx.x * len + row) * columns + i];
        to[blockIdx.x * columns + i] = sum / len;
    }
}
"#;

struct Kernels {
    random: CudaFunction,
    embed: CudaFunction,
    add_bias: CudaFunction,
    gelu: CudaFunction,
    softmax: CudaFunction,
    add_and_normalise: CudaFunction,
    mean_of_rows: CudaFunction,
}

impl Kernels {
    fn load(context: &Arc<CudaContext>) -> Result<Self> {
        let module = context.load_module(compile_ptx(SOURCE)?)?;
        let load = |name| module.load_function(name);
        Ok(Self {
            random: load("random")?,
            embed: load("embed")?,
            add_bias: load("add_bias")?,
            gelu: load("gelu")?,
            softmax: load("softmax")?,
            add_and_normalise: load("add_and_normalise")?,
            mean_of_rows: load("mean_of_rows")?,
        })
    }
}

/// Weights and a bias.
struct Linear {
    weights: CudaSlice<f32>,
    bias: CudaSlice<f32>,
    columns: usize,
}

struct Layer {
    attention: Linear,
    projection: Linear,
    widen: Linear,
    narrow: Linear,
}

/// The shape of a batch: so many texts of the same number of tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) texts: usize,
    pub(crate) tokens: usize,
}

impl Shape {
    pub(crate) fn rows(self) -> usize {
        self.texts * self.tokens
    }
}

/// The encoder. It has one stream, on which one thread at a time enqueues.
pub(crate) struct Encoder {
    pub(crate) stream: Arc<CudaStream>,
    blas: CudaBlas,
    kernels: Kernels,
    words: CudaSlice<f32>,
    places: CudaSlice<f32>,
    layers: Vec<Layer>,
}

impl Encoder {
    /// An encoder with random weights, the same for each call.
    pub(crate) fn new(context: &Arc<CudaContext>) -> Result<Self> {
        // A capture cannot wait for events from before it, by which cudarc orders streams. This has one.
        // SAFETY: all memory of the encoder is used on its stream alone.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let blas = CudaBlas::new(stream.clone())?;
        let kernels = Kernels::load(context)?;
        let mut seed = 0;
        let mut random = |len: usize, scale: f32| -> Result<CudaSlice<f32>> {
            seed += 1;
            let mut to = stream.alloc_zeros::<f32>(len)?;
            let (len, seed): (u32, u32) = (len.try_into()?, seed);
            let mut launch = stream.launch_builder(&kernels.random);
            launch.arg(&mut to).arg(&len).arg(&seed).arg(&scale);
            // SAFETY: the kernel writes so many elements.
            unsafe { launch.launch(LaunchConfig::for_num_elems(len)) }?;
            Ok(to)
        };
        let (words, places) = (random(VOCABULARY * HIDDEN, 0.05)?, random(LONGEST * HIDDEN, 0.05)?);
        let mut linear = |rows: usize, columns: usize| -> Result<Linear> {
            Ok(Linear { weights: random(rows * columns, 0.05)?, bias: random(columns, 0.02)?, columns })
        };
        let layer = |_| {
            Ok(Layer {
                attention: linear(HIDDEN, 3 * HIDDEN)?,
                projection: linear(HIDDEN, HIDDEN)?,
                widen: linear(HIDDEN, INNER)?,
                narrow: linear(INNER, HIDDEN)?,
            })
        };
        let layers = (0..LAYERS).map(layer).collect::<Result<Vec<_>>>()?;
        stream.synchronize()?;
        Ok(Self { stream, blas, kernels, words, places, layers })
    }

    /// Enqueues the encoding of a batch: tokens at one address, and a mean of [`HIDDEN`] numbers for each
    /// text to the other. Returns before it has run.
    ///
    /// # Safety
    /// The device's memory has so many tokens and numbers at the two addresses until the work has ended.
    pub(crate) unsafe fn encode(&self, tokens: u64, to: u64, shape: Shape) -> Result<()> {
        let rows = shape.rows();
        let mut x = self.embed(tokens, shape)?;
        for layer in &self.layers {
            let attended = self.attend(layer, &x, shape)?;
            let projected = self.multiply(&attended, &layer.projection, rows)?;
            let middle = self.add_and_normalise(&projected, &x, &layer.projection.bias, rows)?;
            let wide = self.multiply(&middle, &layer.widen, rows)?;
            let active = self.gelu(&wide, &layer.widen.bias, rows)?;
            let narrow = self.multiply(&active, &layer.narrow, rows)?;
            x = self.add_and_normalise(&narrow, &middle, &layer.narrow.bias, rows)?;
        }
        let (len, columns) = (shape.tokens as u32, HIDDEN as u32);
        let mut launch = self.stream.launch_builder(&self.kernels.mean_of_rows);
        launch.arg(&x).arg(&to).arg(&len).arg(&columns);
        // SAFETY: a block reads the rows of one text, and writes its mean.
        unsafe { launch.launch(rows_of(shape.texts)) }?;
        Ok(())
    }

    fn new_rows(&self, rows: usize, columns: usize) -> Result<CudaSlice<f32>> {
        // SAFETY: the next thing on the stream writes all of it.
        Ok(unsafe { self.stream.alloc(rows * columns) }?)
    }

    fn embed(&self, tokens: u64, shape: Shape) -> Result<CudaSlice<f32>> {
        let embedded = self.new_rows(shape.rows(), HIDDEN)?;
        let (len, columns, vocabulary) = (shape.tokens as u32, HIDDEN as u32, VOCABULARY as u32);
        let mut launch = self.stream.launch_builder(&self.kernels.embed);
        launch.arg(&tokens).arg(&self.words).arg(&self.places).arg(&embedded);
        launch.arg(&len).arg(&columns).arg(&vocabulary);
        // SAFETY: a block writes one row; the caller promises the tokens.
        unsafe { launch.launch(rows_of(shape.rows())) }?;
        Ok(embedded)
    }

    /// `x * weights`.
    fn multiply(&self, x: &CudaSlice<f32>, linear: &Linear, rows: usize) -> Result<CudaSlice<f32>> {
        let mut product = self.new_rows(rows, linear.columns)?;
        let inner = x.len() / rows;
        // cuBLAS goes by columns, so it computes the transposed product of the transposed operands.
        let plain = cublasOperation_t::CUBLAS_OP_N;
        let config = GemmConfig {
            transa: plain,
            transb: plain,
            m: linear.columns as i32,
            n: rows as i32,
            k: inner as i32,
            alpha: 1.0,
            lda: linear.columns as i32,
            ldb: inner as i32,
            beta: 0.0,
            ldc: linear.columns as i32,
        };
        // SAFETY: the matrices have so many rows and columns.
        unsafe { self.blas.gemm(config, &linear.weights, x, &mut product) }?;
        Ok(product)
    }

    /// Attention of all heads.
    fn attend(&self, layer: &Layer, x: &CudaSlice<f32>, shape: Shape) -> Result<CudaSlice<f32>> {
        let (rows, len) = (shape.rows(), shape.tokens);
        let mut parts = self.multiply(x, &layer.attention, rows)?;
        let columns = 3 * HIDDEN as u32;
        let mut launch = self.stream.launch_builder(&self.kernels.add_bias);
        launch.arg(&mut parts).arg(&layer.attention.bias).arg(&columns);
        // SAFETY: a block changes one row.
        unsafe { launch.launch(rows_of(rows)) }?;

        let mut scores = self.new_rows(shape.texts * HEADS * len, len)?;
        for text in 0..shape.texts {
            let (from, to) = (text * len * 3 * HIDDEN, text * HEADS * len * len);
            let (queries, keys) = (parts.slice(from..), parts.slice(from + HIDDEN..));
            let mut scores = scores.slice_mut(to..to + HEADS * len * len);
            let config = heads(
                [cublasOperation_t::CUBLAS_OP_T, cublasOperation_t::CUBLAS_OP_N],
                [len, len, HEAD],
                [(3 * HIDDEN, HEAD), (3 * HIDDEN, HEAD), (len, len * len)],
            );
            // SAFETY: each head has so many rows and columns at such distances.
            unsafe { self.blas.gemm_strided_batched(config, &keys, &queries, &mut scores) }?;
        }
        let shares = self.softmax(&scores, shape.texts * HEADS * len, len)?;
        let mut attended = self.new_rows(rows, HIDDEN)?;
        for text in 0..shape.texts {
            let (from, at) = (text * len * 3 * HIDDEN, text * HEADS * len * len);
            let (values, shares) = (parts.slice(from + 2 * HIDDEN..), shares.slice(at..));
            let mut attended = attended.slice_mut(text * len * HIDDEN..(text + 1) * len * HIDDEN);
            let config = heads(
                [cublasOperation_t::CUBLAS_OP_N; 2],
                [HEAD, len, len],
                [(3 * HIDDEN, HEAD), (len, len * len), (HIDDEN, HEAD)],
            );
            // SAFETY: as above.
            unsafe { self.blas.gemm_strided_batched(config, &values, &shares, &mut attended) }?;
        }
        Ok(attended)
    }

    fn softmax(&self, x: &CudaSlice<f32>, rows: usize, columns: usize) -> Result<CudaSlice<f32>> {
        let to = self.new_rows(rows, columns)?;
        let (columns, scale) = (columns as u32, 1.0 / (HEAD as f32).sqrt());
        let mut launch = self.stream.launch_builder(&self.kernels.softmax);
        launch.arg(x).arg(&to).arg(&columns).arg(&scale);
        // SAFETY: a block writes one row.
        unsafe { launch.launch(rows_of(rows)) }?;
        Ok(to)
    }

    fn gelu(&self, x: &CudaSlice<f32>, bias: &CudaSlice<f32>, rows: usize) -> Result<CudaSlice<f32>> {
        let (to, columns) = (self.new_rows(rows, bias.len())?, bias.len() as u32);
        let mut launch = self.stream.launch_builder(&self.kernels.gelu);
        launch.arg(x).arg(bias).arg(&to).arg(&columns);
        // SAFETY: a block writes one row.
        unsafe { launch.launch(rows_of(rows)) }?;
        Ok(to)
    }

    fn add_and_normalise(
        &self,
        x: &CudaSlice<f32>,
        y: &CudaSlice<f32>,
        bias: &CudaSlice<f32>,
        rows: usize,
    ) -> Result<CudaSlice<f32>> {
        let (to, columns) = (self.new_rows(rows, HIDDEN)?, HIDDEN as u32);
        let mut launch = self.stream.launch_builder(&self.kernels.add_and_normalise);
        launch.arg(x).arg(y).arg(bias).arg(&to).arg(&columns);
        // SAFETY: a block writes one row.
        unsafe { launch.launch(rows_of(rows)) }?;
        Ok(to)
    }
}

fn rows_of(rows: usize) -> LaunchConfig {
    LaunchConfig { grid_dim: (rows as u32, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 }
}

/// A product for each head: the operations on both operands, the sizes m, n and k, and of each matrix the
/// distances between columns and between heads.
fn heads(
    operations: [cublasOperation_t; 2],
    [m, n, k]: [usize; 3],
    distances: [(usize, usize); 3],
) -> StridedBatchedConfig<f32> {
    let [transa, transb] = operations;
    let [(lda, stride_a), (ldb, stride_b), (ldc, stride_c)] =
        distances.map(|(columns, heads)| (columns as i32, heads as i64));
    let (m, n, k) = (m as i32, n as i32, k as i32);
    let gemm = GemmConfig { transa, transb, m, n, k, alpha: 1.0, lda, ldb, beta: 0.0, ldc };
    StridedBatchedConfig { gemm, batch_size: HEADS as i32, stride_a, stride_b, stride_c }
}
