//! The native Erlang order of two raw terms, without decoding them.
//!
//! number < atom < tuple < map < the empty list < list < binary. Nesting is walked with a stack of its own, so that a deep
//! term costs heap and not stack. Malformed bytes sort behind everything well formed, by their bytes.

use super::{Int, ListHead, Reader, TermError, tag};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Maps inside the keys of maps are compared by recursion, which is cut here.
const MAP_DEPTH_MAX: usize = 32;

/// Compares two raw terms in the Erlang term order, in which `1` and `1.0` are equal.
///
/// Two binaries or two small integers are compared at once; nothing is allocated for them.
#[must_use]
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match (a, b) {
        ([tag::SMALL_INTEGER, x], [tag::SMALL_INTEGER, y]) => return x.cmp(y),
        ([tag::BINARY, ..], [tag::BINARY, ..]) => {
            if let (Ok(x), Ok(y)) = (Reader::new(a).read_binary(), Reader::new(b).read_binary()) {
                return x.cmp(y);
            }
        }
        _ => {}
    }
    compare_nested(a, b, 0)
}

fn compare_nested(a: &[u8], b: &[u8], map_depth: usize) -> Ordering {
    let mut walk = Walk {
        a: Reader::new(a),
        b: Reader::new(b),
        open: SmallVec::new(),
        map_depth,
    };
    loop {
        let before = (walk.a.clone(), walk.b.clone());
        match walk.step() {
            Ok(Step::Decided(order)) => return order,
            Ok(Step::Continue) => {}
            // The bytes from the last two comparable positions on decide, so that swapping the sides swaps the answer.
            Err(_) => return malformed(&before.0, &before.1),
        }
    }
}

/// Orders two positions of which at least one is malformed.
fn malformed(a: &Reader<'_>, b: &Reader<'_>) -> Ordering {
    let well_formed = |reader: &Reader<'_>| reader.clone().skip().is_ok();
    well_formed(b)
        .cmp(&well_formed(a))
        .then_with(|| a.rest().cmp(b.rest()))
}

/// A list that is being walked on one side.
#[derive(Clone, Copy)]
enum Cells<'a> {
    /// So many elements, then a tail.
    Elements(usize),
    /// A list given as bytes.
    Bytes(&'a [u8]),
    /// The list has ended.
    Ended,
}

/// A compound term that is open on both sides.
enum Open<'a> {
    /// So many terms are still to be compared.
    Terms(usize),
    /// Two lists.
    Lists(Cells<'a>, Cells<'a>),
}

enum Step {
    Decided(Ordering),
    Continue,
}

struct Walk<'a> {
    a: Reader<'a>,
    b: Reader<'a>,
    open: SmallVec<[Open<'a>; 8]>,
    map_depth: usize,
}

impl<'a> Walk<'a> {
    /// Compares what stands at both cursors; then moves on inside what is open until two terms stand there again.
    fn step(&mut self) -> Result<Step, TermError> {
        let order = self.compare_heads()?;
        if order != Ordering::Equal {
            return Ok(Step::Decided(order));
        }
        self.advance()
    }

    fn advance(&mut self) -> Result<Step, TermError> {
        loop {
            match self.open.last_mut() {
                None => return Ok(Step::Decided(Ordering::Equal)),
                Some(Open::Terms(0)) => {
                    self.open.pop();
                }
                Some(Open::Terms(left)) => {
                    *left -= 1;
                    return Ok(Step::Continue);
                }
                Some(Open::Lists(..)) => {
                    if let Some(step) = self.advance_lists()? {
                        return Ok(step);
                    }
                }
            }
        }
    }

    /// One cell further in the innermost lists; `None` when it must be looked at again.
    fn advance_lists(&mut self) -> Result<Option<Step>, TermError> {
        let Some(Open::Lists(left, right)) = self.open.last().map(|open| match open {
            Open::Lists(left, right) => Open::Lists(*left, *right),
            Open::Terms(count) => Open::Terms(*count),
        }) else {
            return Ok(None);
        };
        let a = Cell::next(&mut self.a, left)?;
        let b = Cell::next(&mut self.b, right)?;
        let step = match (a, b) {
            (Cell::Term(left), Cell::Term(right)) => {
                self.set_lists(left, right);
                Some(Step::Continue)
            }
            (Cell::Byte(x, left), Cell::Byte(y, right)) => {
                self.set_lists(left, right);
                (x != y).then(|| Step::Decided(x.cmp(&y)))
            }
            (Cell::Byte(x, left), Cell::Term(right)) => {
                self.set_lists(left, right);
                let order = compare_nested(&[tag::SMALL_INTEGER, x], self.b.skip()?, self.map_depth);
                (order != Ordering::Equal).then_some(Step::Decided(order))
            }
            (Cell::Term(left), Cell::Byte(y, right)) => {
                self.set_lists(left, right);
                let order = compare_nested(self.a.skip()?, &[tag::SMALL_INTEGER, y], self.map_depth);
                (order != Ordering::Equal).then_some(Step::Decided(order))
            }
            (Cell::Nil, Cell::Nil) => {
                self.open.pop();
                None
            }
            // Two improper tails are the last thing to compare in these lists.
            (Cell::Tail, Cell::Tail) => {
                self.open.pop();
                Some(Step::Continue)
            }
            // One list goes on where the other has a tail: the cell itself is a list in the term order.
            (a, b) => Some(Step::Decided(a.rank(&self.a)?.cmp(&b.rank(&self.b)?))),
        };
        Ok(step)
    }

    fn set_lists(&mut self, left: Cells<'a>, right: Cells<'a>) {
        if let Some(open) = self.open.last_mut() {
            *open = Open::Lists(left, right);
        }
    }

    /// Compares the terms at the cursors as far as their heads decide, and opens compound ones.
    fn compare_heads(&mut self) -> Result<Ordering, TermError> {
        let (tag_a, tag_b) = (self.a.peek_tag()?, self.b.peek_tag()?);
        let (class_a, class_b) = (class(tag_a), class(tag_b));
        if class_a == Class::Unknown || class_b == Class::Unknown {
            return Err(TermError::Invalid {
                what: "unknown tag",
                offset: self.a.position(),
            });
        }
        if class_a != class_b {
            return Ok(class_a.cmp(&class_b));
        }
        match class_a {
            Class::Number => compare_numbers(&mut self.a, &mut self.b, tag_a, tag_b),
            Class::Atom => {
                let (x, y) = (self.a.read_atom()?, self.b.read_atom()?);
                if x.utf8 == y.utf8 || (x.bytes.is_ascii() && y.bytes.is_ascii()) {
                    return Ok(x.bytes.cmp(y.bytes));
                }
                Ok(x.name().cmp(&y.name()))
            }
            Class::Tuple => {
                let (x, y) = (self.a.read_tuple()?, self.b.read_tuple()?);
                self.open.push(Open::Terms(x.min(y)));
                Ok(x.cmp(&y))
            }
            Class::Map => self.compare_maps(),
            Class::Nil => {
                self.a.read_list()?;
                self.b.read_list()?;
                Ok(Ordering::Equal)
            }
            Class::List => {
                let (x, y) = (Cells::read(&mut self.a)?, Cells::read(&mut self.b)?);
                self.open.push(Open::Lists(x, y));
                Ok(Ordering::Equal)
            }
            Class::Binary => {
                let (x, y) = (self.a.read_bits()?, self.b.read_bits()?);
                Ok(compare_bits(x, y))
            }
            Class::Unknown => Ok(Ordering::Equal),
        }
    }

    /// Maps: the number of pairs, then the keys in their order, then the values in the order of the keys.
    fn compare_maps(&mut self) -> Result<Ordering, TermError> {
        let (a, b) = (self.a.read_map()?, self.b.read_map()?);
        if a != b {
            return Ok(a.cmp(&b));
        }
        if self.map_depth >= MAP_DEPTH_MAX {
            return Err(TermError::TooDeep { limit: MAP_DEPTH_MAX });
        }
        let depth = self.map_depth + 1;
        let (a, b) = (
            sorted_pairs(&mut self.a, a, depth)?,
            sorted_pairs(&mut self.b, b, depth)?,
        );
        let keys = a.iter().zip(&b).map(|(x, y)| compare_nested(x.0, y.0, depth));
        let values = a.iter().zip(&b).map(|(x, y)| compare_nested(x.1, y.1, depth));
        Ok(keys
            .chain(values)
            .find(|order| *order != Ordering::Equal)
            .unwrap_or(Ordering::Equal))
    }
}

type Pair<'a> = (&'a [u8], &'a [u8]);

/// The pairs of a map, sorted by key.
fn sorted_pairs<'a>(reader: &mut Reader<'a>, count: usize, depth: usize) -> Result<Vec<Pair<'a>>, TermError> {
    let mut pairs = Vec::new();
    for _ in 0..count {
        pairs.push((reader.skip()?, reader.skip()?));
    }
    pairs.sort_by(|x, y| compare_nested(x.0, y.0, depth));
    Ok(pairs)
}

impl<'a> Cells<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, TermError> {
        Ok(match reader.read_list()? {
            ListHead::Nil => Self::Ended,
            ListHead::Bytes(bytes) => Self::Bytes(bytes),
            ListHead::Elements(count) => Self::Elements(count),
        })
    }
}

/// What a list holds next.
enum Cell<'a> {
    /// A term at the cursor, and the list behind it.
    Term(Cells<'a>),
    /// A small integer, and the list behind it.
    Byte(u8, Cells<'a>),
    /// The end of a proper list.
    Nil,
    /// The tail of an improper list, at the cursor.
    Tail,
}

impl<'a> Cell<'a> {
    fn next(reader: &mut Reader<'a>, mut cells: Cells<'a>) -> Result<Self, TermError> {
        loop {
            match cells {
                Cells::Ended => return Ok(Self::Nil),
                Cells::Bytes(bytes) => {
                    return Ok(match bytes.split_first() {
                        Some((first, rest)) => Self::Byte(*first, Cells::Bytes(rest)),
                        None => Self::Nil,
                    });
                }
                Cells::Elements(0) => match class(reader.peek_tag()?) {
                    Class::Nil | Class::List => cells = Cells::read(reader)?,
                    _ => return Ok(Self::Tail),
                },
                Cells::Elements(left) => return Ok(Self::Term(Cells::Elements(left - 1))),
            }
        }
    }

    /// The class of the rest of the list, as a term.
    fn rank(&self, reader: &Reader<'_>) -> Result<Class, TermError> {
        Ok(match self {
            Self::Term(_) | Self::Byte(..) => Class::List,
            Self::Nil => Class::Nil,
            Self::Tail => class(reader.peek_tag()?),
        })
    }
}

/// The classes of terms in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Number,
    Atom,
    Tuple,
    Map,
    Nil,
    List,
    Binary,
    Unknown,
}

const fn class(tag: u8) -> Class {
    match tag {
        tag::SMALL_INTEGER | tag::INTEGER | tag::SMALL_BIG | tag::LARGE_BIG | tag::NEW_FLOAT => Class::Number,
        tag::ATOM | tag::SMALL_ATOM | tag::ATOM_UTF8 | tag::SMALL_ATOM_UTF8 => Class::Atom,
        tag::SMALL_TUPLE | tag::LARGE_TUPLE => Class::Tuple,
        tag::MAP => Class::Map,
        tag::NIL => Class::Nil,
        tag::LIST | tag::STRING => Class::List,
        tag::BINARY | tag::BIT_BINARY => Class::Binary,
        _ => Class::Unknown,
    }
}

fn compare_numbers(
    a: &mut Reader<'_>,
    b: &mut Reader<'_>,
    tag_a: u8,
    tag_b: u8,
) -> Result<Ordering, TermError> {
    Ok(match (tag_a == tag::NEW_FLOAT, tag_b == tag::NEW_FLOAT) {
        (false, false) => compare_ints(a.read_int()?, b.read_int()?),
        (true, true) => compare_floats(a.read_f64()?, b.read_f64()?),
        (false, true) => compare_int_float(a.read_int()?, b.read_f64()?),
        (true, false) => compare_int_float(b.read_int()?, a.read_f64()?).reverse(),
    })
}

/// Both are finite; zero equals minus zero.
fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

fn compare_ints(a: Int<'_>, b: Int<'_>) -> Ordering {
    match (a, b) {
        (Int::Small(x), Int::Small(y)) => x.cmp(&y),
        (Int::Small(_), Int::Big { negative, .. }) => below_if(!negative),
        (Int::Big { negative, .. }, Int::Small(_)) => below_if(negative),
        (
            Int::Big {
                negative: false,
                magnitude: x,
            },
            Int::Big {
                negative: false,
                magnitude: y,
            },
        ) => compare_magnitudes(x, y),
        (
            Int::Big {
                negative: true,
                magnitude: x,
            },
            Int::Big {
                negative: true,
                magnitude: y,
            },
        ) => compare_magnitudes(y, x),
        (Int::Big { negative, .. }, Int::Big { .. }) => below_if(negative),
    }
}

const fn below_if(condition: bool) -> Ordering {
    if condition {
        Ordering::Less
    } else {
        Ordering::Greater
    }
}

/// Little-endian magnitudes without high zero bytes.
fn compare_magnitudes(x: &[u8], y: &[u8]) -> Ordering {
    x.len()
        .cmp(&y.len())
        .then_with(|| x.iter().rev().cmp(y.iter().rev()))
}

/// The exact order of an integer and a finite float.
fn compare_int_float(int: Int<'_>, float: f64) -> Ordering {
    /// 2^63, the first float beyond the signed 64-bit integers.
    const BEYOND_I64: f64 = 9_223_372_036_854_775_808.0;
    match int {
        Int::Small(_) if float >= BEYOND_I64 => Ordering::Less,
        Int::Small(_) if float < -BEYOND_I64 => Ordering::Greater,
        Int::Small(value) => {
            let whole = float.trunc();
            // The cast is exact: the float lies within the range and has no fraction.
            let order = value.cmp(&(whole as i64));
            order.then_with(|| compare_floats(whole, float))
        }
        Int::Big { negative, magnitude } => {
            if negative != (float < 0.0) || float.abs() < BEYOND_I64 {
                return below_if(negative);
            }
            let (bytes, length) = magnitude_of(float.abs());
            let order = compare_magnitudes(magnitude, &bytes[..length]);
            if negative { order.reverse() } else { order }
        }
    }
}

/// The little-endian magnitude of a float from 2^63 on, which has no fraction, and its length in bytes.
fn magnitude_of(float: f64) -> ([u8; 144], usize) {
    let bits = float.to_bits();
    let mantissa = u128::from(bits & ((1 << 52) - 1) | (1 << 52));
    let exponent = usize::try_from((bits >> 52) & 0x7ff).unwrap_or_default();
    // The value is mantissa * 2^shift; from 2^63 on, shift is at least 11 and at most 971.
    let shift = exponent.saturating_sub(1075);
    let mut bytes = [0; 144];
    let from = shift / 8;
    bytes[from..from + 16].copy_from_slice(&(mantissa << (shift % 8)).to_le_bytes());
    let length = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    (bytes, length)
}

/// Bit strings compare bit by bit; one that is a prefix of the other comes first.
fn compare_bits((x, bits_x): (&[u8], u8), (y, bits_y): (&[u8], u8)) -> Ordering {
    if bits_x == 8 && bits_y == 8 {
        return x.cmp(y);
    }
    let common = bit_length(x, bits_x).min(bit_length(y, bits_y));
    let (whole, part) = (common / 8, common % 8);
    let mask = !(0xff_u8
        .checked_shr(u32::try_from(part).unwrap_or_default())
        .unwrap_or_default());
    let last = |bytes: &[u8]| {
        if part == 0 {
            0
        } else {
            bytes.get(whole).copied().unwrap_or_default() & mask
        }
    };
    x[..whole]
        .cmp(&y[..whole])
        .then_with(|| last(x).cmp(&last(y)))
        .then_with(|| bit_length(x, bits_x).cmp(&bit_length(y, bits_y)))
}

fn bit_length(bytes: &[u8], bits_in_last: u8) -> usize {
    bytes.len() * 8 - usize::from(8 - bits_in_last.min(8)) * usize::from(!bytes.is_empty())
}
