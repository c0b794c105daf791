//! What the environment selects. Each variable begins with `WAKEGRAPH_HSA_`.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[allow(dead_code, reason = "shared with the library in front of HIP's")]
pub(crate) struct Settings {
    /// `GPUS`: how many there are, 0 to 2; 1 unless set.
    pub(crate) gpus: u64,
    /// `PEERS=0`: no GPU can reach the memory of another.
    pub(crate) peers: bool,
    /// `MEMORY`: bytes of memory that each GPU has; 4 GiB unless set.
    pub(crate) memory: usize,
    /// `SEED`: of the order in which packets run that nothing orders, and of the delays; random
    /// unless set.
    seed: u64,
    /// `DELAY_US`: every completion is delayed at random by up to so many microseconds.
    delay: u64,
    /// `FAULT=n`: the n-th kernel faults.
    pub(crate) fault: Option<u64>,
    /// `FAIL=name:n`: the n-th call of that function fails.
    pub(crate) fail: Option<(String, u64)>,
    /// `TRACE=1`: each call, with the thread that makes it, and each packet, on the standard error.
    pub(crate) trace: bool,
    /// `KERNELS`: the folder of kernels for the host.
    pub(crate) kernels: PathBuf,
    /// `HIPRTC`: AMD's library that compiles for the GPU.
    pub(crate) hiprtc: Option<PathBuf>,
    /// `HIP`: AMD's library, for the one of `tests/hip_calls` in front of it.
    pub(crate) hip: Option<PathBuf>,
    /// `HIP_VERSION`: the version that the latter says instead of AMD's.
    pub(crate) hip_version: Option<i32>,
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(format!("WAKEGRAPH_HSA_{name}")).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("hsa_runtime: WAKEGRAPH_HSA_{name}={text}")))
}

/// Read from the environment when first asked for.
pub(crate) fn get() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Settings {
            gpus: variable("GPUS").unwrap_or(1),
            peers: variable::<u32>("PEERS") != Some(0),
            memory: variable("MEMORY").unwrap_or(4 << 30),
            seed: variable("SEED").unwrap_or(clock.as_nanos() as u64),
            delay: variable("DELAY_US").unwrap_or(0),
            fault: variable("FAULT"),
            fail: variable::<String>("FAIL").map(|text| {
                let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
                (name.to_owned(), count.parse().unwrap())
            }),
            trace: variable("TRACE") == Some(1),
            kernels: variable("KERNELS")
                .unwrap_or_else(|| std::env::temp_dir().join("wakegraph-host-kernels")),
            hiprtc: variable("HIPRTC"),
            hip: variable("HIP"),
            hip_version: variable("HIP_VERSION"),
        }
    })
}

/// The next number of a sequence that the seed determines (SplitMix64).
pub(crate) fn random() -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    static STEPS: AtomicU64 = AtomicU64::new(1);
    let x = get().seed.wrapping_add(STEPS.fetch_add(1, Ordering::Relaxed).wrapping_mul(STEP));
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Puts `items` in a random order.
pub(crate) fn shuffle<T>(items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, (random() % (last as u64 + 1)) as usize);
    }
}

/// Waits as long as a completion is to be delayed.
pub(crate) fn delay() {
    if let most @ 1.. = get().delay {
        std::thread::sleep(Duration::from_micros(random() % (most + 1)));
    }
}

/// Ends the process: it asked for what a GPU would not do.
pub(crate) fn abort(what: impl Display) -> ! {
    eprintln!("hsa_runtime: {what} (WAKEGRAPH_HSA_SEED={})", get().seed);
    std::process::abort()
}
