//! Arrays of numbers, which take most of the time of documents that have them: tight loops for the usual numbers, beside
//! the general walk, which goes on at the first element that they leave.

use super::number::write_json_float;
use crate::codec::term::tag;

/// Bytes that are gathered before they are appended.
const GATHERED_BYTES: usize = 512;
/// The longest element that is gathered: two words.
const ELEMENT_BYTES_MAX: usize = 16;
/// Whole floats below this are printed as their digits and `.0`, whatever the digits.
const PLAIN_FLOAT_BELOW: f64 = 1000.0;
/// Digits of a decimal that is read here: its digits as an integer are a double without rounding.
const DIGITS_MAX: usize = 15;
/// Powers of ten up to [`DIGITS_MAX`].
const POWERS: [f64; DIGITS_MAX + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// Text that waits to be appended.
struct Gathered {
    bytes: [u8; GATHERED_BYTES],
    length: usize,
}

impl Gathered {
    /// Adds the `length` lowest bytes of `word`, of which the others are overwritten later.
    #[inline]
    fn add(&mut self, word: u64, length: usize) {
        let place = self
            .bytes
            .get_mut(self.length..)
            .and_then(<[u8]>::first_chunk_mut);
        if let Some(place) = place {
            *place = word.to_le_bytes();
            self.length += length;
        }
    }

    #[inline]
    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes.get(..self.length).unwrap_or_default());
        self.length = 0;
    }
}

/// The numbers below 1000: their digits as ASCII, the first in the lowest byte, and in the highest byte how many.
const SHORT: [u32; 1000] = {
    let mut short = [0; 1000];
    let mut number = 0;
    while number < 1000 {
        let ascii = four_digits(number) | 0x3030_3030;
        let length = if number < 10 {
            1
        } else if number < 100 {
            2
        } else {
            3
        };
        short[number as usize] = ascii >> (8 * (4 - length)) | length << 24;
        number += 1;
    }
    short
};

/// The digits of a number below 10,000 as ASCII in the lowest bytes of a word, and how many there are.
#[inline]
fn digits(number: u32) -> (u64, usize) {
    match SHORT.get(number as usize) {
        Some(short) => (u64::from(short & 0x00ff_ffff), (short >> 24) as usize),
        None => (u64::from(four_digits(number) | 0x3030_3030), 4),
    }
}

/// The four digits of a number below 10,000 as values, the thousands in the lowest byte.
#[inline]
const fn four_digits(number: u32) -> u32 {
    (number / 1000) | ((number / 100 % 10) << 8) | (number / 10 % 10) << 16 | (number % 10) << 24
}

/// Prints elements of an array from `terms` on, each with a comma behind it, as long as they are integers of 32 bits or
/// floats, and at most `count`. Returns how many it printed, and how many bytes of `terms` they took.
pub(super) fn print_numbers(terms: &[u8], count: usize, out: &mut Vec<u8>) -> (usize, usize) {
    let mut text = Gathered {
        bytes: [0; GATHERED_BYTES],
        length: 0,
    };
    let (mut printed, mut position) = (0, 0);
    while printed < count {
        let Some([first, rest @ ..]) = terms.get(position..) else {
            break;
        };
        if text.length > GATHERED_BYTES - 2 * ELEMENT_BYTES_MAX {
            text.flush(out);
        }
        match (*first, rest.first_chunk::<4>()) {
            (tag::SMALL_INTEGER, _) => {
                let Some(value) = rest.first() else { break };
                let (word, length) = digits(u32::from(*value));
                text.add(word | u64::from(b',') << (8 * length), length + 1);
                position += 2;
            }
            (tag::INTEGER, Some(value)) => {
                print_int(i32::from_be_bytes(*value), &mut text);
                position += 5;
            }
            (tag::NEW_FLOAT, _) => {
                let Some(value) = rest.first_chunk().map(|bytes| f64::from_be_bytes(*bytes)) else {
                    break;
                };
                // Adding 2^52 leaves the whole part in the lowest bits, rounded.
                let shifted = value + 4_503_599_627_370_496.0;
                if (0.0..PLAIN_FLOAT_BELOW).contains(&value) && shifted - 4_503_599_627_370_496.0 == value {
                    let (word, length) = digits(shifted.to_bits() as u32);
                    let tail = u64::from_le_bytes(*b".0,\0\0\0\0\0");
                    text.add(word | tail << (8 * length), length + 3);
                } else {
                    if !value.is_finite() {
                        break;
                    }
                    text.flush(out);
                    write_json_float(out, value);
                    text.add(u64::from(b','), 1);
                }
                position += 9;
            }
            _ => break,
        }
        printed += 1;
    }
    text.flush(out);
    (printed, position)
}

/// Adds an integer and a comma.
#[inline]
fn print_int(value: i32, text: &mut Gathered) {
    if value < 0 {
        text.add(u64::from(b'-'), 1);
    }
    let mut magnitude = value.unsigned_abs();
    if let high @ 1.. = magnitude / 100_000_000 {
        let (word, length) = digits(high);
        text.add(word, length);
        text.add(
            u64::from(four_digits(magnitude / 10_000 % 10_000) | 0x3030_3030),
            4,
        );
        magnitude %= 10_000;
    } else if let high @ 1.. = magnitude / 10_000 {
        let (word, length) = digits(high);
        text.add(word, length);
        magnitude %= 10_000;
    } else {
        let (word, length) = digits(magnitude);
        return text.add(word | u64::from(b',') << (8 * length), length + 1);
    }
    let word = u64::from(four_digits(magnitude) | 0x3030_3030);
    text.add(word | u64::from(b',') << 32, 5);
}

/// Appends the terms of the elements of an array that begin at `start`, as long as each is a number of at most 15 digits
/// without an exponent and a comma stands directly behind it. Returns how many it read, and the position behind the last
/// comma; a space behind a comma, as some writers put it, is read over.
pub(super) fn read_numbers(json: &[u8], start: usize, out: &mut Vec<u8>) -> (usize, usize) {
    let (mut count, mut position) = (0, start);
    while let Some((number, end)) = read_number(json, position) {
        match number {
            Small::Byte(value) => out.extend_from_slice(&[tag::SMALL_INTEGER, value]),
            Small::Int(value) => {
                let [a, b, c, d] = value.to_be_bytes();
                out.extend_from_slice(&[tag::INTEGER, a, b, c, d]);
            }
            Small::Float(value) => {
                let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
                out.extend_from_slice(&[tag::NEW_FLOAT, a, b, c, d, e, f, g, h]);
            }
        }
        count += 1;
        position = end + usize::from(json.get(end) == Some(&b' '));
    }
    (count, position)
}

/// A number whose term is one of the short ones.
enum Small {
    Byte(u8),
    Int(i32),
    Float(f64),
}

/// The number at `start` and the position behind its comma; nothing when something else stands there.
#[inline]
fn read_number(json: &[u8], start: usize) -> Option<(Small, usize)> {
    let negative = *json.get(start)? == b'-';
    let first = start + usize::from(negative);
    let mut mantissa = 0;
    let mut end = take_digits(json, first, &mut mantissa)?;
    let whole_digits = end - first;
    if whole_digits > 1 && json.get(first) == Some(&b'0') {
        return None;
    }
    let number = match json.get(end)? {
        b',' => match (negative, u8::try_from(mantissa)) {
            (false, Ok(byte)) => Small::Byte(byte),
            _ => {
                let value = i64::try_from(mantissa).ok()?;
                let value = i32::try_from(if negative { -value } else { value }).ok()?;
                match u8::try_from(value) {
                    Ok(byte) => Small::Byte(byte),
                    Err(_) => Small::Int(value),
                }
            }
        },
        b'.' => {
            let point = end;
            let whole = mantissa;
            end = take_digits(json, point + 1, &mut mantissa)?;
            let places = end - point - 1;
            if whole_digits + places > DIGITS_MAX || json.get(end) != Some(&b',') {
                return None;
            }
            // Both operands are exact, so that one rounding gives the nearest double.
            let value = match places {
                1 if mantissa == whole * 10 => whole as f64,
                _ => mantissa as f64 / POWERS.get(places)?,
            };
            Small::Float(if negative { -value } else { value })
        }
        _ => return None,
    };
    Some((number, end + 1))
}

/// Adds the digits from `from` on to `mantissa`: one at least, [`DIGITS_MAX`] at most. Returns the position behind them.
#[inline]
fn take_digits(json: &[u8], from: usize, mantissa: &mut u64) -> Option<usize> {
    let mut position = from;
    while let Some(byte) = json.get(position) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if position - from >= DIGITS_MAX {
            return None;
        }
        *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
        position += 1;
    }
    (position > from).then_some(position)
}

#[cfg(test)]
mod tests {
    use super::super::{json_to_term, term_to_json};
    use super::*;
    use crate::codec::term::write;
    use proptest::prelude::*;

    /// One element alone is always left to the general walk, so that both ways can be compared.
    fn alone(json: &str) -> Vec<u8> {
        let mut term = Vec::new();
        json_to_term(json.as_bytes(), &mut term).expect("one number");
        term
    }

    fn list(elements: &[Vec<u8>]) -> Vec<u8> {
        let mut term = Vec::new();
        write::list(&mut term, elements.len());
        elements
            .iter()
            .for_each(|element| term.extend_from_slice(element));
        write::nil(&mut term);
        term
    }

    fn number() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<i64>().prop_map(|value| value.to_string()),
            any::<i32>().prop_map(|value| value.to_string()),
            (-20_000..20_000i32).prop_map(|value| value.to_string()),
            (-2000..2000i32, 0..100u32).prop_map(|(whole, part)| format!("{whole}.{part}")),
            (0..200_000u32).prop_map(|whole| format!("{whole}.0")),
            any::<f64>().prop_filter_map("finite", |value| value.is_finite().then(|| format!("{value:?}"))),
            "-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,18})?",
        ]
    }

    proptest! {
        #[test]
        fn arrays_read_and_print_as_their_elements_do_alone(
            numbers in proptest::collection::vec(number(), 1..80),
            space in any::<bool>(),
        ) {
            let separator = if space { ", " } else { "," };
            // The text makes it a list of elements whatever the numbers are.
            let json = format!("[{},\"x\"]", numbers.join(separator));
            let mut elements: Vec<Vec<u8>> = numbers.iter().map(|number| alone(number)).collect();
            elements.push(alone("\"x\""));
            let expected = list(&elements);
            let mut term = Vec::new();
            json_to_term(json.as_bytes(), &mut term).expect("an array");
            prop_assert_eq!(&term, &expected);
            let texts: Vec<String> = elements
                .iter()
                .map(|element| {
                    let mut text = Vec::new();
                    term_to_json(element, &mut text).expect("a term");
                    String::from_utf8(text).expect("text")
                })
                .collect();
            let mut printed = Vec::new();
            term_to_json(&term, &mut printed).expect("a term");
            prop_assert_eq!(String::from_utf8(printed).expect("text"), format!("[{}]", texts.join(",")));
        }
    }

    #[test]
    fn what_is_no_number_in_an_array_is_refused_as_ever() {
        for json in [
            "[1,]",
            "[1,01,2]",
            "[1,-,2]",
            "[1,2.,3]",
            "[1,.5,3]",
            "[1,1e5.0,2]",
            "[1,2",
            "[1,2.0",
            "[1,1-,2]",
            "[1,,2]",
            "[1, ]",
        ] {
            let mut term = Vec::new();
            assert!(json_to_term(json.as_bytes(), &mut term).is_err(), "{json}");
            assert!(term.is_empty(), "{json}");
        }
    }

    #[test]
    fn a_float_that_is_not_finite_or_cut_off_is_refused_in_an_array() {
        let element = |value: f64| {
            let mut term = vec![tag::NEW_FLOAT];
            term.extend_from_slice(&value.to_be_bytes());
            term
        };
        for bad in [
            element(f64::NAN),
            element(f64::INFINITY),
            vec![tag::NEW_FLOAT, 0],
            vec![tag::INTEGER, 1, 2],
        ] {
            let mut out = Vec::new();
            let term = list(&[element(1.0), bad]);
            let cut = term.len() - 1;
            assert!(term_to_json(&term[..cut], &mut out).is_err());
            assert!(out.is_empty());
        }
    }
}
