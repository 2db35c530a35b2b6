//! The kinds of values that settings have, and how each is read from text.

use std::path::PathBuf;
use std::time::Duration;

/// A type that a setting can have.
pub trait FromSetting: Sized {
    /// What a reader of `default.ini` is told about the accepted values.
    const KIND: &'static str;

    /// Reads `text`, which is trimmed and empty only for an unset default.
    ///
    /// # Errors
    ///
    /// A sentence part that says what is accepted, such as `must be true or false`.
    fn from_setting(text: &str) -> Result<Self, String>;
}

impl FromSetting for bool {
    const KIND: &'static str = "true or false";

    fn from_setting(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("must be true or false".into()),
        }
    }
}

macro_rules! whole_number {
    ($($type:ty),*) => {$(
        impl FromSetting for $type {
            const KIND: &'static str = "whole number";

            fn from_setting(text: &str) -> Result<Self, String> {
                text.parse()
                    .map_err(|_| format!("must be a whole number from 0 to {}", Self::MAX))
            }
        }
    )*};
}
whole_number!(u16, u32, u64);

impl FromSetting for f64 {
    const KIND: &'static str = "number";

    fn from_setting(text: &str) -> Result<Self, String> {
        match text.parse::<Self>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err("must be a number".into()),
        }
    }
}

impl FromSetting for String {
    const KIND: &'static str = "text";

    fn from_setting(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl FromSetting for Option<String> {
    const KIND: &'static str = "text, or unset";

    fn from_setting(text: &str) -> Result<Self, String> {
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }
}

/// A text that logs and panics must not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, for those who need it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("****")
    }
}

impl FromSetting for Option<Secret> {
    const KIND: &'static str = "text, or unset";

    fn from_setting(text: &str) -> Result<Self, String> {
        Ok((!text.is_empty()).then(|| Secret(text.to_owned())))
    }
}

impl FromSetting for Option<PathBuf> {
    const KIND: &'static str = "path, or unset";

    fn from_setting(text: &str) -> Result<Self, String> {
        Ok((!text.is_empty()).then(|| PathBuf::from(text)))
    }
}

impl FromSetting for Vec<String> {
    const KIND: &'static str = "list with commas";

    fn from_setting(text: &str) -> Result<Self, String> {
        Ok(text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect())
    }
}

/// A whole number that may be `infinity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// At most this much, in the unit of the setting.
    Finite(u64),
    /// No bound.
    Infinity,
}

impl Bound {
    /// The bound as a number; no bound is the greatest number there is.
    pub fn get(self) -> u64 {
        match self {
            Self::Finite(number) => number,
            Self::Infinity => u64::MAX,
        }
    }

    /// The bound as milliseconds; no bound is `None`.
    pub fn millis(self) -> Option<Duration> {
        match self {
            Self::Finite(number) => Some(Duration::from_millis(number)),
            Self::Infinity => None,
        }
    }
}

impl FromSetting for Bound {
    const KIND: &'static str = "whole number or infinity";

    fn from_setting(text: &str) -> Result<Self, String> {
        if text == "infinity" {
            return Ok(Self::Infinity);
        }
        text.parse()
            .map(Self::Finite)
            .map_err(|_| "must be a whole number or infinity".into())
    }
}

/// How chunks of database and view files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCompression {
    /// Not at all.
    None,
    /// With snappy.
    Snappy,
    /// With zlib at this level, 1 to 9.
    Deflate(u8),
    /// With Zstandard at this level, -22 to 22.
    Zstd(i8),
}

impl FromSetting for FileCompression {
    const KIND: &'static str = "none, snappy, deflate_1 to deflate_9, zstd, zstd_-22 to zstd_22";

    fn from_setting(text: &str) -> Result<Self, String> {
        let known = match text.split_once('_') {
            None => match text {
                "none" => Some(Self::None),
                "snappy" => Some(Self::Snappy),
                // CouchDB's level for a bare name.
                "zstd" => Some(Self::Zstd(3)),
                _ => None,
            },
            Some(("deflate", level)) => level
                .parse()
                .ok()
                .filter(|level| (1..=9).contains(level))
                .map(Self::Deflate),
            Some(("zstd", level)) => level
                .parse()
                .ok()
                .filter(|level| (-22..=22).contains(level))
                .map(Self::Zstd),
            Some(_) => None,
        };
        known.ok_or_else(|| format!("must be {}", Self::KIND))
    }
}

/// Several `Display` names for the variants of an enum, and its reader.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident: $kind:literal, $($(#[$doc:meta])* $variant:ident = $text:literal $(| $alias:literal)*),* $(,)?) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant),*
        }

        impl $name {
            /// The name in ini files.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromSetting for $name {
            const KIND: &'static str = $kind;

            fn from_setting(text: &str) -> Result<Self, String> {
                match text {
                    $($text $(| $alias)* => Ok(Self::$variant),)*
                    _ => Err(format!("must be one of {}", Self::KIND)),
                }
            }
        }
    };
}

choice! {
    /// Who may use a database whose security object was never set.
    DefaultSecurity: "admin_only, admin_local, everyone",
    /// Server admins only.
    AdminOnly = "admin_only",
    /// Everyone through the cluster, admins only at a node's own shards.
    AdminLocal = "admin_local",
    /// Everyone.
    Everyone = "everyone",
}

choice! {
    /// How new document ids are made.
    UuidAlgorithm: "uuid_v7, random, sequential, utc_random, utc_id",
    /// Time-ordered, RFC 9562.
    UuidV7 = "uuid_v7",
    /// 128 random bits.
    Random = "random",
    /// A random prefix and a growing number.
    Sequential = "sequential",
    /// Microseconds, then random bits.
    UtcRandom = "utc_random",
    /// Microseconds, then `utc_id_suffix`.
    UtcId = "utc_id",
}

choice! {
    /// The least severe messages that are logged.
    LogLevel: "debug, info, notice, warning, error, critical, alert, emergency, none",
    /// Everything.
    Debug = "debug",
    /// One line for each request, and what follows.
    Info = "info",
    /// Unusual but good.
    Notice = "notice",
    /// Something to look at.
    Warning = "warning" | "warn",
    /// Something failed.
    Error = "error" | "err",
    /// Something failed that others need.
    Critical = "critical" | "crit",
    /// Somebody must act.
    Alert = "alert",
    /// Unusable.
    Emergency = "emergency" | "emerg",
    /// Nothing.
    None = "none",
}

choice! {
    /// A hash function, by CouchDB's name.
    HashAlgorithm: "sha, sha224, sha256, sha384, sha512",
    /// SHA-1.
    Sha = "sha",
    /// SHA-224.
    Sha224 = "sha224",
    /// SHA-256.
    Sha256 = "sha256",
    /// SHA-384.
    Sha384 = "sha384",
    /// SHA-512.
    Sha512 = "sha512",
}

impl FromSetting for Vec<HashAlgorithm> {
    const KIND: &'static str = "list of sha, sha224, sha256, sha384, sha512";

    fn from_setting(text: &str) -> Result<Self, String> {
        let names = Vec::<String>::from_setting(text)?;
        if names.is_empty() {
            return Err("must name at least one hash function".into());
        }
        names
            .iter()
            .map(|name| HashAlgorithm::from_setting(name))
            .collect()
    }
}

choice! {
    /// What browsers may do with the session cookie on requests that other sites start.
    SameSite: "strict, lax, none",
    /// Never send it.
    Strict = "strict" | "Strict",
    /// Send it when the user follows a link.
    Lax = "lax" | "Lax",
    /// Always send it (needs https).
    None = "none" | "None",
}

impl FromSetting for Option<SameSite> {
    const KIND: &'static str = "strict, lax, none, or unset";

    fn from_setting(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(None);
        }
        SameSite::from_setting(text).map(Some)
    }
}

choice! {
    /// What happens to a reduce function whose result does not shrink.
    ReduceLimit: "true, false, log",
    /// The query fails.
    Enforce = "true",
    /// Nothing.
    Off = "false",
    /// A log line.
    Log = "log",
}

choice! {
    /// Whether a node takes part in the work.
    MaintenanceMode: "false, true, nolb",
    /// It does.
    Off = "false",
    /// It refuses shard work, and `/_up` answers 404.
    On = "true",
    /// Only `/_up` answers 404.
    NoLoadBalancing = "nolb",
}

/// When a commit syncs the file, from CouchDB's list `[before_header, after_header, on_file_open]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsyncOptions {
    /// Before the header is written.
    pub before_header: bool,
    /// After the header is written.
    pub after_header: bool,
    /// When the file is opened.
    pub on_file_open: bool,
}

impl FromSetting for FsyncOptions {
    const KIND: &'static str = "list in brackets of before_header, after_header, on_file_open";

    fn from_setting(text: &str) -> Result<Self, String> {
        let inner = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'))
            .ok_or_else(|| format!("must be a {}", Self::KIND))?;
        let mut options = Self {
            before_header: false,
            after_header: false,
            on_file_open: false,
        };
        for name in inner.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "before_header" => options.before_header = true,
                "after_header" => options.after_header = true,
                "on_file_open" => options.on_file_open = true,
                _ => return Err(format!("must be a {}", Self::KIND)),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_infinity() {
        assert_eq!(Bound::from_setting("infinity"), Ok(Bound::Infinity));
        assert_eq!(Bound::from_setting("5").map(Bound::get), Ok(5));
        assert!(Bound::from_setting("-1").is_err());
        assert!(u16::from_setting("65536").is_err());
        assert!(f64::from_setting("inf").is_err());
    }

    #[test]
    fn compression_names() {
        assert_eq!(
            FileCompression::from_setting("deflate_6"),
            Ok(FileCompression::Deflate(6))
        );
        assert_eq!(
            FileCompression::from_setting("zstd_-5"),
            Ok(FileCompression::Zstd(-5))
        );
        assert_eq!(
            FileCompression::from_setting("zstd"),
            Ok(FileCompression::Zstd(3))
        );
        for text in ["deflate_0", "deflate", "zstd_23", "lz4", "", "none_1"] {
            assert!(FileCompression::from_setting(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists() {
        assert_eq!(
            Vec::<String>::from_setting(" a ,, b/* "),
            Ok(vec!["a".into(), "b/*".into()])
        );
        assert_eq!(
            Vec::<HashAlgorithm>::from_setting("sha256, sha"),
            Ok(vec![HashAlgorithm::Sha256, HashAlgorithm::Sha])
        );
        assert!(Vec::<HashAlgorithm>::from_setting("md5").is_err());
        let options = FsyncOptions::from_setting("[before_header, after_header]");
        assert!(
            options
                .is_ok_and(|options| options.before_header && options.after_header && !options.on_file_open)
        );
        assert!(FsyncOptions::from_setting("before_header").is_err());
    }
}
