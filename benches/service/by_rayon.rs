//! The CPU by hand: rayon computes what waits, each request on one of its threads.

use axum::body::Bytes;
use rayon::prelude::*;

use crate::shape::{Answer, Shape, answer, through_kernels};

pub(crate) struct Worker {
    kernels: usize,
    /// Where batches come in, rayon's threads compute. Where single requests do, the caller's thread is one
    /// of many.
    by_many: bool,
}

impl Worker {
    pub(crate) fn new(shape: Shape, items: usize) -> Self {
        Self { kernels: shape.kernels, by_many: items > 1 }
    }

    pub(crate) fn run<F: FnOnce(Answer) + Send>(&self, jobs: Vec<(Bytes, F)>) {
        match jobs.len() {
            1 => jobs.into_iter().for_each(|(body, reply)| reply(self.lone(&body))),
            _ => jobs.into_par_iter().for_each(|(body, reply)| {
                reply(answer(&body, &through_kernels(&body, self.kernels)));
            }),
        }
    }

    /// Computes a request that is alone, by several threads if it is worth that.
    fn lone(&self, body: &[u8]) -> Answer {
        const WORTH: usize = 16 << 10;
        if !self.by_many || body.len() <= WORTH {
            return answer(body, &through_kernels(body, self.kernels));
        }
        let parts: Vec<_> = body.par_chunks(WORTH).map(|part| through_kernels(part, self.kernels)).collect();
        answer(body, &parts.concat())
    }
}
