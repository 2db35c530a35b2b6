//! The `Authorization: Basic` header.

use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A name and a password, not yet verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name of the user.
    pub name: String,
    /// The password; any bytes.
    pub password: Vec<u8>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What an `Authorization` header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basic {
    /// Another scheme, or no name and password in it: other handlers may know more.
    Absent,
    /// The special `_:_`, with which browsers forget a login: nobody is logged in.
    LoggedOut,
    /// Somebody claims to be somebody.
    Given(Credentials),
}

/// A header that cannot be decoded; the request is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Authorization header has invalid base64 value")]
pub struct BasicError;

/// Reads the value of an `Authorization` header.
///
/// # Errors
///
/// [`BasicError`] when it is of the scheme Basic but not base64, or the name is not UTF-8.
///
/// ```
/// use settee::auth::{Basic, parse_basic};
///
/// assert_eq!(parse_basic("Bearer x"), Ok(Basic::Absent));
/// assert!(matches!(parse_basic("Basic YWRtaW46cGFzcw=="), Ok(Basic::Given(who)) if who.name == "admin"));
/// ```
pub fn parse_basic(header: &str) -> Result<Basic, BasicError> {
    let Some((scheme, token)) = header.trim().split_once(' ') else {
        return Ok(Basic::Absent);
    };
    if !scheme.eq_ignore_ascii_case("Basic") {
        return Ok(Basic::Absent);
    }
    let decoded = ENGINE.decode(token.trim()).map_err(|_| BasicError)?;
    let Some(colon) = decoded.iter().position(|byte| *byte == b':') else {
        return Ok(Basic::Absent);
    };
    let (name, password) = (&decoded[..colon], &decoded[colon + 1..]);
    if name == b"_" && password == b"_" {
        return Ok(Basic::LoggedOut);
    }
    Ok(Basic::Given(Credentials {
        name: String::from_utf8(name.to_vec()).map_err(|_| BasicError)?,
        password: password.to_vec(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let given = |name: &str, password: &str| {
            Ok(Basic::Given(Credentials {
                name: name.into(),
                password: password.into(),
            }))
        };
        assert_eq!(parse_basic("Basic YWRtaW46cGFzcw=="), given("admin", "pass"));
        assert_eq!(parse_basic("basic  YWRtaW46cGFzcw"), given("admin", "pass"));
        assert_eq!(parse_basic("Basic YTpiOmM="), given("a", "b:c"));
        assert_eq!(parse_basic("Basic Og=="), given("", ""));
        assert_eq!(parse_basic("Basic Xzpf"), Ok(Basic::LoggedOut));
        assert_eq!(parse_basic("Basic YWRtaW4="), Ok(Basic::Absent));
        assert_eq!(parse_basic("Basic"), Ok(Basic::Absent));
        assert_eq!(parse_basic("Bearer YTpi"), Ok(Basic::Absent));
        assert_eq!(parse_basic("Basic %%%"), Err(BasicError));
        assert_eq!(parse_basic("Basic /zph"), Err(BasicError));
    }
}
