//! The two graphs, as far as ours and the bases share them: sizes, inputs, and the bases' sources.

use std::fmt::Write as _;

/// Different kernels in the chain.
pub(crate) const KERNELS: usize = 60;
/// Elements that these change.
pub(crate) const ELEMENTS: usize = 1024;
/// Pixels in a row and rows of the photo.
pub(crate) const WIDTH: usize = 256;
pub(crate) const PIXELS: usize = WIDTH * WIDTH;

/// Which graph a process runs first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// The edge detector of the example `photo`, without its files.
    Photo,
    /// A chain of different kernels.
    Chain,
}

impl Work {
    pub(crate) const ALL: [Self; 2] = [Self::Photo, Self::Chain];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Photo => "photo",
            Self::Chain => "60_kernels",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.name() == name)
    }
}

/// Statements of kernel `number` of the chain, for an element `w`.
pub(crate) fn body(number: usize) -> String {
    let rounds = number % 7 + 1;
    format!(
        "for (int r = 0; r < {rounds}; r++) {{ w = (w ^ (w >> 15)) * 0x2c1b3c6du; \
         w = (w << 7) | (w >> 25); }} w += {number}u;"
    )
}

pub(crate) fn kernel_name(number: usize) -> String {
    format!("k{number}")
}

/// An image of noise.
pub(crate) fn frame() -> Vec<u8> {
    let mut noise = 1u32;
    let mut next = || {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (noise >> 24) as u8
    };
    (0..3 * PIXELS).map(|_| next()).collect()
}

/// The weights of the blur.
pub(crate) const TAPS: [f32; 5] = [0.0625, 0.25, 0.375, 0.25, 0.0625];

/// The threshold that a histogram asks for: twice its mean.
pub(crate) fn level(histogram: &[u32]) -> u8 {
    let sum: u64 = (0u64..).zip(histogram).map(|(value, &count)| value * u64::from(count)).sum();
    (2 * sum / PIXELS as u64).min(255) as u8
}

/// Tells results apart.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(14_695_981_039_346_656_037, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    })
}

const CUDA: &str = "typedef unsigned char uchar; typedef unsigned int uint;
#define KERNEL extern \"C\" __global__ void
#define FUNCTION __device__
#define GLOBAL
#define ID(d) ((int)(blockIdx.x * blockDim.x + threadIdx.x))
#define ADD(place) atomicAdd(place, 1u)
";
const OPENCL: &str = "#pragma OPENCL FP_CONTRACT OFF
#define KERNEL kernel void
#define FUNCTION
#define GLOBAL global
#define ID(d) ((int)get_global_id(d))
#define ADD(place) atomic_inc(place)
";

/// The programs of a base in its language, each with the names of its kernels.
pub(crate) fn programs(work: Work, is_cuda: bool) -> Vec<(String, Vec<String>)> {
    let prelude = if is_cuda { CUDA } else { OPENCL };
    match work {
        Work::Photo => {
            let kernels = ["grayscale", "blur_rows", "blur_columns", "sobel", "histogram", "threshold"];
            vec![([prelude, include_str!("by_hand.c")].concat(), kernels.map(String::from).into())]
        }
        Work::Chain => (0..KERNELS)
            .map(|number| {
                let (mut source, name, body) = (prelude.to_owned(), kernel_name(number), body(number));
                let _ = write!(
                    source,
                    "KERNEL {name}(GLOBAL uint *x, int n) {{ int i = ID(0); if (i >= n) return; \
                     uint w = x[i]; {body} x[i] = w; }}"
                );
                (source, vec![name])
            })
            .collect(),
    }
}
