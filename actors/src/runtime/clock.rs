//! Time as a value: the system asks its clock, never the machine.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Where a system takes its time from. Timers and deadlines follow tokio's time, which tests pause and simulators drive.
pub trait Clock: Send + Sync + 'static {
    /// Time since some fixed moment; never goes back.
    fn now_monotonic(&self) -> Duration;
    /// The same to a few milliseconds, where that is cheaper: each turn of a process asks for it.
    fn now_coarse(&self) -> Duration {
        self.now_monotonic()
    }
    /// Microseconds since 1970-01-01 UTC.
    fn now_unix_micros(&self) -> u64;
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The machine's time, whatever tokio's does; what a threaded system uses by default.
pub struct RealClock {
    base: std::time::Instant,
    #[cfg(target_os = "linux")]
    coarse_base: Duration,
}

/// The kernel's coarse clock: the time of the last tick, without a look at the hardware.
#[cfg(target_os = "linux")]
fn coarse() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

impl RealClock {
    /// A clock whose monotonic time begins now.
    #[expect(clippy::disallowed_methods, reason = "this is the real clock")]
    pub fn new() -> RealClock {
        RealClock {
            base: std::time::Instant::now(),
            #[cfg(target_os = "linux")]
            coarse_base: coarse(),
        }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        RealClock::new()
    }
}

impl Clock for RealClock {
    fn now_monotonic(&self) -> Duration {
        self.base.elapsed()
    }

    #[cfg(target_os = "linux")]
    fn now_coarse(&self) -> Duration {
        coarse().saturating_sub(self.coarse_base)
    }

    fn now_unix_micros(&self) -> u64 {
        wall_micros()
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the real clock")]
fn wall_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}

/// Simulated time: both halves follow tokio's time from a chosen start, so a paused or simulated run is reproducible.
/// What a local system uses by default, from the present on.
pub struct SimClock {
    base: Instant,
    unix_micros: u64,
}

impl SimClock {
    /// A clock that shows `unix_micros` now.
    pub fn starting_at(unix_micros: u64) -> SimClock {
        SimClock {
            base: Instant::now(),
            unix_micros,
        }
    }
}

impl Default for SimClock {
    fn default() -> Self {
        SimClock::starting_at(wall_micros())
    }
}

impl Clock for SimClock {
    fn now_monotonic(&self) -> Duration {
        self.base.elapsed()
    }

    fn now_unix_micros(&self) -> u64 {
        self.unix_micros.saturating_add(micros(self.base.elapsed()))
    }
}

/// A clock that moves only by hand.
#[derive(Default)]
pub struct ManualClock {
    monotonic_micros: AtomicU64,
    unix_micros: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `unix_micros`, and zero for the monotonic half.
    pub fn new(unix_micros: u64) -> ManualClock {
        ManualClock {
            monotonic_micros: AtomicU64::new(0),
            unix_micros: AtomicU64::new(unix_micros),
        }
    }

    /// Moves both halves forward.
    pub fn advance(&self, by: Duration) {
        self.monotonic_micros.fetch_add(micros(by), Ordering::SeqCst);
        self.unix_micros.fetch_add(micros(by), Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as an administrator would.
    pub fn set_unix_micros(&self, unix_micros: u64) {
        self.unix_micros.store(unix_micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic_micros.load(Ordering::SeqCst))
    }

    fn now_unix_micros(&self) -> u64 {
        self.unix_micros.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({} us)", self.now_unix_micros())
    }
}
