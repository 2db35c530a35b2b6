//! The words of the command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// A CouchDB-compatible document database.
#[derive(Debug, Parser)]
#[command(name = "settee", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; `serve` when nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Arguments of `serve`.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve HTTP (the default).
    Serve(ServeArgs),
    /// Measure: CouchDB's fabric_bench, in this process or over HTTP.
    Bench(BenchArgs),
    /// Show depth, nodes and bytes per level of every tree of a file or of a database's shards.
    Depth(DepthArgs),
}

/// Arguments of `serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// An ini file, or a folder of them; may be given many times, the last is the strongest.
    #[arg(long = "ini", value_name = "FILE")]
    pub ini: Vec<PathBuf>,
    /// Directory of databases and of local.ini.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub data: PathBuf,
    /// Port to listen on; 0 picks a free one and prints it.
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// An administrator; the password is kept hashed in the data directory's local.ini.
    #[arg(long, value_name = "NAME:PASSWORD")]
    pub admin: Option<String>,
    /// Name of the node, as name@host; else the one that the data directory knows.
    #[arg(long, value_name = "NODE")]
    pub name: Option<String>,
    /// A setting; may be given many times.
    #[arg(long = "set", value_name = "SECTION/KEY=VALUE")]
    pub set: Vec<String>,
}

/// Size of the documents of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DocSizeArg {
    /// About 330 bytes.
    Small,
    /// About 14.5 kB.
    Medium,
    /// About 146 kB.
    Large,
}

/// Arguments of `bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Shards of the database; the server's default when absent.
    #[arg(long)]
    pub q: Option<u32>,
    /// Copies of each shard; the server's default when absent.
    #[arg(long)]
    pub n: Option<u32>,
    /// Size of the documents.
    #[arg(long, value_enum, default_value = "medium")]
    pub doc_size: DocSizeArg,
    /// Documents written in bulk, read one by one, and streamed.
    #[arg(long, default_value_t = 100_000)]
    pub docs: u64,
    /// Documents per bulk request.
    #[arg(long, default_value_t = 1000)]
    pub batch_size: u64,
    /// Documents written one by one.
    #[arg(long, default_value_t = 1000)]
    pub individual_docs: u64,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    pub json: bool,
    /// Directory for the databases; a temporary one when absent.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Measure the server at this address, with user and password in it, instead of this process.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// A setting; may be given many times.
    #[arg(long = "set", value_name = "SECTION/KEY=VALUE")]
    pub set: Vec<String>,
}

/// Arguments of `depth`.
#[derive(Args, Clone, Debug)]
pub struct DepthArgs {
    /// A `.couch` file, or the name of a database in the data directory.
    pub target: String,
    /// Directory of databases.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub data: PathBuf,
}
