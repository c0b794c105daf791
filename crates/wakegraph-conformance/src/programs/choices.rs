//! Sources of the choices of which a program consists.

use crate::random::Random;

/// Choices from a generator of random numbers, or from bytes: so a fuzzer, or a test that shrinks its input,
/// chooses.
#[derive(Clone, Debug)]
pub struct Choices<'b>(Source<'b>);

#[derive(Clone, Debug)]
enum Source<'b> {
    Numbers(Random),
    /// Each byte is one choice. The first possibility is chosen where bytes are missing.
    Bytes(&'b [u8]),
}

impl<'b> Choices<'b> {
    /// Choices that are the same for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Numbers(Random::new(seed)))
    }

    /// Choices that the bytes make. Every string of bytes is a program.
    pub fn from_bytes(bytes: &'b [u8]) -> Self {
        Self(Source::Bytes(bytes))
    }

    /// Whether no byte is left.
    pub(super) fn are_over(&self) -> bool {
        matches!(self.0, Source::Bytes([]))
    }

    /// A number in `0..bound`; `bound` is not 0, and of bytes at most 256.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        match &mut self.0 {
            Source::Numbers(random) => random.below(bound),
            Source::Bytes(bytes) => match bytes.split_first() {
                Some((&first, rest)) => {
                    *bytes = rest;
                    usize::from(first) % bound
                }
                None => 0,
            },
        }
    }

    /// A number in `range`.
    pub(super) fn within(&mut self, range: std::ops::RangeInclusive<usize>) -> usize {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// Whether something happens that happens once in so many times, and never where bytes are missing.
    pub(super) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == one_in - 1
    }

    /// One of the items, unless there are none.
    pub(super) fn pick<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        if items.is_empty() { None } else { Some(items[self.below(items.len())].clone()) }
    }

    /// An element of a buffer.
    pub(super) fn word(&mut self) -> u32 {
        match &mut self.0 {
            Source::Numbers(random) => random.next() as u32,
            Source::Bytes(_) => self.below(256) as u32,
        }
    }
}
