//! New document ids: `_uuids`, and documents that come without one.

use parking_lot::Mutex;

use crate::config::{UuidAlgorithm, Uuids};

use super::outside;

/// Greatest step of the `sequential` algorithm.
const SEQUENTIAL_STEP_MAX: u32 = 0xffd;
/// A sequence beyond this starts again with a fresh prefix.
const SEQUENTIAL_MAX: u32 = 0x00ff_f000;

/// Makes ids; one per server, shared by its workers.
#[derive(Debug, Default)]
pub struct UuidMaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `sequential`: 26 hex digits, and the last number.
    sequence: Option<(String, u32)>,
    /// `utc_random`, `utc_id`: the last microsecond given.
    clock_micros: u64,
}

impl UuidMaker {
    /// One new id.
    pub fn one(&self, settings: &Uuids) -> String {
        match settings.algorithm {
            UuidAlgorithm::UuidV7 => uuid_v7(outside::unix_micros() / 1000),
            UuidAlgorithm::Random => outside::random_hex(),
            UuidAlgorithm::Sequential => self.state.lock().next_in_sequence(),
            UuidAlgorithm::UtcRandom => {
                let micros = self.state.lock().next_micros();
                let random: u128 = outside::random_bits() >> (128 - 72);
                format!("{micros:014x}{random:018x}")
            }
            UuidAlgorithm::UtcId => {
                let micros = self.state.lock().next_micros();
                format!("{micros:014x}{}", settings.utc_id_suffix)
            }
        }
    }
}

impl State {
    fn next_in_sequence(&mut self) -> String {
        let step = (outside::random_bits() as u32) % SEQUENTIAL_STEP_MAX + 1;
        let (prefix, number) = match self.sequence.take() {
            Some((prefix, last)) if last + step <= SEQUENTIAL_MAX => (prefix, last + step),
            _ => (format!("{:026x}", outside::random_bits() >> (128 - 104)), step),
        };
        let id = format!("{prefix}{number:06x}");
        self.sequence = Some((prefix, number));
        id
    }

    fn next_micros(&mut self) -> u64 {
        self.clock_micros = outside::unix_micros().max(self.clock_micros + 1);
        self.clock_micros
    }
}

/// RFC 9562, version 7: 48 bits of milliseconds, then random bits.
fn uuid_v7(millis: u64) -> String {
    let random = outside::random_bits();
    let mut bits = (u128::from(millis) & 0xffff_ffff_ffff) << 80 | random & ((1 << 80) - 1);
    bits = bits & !(0xf << 76) | 0x7 << 76;
    bits = bits & !(0b11 << 62) | 0b10 << 62;
    format!("{bits:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn make(algorithm: UuidAlgorithm, count: usize) -> Vec<String> {
        let settings = Uuids {
            algorithm,
            utc_id_suffix: "-n1".to_owned(),
            ..Settings::default().uuids
        };
        let maker = UuidMaker::default();
        (0..count).map(|_| maker.one(&settings)).collect()
    }

    #[test]
    fn ids_are_32_lower_hex_digits_and_differ() {
        for algorithm in [
            UuidAlgorithm::UuidV7,
            UuidAlgorithm::Random,
            UuidAlgorithm::Sequential,
            UuidAlgorithm::UtcRandom,
        ] {
            let mut ids = make(algorithm, 5000);
            for id in &ids {
                assert_eq!(id.len(), 32, "{algorithm:?}");
                assert!(id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')));
            }
            if matches!(algorithm, UuidAlgorithm::UtcRandom) {
                assert!(ids.is_sorted());
            }
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), 5000);
        }
    }

    #[test]
    fn version_7_has_its_marks() {
        let id = uuid_v7(0x0123_4567_89ab);
        assert!(id.starts_with("0123456789ab7"));
        assert!(matches!(id.as_bytes()[16], b'8' | b'9' | b'a' | b'b'));
    }

    #[test]
    fn utc_ids_end_with_the_suffix() {
        assert!(
            make(UuidAlgorithm::UtcId, 3)
                .iter()
                .all(|id| id.len() == 17 && id.ends_with("-n1"))
        );
    }
}
