//! What the benchmark prints: the lines of CouchDB's `fabric_bench`, to the column, or one JSON object.

use super::Options;
use std::io::{self, Write};
use std::time::Duration;

/// Version of the benchmark: the same documents and phases as CouchDB's version 1.
pub const BENCH_VERSION: &str = "1";

/// What is measured, and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The connected nodes, this one included.
    pub nodes: Vec<String>,
    /// Copies of each shard, as the database tells.
    pub n: u64,
    /// Shards, as the database tells.
    pub q: u64,
    /// Family and name of the operating system, for instance `unix/linux`.
    pub os: String,
    /// Version of the server.
    pub version: String,
    /// Revision of the server's source.
    pub git_sha: String,
    /// What the server runs on.
    pub vm: String,
}

impl Environment {
    /// The operating system of this process.
    #[must_use]
    pub fn this_os() -> String {
        format!("{}/{}", std::env::consts::FAMILY, std::env::consts::OS)
    }
}

/// The result of one phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Short name, for scripts.
    pub name: &'static str,
    /// Label, for people.
    pub label: String,
    /// What was done, in documents or rows.
    pub count: u64,
    /// How long it took.
    pub time: Duration,
}

impl Row {
    /// Documents or rows per second, rounded for being rough.
    #[must_use]
    pub fn hz(&self) -> u64 {
        hz(self.time, self.count)
    }
}

/// A rate, rounded as CouchDB does: the larger it is, the fewer of its digits mean anything.
#[must_use]
pub fn hz(time: Duration, count: u64) -> u64 {
    let micros = time.as_micros().max(1);
    let exact = rounded(u128::from(count) * 1_000_000, micros);
    let step = match exact {
        100_001.. => 10_000,
        10_001.. => 1_000,
        1_001.. => 100,
        101.. => 10,
        _ => 1,
    };
    u64::try_from(rounded(exact, step) * step).unwrap_or(u64::MAX)
}

/// A quotient rounded to the nearest whole number, halves upwards.
const fn rounded(dividend: u128, divisor: u128) -> u128 {
    (dividend + divisor / 2) / divisor
}

/// The time of all phases but the one that streams documents with their bodies, in whole seconds. CouchDB leaves that one
/// out of its sum, and numbers are there to be compared.
#[must_use]
pub fn total_seconds(rows: &[Row]) -> u64 {
    let counted = rows.iter().filter(|row| row.name != "all_docs_include_docs");
    let micros: u128 = counted.map(|row| row.time.as_micros()).sum();
    u64::try_from(rounded(micros, 1_000_000)).unwrap_or(u64::MAX)
}

/// Prints what was asked for.
///
/// # Errors
/// What the output answers.
pub fn write_parameters(out: &mut dyn Write, options: &Options) -> io::Result<()> {
    writeln!(out, " *** Parameters")?;
    for (name, value) in options.parameters() {
        writeln!(out, " * {name:<16} : {value}")?;
    }
    Ok(())
}

/// Prints what is measured.
///
/// # Errors
/// What the output answers.
pub fn write_environment(out: &mut dyn Write, environment: &Environment) -> io::Result<()> {
    let Environment {
        nodes,
        n,
        q,
        os,
        version,
        git_sha,
        vm,
    } = environment;
    writeln!(out, "\n *** Environment")?;
    writeln!(out, " * Nodes        : {}", nodes.len())?;
    writeln!(out, " * Bench ver.   : {BENCH_VERSION}")?;
    writeln!(out, " * N            : {n}")?;
    writeln!(out, " * Q            : {q}")?;
    writeln!(out, " * OS           : {os}")?;
    writeln!(out, " * Couch ver.   : {version}")?;
    writeln!(out, " * Couch git sha: {git_sha}")?;
    writeln!(out, " * VM details   : {vm}")
}

/// Prints that the first phase begins.
///
/// # Errors
/// What the output answers.
pub fn write_inserting(out: &mut dyn Write, docs: u64) -> io::Result<()> {
    writeln!(out, "\n *** Inserting {docs} docs")
}

/// Prints that copies are still being brought up to date.
///
/// # Errors
/// What the output answers.
pub fn write_backlog(out: &mut dyn Write, backlog: u64) -> io::Result<()> {
    writeln!(out, "    ---  mem3_sync backlog: {backlog}")
}

/// Prints the result of a phase.
///
/// # Errors
/// What the output answers.
pub fn write_row(out: &mut dyn Write, row: &Row) -> io::Result<()> {
    writeln!(out, " * {:<38} (Hz): {:>7}", row.label, row.hz())
}

/// Prints the last line.
///
/// # Errors
/// What the output answers.
pub fn write_total(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    // One space less than a row has, because of the longer unit.
    writeln!(
        out,
        " * Time to run all benchmarks            (sec): {:>7}",
        total_seconds(rows)
    )
}

/// Everything as one JSON object: what was asked for, what was measured, and a list `rows` of names and rates.
#[must_use]
pub fn json(options: &Options, environment: &Environment, rows: &[Row]) -> serde_json::Value {
    let parameters: serde_json::Map<String, serde_json::Value> = options
        .parameters()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    let rows_json: Vec<serde_json::Value> = rows
        .iter()
        .map(|row| {
            let micros = u64::try_from(row.time.as_micros()).unwrap_or(u64::MAX);
            serde_json::json!({"name": row.name, "hz": row.hz(), "count": row.count, "micros": micros})
        })
        .collect();
    serde_json::json!({
        "bench_version": BENCH_VERSION,
        "parameters": parameters,
        "environment": {
            "nodes": environment.nodes,
            "n": environment.n,
            "q": environment.q,
            "os": environment.os,
            "version": environment.version,
            "git_sha": environment.git_sha,
            "vm": environment.vm,
        },
        "rows": rows_json,
        "seconds": total_seconds(rows),
    })
}

#[cfg(test)]
mod tests {
    use super::super::DocSize;
    use super::*;

    fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).expect("writing to memory");
        String::from_utf8(out).expect("text")
    }

    fn row(name: &'static str, label: &str, count: u64, micros: u64) -> Row {
        Row {
            name,
            label: label.to_owned(),
            count,
            time: Duration::from_micros(micros),
        }
    }

    #[test]
    fn rates_are_rounded_by_their_size() {
        let table = [
            (1, 1_000_000, 1),
            (0, 1_000_000, 0),
            (100, 1_000_000, 100),
            (101, 1_000_000, 100),
            (105, 1_000_000, 110),
            (1_000, 1_000_000, 1_000),
            (1_001, 1_000_000, 1_000),
            (1_050, 1_000_000, 1_100),
            (10_000, 1_000_000, 10_000),
            (10_499, 1_000_000, 10_000),
            (10_500, 1_000_000, 11_000),
            (100_000, 1_000_000, 100_000),
            (104_999, 1_000_000, 100_000),
            (105_000, 1_000_000, 110_000),
            (5_554_999, 1_000_000, 5_550_000),
            (3, 2_000_000, 2),
            (1, 0, 1_000_000),
        ];
        for (count, micros, expected) in table {
            assert_eq!(
                hz(Duration::from_micros(micros), count),
                expected,
                "{count} in {micros}"
            );
        }
    }

    #[test]
    fn lines_stand_in_their_columns() {
        let options = Options {
            q: Some(8),
            doc_size: DocSize::Medium,
            ..Options::default()
        };
        let expected = " *** Parameters\n * batch_size       : 1000\n * doc_size         : medium\n * docs             : 100000\n \
                        * individual_docs  : 1000\n * n                : default\n * q                : 8\n";
        assert_eq!(text(|out| write_parameters(out, &options)), expected);
        let environment = Environment {
            nodes: vec!["n@h".to_owned()],
            n: 1,
            q: 8,
            os: "unix/linux".to_owned(),
            version: "1.2.3".to_owned(),
            git_sha: "abc".to_owned(),
            vm: "two cores".to_owned(),
        };
        let expected = "\n *** Environment\n * Nodes        : 1\n * Bench ver.   : 1\n * N            : 1\n * Q            : 8\n \
                        * OS           : unix/linux\n * Couch ver.   : 1.2.3\n * Couch git sha: abc\n * VM details   : two cores\n";
        assert_eq!(text(|out| write_environment(out, &environment)), expected);
        assert_eq!(text(|out| write_inserting(out, 7)), "\n *** Inserting 7 docs\n");
        assert_eq!(
            text(|out| write_backlog(out, 7)),
            "    ---  mem3_sync backlog: 7\n"
        );
        let line = text(|out| write_row(out, &row("all_docs", "All docs", 45_000, 1_000_000)));
        assert_eq!(line, " * All docs                               (Hz):   45000\n");
        let line = text(|out| write_total(out, &[row("add_docs", "", 1, 249_400_000)]));
        assert_eq!(line, " * Time to run all benchmarks            (sec):     249\n");
    }

    #[test]
    fn the_total_leaves_out_the_streamed_documents() {
        let rows = [
            row("add_docs", "", 1, 1_400_000),
            row("all_docs_include_docs", "", 1, 90_000_000),
            row("changes", "", 1, 100_000),
        ];
        assert_eq!(total_seconds(&rows), 2);
        let json = json(&Options::default(), &Environment::default(), &rows);
        assert_eq!(json["seconds"], 2);
        assert_eq!(json["rows"][0]["name"], "add_docs");
        assert_eq!(json["rows"][2]["hz"], 10);
    }
}
