//! The requests that all contenders answer, and the right answers.

use axum::body::Bytes;
use axum::http::StatusCode;

/// The content of a request, and what is done with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) words: usize,
    pub(crate) kernels: usize,
    /// The request goes through the kernels, has the stub change its first word over HTTP, and goes through
    /// them again.
    pub(crate) calls: bool,
}

pub(crate) const SHAPES: [Shape; 3] = [
    Shape { name: "1k", words: 256, kernels: 1, calls: false },
    Shape { name: "200k", words: 51_200, kernels: 3, calls: false },
    Shape { name: "call", words: 256, kernels: 1, calls: true },
];

/// Most requests in a batch of any contender: what a batcher of wakegraph has unless it is told otherwise.
pub(crate) const ITEMS: usize = 64;

/// Requests that wait before a service refuses some: what pools and batchers have unless they are told
/// otherwise.
pub(crate) const QUEUE: usize = 1024;

/// The first word of a request that the service fails to answer.
pub(crate) const FAILS: u32 = u32::MAX;

/// A response's body, or its status if that is another one than 200.
pub(crate) type Answer = Result<Bytes, StatusCode>;

impl Shape {
    pub(crate) fn named(name: &str) -> Self {
        *SHAPES.iter().find(|shape| shape.name == name).expect("the name of a shape")
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words * size_of::<u32>()
    }

    /// The body of a request.
    pub(crate) fn request(&self, number: u32) -> Vec<u8> {
        let words = (0..self.words as u32).map(|index| index.wrapping_mul(number) ^ number);
        words.flat_map(u32::to_ne_bytes).collect()
    }

    /// The body of its answer.
    pub(crate) fn answer(&self, request: &[u8]) -> Vec<u8> {
        let mut words = words(request);
        through_kernels(&mut words, self.kernels);
        if self.calls {
            words[0] = after_call(words[0]);
            through_kernels(&mut words, self.kernels);
        }
        bytemuck::cast_slice(&words).to_vec()
    }
}

/// The words of a body.
pub(crate) fn words(body: &[u8]) -> Vec<u32> {
    let mut words = vec![0; body.len() / size_of::<u32>()];
    bytemuck::cast_slice_mut(&mut words).copy_from_slice(body);
    words
}

/// Takes words through so many kernels.
pub(crate) fn through_kernels(words: &mut [u32], kernels: usize) {
    for _ in 0..kernels {
        // As the compiler uses vectors for it, a loop for each kernel is faster than one for all.
        words.iter_mut().for_each(|word| *word = mixed(*word));
    }
}

/// A word after one kernel: its bits mixed for 16 rounds.
pub(crate) fn mixed(word: u32) -> u32 {
    (0..16).fold(word, |word, _| (word ^ (word >> 15)).wrapping_mul(0x2c1b_3c6d).rotate_left(7))
}

/// The stub's answer to a word.
pub(crate) fn after_call(word: u32) -> u32 {
    word.wrapping_add(1)
}

pub(crate) fn first_word(body: &[u8]) -> u32 {
    body.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
}

/// The answer of a contender that has computed `result` for a request.
pub(crate) fn answer(request: &[u8], result: &[u8]) -> Answer {
    if first_word(request) == FAILS {
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    }
    Ok(Bytes::copy_from_slice(result))
}
