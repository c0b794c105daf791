//! Deadlines of gRPC calls.

use std::time::{Duration, Instant};

use tonic::metadata::MetadataMap;

/// When the caller stops waiting: from `grpc-timeout`, which has up to eight digits and a unit.
pub fn deadline(metadata: &MetadataMap) -> Option<Instant> {
    let timeout = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = timeout.split_at_checked(timeout.len().checked_sub(1)?)?;
    let amount: u32 = digits.parse().ok()?;
    let unit = match unit {
        "H" => Duration::from_secs(3600),
        "M" => Duration::from_secs(60),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return None,
    };
    Instant::now().checked_add(unit * amount)
}

/// What is left until a deadline.
pub fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
