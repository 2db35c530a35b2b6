//! Numbers: reading them from JSON text, and printing them as CouchDB does.

use super::{INTEGER_BYTES_MAX, JsonError};
use crate::codec::term::{TermError, write};
use num_bigint::{BigInt, BigUint, Sign};

/// A number as read from a text.
#[derive(Debug, PartialEq)]
pub(super) enum Number<'a> {
    /// An integer of at most 18 digits.
    Small(i64),
    /// A longer one.
    Long {
        /// Whether it is below zero.
        negative: bool,
        /// Its decimal digits.
        digits: &'a str,
    },
    /// A number with a fraction or an exponent.
    Float(f64),
}

/// Digits that always fit in an `i64`.
const SMALL_DIGITS: usize = 18;
/// Digits that always fit in a `u64`.
const MANTISSA_DIGITS: usize = 19;
/// Integers up to here are doubles without rounding.
const EXACT_MANTISSA: u64 = 1 << 53;
/// Powers of ten that are doubles without rounding.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Reads the number that begins at `start`; returns it and the position behind it.
#[inline]
pub(super) fn parse(text: &str, start: usize) -> Result<(Number<'_>, usize), JsonError> {
    let bytes = text.as_bytes();
    let negative = bytes.get(start) == Some(&b'-');
    let first = start + usize::from(negative);
    let mut mantissa = 0;
    let position = digits(bytes, first, &mut mantissa);
    let count = position - first;
    if count == 0 {
        return Err(JsonError::new("number without digits", first));
    }
    if count > 1 && bytes.get(first) == Some(&b'0') {
        return Err(JsonError::new("number with a leading zero", first));
    }
    if let Some(b'.' | b'e' | b'E') = bytes.get(position) {
        return parse_float(text, start, first, position, mantissa);
    }
    if count <= SMALL_DIGITS {
        let value = mantissa.cast_signed();
        return Ok((Number::Small(if negative { -value } else { value }), position));
    }
    let digits = text.get(first..position).unwrap_or_default();
    Ok((Number::Long { negative, digits }, position))
}

/// Reads an integer of at most 18 digits that begins at `start`; `None` when something else stands there, which
/// [`parse`] then looks at.
#[inline]
pub(super) fn parse_small(bytes: &[u8], start: usize) -> Option<(i64, usize)> {
    let negative = bytes.get(start) == Some(&b'-');
    let first = start + usize::from(negative);
    let mut magnitude = 0;
    let end = digits(bytes, first, &mut magnitude);
    let count = end - first;
    let leading_zero = count > 1 && bytes.get(first) == Some(&b'0');
    if count == 0
        || count > SMALL_DIGITS
        || leading_zero
        || matches!(bytes.get(end), Some(b'.' | b'e' | b'E'))
    {
        return None;
    }
    let value = magnitude.cast_signed();
    Some((if negative { -value } else { value }, end))
}

/// Reads digits into `mantissa`, which wraps when there are too many; returns the position behind them.
#[inline]
fn digits(bytes: &[u8], from: usize, mantissa: &mut u64) -> usize {
    let mut position = from;
    while let Some(byte) = bytes.get(position) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
        position += 1;
    }
    position
}

/// Reads the fraction and the exponent behind the whole part, which ends at `point`.
fn parse_float(
    text: &str,
    start: usize,
    first: usize,
    point: usize,
    mut mantissa: u64,
) -> Result<(Number<'_>, usize), JsonError> {
    let bytes = text.as_bytes();
    let mut position = point;
    let mut fraction = 0;
    if bytes.get(position) == Some(&b'.') {
        let end = digits(bytes, position + 1, &mut mantissa);
        fraction = end - position - 1;
        if fraction == 0 {
            return Err(JsonError::new("number without digits behind its point", end));
        }
        position = end;
    }
    let mut exponent = 0_i64;
    if let Some(b'e' | b'E') = bytes.get(position) {
        let sign = bytes.get(position + 1);
        let from = position + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
        let mut magnitude = 0;
        let end = digits(bytes, from, &mut magnitude);
        if end == from {
            return Err(JsonError::new("number without digits in its exponent", end));
        }
        // A longer exponent is left to the slow path, which reads it from the text.
        exponent = if end - from > 4 {
            i64::MAX / 2
        } else {
            magnitude.cast_signed()
        };
        if sign == Some(&b'-') {
            exponent = -exponent;
        }
        position = end;
    }
    let scale = exponent.saturating_sub(i64::try_from(fraction).unwrap_or(i64::MAX));
    let all_digits = point - first + fraction;
    let power = usize::try_from(scale.unsigned_abs())
        .ok()
        .and_then(|index| EXACT_POWERS.get(index));
    let value = match power {
        // Both operands are exact, so that one rounding gives the nearest double.
        Some(power) if all_digits <= MANTISSA_DIGITS && mantissa <= EXACT_MANTISSA => {
            let mantissa = mantissa as f64;
            let value = if scale < 0 {
                mantissa / power
            } else {
                mantissa * power
            };
            if bytes.get(start) == Some(&b'-') {
                -value
            } else {
                value
            }
        }
        _ => text
            .get(start..position)
            .and_then(|number| number.parse().ok())
            .ok_or(JsonError::new("malformed number", start))?,
    };
    if !f64::is_finite(value) {
        return Err(JsonError::new("number beyond a double", start));
    }
    Ok((Number::Float(value), position))
}

impl Number<'_> {
    /// Appends the number as a term.
    #[inline]
    pub(super) fn write_term(self, out: &mut Vec<u8>) {
        match self {
            Number::Small(value) => write::int(out, value),
            Number::Float(value) => write::float(out, value),
            Number::Long { negative, digits } => match digits.parse() {
                Ok(magnitude) => write_wide(out, negative, magnitude),
                Err(_) => write_long(out, negative, digits),
            },
        }
    }
}

fn write_wide(out: &mut Vec<u8>, negative: bool, magnitude: u128) {
    let value = i64::try_from(magnitude).map(|value| if negative { -value } else { value });
    match value {
        Ok(value) => write::int(out, value),
        Err(_) => write::big_magnitude(out, negative, &magnitude.to_le_bytes()),
    }
}

fn write_long(out: &mut Vec<u8>, negative: bool, digits: &str) {
    // Only digits get here, so that parsing cannot fail.
    let magnitude: BigUint = digits.parse().unwrap_or_default();
    write::big(
        out,
        &BigInt::from_biguint(if negative { Sign::Minus } else { Sign::Plus }, magnitude),
    );
}

/// Appends an integer beyond 64 bits in decimal, from its little-endian magnitude.
///
/// # Errors
/// [`TermError::IntegerTooLong`].
pub fn write_json_big(out: &mut Vec<u8>, negative: bool, magnitude_le: &[u8]) -> Result<(), TermError> {
    if magnitude_le.len() > INTEGER_BYTES_MAX {
        return Err(TermError::IntegerTooLong {
            limit_bytes: INTEGER_BYTES_MAX,
        });
    }
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(BigUint::from_bytes_le(magnitude_le).to_str_radix(10).as_bytes());
    Ok(())
}

/// Appends a finite float as CouchDB prints it.
///
/// The digits are the fewest that read back as the same double. They stand in fixed notation with at least `.0`, unless
/// scientific notation (`1.0e3`, `2.5e-7`: always a fraction digit, no plus sign) is strictly shorter or the magnitude is
/// 2^53 or more. Minus zero prints as `0.0`.
#[inline]
pub fn write_json_float(out: &mut Vec<u8>, value: f64) {
    const FIXED_BELOW: f64 = 9_007_199_254_740_992.0;
    let absolute = value.abs();
    if absolute == 0.0 {
        out.extend_from_slice(b"0.0");
        return;
    }
    if value < 0.0 {
        out.push(b'-');
    }
    if absolute < FIXED_BELOW {
        let whole = absolute as u64;
        if whole as f64 == absolute {
            return write_whole(out, whole);
        }
    }
    if let Some((digits, exponent)) = Digits::of_short_fraction(absolute) {
        return digits.write(out, exponent, true);
    }
    let mut buffer = ryu::Buffer::new();
    let (digits, exponent) = Digits::of(buffer.format_finite(absolute).as_bytes());
    digits.write(out, exponent, absolute < FIXED_BELOW);
}

/// A whole number below 2^53: its decimal digits are the fewest, because doubles lie at most 1 apart there.
#[inline]
fn write_whole(out: &mut Vec<u8>, whole: u64) {
    // Scientific notation can be shorter only from `1000.0` on.
    if whole < 1000 || !whole.is_multiple_of(100) {
        write_json_int(out, whole.cast_signed());
        out.extend_from_slice(b".0");
        return;
    }
    let (digits, exponent) = Digits::of_integer(whole);
    digits.write(out, exponent, true);
}

/// Appends an integer in decimal.
#[inline]
pub(super) fn write_json_int(out: &mut Vec<u8>, value: i64) {
    match u32::try_from(value) {
        Ok(small @ 0..10_000) => {
            let text =
                [small / 1000, small / 100 % 10, small / 10 % 10, small % 10].map(|digit| b'0' + digit as u8);
            let zeros = usize::from(small < 1000) + usize::from(small < 100) + usize::from(small < 10);
            // Four bytes are written whatever the length, which is cheaper than a copy of unknown length.
            let shifted = u32::from_le_bytes(text) >> (8 * zeros);
            out.extend_from_slice(&shifted.to_le_bytes());
            out.truncate(out.len() - zeros);
        }
        _ => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
    }
}

/// Significant decimal digits without zeros at either end.
struct Digits {
    bytes: [u8; 17],
    length: usize,
}

impl Digits {
    /// The digits of an integer above zero, and the decimal exponent of the first one.
    #[inline]
    fn of_integer(value: u64) -> (Self, i32) {
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(value).as_bytes();
        let zeros = text.iter().rev().take_while(|byte| **byte == b'0').count();
        let mut digits = Self {
            bytes: [b'0'; 17],
            length: text.len() - zeros,
        };
        for (slot, byte) in digits.bytes.iter_mut().zip(&text[..text.len() - zeros]) {
            *slot = *byte;
        }
        (digits, i32::try_from(text.len()).unwrap_or_default() - 1)
    }

    /// The digits of a number with at most six decimal places and at most 15 digits, or `None` for another one.
    ///
    /// Such a decimal is found when dividing its digits by the power of ten gives the number back: both are exact, so that
    /// the quotient is the double nearest to the decimal. No other decimal of at most 15 digits reads as the same double,
    /// so that none is shorter.
    #[inline]
    fn of_short_fraction(value: f64) -> Option<(Self, i32)> {
        const SCALE: f64 = 1e6;
        const PLACES: i32 = 6;
        const SCALED_BELOW: f64 = 1e15;
        let scaled = value * SCALE + 0.5;
        if !(1.0..SCALED_BELOW).contains(&scaled) {
            return None;
        }
        let whole = scaled as u64;
        if whole as f64 / SCALE != value {
            return None;
        }
        let (digits, exponent) = Self::of_integer(whole);
        Some((digits, exponent - PLACES))
    }

    /// Takes the digits and the decimal exponent of the first one from a shortest decimal text of a positive number:
    /// `1234.5`, `0.00012`, `1e21`, `1.5e-7`.
    fn of(text: &[u8]) -> (Self, i32) {
        let mut digits = Self {
            bytes: [b'0'; 17],
            length: 0,
        };
        let mut exponent = -1_i32;
        let mut whole = true;
        for (index, byte) in text.iter().enumerate() {
            match byte {
                b'0'..=b'9' => {
                    if digits.length > 0 || *byte != b'0' {
                        exponent += i32::from(whole);
                        if let Some(slot) = digits.bytes.get_mut(digits.length) {
                            *slot = *byte;
                            digits.length += 1;
                        }
                    } else {
                        exponent -= i32::from(!whole);
                    }
                }
                b'.' => whole = false,
                _ => {
                    exponent += parse_exponent(text.get(index + 1..).unwrap_or_default());
                    break;
                }
            }
        }
        while digits.length > 1 && digits.bytes[digits.length - 1] == b'0' {
            digits.length -= 1;
        }
        (digits, exponent)
    }

    /// Writes the number whose first digit counts 10^exponent.
    fn write(&self, out: &mut Vec<u8>, exponent: i32, fixed_allowed: bool) {
        let digits = &self.bytes[..self.length];
        let count = i32::try_from(self.length).unwrap_or_default();
        let fixed_length = if exponent < 0 {
            1 - exponent + count
        } else {
            count.max(exponent + 1) + 1
        } + i32::from(exponent >= 0 && exponent + 1 >= count);
        let exponent_length = match exponent.unsigned_abs() {
            0..10 => 1,
            10..100 => 2,
            _ => 3,
        };
        let scientific_length = count.max(2) + 2 + exponent_length + i32::from(exponent < 0);
        if !fixed_allowed || scientific_length < fixed_length {
            let (first, rest) = digits.split_at(1);
            out.extend_from_slice(first);
            out.push(b'.');
            out.extend_from_slice(if rest.is_empty() { b"0" } else { rest });
            out.push(b'e');
            out.extend_from_slice(itoa::Buffer::new().format(exponent).as_bytes());
            return;
        }
        let point = usize::try_from(exponent + 1).unwrap_or_default();
        if exponent < 0 {
            out.extend_from_slice(b"0.");
            out.resize(
                out.len() + usize::try_from(-1 - exponent).unwrap_or_default(),
                b'0',
            );
            out.extend_from_slice(digits);
        } else if point >= digits.len() {
            out.extend_from_slice(digits);
            out.resize(out.len() + point - digits.len(), b'0');
            out.extend_from_slice(b".0");
        } else {
            out.extend_from_slice(&digits[..point]);
            out.push(b'.');
            out.extend_from_slice(&digits[point..]);
        }
    }
}

fn parse_exponent(text: &[u8]) -> i32 {
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    let magnitude = digits
        .iter()
        .fold(0, |value, byte| value * 10 + i32::from(byte.wrapping_sub(b'0')));
    if negative { -magnitude } else { magnitude }
}
