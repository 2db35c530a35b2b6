//! The compression container: recorded vectors, every method, hostile input.

use proptest::prelude::*;
use settee_engine::codec::compress::{
    CompressError, Compression, compress, decompress, decompress_into, is_compressed, recompress,
    uncompressed_size,
};
use settee_engine::codec::term::Term;
use std::borrow::Cow;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|d| d as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn expanded(stored: &[u8]) -> Result<Vec<u8>, CompressError> {
    decompress(stored).map(Cow::into_owned)
}

const METHODS: [Compression; 5] = [
    Compression::None,
    Compression::Snappy,
    Compression::Deflate(1),
    Compression::Deflate(9),
    Compression::Zstd(3),
];

#[test]
fn recorded_containers_are_read() {
    let kv_node = "8368026400076b765f6e6f64656c0000000168026d000000016161016a";
    let stored = unhex(&format!("01 1d70 {kv_node}"));
    assert_eq!(decompress(&stored).as_deref(), Ok(unhex(kv_node).as_slice()));
    assert_eq!(decompress(&unhex("010204836a")).as_deref(), Ok(&[0x83, 0x6a][..]));
    let security = unhex(
        "016c54836c0000000268026d000000076d656d6265727368010115000109151405726f6c65730511012420065f61646d696e6a\
         6a091e0006050e963200006a",
    );
    let term = decompress(&security).expect("a recorded container");
    let roles = |roles: Vec<Term>| {
        Term::tuple([Term::list([Term::tuple([
            Term::binary(*b"roles"),
            Term::list(roles),
        ])])])
    };
    let expected = Term::list([
        Term::tuple([Term::binary(*b"members"), roles(vec![Term::binary(*b"_admin")])]),
        Term::tuple([Term::binary(*b"admins"), roles(vec![Term::binary(*b"_admin")])]),
    ]);
    assert_eq!(Term::decode_versioned(&term), Ok(expected));
    assert_eq!(uncompressed_size(&security), Ok(108));

    let body = unhex(
        "0144448368016c0000000468026d00000001616101090a28046c6973746b00030102030911140166463ff80005010d1120736d\
         0000000268696a",
    );
    let term = decompress(&body).expect("a recorded container");
    let mut json = Vec::new();
    settee_engine::codec::json::term_to_json(&term[1..], &mut json).expect("a body");
    assert_eq!(json, br#"{"a":1,"list":[1,2,3],"f":1.5,"s":"hi"}"#);
}

#[test]
fn what_is_written_is_as_couchdb_writes_it() {
    let mut stored = Vec::new();
    compress(&[0x83, 0x6a], Compression::Snappy, &mut stored);
    assert_eq!(stored, unhex("010204836a"));
    // Deflate keeps what does not get shorter.
    let kv_node = unhex("8368026400076b765f6e6f64656c0000000168026d000000016161016a");
    let mut stored = Vec::new();
    compress(&kv_node, Compression::Deflate(6), &mut stored);
    assert_eq!(stored, kv_node);
    let mut stored = Vec::new();
    compress(&kv_node, Compression::Zstd(3), &mut stored);
    assert_eq!(stored[..4], [0x28, 0xb5, 0x2f, 0xfd]);
    assert_eq!(uncompressed_size(&stored), Ok(29));
}

#[test]
fn settings_are_read_and_printed() {
    for name in [
        "none",
        "snappy",
        "deflate_1",
        "deflate_9",
        "zstd",
        "zstd_7",
        "zstd_-5",
    ] {
        assert_eq!(name.parse::<Compression>().expect(name).to_string(), name);
    }
    assert_eq!("zstd_3".parse(), Ok(Compression::Zstd(3)));
    assert_eq!(Compression::default(), Compression::Snappy);
    for name in [
        "",
        "deflate",
        "deflate_0",
        "deflate_10",
        "deflate_-1",
        "zstd_",
        "zstd_99",
        "Snappy",
        "lz4",
    ] {
        assert!(name.parse::<Compression>().is_err(), "{name}");
    }
}

#[test]
fn sizes_that_lie_take_no_room() {
    // Snappy: 4 GiB and 1 GiB claimed by a few bytes.
    for claim in ["01ffffffff0f00", "018080808004 0000", "01"] {
        assert!(decompress(&unhex(claim)).is_err(), "{claim}");
    }
    assert!(matches!(
        decompress(&unhex("01ffffffff0f00")),
        Err(CompressError::TooLarge { .. })
    ));
    assert_eq!(
        decompress(&unhex("8350ffffffff789c")),
        Err(CompressError::TooLarge {
            method: "deflate",
            claimed: 0xffff_ffff
        })
    );
    assert_eq!(decompress(&unhex("8350")), Err(CompressError::Damaged("deflate")));
    // Zstd: a single-segment frame that claims 2^40 bytes, and one that claims 512 MiB and holds one byte.
    let frame = unhex("28b52ffd e0 0000000000010000 010000");
    assert!(matches!(decompress(&frame), Err(CompressError::TooLarge { .. })));
    let frame = unhex("28b52ffd a0 00000020 010000");
    assert_eq!(decompress(&frame), Err(CompressError::Damaged("zstd")));
    // A frame without its size.
    assert_eq!(
        decompress(&unhex("28b52ffd 00 58 010000")),
        Err(CompressError::Damaged("zstd"))
    );
    for unknown in ["", "00", "28b52f", "7b7d"] {
        assert_eq!(decompress(&unhex(unknown)), Err(CompressError::UnknownPrefix));
    }
    assert_eq!(
        decompress(&unhex("01010041")),
        Err(CompressError::NotATerm("snappy"))
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_method_reads_what_every_method_wrote(
        bytes in proptest::collection::vec(0_u8..4, 0..3000),
        noise in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let term = Term::list([Term::Binary(bytes), Term::Binary(noise)]).encode_versioned();
        let mut buffer = Vec::new();
        for first in METHODS {
            let mut stored = b"before".to_vec();
            compress(&term, first, &mut stored);
            let stored = stored.split_off(6);
            prop_assert_eq!(expanded(&stored), Ok(term.clone()));
            prop_assert_eq!(decompress_into(&stored, &mut buffer), Ok(term.as_slice()));
            prop_assert_eq!(uncompressed_size(&stored), Ok(term.len() as u64));
            for second in METHODS {
                let mut again = Vec::new();
                recompress(&stored, second, &mut again).expect("readable");
                prop_assert_eq!(expanded(&again), Ok(term.clone()));
                if is_compressed(&stored, second) {
                    prop_assert_eq!(&again, &stored);
                }
            }
            for cut in [stored.len() / 2, stored.len() - 1] {
                if first != Compression::None && is_compressed(&stored, first) {
                    prop_assert!(decompress(&stored[..cut]).is_err());
                }
            }
        }
    }

    #[test]
    fn large_terms_survive_zstd(byte in any::<u8>()) {
        let term = Term::Binary(vec![byte; 3 << 20]).encode_versioned();
        let mut stored = Vec::new();
        compress(&term, Compression::Zstd(1), &mut stored);
        prop_assert_eq!(expanded(&stored), Ok(term.clone()));
    }
}
