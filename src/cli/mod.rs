//! The command line: serve, bench, depth.

mod args;
mod bench;
mod depth;
mod logging;
mod serve;

pub use args::{BenchArgs, Cli, Command, DepthArgs, DocSizeArg, ServeArgs};

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

/// Runs the program with the words of the command line. A failure is one sentence on standard error.
#[must_use]
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        None => serve::run(cli.serve),
        Some(Command::Serve(args)) => serve::run(args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Depth(args)) => depth::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to be told when standard error is closed.
            let _ = writeln!(std::io::stderr(), "settee: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What ends a command early.
type Failure = Box<dyn std::error::Error>;
