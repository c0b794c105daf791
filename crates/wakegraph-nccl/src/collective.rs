//! The collectives: what they need of their buffers, and NCCL's call of each.
#![expect(unsafe_code, reason = "calls NCCL")]

use std::ffi::{c_int, c_void};

use wakegraph::interop::NativeStream;
use wakegraph::{Buffer, Error, ErrorKind, Result};

use crate::clique::Clique;
use crate::element::{Element, Reduction};
use crate::sys::{Functions, Handle, call};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Collective {
    AllReduce(Reduction),
    ReduceScatter(Reduction),
    AllGather,
    /// From the rank with this number.
    Broadcast(usize),
}

/// A collective over buffers that fit.
#[derive(Debug)]
pub(crate) struct Operation {
    collective: Collective,
    ranks: usize,
    /// Number of elements as NCCL counts them: of the smaller side.
    count: usize,
    size: usize,
    data_type: c_int,
}

impl Collective {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllReduce(_) => "all-reduce",
            Self::ReduceScatter(_) => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::Broadcast(_) => "broadcast",
        }
    }

    /// The length of each output for inputs of this length.
    fn output_len(self, input_len: usize, ranks: usize) -> Option<usize> {
        match self {
            Self::AllReduce(_) | Self::Broadcast(_) => Some(input_len),
            Self::ReduceScatter(_) => input_len.is_multiple_of(ranks).then_some(input_len / ranks),
            Self::AllGather => input_len.checked_mul(ranks),
        }
    }
}

impl Operation {
    /// The collective over these buffers, one for each of the devices, or the root's alone as the input of a
    /// broadcast.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for buffers that do not fit.
    pub(crate) fn new<T: Element>(
        collective: Collective,
        devices: &[&str],
        inputs: &[&Buffer<T>],
        outputs: &[&Buffer<T>],
    ) -> Result<Self> {
        let invalid = |why: String| Err(Error::new(ErrorKind::InvalidArgument, why));
        let name = collective.name();
        let input_devices = match collective {
            Collective::Broadcast(root) if root >= devices.len() => {
                return invalid(format!(
                    "there is no rank {root} to broadcast from: there are {}",
                    devices.len()
                ));
            }
            Collective::Broadcast(root) => &devices[root..=root],
            _ => devices,
        };
        let Some(input_len) = inputs.first().map(|input| input.len()) else {
            return invalid(format!("{name} of no buffers"));
        };
        let Some(output_len) = collective.output_len(input_len, devices.len()) else {
            return invalid(format!("{name}: {input_len} elements do not divide by {} ranks", devices.len()));
        };
        for (what, buffers, devices, len) in
            [("input", inputs, input_devices, input_len), ("output", outputs, devices, output_len)]
        {
            if buffers.len() != devices.len() {
                let (there, needed) = (buffers.len(), devices.len());
                return invalid(format!("{name} has {there} {what}s, and needs {needed}, one for each rank"));
            }
            for (index, (buffer, device)) in buffers.iter().zip(devices).enumerate() {
                let (found, on) = (buffer.len(), buffer.device().selector());
                if on != *device {
                    return invalid(format!(
                        "{what} {index} of {name} is on {on}, and has to be on {device}"
                    ));
                }
                if found != len {
                    return invalid(format!(
                        "{what} {index} of {name} ({device}) has {found} elements, and needs {len}"
                    ));
                }
            }
        }
        let count = input_len.min(output_len);
        let (ranks, size, data_type) = (devices.len(), size_of::<T>(), T::TYPE);
        Ok(Self { collective, ranks, count, size, data_type })
    }

    /// Whether there are no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Records the call of all ranks, if the memory fits. `addresses` as for [`call`](Self::call).
    pub(crate) fn record(&self, clique: &Clique, lent: &NativeStream<'_>, addresses: &[usize]) -> Result<()> {
        self.check_overlaps(addresses)?;
        clique.record(lent, |rank, communicator, stream| {
            // SAFETY: both are live, and of this rank.
            unsafe { self.call(clique.functions, rank, addresses, communicator, stream) }
        })
    }

    /// The addresses of all outputs, and of all inputs. What comes after them is other memory of the node.
    fn split<'a>(&self, addresses: &'a [usize]) -> (&'a [usize], &'a [usize]) {
        let inputs = if let Collective::Broadcast(_) = self.collective { 1 } else { self.ranks };
        let (outputs, rest) = addresses.split_at(self.ranks);
        (outputs, &rest[..inputs])
    }

    /// Calls NCCL for one rank. `addresses` are those of all outputs, and of all inputs after them.
    ///
    /// # Safety
    /// The communicator and the stream are live, and of this rank.
    unsafe fn call(
        &self,
        functions: &Functions,
        rank: usize,
        addresses: &[usize],
        communicator: Handle,
        stream: Handle,
    ) -> Result<()> {
        let (outputs, inputs) = self.split(addresses);
        let output = outputs[rank];
        let input = match self.collective {
            Collective::Broadcast(root) if root == rank => inputs[0],
            // NCCL does not look at it.
            Collective::Broadcast(_) => output,
            _ => inputs[rank],
        };
        let from: *const c_void = std::ptr::with_exposed_provenance(input);
        let to: *mut c_void = std::ptr::with_exposed_provenance_mut(output);
        let (count, of) = (self.count, self.data_type);
        // Of one rank, all reductions are the rank's own numbers. For an average, NCCL before 2.29.7 leaves
        // out the last ones.
        let number = |by: Reduction| if self.ranks == 1 { Reduction::Sum.number() } else { by.number() };
        match self.collective {
            Collective::AllReduce(by) => {
                // SAFETY: both have `count` elements on the rank's device; the rest is the caller's.
                unsafe {
                    call!(functions, ncclAllReduce(from, to, count, of, number(by), communicator, stream))
                }
            }
            Collective::ReduceScatter(by) => {
                // SAFETY: as above, and the input has as many for each rank.
                unsafe {
                    call!(functions, ncclReduceScatter(from, to, count, of, number(by), communicator, stream))
                }
            }
            Collective::AllGather => {
                // SAFETY: as above, and the output has as many for each rank.
                unsafe { call!(functions, ncclAllGather(from, to, count, of, communicator, stream)) }
            }
            Collective::Broadcast(root) => {
                // SAFETY: as above. The root is one of the ranks, of which there are few.
                unsafe {
                    call!(functions, ncclBroadcast(from, to, count, of, root as c_int, communicator, stream))
                }
            }
        }
    }

    /// Outputs lie apart from each other and from inputs, but for a rank's own input, if each element of the
    /// one lies where the rank's element of the other does. `addresses` as for [`call`](Self::call).
    fn check_overlaps(&self, addresses: &[usize]) -> Result<()> {
        let (outputs, inputs) = self.split(addresses);
        let (part, all) = (self.count * self.size, self.count * self.size * self.ranks);
        let (input_len, output_len) = match self.collective {
            Collective::AllReduce(_) | Collective::Broadcast(_) => (part, part),
            Collective::ReduceScatter(_) => (all, part),
            Collective::AllGather => (part, all),
        };
        let is_apart = |a: usize, len: usize, b: usize, other: usize| a + len <= b || b + other <= a;
        for (rank, &output) in outputs.iter().enumerate() {
            let others = outputs[..rank].iter().all(|&other| is_apart(output, output_len, other, output_len));
            let apart = inputs.iter().enumerate().all(|(index, &input)| {
                let is_own = match self.collective {
                    Collective::AllReduce(_) => index == rank && input == output,
                    Collective::Broadcast(root) => root == rank && input == output,
                    Collective::ReduceScatter(_) => index == rank && output == input + rank * part,
                    Collective::AllGather => index == rank && input == output + rank * part,
                };
                is_own || is_apart(output, output_len, input, input_len)
            });
            if !(others && apart) {
                let why = format!("the output of rank {rank} overlaps with an input or another output");
                let help = match self.collective {
                    Collective::AllReduce(_) | Collective::Broadcast(_) => "it may be the rank's own input",
                    _ => "a rank's smaller buffer may be its part of the larger one",
                };
                return Err(Error::new(ErrorKind::InvalidArgument, why).help(help));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    /// Whether the outputs and inputs of two ranks at these addresses are refused, with 8 bytes of each.
    fn overlap(collective: Collective, outputs: [usize; 2], inputs: &[usize]) -> bool {
        let operation = Operation { collective, ranks: 2, count: 4, size: 2, data_type: 0 };
        // Each node has the devices' tokens, too, which may lie anywhere.
        operation.check_overlaps(&[&outputs, inputs, &[65, 129]].concat()).is_err()
    }

    #[test]
    fn only_memory_in_place_may_be_both_read_and_written() {
        let sum = Collective::AllReduce(Reduction::Sum);
        assert!(!overlap(sum, [64, 80], &[64, 80]) && !overlap(sum, [64, 80], &[72, 88]));
        assert!(overlap(sum, [64, 80], &[66, 88]) && overlap(sum, [64, 80], &[72, 74]));
        assert!(overlap(sum, [64, 66], &[88, 96]), "the outputs of two ranks");
        assert!(overlap(sum, [64, 80], &[80, 64]), "the input of another rank");
        let gather = Collective::AllGather;
        assert!(!overlap(gather, [64, 128], &[64, 136]) && !overlap(gather, [64, 128], &[80, 120]));
        assert!(overlap(gather, [64, 128], &[72, 136]) && overlap(gather, [64, 128], &[64, 128]));
        let scatter = Collective::ReduceScatter(Reduction::Max);
        assert!(!overlap(scatter, [64, 136], &[64, 128]) && !overlap(scatter, [80, 120], &[64, 128]));
        assert!(overlap(scatter, [72, 136], &[64, 128]));
        let broadcast = Collective::Broadcast(1);
        assert!(!overlap(broadcast, [64, 80], &[80]) && !overlap(broadcast, [64, 80], &[96]));
        assert!(overlap(broadcast, [64, 80], &[64]) && overlap(broadcast, [64, 80], &[82]));
    }
}
