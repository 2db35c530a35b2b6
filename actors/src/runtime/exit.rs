//! Why processes end: the closed set of exit reasons, and the capture of panics.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Once};

use super::pid::Pid;

/// Why a process ended. The set is closed: supervisors decide by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The work is done.
    Normal,
    /// An orderly stop, asked for by the parent or the system.
    Shutdown,
    /// An orderly stop with a word on the cause.
    ShutdownWith(String),
    /// Ended by force; `terminate` was not called.
    Killed,
    /// There was no such process when a link or monitor was made.
    NoProc,
    /// The node of the process cannot be reached.
    NoConnection,
    /// The process panicked.
    Panic {
        /// The panic's message.
        message: Arc<str>,
        /// `file:line:column` of the panic.
        location: Arc<str>,
    },
    /// The process gave up because of an error.
    Error(Arc<str>),
    /// A linked process ended, and this one did not trap exits.
    Linked {
        /// The process where it began.
        from: Pid,
        /// Why that one ended.
        reason: Arc<Reason>,
    },
}

impl Reason {
    /// A reason from anything that can be shown.
    pub fn error(error: impl fmt::Display) -> Reason {
        Reason::Error(error.to_string().into())
    }

    /// Whether this is an intended end: a transient child that ends so is not restarted.
    pub fn is_orderly(&self) -> bool {
        match self {
            Reason::Normal | Reason::Shutdown | Reason::ShutdownWith(_) => true,
            Reason::Linked { reason, .. } => reason.is_orderly(),
            _ => false,
        }
    }

    /// The reason with which a process dies when the linked process `from` ended with `self`. The chain stays flat: the
    /// first cause is kept.
    pub(crate) fn through_link(self, from: Pid) -> Reason {
        match self {
            linked @ Reason::Linked { .. } => linked,
            reason => Reason::Linked {
                from,
                reason: Arc::new(reason),
            },
        }
    }

    /// The reason a caller sees when its reply token was dropped by a process that lives on.
    pub(crate) fn unanswered() -> Reason {
        Reason::Error("reply token dropped without an answer".into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Normal => f.write_str("normal"),
            Reason::Shutdown => f.write_str("shutdown"),
            Reason::ShutdownWith(cause) => write!(f, "shutdown: {cause}"),
            Reason::Killed => f.write_str("killed"),
            Reason::NoProc => f.write_str("noproc"),
            Reason::NoConnection => f.write_str("noconnection"),
            Reason::Panic { message, location } => write!(f, "panic at {location}: {message}"),
            Reason::Error(error) => write!(f, "error: {error}"),
            Reason::Linked { from, reason } => write!(f, "linked process {from} ended: {reason}"),
        }
    }
}

thread_local! {
    static GUARDED: Cell<u32> = const { Cell::new(0) };
    static LOCATION: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Notes where a guarded panic happened. The previous hook still runs for every panic outside the runtime, and for
/// those inside it when nobody listens to `tracing`, so that no panic is silent.
fn install_hook() {
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let guarded = GUARDED.try_with(Cell::get).unwrap_or(0) > 0;
            if guarded {
                let place = info.location().map(|l| Arc::from(l.to_string().as_str()));
                // The cell can be gone only while the thread ends; then the location is merely unknown.
                let _ = LOCATION.try_with(|cell| cell.replace(place));
            }
            if !guarded || !tracing::dispatcher::has_been_set() {
                previous(info);
            }
        }));
    });
}

/// Runs `f`; a panic comes back as [`Reason::Panic`].
pub(crate) fn guard<T>(f: impl FnOnce() -> T) -> Result<T, Reason> {
    install_hook();
    GUARDED.set(GUARDED.get() + 1);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(GUARDED.get() - 1);
    result.map_err(|payload| {
        let location = LOCATION.take().unwrap_or_else(|| Arc::from("unknown"));
        let message = message_of(payload.as_ref()).into();
        // A payload's own destructor may panic; it must not take the thread with it.
        let _ = panic::catch_unwind(AssertUnwindSafe(move || drop(payload)));
        Reason::Panic { message, location }
    })
}

fn message_of(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "panic with a value that is no text"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarded_panic_has_message_and_location() {
        let reason = guard(|| panic!("oops {}", 1)).expect_err("must panic");
        let Reason::Panic { message, location } = reason else {
            panic!("wrong reason {reason}")
        };
        assert_eq!(&*message, "oops 1");
        assert!(location.contains("exit.rs"), "{location}");
    }

    #[test]
    fn a_chain_of_links_keeps_the_first_cause() {
        let first = Reason::Killed.through_link(Pid::ROOT);
        assert_eq!(first.clone().through_link(Pid::OUTSIDE), first);
        assert!(!first.is_orderly());
        assert!(Reason::Shutdown.through_link(Pid::ROOT).is_orderly());
    }
}
