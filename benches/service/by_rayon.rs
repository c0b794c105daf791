//! The CPU by hand: rayon computes what waits, each request on one of its threads.

use axum::body::Bytes;
use rayon::prelude::*;

use crate::shape::{Answer, Shape, answer, through_kernels, words};

/// Words that are worth a thread.
const WORTH: usize = 4096;

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
        let is_lone = jobs.len() == 1;
        let one = |(body, reply): (Bytes, F)| {
            let mut words = words(&body);
            match is_lone && self.by_many && words.len() > WORTH {
                true => words.par_chunks_mut(WORTH).for_each(|part| through_kernels(part, self.kernels)),
                false => through_kernels(&mut words, self.kernels),
            }
            reply(answer(&body, bytemuck::cast_slice(&words)));
        };
        match is_lone {
            true => jobs.into_iter().for_each(one),
            false => jobs.into_par_iter().for_each(one),
        }
    }
}
