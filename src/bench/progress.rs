//! A bar that shows how far a phase has come; nothing when nobody looks at a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws per second.
const REDRAWS_PER_SECOND: u8 = 5;

/// Shows progress on the error output, or not at all.
#[derive(Debug)]
pub struct Progress {
    quiet: bool,
    bar: ProgressBar,
}

impl Progress {
    /// Progress that is shown when the error output is a terminal.
    #[must_use]
    pub fn visible() -> Self {
        Self {
            quiet: false,
            bar: ProgressBar::hidden(),
        }
    }

    /// Progress that is never shown.
    #[must_use]
    pub fn hidden() -> Self {
        Self {
            quiet: true,
            bar: ProgressBar::hidden(),
        }
    }

    /// A phase begins, of so many steps.
    pub(super) fn begin(&mut self, label: &str, steps: u64) {
        if self.quiet {
            return;
        }
        // A hidden bar is drawn nowhere, and so is one whose output is no terminal.
        self.bar = ProgressBar::with_draw_target(
            Some(steps),
            ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND),
        );
        if let Ok(style) = ProgressStyle::with_template(" {msg:<28} {wide_bar} {pos}/{len} {eta}") {
            self.bar.set_style(style);
        }
        self.bar.set_message(label.to_owned());
    }

    /// Steps were made.
    pub(super) fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// The phase is over; the bar goes away.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
