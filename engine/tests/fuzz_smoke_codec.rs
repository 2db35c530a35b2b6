//! The fuzzing targets of the codecs, run on seeded input: valid samples with a few random changes, and random bytes.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use settee_engine::codec::compress::{Compression, compress};
use settee_engine::codec::{fuzz, json::json_to_term};

const ROUNDS: usize = 4000;

const TEXTS: [&str; 6] = [
    r#"{"_id":"a","n":1,"f":1.5,"s":"h\u00e9\n","l":[1,2,3],"o":{"x":null,"x":true}}"#,
    "[123456789012345678901234567890,-1,2147483648,1e20,0.1,-0.0]",
    r#"[[[[[{"a":[{}]}]]]],"\ud83d\ude00",false]"#,
    r#"{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11,"l":12,"m":13,"n":14,"o":15,"p":16,"q":17}"#,
    "[0,255,256]",
    r#""\"\\\/\b\f\n\r\t""#,
];

/// A sample with some of its bytes changed, removed, doubled, or swapped for others that mean something.
fn mutate(rng: &mut SmallRng, sample: &[u8], telling: &[u8]) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for _ in 0..rng.random_range(0..4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..5) {
            0 => bytes[at] = rng.random(),
            1 => bytes[at] = telling[rng.random_range(0..telling.len())],
            2 => bytes.truncate(at),
            3 => {
                bytes.remove(at);
            }
            _ => {
                let end = rng.random_range(at..=bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

fn noise(rng: &mut SmallRng, telling: &[u8]) -> Vec<u8> {
    (0..rng.random_range(0..40))
        .map(|_| telling[rng.random_range(0..telling.len())])
        .collect()
}

fn run(seed: u64, samples: &[Vec<u8>], telling: &[u8], target: fn(&[u8])) {
    let mut rng = SmallRng::seed_from_u64(seed);
    for round in 0..ROUNDS {
        let sample = &samples[round % samples.len()];
        target(&mutate(&mut rng, sample, telling));
        target(&noise(&mut rng, telling));
    }
}

fn terms() -> Vec<Vec<u8>> {
    let term = |text: &&str| {
        let mut out = Vec::new();
        json_to_term(text.as_bytes(), &mut out).expect("a valid sample");
        out
    };
    TEXTS.iter().map(term).collect()
}

#[test]
fn any_bytes_as_terms() {
    let telling = [
        0, 1, 2, 3, 70, 77, 97, 98, 100, 104, 105, 106, 107, 108, 109, 110, 111, 115, 116, 118, 119, 131, 255,
    ];
    run(1, &terms(), &telling, fuzz::term);
}

#[test]
fn any_bytes_as_json() {
    let samples: Vec<Vec<u8>> = TEXTS.iter().map(|text| text.as_bytes().to_vec()).collect();
    run(
        2,
        &samples,
        b"{}[]\",:\\ue0123456789.-+Edtrfalsn \n\xc3\xa9\x00",
        fuzz::json,
    );
}

#[test]
fn any_bytes_as_compressed_terms() {
    let mut samples = Vec::new();
    for raw in terms() {
        let versioned = [&[131][..], &raw, &raw].concat();
        for method in [
            Compression::None,
            Compression::Snappy,
            Compression::Deflate(6),
            Compression::Zstd(1),
        ] {
            let mut stored = Vec::new();
            compress(&versioned, method, &mut stored);
            samples.push(stored);
        }
    }
    run(
        3,
        &samples,
        &[
            0, 1, 4, 80, 131, 0x28, 0xb5, 0x2f, 0xfd, 0x78, 0x9c, 127, 128, 255,
        ],
        fuzz::compress,
    );
}
