//! The real clock and the operating system's randomness. The HTTP layer stands at the edge to real clients, so both are
//! taken here, in one place, and nowhere else in it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock.
#[expect(
    clippy::disallowed_methods,
    reason = "how long real clients wait is measured in real time"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Microseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "cookies and ids are made for real clients, which have real time"
)]
pub fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    unix_micros() / 1_000_000
}

/// 128 random bits.
#[expect(
    clippy::disallowed_methods,
    reason = "ids and boundaries must not be foreseeable by clients"
)]
pub fn random_bits() -> u128 {
    rand::random()
}

/// 32 random hex digits.
pub fn random_hex() -> String {
    format!("{:032x}", random_bits())
}
