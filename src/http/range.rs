//! The `Range` header of attachment reads.

/// Most ranges of one request; with more the whole attachment is sent.
const RANGES_MAX: usize = 9;

/// What a `Range` header asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The whole attachment: no header, an unusable one, or one that covers everything.
    All,
    /// One or more ranges, each from its first byte to its last.
    Some(Vec<(u64, u64)>),
    /// None that the attachment has.
    Unsatisfiable,
}

/// Reads a `Range` header for something of `length` bytes.
pub fn parse(header: Option<&str>, length: u64) -> Wanted {
    let Some(list) = header.and_then(|value| value.trim().strip_prefix("bytes=")) else {
        return Wanted::All;
    };
    let mut ranges = Vec::new();
    for part in list.split(',') {
        if ranges.len() == RANGES_MAX {
            return Wanted::All;
        }
        match one(part.trim(), length) {
            One::Range(from, to) => ranges.push((from, to)),
            One::Unsatisfiable => return Wanted::Unsatisfiable,
            One::Malformed => return Wanted::All,
        }
    }
    match ranges.as_slice() {
        [(0, to)] if to.checked_add(1) == Some(length) => Wanted::All,
        _ => Wanted::Some(ranges),
    }
}

enum One {
    Range(u64, u64),
    Unsatisfiable,
    Malformed,
}

fn one(part: &str, length: u64) -> One {
    let Some((from, to)) = part.split_once('-') else {
        return One::Malformed;
    };
    let number = |text: &str| {
        if text.is_empty() || !text.bytes().all(|digit| digit.is_ascii_digit()) {
            None
        } else {
            Some(text.parse::<u64>().unwrap_or(u64::MAX))
        }
    };
    match (from.is_empty(), to.is_empty()) {
        (true, true) => One::Malformed,
        (true, false) => match number(to) {
            None => One::Malformed,
            Some(0) => One::Unsatisfiable,
            Some(_) if length == 0 => One::Unsatisfiable,
            Some(last) => One::Range(length.saturating_sub(last), length - 1),
        },
        (false, true) => match number(from) {
            None => One::Malformed,
            Some(from) if from >= length => One::Unsatisfiable,
            Some(from) => One::Range(from, length - 1),
        },
        (false, false) => match (number(from), number(to)) {
            (Some(from), Some(to)) if from > to || from >= length => One::Unsatisfiable,
            (Some(from), Some(to)) => One::Range(from, to.min(length - 1)),
            _ => One::Malformed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_couchdb_does() {
        let some = |ranges: &[(u64, u64)]| Wanted::Some(ranges.to_vec());
        let table = [
            (None, Wanted::All),
            (Some("bytes=0-"), Wanted::All),
            (Some("bytes=0-9"), Wanted::All),
            (Some("bytes=0-99"), Wanted::All),
            (Some("bytes=2-5"), some(&[(2, 5)])),
            (Some("bytes=5-"), some(&[(5, 9)])),
            (Some("bytes=-3"), some(&[(7, 9)])),
            (Some("bytes=-30"), Wanted::All),
            (Some("bytes=0-1, 3-4"), some(&[(0, 1), (3, 4)])),
            (Some("bytes=10-"), Wanted::Unsatisfiable),
            (Some("bytes=5-2"), Wanted::Unsatisfiable),
            (Some("bytes=-0"), Wanted::Unsatisfiable),
            (Some("bytes=a-b"), Wanted::All),
            (Some("lines=1-2"), Wanted::All),
            (Some("bytes=1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1"), Wanted::All),
            (Some("bytes=99999999999999999999999-"), Wanted::Unsatisfiable),
        ];
        for (header, expected) in table {
            assert_eq!(parse(header, 10), expected, "{header:?}");
        }
        assert_eq!(parse(Some("bytes=0-"), 0), Wanted::Unsatisfiable);
    }
}
