//! The memory of the process.

/// KiB that the process grows by, after a tenth of the calls.
pub fn growth(count: usize, mut once: impl FnMut()) -> f64 {
    (0..count / 10).for_each(|_| once());
    let before = kib();
    (0..count).for_each(|_| once());
    kib() - before
}

/// KiB of the process that are in memory.
pub fn kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}
