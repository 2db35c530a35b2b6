//! Secrets from the random number generator of the operating system.

use rand::TryRng;
use rand::rngs::SysRng;

/// The characters of a generated password: letters and digits, which survive every shell and every clipboard.
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The characters in a generated password: 142 bits.
const PASSWORD_CHARS: usize = 24;

/// The operating system gave no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no random numbers: {0}")]
pub struct RandomError(String);

/// Random bytes.
pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| RandomError(error.to_string()))?;
    Ok(bytes)
}

/// 128 random bits as 32 hexadecimal digits: a salt, a cookie secret, the identity of a server.
///
/// # Errors
///
/// When the operating system has no random numbers.
pub fn random_hex() -> Result<String, RandomError> {
    random_bytes::<16>().map(|bytes| hex(&bytes))
}

/// A password of 24 letters and digits.
///
/// # Errors
///
/// When the operating system has no random numbers.
pub fn random_password() -> Result<String, RandomError> {
    // Bytes from here on would make the first letters more likely than the others.
    const FAIR: u8 = (256 / BASE62.len() * BASE62.len()) as u8;
    let mut password = String::with_capacity(PASSWORD_CHARS);
    while password.len() < PASSWORD_CHARS {
        for byte in random_bytes::<32>()? {
            if byte < FAIR && password.len() < PASSWORD_CHARS {
                password.push(char::from(BASE62[usize::from(byte) % BASE62.len()]));
            }
        }
    }
    Ok(password)
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_differ() -> Result<(), RandomError> {
        let (a, b) = (random_password()?, random_password()?);
        assert_eq!(a.len(), 24);
        assert!(a.chars().all(|c| c.is_ascii_alphanumeric()));
        assert_ne!(a, b);
        assert_eq!(random_hex()?.len(), 32);
        assert_eq!(hex(&[0, 0xab, 0xff]), "00abff");
        Ok(())
    }
}
