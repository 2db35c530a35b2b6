//! `config/default.ini` and the registry of settings say the same.

use std::collections::BTreeSet;

use settee::config::{self, ConfigTable, DEFAULT_INI, Settings};

/// The keys of `default.ini`, which are all commented out, as section, key and value.
fn commented_keys() -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut keys = Vec::new();
    for line in DEFAULT_INI.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some(pair) = line.strip_prefix(';')
            && !pair.starts_with(' ')
        {
            let (key, value) = pair.split_once('=').expect("a commented key has an equals sign");
            keys.push((section.clone(), key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    keys
}

#[test]
fn default_ini_is_the_registry_written_out() {
    let written = config::default_ini();
    if written != DEFAULT_INI {
        let fresh = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("default.ini");
        std::fs::write(&fresh, &written).expect("the folder for temporary files can be written");
        panic!(
            "config/default.ini differs from the settings in src/config/groups.rs; copy {} there",
            fresh.display()
        );
    }
}

#[test]
fn both_have_the_same_keys_and_defaults() {
    let file: BTreeSet<_> = commented_keys().into_iter().collect();
    let code: BTreeSet<_> = config::registry()
        .map(|(group, setting)| {
            (
                group.name.to_owned(),
                setting.key.to_owned(),
                setting.default.to_owned(),
            )
        })
        .collect();
    assert_eq!(
        file.difference(&code).collect::<Vec<_>>(),
        Vec::<&_>::new(),
        "only in the file"
    );
    assert_eq!(
        code.difference(&file).collect::<Vec<_>>(),
        Vec::<&_>::new(),
        "only in the code"
    );
}

#[test]
fn uncommented_it_changes_nothing() {
    let keys = commented_keys();
    let table = ConfigTable::from_pairs(
        keys.iter()
            .filter(|(_, _, value)| !value.is_empty())
            .map(|(section, key, value)| (section.as_str(), key.as_str(), value.as_str())),
    );
    assert_eq!(Settings::from_table(&table), Ok(Settings::default()));
    assert_eq!(config::unknown_keys(&table), []);
    assert!(
        config::parse(DEFAULT_INI).0.is_empty(),
        "every key is commented out"
    );
}

#[test]
fn every_setting_tells_its_effect() {
    for (group, setting) in config::registry() {
        assert!(setting.effect.ends_with('.'), "{}/{}", group.name, setting.key);
        assert!(!setting.kind.is_empty());
    }
}
