//! The registry of settings: each declared once, with its default, unit and effect, beside the typed field it fills.
//!
//! `config/default.ini` is this registry written out ([`default_ini`]); a test holds the two together.

use std::fmt;
use std::sync::Arc;

use super::kinds::FromSetting;
use super::table::ConfigTable;

/// One setting, as declared.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The section of the ini file.
    pub section: &'static str,
    /// The key in the section.
    pub key: &'static str,
    /// The value when nothing sets it; empty when it is unset by default.
    pub default: &'static str,
    /// The unit of the value: `bytes`, `ms`, `s`, or empty.
    pub unit: &'static str,
    /// What the setting does, as a sentence.
    pub effect: &'static str,
    /// The kind of value accepted.
    pub kind: &'static str,
    /// Tells why a text is not accepted.
    pub validate: fn(&str) -> Result<(), String>,
}

/// The settings of one section.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// The name of the section.
    pub name: &'static str,
    /// An older section whose keys count when they are missing in this one.
    pub fallback: Option<&'static str>,
    /// The settings in the order of `default.ini`.
    pub settings: &'static [Setting],
}

/// Keys that are never looked for in an older section: the port there is that of CouchDB's old second listener.
const WITHOUT_FALLBACK: &[&str] = &["port", "bind_address"];

impl Group {
    /// The older section in which `key` counts too.
    pub fn fallback_for(&self, key: &str) -> Option<&'static str> {
        self.fallback.filter(|_| !WITHOUT_FALLBACK.contains(&key))
    }
}

/// A setting with a value that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The section of the setting.
    pub section: &'static str,
    /// The key of the setting.
    pub key: &'static str,
    /// The value that was found.
    pub value: String,
    /// The layer it was found in.
    pub origin: Arc<str>,
    /// What is accepted, as `must be …`.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            section,
            key,
            value,
            origin,
            reason,
        } = self;
        write!(f, "[{section}] {key} = {value} (from {origin}) {reason}")
    }
}

impl std::error::Error for ConfigError {}

/// Reads one setting; a bad value goes to `errors` and gives `None`.
pub(super) fn read_one<T: FromSetting>(
    table: &ConfigTable,
    group: &Group,
    setting: &'static Setting,
    check: fn(&T) -> Result<(), String>,
    errors: &mut Vec<ConfigError>,
) -> Option<T> {
    let entry = table
        .entry(setting.section, setting.key)
        .or_else(|| table.entry(group.fallback_for(setting.key)?, setting.key));
    let text = entry.map_or(setting.default, |entry| entry.value.as_str());
    match T::from_setting(text).and_then(|value| check(&value).map(|()| value)) {
        Ok(value) => Some(value),
        Err(reason) => {
            errors.push(ConfigError {
                section: setting.section,
                key: setting.key,
                value: text.to_owned(),
                origin: entry.map_or_else(|| "default".into(), |entry| entry.origin.clone()),
                reason,
            });
            None
        }
    }
}

/// A check for numbers within a range, both ends included.
pub(super) fn within<T: PartialOrd + fmt::Display>(value: &T, low: T, high: T) -> Result<(), String> {
    if *value >= low && *value <= high {
        Ok(())
    } else {
        Err(format!("must be from {low} to {high}"))
    }
}

/// Declares the settings of one section: a struct with a typed field for each, its registry and its reader.
macro_rules! group {
    (
        $(#[$meta:meta])*
        $name:ident, $section:literal, fallback $fallback:expr;
        $($key:ident: $type:ty = $default:literal, $unit:literal, $effect:literal $(, $check:expr)?;)*
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $(#[doc = $effect] pub $key: $type,)*
        }

        impl $name {
            /// The declarations of these settings.
            pub const GROUP: Group = Group {
                name: $section,
                fallback: $fallback,
                settings: &[$(Setting {
                    section: $section,
                    key: stringify!($key),
                    default: $default,
                    unit: $unit,
                    effect: $effect,
                    kind: <$type as FromSetting>::KIND,
                    validate: |text| {
                        let check: fn(&$type) -> Result<(), String> = group!(@check $($check)?);
                        <$type>::from_setting(text).and_then(|value| check(&value))
                    },
                }),*],
            };

            fn read(table: &ConfigTable, errors: &mut Vec<ConfigError>) -> Option<Self> {
                let mut declared = Self::GROUP.settings.iter();
                // All are read before the first bad one ends the reading, so that every error is found.
                $(let $key: Option<$type> = read_one(
                    table,
                    &Self::GROUP,
                    declared.next()?,
                    group!(@check $($check)?),
                    errors,
                );)*
                Some(Self { $($key: $key?),* })
            }
        }
    };
    (@check) => { |_| Ok(()) };
    (@check $check:expr) => { $check };
}

/// Declares which groups there are.
macro_rules! groups {
    ($($(#[$doc:meta])* $field:ident: $type:ident),* $(,)?) => {
        /// Every setting, typed and checked.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Settings {
            $($(#[$doc])* pub $field: $type,)*
        }

        /// The declarations of all sections, in the order of `default.ini`.
        pub const GROUPS: &[Group] = &[$($type::GROUP),*];

        impl Settings {
            /// Reads and checks every setting of `table`, with defaults for those that are not set.
            ///
            /// # Errors
            ///
            /// All values that are not accepted, not only the first.
            pub fn from_table(table: &ConfigTable) -> Result<Self, Vec<ConfigError>> {
                let mut errors = Vec::new();
                $(let $field = $type::read(table, &mut errors);)*
                match ($($field,)*) {
                    ($(Some($field),)*) if errors.is_empty() => {
                        let settings = Self { $($field),* };
                        settings.check_together(table, &mut errors);
                        if errors.is_empty() { Ok(settings) } else { Err(errors) }
                    }
                    _ => Err(errors),
                }
            }
        }
    };
}
pub(super) use {group, groups};

pub use super::groups::{GROUPS, Settings};

/// All settings with their groups, in the order of `default.ini`.
pub fn registry() -> impl Iterator<Item = (&'static Group, &'static Setting)> {
    GROUPS
        .iter()
        .flat_map(|group| group.settings.iter().map(move |setting| (group, setting)))
}

/// The width of the lines of `default.ini`.
const WIDTH: usize = 100;

/// `default.ini` as the registry has it: every key commented out at its default, under its effect, unit and kind.
pub fn default_ini() -> String {
    let mut text = String::from(
        "; Every setting, commented out at its default. Do not change this file: put what differs into local.ini of\n\
         ; the data directory, into a file given with --ini, or change it at run time through /_node/_local/_config.\n",
    );
    for group in GROUPS {
        text.push_str(&format!("\n[{}]\n", group.name));
        if let Some(fallback) = group.fallback {
            text.push_str(&format!(
                "; A key that is missing here is looked for in [{fallback}] ({} excepted).\n",
                WITHOUT_FALLBACK.join(", ")
            ));
        }
        for setting in group.settings {
            let kind = match setting.unit {
                "" => setting.kind.to_owned(),
                unit => format!("{}, in {unit}", setting.kind),
            };
            wrap(&format!("{} ({kind})", setting.effect), &mut text);
            text.push_str(format!(";{} = {}", setting.key, setting.default).trim_end());
            text.push('\n');
        }
    }
    text
}

fn wrap(sentence: &str, out: &mut String) {
    let mut column = 0;
    for word in sentence.split_whitespace() {
        if column == 0 || column + 1 + word.chars().count() > WIDTH {
            if column > 0 {
                out.push('\n');
            }
            out.push(';');
            column = 1;
        }
        out.push(' ');
        out.push_str(word);
        column += 1 + word.chars().count();
    }
    out.push('\n');
}
