//! Tidiness as a test: who may name what, what must not be left lying about, and canaries that prove each rule bites.
//!
//! Rules look at parsed Rust (`tidy/layers.rs`, `tidy/code.rs`) or at plain text (`tidy/text.rs`). Sizes of files and
//! functions are printed for people to judge (`tidy/sizes.rs`); they fail nothing.

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/sizes.rs"]
mod sizes;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/text.rs"]
mod text;

use std::collections::BTreeSet;
use std::path::Path;

use source::{Finding, SourceFile};

/// Every rule by name; each must have a canary in `tests/tidy/canaries/`.
fn rules() -> BTreeSet<&'static str> {
    layers::LAYERS
        .iter()
        .map(|layer| layer.rule)
        .chain(code::RULES)
        .chain(text::RULES)
        .collect()
}

/// All findings of all rules in one file.
fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = text::check(file);
    if let Some(parsed) = file.parse(&mut findings) {
        layers::check(file, &parsed, &mut findings);
        code::check(file, &parsed, &mut findings);
    }
    findings
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_tree_is_tidy() {
    let files = source::tree(repository());
    assert!(
        files.len() > 20,
        "only {} files found below {}",
        files.len(),
        repository().display()
    );
    let findings: Vec<String> = files
        .iter()
        .flat_map(check)
        .map(|finding| finding.to_string())
        .collect();
    assert!(
        findings.is_empty(),
        "{} findings:\n{}",
        findings.len(),
        findings.join("\n")
    );
}

#[test]
fn every_rule_catches_its_canary() {
    let mut uncovered = rules();
    for canary in source::canaries(&repository().join("tests/tidy/canaries")) {
        let findings = check(&canary.file);
        let caught: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
        if canary.rule == "clean" {
            assert!(
                caught.is_empty(),
                "{}: flagged, but nothing is wrong: {findings:?}",
                canary.name
            );
            continue;
        }
        assert!(
            caught.contains(&canary.rule.as_str()),
            "{}: not flagged, only {caught:?}",
            canary.name
        );
        uncovered.remove(canary.rule.as_str());
    }
    assert!(uncovered.is_empty(), "rules without a canary: {uncovered:?}");
}

#[test]
fn sizes_are_shown() {
    let files = source::tree(repository());
    sizes::show(&files);
}
