//! An HSA runtime without a GPU: AMD's own HIP library, unmodified, runs on it.
//!
//! HIP is written against `libhsa-runtime64.so.1`, AMD's implementation of the HSA standard. This
//! library takes its place. It claims one or two GPUs and carries out on the host what HIP asks of
//! them: queues, packets, copies, signals. What HIP makes of a graph is thereby HIP's own. Only the
//! machine code of kernels is not run: the same library is also a `libhiprtc` in front of AMD's,
//! which has every source compiled a second time, for the host ([`hiprtc`]).
//!
//! It checks what a GPU would not forgive, and ends the process with a message that names the
//! kernel or the call. The environment selects devices, order, delays and failures: [`settings`].
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(unsafe_code, reason = "a C library")]
#![allow(clippy::too_many_arguments, reason = "the functions of the standard have them")]
#![allow(clippy::unwrap_used, reason = "part of the tests")]

mod agents;
mod builtin_kernels;
mod calls;
mod code_objects;
mod copies;
mod hiprtc;
mod host_kernels;
mod kernels;
mod memory;
mod message_pack;
mod packets;
mod pools;
mod queues;
mod raw;
mod refused;
mod settings;
mod signals;
mod status;
