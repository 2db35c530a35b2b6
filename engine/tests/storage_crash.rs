//! Crashes at any point: what was acknowledged is there, and nothing that counts points to bytes that are not.
//!
//! `crash/disk.rs` says what the model's disk may do. `CRASH_ROUNDS` is the number of random rounds and `CRASH_SEED` the
//! seed of the first; a round that fails prints its own.

mod crash;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_engine::db::{DbError, DbOptions};
use settee_engine::storage::vfs::{MemoryVfs, Vfs};
use settee_engine::storage::{FileOptions, SyncOptions};

use crash::choices::Choices;
use crash::database::{DATA_DIR, History, PATH, Step, open, options, read_all, stripped};
use crash::disk::{Disk, image};
use crash::vfs::{CrashVfs, Event, Fault};

/// What can be wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Right,
    TrustsSeals,
    AnswersBeforeTheSync,
    ForgetsDirectories,
}

/// Files and directories.
type Contents = (Vec<(PathBuf, Vec<u8>)>, Vec<PathBuf>);

/// What one round met.
#[derive(Debug, Default)]
struct Met {
    refused: u64,
    faults: u64,
    crashes: u64,
}

fn draw_options(choices: &mut Choices, variant: Variant) -> DbOptions {
    let usual = !choices.once_in(4);
    let mut file = FileOptions::default();
    if variant == Variant::Right && !usual {
        file.sync = SyncOptions {
            before_header: choices.once_in(2),
            after_header: true,
            on_open: choices.once_in(2),
        };
        file.space_ahead = choices.once_in(2);
    }
    file.trust_seals = variant == Variant::TrustsSeals;
    if variant == Variant::AnswersBeforeTheSync {
        file.sync.after_header = false;
    }
    options(file)
}

/// The disk after the first of these events.
fn replay(before: &Contents, events: &[Event], choices: &mut Choices) -> Disk {
    let mut disk = Disk::new(&before.0, &before.1);
    for event in events {
        disk.apply(event, choices);
    }
    disk
}

/// The steps that may be found after these events: the last that was acknowledged, to the last that was begun.
fn bounds(events: &[Event], at_first: Option<usize>) -> (Option<usize>, usize) {
    let mut bounds = (at_first, 0);
    for event in events {
        match event {
            Event::Attempt(number) => bounds.1 = *number,
            Event::Acknowledged(number) => bounds.0 = Some(*number),
            _ => {}
        }
    }
    bounds
}

/// What is found after a crash, which has to be one of the states that are possible. `None` when the database was never
/// acknowledged and is not there.
fn verify(
    contents: &Contents,
    options: &DbOptions,
    states: &[Option<String>],
    (acknowledged, attempted): (Option<usize>, usize),
    met: &mut Met,
) -> Result<Option<String>, String> {
    let memory = image(&contents.0, &contents.1);
    let bytes = contents.0.iter().find(|(path, _)| path.as_os_str() == PATH);
    let Some((_, bytes)) = bytes.filter(|(_, bytes)| acknowledged.is_some() || !bytes.is_empty()) else {
        return match acknowledged {
            None => Ok(None),
            Some(_) => Err("the file is gone".to_owned()),
        };
    };
    let vfs: Arc<dyn Vfs> = Arc::new(memory);
    let mut writer = match open(&vfs, options) {
        Ok(writer) => writer,
        Err(DbError::NoHeader { .. }) if acknowledged.is_none() => return Ok(None),
        Err(error) => return Err(format!("opening after the crash: {error}")),
    };
    met.refused += u64::from(writer.refused_header().is_some());
    let found = read_all(&writer.snapshot(), bytes.len() as u64)?;
    let possible = &states[acknowledged.unwrap_or(0).min(states.len())..];
    let possible = &possible[..(attempted + 1 - acknowledged.unwrap_or(0)).min(possible.len())];
    // A step that failed may be found after a crash; nobody knows what it looks like.
    let unknown = possible.iter().any(Option::is_none) || attempted >= states.len();
    let known = possible
        .iter()
        .flatten()
        .any(|state| stripped(state) == stripped(&found));
    if !known && !unknown {
        return Err(format!(
            "after step {acknowledged:?} of {attempted} it says\n{found}\nand not one of\n{possible:#?}"
        ));
    }
    let limit = writer.snapshot().header().revs_limit + 1;
    writer
        .set_revs_limit(limit)
        .map_err(|error| format!("writing after the crash: {error}"))?;
    drop(writer);
    let writer = open(&vfs, options).map_err(|error| format!("opening what was written on: {error}"))?;
    read_all(&writer.snapshot(), u64::MAX)?;
    if writer.snapshot().header().revs_limit != limit {
        return Err("what was written after the crash is gone".to_owned());
    }
    Ok(Some(found))
}

/// A few lives of one database, each with a history, perhaps a failing call, and a crash.
fn round(seed: u64, variant: Variant) -> Result<Met, String> {
    let mut choices = Choices::random(seed);
    let options = draw_options(&mut choices, variant);
    let mut met = Met::default();
    let mut contents: Contents = (Vec::new(), vec![PathBuf::from("/"), PathBuf::from(DATA_DIR)]);
    let mut before = None;
    let long = choices.once_in(8);
    for _ in 0..1 + choices.below(3) {
        let names: Vec<PathBuf> = contents.0.iter().map(|(path, _)| path.clone()).collect();
        let mut vfs = CrashVfs::new(image(&contents.0, &contents.1), &names, &contents.1);
        vfs.forgets_dirs = variant == Variant::ForgetsDirectories;
        if variant == Variant::Right && choices.once_in(2) {
            let fault = [Fault::Io, Fault::NoSpace, Fault::Short][choices.below(3)];
            vfs.fail(choices.below(40), fault);
        }
        let at_first = before.as_ref().map(|_| 0);
        let mut states = vec![before.clone()];
        if let Some(history) = History::begin(&vfs, &options, before.take())? {
            states = run(history, &mut choices, long)?;
        }
        met.faults += u64::from(vfs.has_failed());
        let events = vfs.events();
        let mut next = None;
        for _ in 0..3 {
            let point = draw_point(&events, &mut choices);
            let disk = replay(&contents, &events[..point], &mut choices);
            let left = disk.crash(&mut choices);
            let bounds = bounds(&events[..point], at_first);
            let found = verify(&left, &options, &states, bounds, &mut met)
                .map_err(|error| format!("{error}\n{}{:?}", trace(&events[..point]), options.file.sync))?;
            met.crashes += 1;
            next = Some((left, found));
        }
        match next {
            Some((left, Some(found))) => (contents, before) = (left, Some(found)),
            _ => break,
        }
    }
    Ok(met)
}

/// What was done before a crash, a line each.
fn trace(events: &[Event]) -> String {
    let line = |event: &Event| match event {
        Event::Write(_, pos, data) => format!("write {pos} to {}\n", pos + data.len() as u64),
        other => format!("{other:?}\n"),
    };
    events.iter().map(line).collect()
}

/// How much was done before the crash: mostly, something that was not synced yet.
fn draw_point(events: &[Event], choices: &mut Choices) -> usize {
    let unsynced: Vec<usize> = events
        .iter()
        .zip(1..)
        .filter(|(event, _)| matches!(event, Event::Write(..) | Event::SetLen(..)))
        .map(|(_, point)| point)
        .collect();
    match choices.below(8) {
        0 => events.len(),
        1 | 2 => choices.below(events.len() + 1),
        _ if unsynced.is_empty() => 0,
        _ => unsynced[choices.below(unsynced.len())],
    }
}

/// Takes some steps; gives what the file said after each.
fn run(mut history: History<'_>, choices: &mut Choices, long: bool) -> Result<Vec<Option<String>>, String> {
    for _ in 0..choices.below(7) {
        let goes_on = match choices.below(10) {
            0 => history.reopen()?,
            _ => history.step(Step::draw(choices, long))?,
        };
        if !goes_on {
            return Ok(history.states);
        }
    }
    let states = std::mem::take(&mut history.states);
    if choices.once_in(3) {
        history.close();
    }
    Ok(states)
}

fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a whole number"))
}

#[test]
#[expect(clippy::print_stdout, reason = "what was met is part of the result")]
fn no_crash_loses_what_was_acknowledged() {
    let first = number_from("CRASH_SEED", 1);
    let rounds = number_from("CRASH_ROUNDS", 2000);
    let next = AtomicU64::new(first);
    let totals = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(4) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + rounds {
                        break;
                    }
                    match round(seed, Variant::Right) {
                        Ok(met) => {
                            for (total, met) in totals.iter().zip([met.crashes, met.refused, met.faults]) {
                                total.fetch_add(met, Ordering::Relaxed);
                            }
                        }
                        Err(error) => panic!(
                            "seed {seed}: {error}\nreplay: CRASH_SEED={seed} CRASH_ROUNDS=1 cargo test -p settee-engine --test storage_crash no_crash"
                        ),
                    }
                }
            });
        }
    });
    let [crashes, refused, faults] = totals.map(AtomicU64::into_inner);
    println!(
        "{rounds} rounds from seed {first}: {crashes} crashes, {refused} headers refused, {faults} failed calls"
    );
    if rounds >= 100 {
        assert!(
            crashes > rounds && refused > rounds / 10 && faults > rounds / 10,
            "the model does its work"
        );
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "what was met is part of the result")]
fn the_model_finds_what_is_wrong() {
    for variant in [
        Variant::TrustsSeals,
        Variant::AnswersBeforeTheSync,
        Variant::ForgetsDirectories,
    ] {
        let found = (1..=500).find_map(|seed| round(seed, variant).err().map(|error| (seed, error)));
        let (seed, error) = found.unwrap_or_else(|| panic!("{variant:?} was not found out"));
        println!(
            "{variant:?}: seed {seed}: {}",
            error.lines().next().unwrap_or_default()
        );
    }
}

/// Every crash point of a small history, and everything that the disk may have made of it.
#[test]
#[expect(clippy::print_stdout, reason = "what was met is part of the result")]
fn every_crash_of_a_small_history_is_survived() {
    for before_header in [false, true] {
        let mut file = FileOptions::default();
        file.sync.before_header = before_header;
        let options = options(file);
        let at_first: Contents = (Vec::new(), vec![PathBuf::from("/"), PathBuf::from(DATA_DIR)]);
        let vfs = CrashVfs::new(MemoryVfs::new(), &[], &at_first.1);
        let mut history = History::begin(&vfs, &options, None)
            .expect("made")
            .expect("nothing fails");
        // Not to be compressed, so that a commit has four pages.
        let long: String = (0..700u64)
            .map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        let doc = |text: &str| Step::Update(vec![("a".to_owned(), format!(r#""t":"{text}""#))], true);
        for step in [doc("first"), Step::Stray(10), doc(&long), Step::RevsLimit(7)] {
            assert!(history.step(step).expect("taken"));
        }
        assert!(history.reopen().expect("opened"));
        let events = vfs.events();
        let mut seen = BTreeSet::new();
        let (mut met, mut crashes) = (Met::default(), 0);
        for point in 0..=events.len() {
            let bounds = bounds(&events[..point], None);
            let mut choices = Choices::all();
            loop {
                crashes += 1;
                let left = replay(&at_first, &events[..point], &mut choices).crash(&mut choices);
                let mut hasher = DefaultHasher::new();
                (&left, bounds).hash(&mut hasher);
                if seen.insert(hasher.finish()) {
                    verify(&left, &options, &history.states, bounds, &mut met)
                        .unwrap_or_else(|error| panic!("point {point}, {choices:?}: {error}"));
                }
                if !choices.advance() {
                    break;
                }
            }
        }
        println!(
            "{crashes} crashes, {} disks, {} headers refused",
            seen.len(),
            met.refused
        );
        assert!(seen.len() > 1000 && (before_header || met.refused > 10));
    }
}
