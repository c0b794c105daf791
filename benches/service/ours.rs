//! The kernel and the buffers of a slot, which our contenders share.
#![expect(unsafe_code, reason = "declares device code")]

use std::sync::Arc;

use axum::http::StatusCode;
use wakegraph::{Buffer, Device, Error, ExecutableGraph, Graph, HostBuffer, Range, Result, write};

use crate::http::Stub;
use crate::shape::{Shape, mixed};

wakegraph::kernel! {
    /// Mixes the bits of each word.
    fn mix(x: &[u32], y: &mut [u32]) {
        each: |i, x, y| *y = mixed(x[i]),
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the shortest
        // slice.
        c: unsafe { "KERNEL(mix, (SLICE(const u32, x), SLICE(u32, y))) {
                         u32 word = x[GLOBAL_ID(0)];
                         for (u32 round = 0; round < 16; round++) {
                             word = (word ^ (word >> 15)) * 0x2c1b3c6du;
                             word = (word << 7) | (word >> 25);
                         }
                         y[GLOBAL_ID(0)] = word;
                     }" },
    }
}

/// The buffers of a slot.
pub(crate) struct Memory {
    pub(crate) input: HostBuffer<u32>,
    pub(crate) output: HostBuffer<u32>,
    x: Buffer<u32>,
    y: Buffer<u32>,
}

impl Memory {
    pub(crate) fn new(device: &Device, words: usize) -> Result<Self> {
        let (input, output) = (device.host_buffer(words)?, device.host_buffer(words)?);
        Ok(Self { input, output, x: device.buffer(words)?, y: device.buffer(words)? })
    }

    /// An executable over the first words: up, through the kernels, down.
    pub(crate) fn executable(&self, shape: Shape, words: usize) -> Result<ExecutableGraph> {
        let mut graph = Graph::new(self.x.device());
        self.record(&mut graph, shape, words)?;
        graph.finalize()
    }

    /// An executable that calls the stub in the middle.
    pub(crate) fn calling(&self, shape: Shape, stub: &Arc<Stub>) -> Result<ExecutableGraph> {
        let mut graph = Graph::new(self.x.device());
        self.record(&mut graph, shape, shape.words)?;
        let stub = stub.clone();
        graph.host_task((write(&self.output), write(&self.input)), async move |(mut half, mut input)| {
            half[0] = stub.ask(half[0]).await?;
            input.copy_from_slice(&half);
            Ok::<(), std::io::Error>(())
        });
        self.record(&mut graph, shape, shape.words)?;
        graph.finalize()
    }

    fn record(&self, graph: &mut Graph, shape: Shape, words: usize) -> Result<()> {
        let (mut from, mut to) = (self.x.slice(..words)?, self.y.slice(..words)?);
        graph.copy(&self.input.slice(..words)?, &from);
        for _ in 0..shape.kernels {
            graph.launch(mix(&from, &to), Range::linear(words));
            std::mem::swap(&mut from, &mut to);
        }
        graph.copy(&from, &self.output.slice(..words)?);
        Ok(())
    }
}

pub(crate) fn status(error: Error) -> StatusCode {
    StatusCode::from_u16(error.kind().http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
