//! The timers of one process: one tokio sleep for however many timers.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ahash::AHashMap;
use tokio::time::{Instant, Sleep};

use super::pid::{TimerRef, unique};

/// The longest a timer may wait: a century, which tokio can still add to any instant.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The shortest interval, so that a zero interval cannot fire without end in one turn.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

struct Timer {
    token: u64,
    every: Option<Duration>,
}

/// Timers in the order of their deadlines; those of one moment in the order of their making.
#[derive(Default)]
pub(crate) struct Timers {
    queue: BTreeMap<(Instant, u64), Timer>,
    deadlines: AHashMap<u64, Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timers {
    pub(crate) fn add(&mut self, after: Duration, every: bool, token: u64) -> TimerRef {
        let id = unique();
        let after = after.min(FOREVER);
        let every = every.then(|| after.max(SHORTEST_INTERVAL));
        self.insert(
            Instant::now() + every.unwrap_or(after),
            id,
            Timer { token, every },
        );
        TimerRef(id)
    }

    fn insert(&mut self, at: Instant, id: u64, timer: Timer) {
        self.queue.insert((at, id), timer);
        self.deadlines.insert(id, at);
    }

    /// Returns whether the timer was still to fire.
    pub(crate) fn cancel(&mut self, timer: TimerRef) -> bool {
        match self.deadlines.remove(&timer.0) {
            Some(at) => self.queue.remove(&(at, timer.0)).is_some(),
            None => false,
        }
    }

    /// The token of a timer that is due, or `None` with the task registered for the next one.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> Option<u64> {
        let (&(at, id), _) = self.queue.first_key_value()?;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        let Poll::Ready(()) = sleep.as_mut().poll(cx) else {
            return None;
        };
        let timer = self.queue.remove(&(at, id))?;
        self.deadlines.remove(&id);
        let token = timer.token;
        if let Some(every) = timer.every {
            // A late interval skips the beats it missed instead of firing them in a burst.
            let now = Instant::now();
            let next = if at + every > now { at + every } else { now + every };
            self.insert(next, id, timer);
        }
        Some(token)
    }
}
