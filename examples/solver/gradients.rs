//! Conjugate gradients as commands of a queue. Nothing here knows whether the queue runs them or records
//! them.

use wakegraph::{Buffer, Device, HostBuffer, Queue, Range, Result};

use crate::kernels::{PARTS, advance, begin, dot_parts, finish, laplace, step_length, turn};

/// Partial sums of a work-group.
const PARTS_OF_GROUP: usize = 32;
/// The residual's norm is to shrink by this.
pub(crate) const TOLERANCE: f32 = 1e-6;

/// The vectors and scalars of one solver, all on its device.
pub(crate) struct Gradients {
    n: usize,
    b: Buffer<f32>,
    u: Buffer<f32>,
    r: Buffer<f32>,
    p: Buffer<f32>,
    q: Buffer<f32>,
    parts: Buffer<f32>,
    rr: Buffer<f32>,
    first: Buffer<f32>,
    alpha: Buffer<f32>,
    beta: Buffer<f32>,
    history: Buffer<f32>,
    count: Buffer<u32>,
    /// 1 until the residual is small enough.
    pub(crate) more: Buffer<u32>,
    pub(crate) out: Outcome,
}

/// What the host gets in the end.
pub(crate) struct Outcome {
    pub(crate) u: HostBuffer<f32>,
    /// r.r after each iteration, in relation to the first, as many as `count` says.
    pub(crate) history: HostBuffer<f32>,
    pub(crate) count: HostBuffer<u32>,
}

impl Gradients {
    /// For A u = b on a grid of `n` x `n` points.
    pub(crate) fn new(device: &Device, n: usize, b: &[f32]) -> Result<Self> {
        let most_iterations = 20 * n + 20;
        let (vector, scalar) = (|| device.buffer(n * n), || device.buffer(1));
        Ok(Self {
            n,
            b: device.buffer_from(b)?,
            u: vector()?,
            r: vector()?,
            p: vector()?,
            q: vector()?,
            parts: device.buffer(PARTS)?,
            rr: scalar()?,
            first: scalar()?,
            alpha: scalar()?,
            beta: scalar()?,
            history: device.buffer(most_iterations)?,
            count: device.buffer(1)?,
            more: device.buffer(1)?,
            out: Outcome {
                u: device.host_buffer(n * n)?,
                history: device.host_buffer(most_iterations)?,
                count: device.host_buffer(1)?,
            },
        })
    }

    /// From u = 0.
    pub(crate) fn start(&self, queue: &Queue) {
        queue.fill(&self.u, 0.0);
        queue.copy(&self.b, &self.r);
        queue.copy(&self.b, &self.p);
        queue.launch(dot_parts(&self.r, &self.r, &self.parts), Range::linear(PARTS).local([PARTS_OF_GROUP]));
        let begin = begin(&self.parts, &self.rr, &self.first, &self.count, &self.more);
        queue.launch(begin, Range::linear(1));
    }

    /// One iteration.
    pub(crate) fn step(&self, queue: &Queue) {
        let Self { n, u, r, p, q, parts, rr, first, alpha, beta, history, count, more, .. } = self;
        let (points, parted, once) =
            (Range::linear(n * n), Range::linear(PARTS).local([PARTS_OF_GROUP]), Range::linear(1));
        queue.launch(laplace(*n as u32, p, q), Range::new([*n, *n]));
        queue.launch(dot_parts(p, q, parts), parted);
        queue.launch(step_length(parts, rr, alpha), once);
        queue.launch(advance(alpha, p, q, u, r), points);
        queue.launch(dot_parts(r, r, parts), parted);
        queue.launch(finish(TOLERANCE, parts, first, rr, beta, history, count, more), once);
        queue.launch(turn(beta, r, p), points);
    }

    /// Copies what the host wants to know.
    pub(crate) fn end(&self, queue: &Queue) {
        queue.copy(&self.u, &self.out.u);
        queue.copy(&self.history, &self.out.history);
        queue.copy(&self.count, &self.out.count);
    }
}
