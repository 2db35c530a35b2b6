//! The `settee` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    settee::cli::run()
}
