//! The `settee` binary.

use std::process::ExitCode;

/// Rows and documents are many short-lived buffers made on one thread and dropped on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    settee::cli::run()
}
