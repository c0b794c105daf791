//! A device without wakegraph, which one thread uses at a time.

use std::sync::Arc;

use axum::body::Bytes;

use crate::shape::{Answer, Shape, answer};
use crate::{by_cudarc, by_opencl3, by_rayon};

/// The device that the workers of a contender share.
#[derive(Clone)]
pub(crate) enum ByHand {
    Cudarc(Arc<by_cudarc::Cudarc>),
    Opencl3(Arc<by_opencl3::Opencl>),
    Rayon,
}

impl ByHand {
    /// Opens a device by wakegraph's selector. OpenCL's order may be another one, so it goes by the name.
    pub(crate) fn open(selector: &str, name: &str) -> Self {
        match selector.split_once(':').unwrap_or((selector, "0")) {
            ("cuda", index) => {
                let index = index.parse().expect("the index of a GPU");
                Self::Cudarc(Arc::new(by_cudarc::Cudarc::open(index)))
            }
            ("opencl", _) => Self::Opencl3(Arc::new(by_opencl3::Opencl::open(name))),
            _ => Self::Rayon,
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Cudarc(cudarc) => cudarc.name(),
            Self::Opencl3(opencl) => opencl.name(),
            Self::Rayon => "rayon".into(),
        }
    }

    /// A worker with room for so many requests.
    pub(crate) fn worker(&self, shape: Shape, items: usize) -> Worker {
        match self {
            Self::Cudarc(cudarc) => Worker::Cudarc(by_cudarc::Worker::new(cudarc, shape, items)),
            Self::Opencl3(opencl) => Worker::Opencl3(by_opencl3::Worker::new(opencl, shape, items)),
            Self::Rayon => Worker::Rayon(by_rayon::Worker::new(shape, items)),
        }
    }
}

/// A stream or queue of its own, with memory.
pub(crate) enum Worker {
    Cudarc(by_cudarc::Worker),
    Opencl3(by_opencl3::Worker),
    Rayon(by_rayon::Worker),
}

impl Worker {
    /// Runs requests together, blocks until they have been computed, and answers each.
    pub(crate) fn run<F: FnOnce(Answer) + Send>(&mut self, jobs: Vec<(Bytes, F)>) {
        match self {
            Self::Cudarc(worker) => worker.run(jobs),
            Self::Opencl3(worker) => worker.run(jobs),
            Self::Rayon(worker) => worker.run(jobs),
        }
    }
}

/// Puts requests, which are of the same length, one behind the other.
pub(crate) fn gather<F>(input: &mut [u8], jobs: &[(Bytes, F)]) {
    let chunks = input.chunks_exact_mut(jobs[0].0.len());
    chunks.zip(jobs).for_each(|(to, (body, _))| to.copy_from_slice(body));
}

/// Answers requests whose results are one behind the other.
pub(crate) fn reply<F: FnOnce(Answer)>(jobs: Vec<(Bytes, F)>, results: &[u8]) {
    let results = results.chunks_exact(jobs[0].0.len());
    jobs.into_iter().zip(results).for_each(|((body, reply), result)| reply(answer(&body, result)));
}
