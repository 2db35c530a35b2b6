//! Building the term of an object member by member, with the rule for members of the same name: the last one stays, in
//! its place.

use crate::codec::term::{tag, write};
use smallvec::SmallVec;

/// Head of an object's term: a tuple of one, and in it a list whose length is written at the end.
const HEAD: [u8; 7] = [tag::SMALL_TUPLE, 1, tag::LIST, 0, 0, 0, 0];
/// The term of `{}`.
const EMPTY: [u8; 3] = [tag::SMALL_TUPLE, 1, tag::NIL];
/// Up to this many members, each is compared with each; beyond, their hashes are sorted.
const PAIRWISE_MEMBERS_MAX: usize = 16;
/// From the beginning of a member to the bytes of its name: a tuple of two, a binary's tag and length.
const NAME_OFFSET: usize = 7;

/// A member that has been written: where, and the hash of its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    start: usize,
    hash: u32,
    replaced: bool,
}

/// Members kept inline before the heap is used.
pub(super) type Members = SmallVec<[Member; 24]>;

/// An object that is being written: where it begins, and what is needed to find members of the same name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    start: usize,
    first_member: usize,
    names_seen: u64,
    names_suspect: bool,
}

impl Open {
    /// Writes the head of an object.
    #[inline]
    pub(super) fn begin(out: &mut Vec<u8>, members: &Members) -> Self {
        let start = out.len();
        out.extend_from_slice(&HEAD);
        Self {
            start,
            first_member: members.len(),
            names_seen: 0,
            names_suspect: false,
        }
    }

    /// Notes that a member has been begun at `start` whose name ends where `out` ends.
    #[inline]
    pub(super) fn note(&mut self, out: &[u8], start: usize, members: &mut Members) {
        let hash = hash_name(out.get(start + NAME_OFFSET..).unwrap_or_default());
        let bit = 1 << (hash >> 26);
        self.names_suspect |= self.names_seen & bit != 0;
        self.names_seen |= bit;
        members.push(Member {
            start,
            hash,
            replaced: false,
        });
    }

    /// Ends the object: applies the rule for members of the same name, writes the count and the end of the list.
    #[inline]
    pub(super) fn finish(self, out: &mut Vec<u8>, members: &mut Members) {
        let written = members.get_mut(self.first_member..).unwrap_or_default();
        let mut count = written.len();
        if self.names_suspect && mark_replaced(out, written) {
            count = remove_replaced(out, written);
        }
        members.truncate(self.first_member);
        if count == 0 {
            out.truncate(self.start);
            out.extend_from_slice(&EMPTY);
            return;
        }
        patch_count(out, self.start + 3, count);
        out.push(tag::NIL);
    }
}

/// Writes a list's length at `at`. A text within its limit cannot have more members than fit.
#[inline]
pub(super) fn patch_count(out: &mut [u8], at: usize, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    if let Some(slot) = out.get_mut(at..at + 4) {
        slot.copy_from_slice(&count.to_be_bytes());
    }
}

/// A cheap hash over the length and the first and last eight bytes. Names that collide cost comparisons, not correctness.
#[inline]
fn hash_name(name: &[u8]) -> u32 {
    let (first, last) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (Some(first), Some(last)) => (
                u64::from(u32::from_le_bytes(*first)),
                u64::from(u32::from_le_bytes(*last)),
            ),
            _ => (name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
        },
    };
    let mixed =
        (first ^ last.rotate_left(29) ^ ((name.len() as u64) << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 32) as u32
}

fn name<'o>(out: &'o [u8], member: &Member) -> &'o [u8] {
    let length = out
        .get(member.start + 3..)
        .and_then(|rest| rest.first_chunk::<4>());
    let length = length.map_or(0, |bytes| u32::from_be_bytes(*bytes) as usize);
    let from = member.start + NAME_OFFSET;
    out.get(from..from + length).unwrap_or_default()
}

/// Marks the members behind which another one of the same name follows; says whether there are any.
fn mark_replaced(out: &[u8], members: &mut [Member]) -> bool {
    if members.len() > PAIRWISE_MEMBERS_MAX {
        return mark_replaced_sorted(out, members);
    }
    let mut any = false;
    for earlier in 0..members.len() {
        let member = members[earlier];
        let same = |later: &Member| later.hash == member.hash && name(out, later) == name(out, &member);
        let replaced = members[earlier + 1..].iter().any(same);
        members[earlier].replaced = replaced;
        any |= replaced;
    }
    any
}

fn mark_replaced_sorted(out: &[u8], members: &mut [Member]) -> bool {
    let mut order: SmallVec<[(u32, u32); 64]> = members
        .iter()
        .zip(0..)
        .map(|(m, index)| (m.hash, index))
        .collect();
    order.sort_unstable();
    let mut any = false;
    for run in order.chunk_by_mut(|a, b| a.0 == b.0) {
        if run.len() < 2 {
            continue;
        }
        // Names whose hashes are equal are sorted themselves, so that hostile names cost no quadratic time.
        let name_at = |index: u32| {
            members
                .get(index as usize)
                .map(|member| name(out, member))
                .unwrap_or_default()
        };
        run.sort_unstable_by(|a, b| name_at(a.1).cmp(name_at(b.1)).then(a.1.cmp(&b.1)));
        let mut replaced: SmallVec<[u32; 8]> = SmallVec::new();
        replaced.extend(
            run.windows(2)
                .filter(|w| name_at(w[0].1) == name_at(w[1].1))
                .map(|w| w[0].1),
        );
        any |= !replaced.is_empty();
        for index in replaced {
            if let Some(member) = members.get_mut(index as usize) {
                member.replaced = true;
            }
        }
    }
    any
}

/// Moves the members that stay together; returns how many they are.
fn remove_replaced(out: &mut Vec<u8>, members: &[Member]) -> usize {
    let mut write_at = members.first().map_or(out.len(), |member| member.start);
    let mut count = 0;
    for (index, member) in members.iter().enumerate() {
        if member.replaced {
            continue;
        }
        let end = members.get(index + 1).map_or(out.len(), |next| next.start);
        out.copy_within(member.start..end, write_at);
        write_at += end - member.start;
        count += 1;
    }
    out.truncate(write_at);
    count
}

/// Builds the term of one object member by member, for a caller who decides where each member goes.
///
/// ```
/// use settee_engine::codec::{json::{ObjectBuilder, term_to_json}, term::write};
/// let mut term = Vec::new();
/// let mut object = ObjectBuilder::begin(&mut term);
/// for (name, value) in [("a", 1), ("b", 2), ("a", 3)] {
///     object.name(&mut term, name.as_bytes());
///     write::int(&mut term, value);
/// }
/// object.finish(&mut term);
/// let mut json = Vec::new();
/// term_to_json(&term, &mut json)?;
/// assert_eq!(json, br#"{"b":2,"a":3}"#);
/// # Ok::<(), settee_engine::codec::term::TermError>(())
/// ```
#[derive(Debug)]
pub struct ObjectBuilder {
    open: Open,
    members: Members,
}

impl ObjectBuilder {
    /// Writes the head of an object's term to `out`. Until [`finish`](Self::finish), only this object may be appended.
    #[must_use]
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let members = Members::new();
        Self {
            open: Open::begin(out, &members),
            members,
        }
    }

    /// Begins a member; the caller then appends exactly one raw term as its value.
    pub fn name(&mut self, out: &mut Vec<u8>, name: &[u8]) {
        let start = out.len();
        write::tuple(out, 2);
        write::binary(out, name);
        self.open.note(out, start, &mut self.members);
    }

    /// How many members have been begun; members that replace others are counted too.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether no member has been begun.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Ends the object. Of members with the same name the last one stays, in its place.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.open.finish(out, &mut self.members);
    }
}
