//! External terms: recorded vectors, round trips, the term order, hostile input.

use num_bigint::BigInt;
use proptest::prelude::*;
use settee_engine::codec::term::{self, Int, ListHead, Reader, Term, TermError, write};
use std::cmp::Ordering;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|d| d as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn atom(name: &str) -> Term {
    Term::atom(name)
}

#[test]
fn recorded_terms_decode_and_encode_to_the_same_bytes() {
    let header = unhex(
        "83681064000964625f68656164657261086100640009756e646566696e65646400036e696c6400036e696c6400036e696c\
         6400036e696c6400036e696c62000010a462000003e86d000000203031323334353637383961626364656630313233343536\
         373839616263646566 6c000000016802640011636f7563686462403132372e302e302e3161006a610062000003e86100",
    );
    let nil = || atom("nil");
    let expected = Term::tuple([
        atom("db_header"),
        Term::Int(8),
        Term::Int(0),
        atom("undefined"),
        nil(),
        nil(),
        nil(),
        nil(),
        nil(),
        Term::Int(4260),
        Term::Int(1000),
        Term::binary(*b"0123456789abcdef0123456789abcdef"),
        Term::list([Term::tuple([atom("couchdb@127.0.0.1"), Term::Int(0)])]),
        Term::Int(0),
        Term::Int(1000),
        Term::Int(0),
    ]);
    assert_eq!(Term::decode_versioned(&header), Ok(expected.clone()));
    assert_eq!(expected.encode_versioned(), header);
    assert_eq!(header.len(), 147);

    let kv_node = unhex("8368026400076b765f6e6f64656c0000000168026d000000016161016a");
    let term = Term::decode_versioned(&kv_node).expect("a recorded term");
    assert_eq!(term.encode_versioned(), kv_node);

    let signature = unhex(
        "8368046c0000000168096400066d72766965776100610061006c000000016d00000001766a6a6d0000001e66756e6374696f6e\
         28646f63297b656d697428646f632e5f69642c31297d6400036e696c6a6a6d0000000a6a6176617363726970746a6a",
    );
    let term = Term::decode_versioned(&signature).expect("a recorded term");
    assert_eq!(term.encode_versioned(), signature);
}

#[test]
fn integers_take_the_tags_that_otp_gives_them() {
    let cases: [(i128, &str); 14] = [
        (0, "6100"),
        (255, "61ff"),
        (256, "6200000100"),
        (-1, "62ffffffff"),
        (i32::MAX as i128, "627fffffff"),
        (i32::MIN as i128, "6280000000"),
        (1 << 31, "6e040000000080"),
        (-(1 << 31) - 1, "6e040101000080"),
        (1 << 40, "6e0600000000000001"),
        (i64::MAX as i128, "6e0800ffffffffffffff7f"),
        (i64::MIN as i128, "6e08010000000000000080"),
        (u64::MAX as i128, "6e0800ffffffffffffffff"),
        (1 << 64, "6e0900000000000000000001"),
        (-(1 << 64), "6e0901000000000000000001"),
    ];
    for (value, expected) in cases {
        let mut out = Vec::new();
        write::big(&mut out, &BigInt::from(value));
        assert_eq!(out, unhex(expected), "{value}");
        if let Ok(small) = i64::try_from(value) {
            let mut out = Vec::new();
            write::int(&mut out, small);
            assert_eq!(out, unhex(expected), "{value}");
            assert_eq!(Reader::new(&out).read_i64(), Ok(small));
            assert_eq!(Reader::new(&out).read_int(), Ok(Int::Small(small)));
        }
        if let Ok(unsigned) = u64::try_from(value) {
            let mut out = Vec::new();
            write::uint(&mut out, unsigned);
            assert_eq!(out, unhex(expected), "{value}");
            assert_eq!(Reader::new(&out).read_u64(), Ok(unsigned));
        }
    }
    // A magnitude with high zero bytes, which OTP does not write, still reads.
    assert_eq!(Reader::new(&unhex("6e0300050000")).read_i64(), Ok(5));
    let huge = Term::BigInt(BigInt::from(7) << 3000);
    assert_eq!(huge.encode()[0], term::tag::LARGE_BIG);
    assert_eq!(Term::decode(&huge.encode()), Ok(huge));
}

#[test]
fn lists_of_bytes_become_strings_up_to_65535_elements() {
    let bytes: Vec<u8> = (0..65_536_u32).map(|i| (i % 251) as u8).collect();
    for (length, first_tag) in [(0, 106), (1, 107), (65_535, 107), (65_536, 108)] {
        let list = Term::bytes_list(&bytes[..length]);
        let encoded = list.encode();
        assert_eq!(encoded[0], first_tag, "{length} elements");
        assert_eq!(Term::decode(&encoded), Ok(list));
        let mut written = Vec::new();
        write::byte_list(&mut written, &bytes[..length]);
        assert_eq!(written, encoded);
    }
}

#[test]
fn atoms_of_every_tag_are_read() {
    for encoded in ["64000474727565", "730474727565", "76000474727565", "770474727565"] {
        let encoded = unhex(encoded);
        assert_eq!(Term::decode(&encoded), Ok(atom("true")));
        assert_eq!(Reader::new(&encoded).read_bool(), Ok(true));
        assert!(Reader::new(&encoded).skip_atom(b"true"));
        assert!(!Reader::new(&encoded).skip_atom(b"false"));
    }
    assert_eq!(Term::decode(&unhex("640001e9")), Ok(atom("é")));
    assert_eq!(atom("é").encode(), unhex("640001e9"));
    assert_eq!(atom("→").encode(), unhex("7703e28692"));
    assert!(Term::decode(&unhex("7701e9")).is_err());
}

#[test]
fn compressed_terms_expand() {
    let list = Term::list(vec![Term::binary(*b"abcabc"); 100]);
    let mut stored = Vec::new();
    use settee_engine::codec::compress::{Compression, compress};
    compress(&list.encode_versioned(), Compression::Deflate(6), &mut stored);
    assert_eq!(stored[..8], unhex("8350 00000452 789c"));
    assert_eq!(Term::decode_versioned(&stored), Ok(list));
    // A size that lies, in both directions.
    for size in [0x451_u32, 0x453, u32::MAX] {
        stored[2..6].copy_from_slice(&size.to_be_bytes());
        assert_eq!(Term::decode_versioned(&stored), Err(TermError::Expansion));
    }
}

#[test]
fn lengths_that_lie_are_errors_and_take_no_room() {
    for head in [
        "6dffffffff",
        "6cffffffff",
        "69ffffffff",
        "74ffffffff",
        "6fffffffff00",
        "6bffff",
        "64ffff",
        "4dffffffff08",
    ] {
        let mut bytes = unhex(head);
        bytes.extend_from_slice(&[0x61, 1, 0x61, 2]);
        assert!(Term::decode(&bytes).is_err(), "{head}");
        assert!(Reader::new(&bytes).skip().is_err(), "{head}");
    }
    // Nested lists of which each claims all that is left.
    let mut bomb = Vec::new();
    for depth in 0..400_u32 {
        bomb.push(108);
        bomb.extend_from_slice(&(5 * (400 - depth)).to_be_bytes());
    }
    bomb.resize(bomb.len() + 2000, 106);
    assert!(Term::decode(&bomb).is_err());
}

#[test]
fn depth_bombs_are_errors_or_are_walked_without_stack() {
    let depth = 1_000_000;
    let mut bomb = [104, 1].repeat(depth);
    bomb.push(106);
    assert_eq!(Reader::new(&bomb).skip().map(<[u8]>::len), Ok(bomb.len()));
    assert!(matches!(Term::decode(&bomb), Err(TermError::TooDeep { .. })));
    assert_eq!(term::compare(&bomb, &bomb), Ordering::Equal);
    let mut other = bomb.clone();
    *other.last_mut().expect("not empty") = 104;
    other.push(0);
    assert_eq!(term::compare(&bomb, &other), Ordering::Greater);
    let lists = [108, 0, 0, 0, 1].repeat(depth);
    assert!(Reader::new(&lists).skip().is_err());
}

#[test]
fn failed_reads_leave_the_cursor() {
    let bytes = Term::tuple([Term::Int(1), Term::Int(2)]).encode();
    let mut reader = Reader::new(&bytes);
    assert!(reader.read_binary().is_err());
    assert!(reader.expect_tuple(3).is_err());
    assert!(reader.read_i64().is_err());
    assert_eq!(reader.position(), 0);
    assert_eq!(reader.read_tuple(), Ok(2));
    assert_eq!(reader.read_raw(), Ok(&[97, 1][..]));
    assert_eq!(reader.read_u64(), Ok(2));
    assert_eq!(reader.end(), Ok(()));
    let list = Term::list([atom("a")]).encode();
    let mut reader = Reader::new(&list);
    assert_eq!(reader.read_list(), Ok(ListHead::Elements(1)));
    assert!(reader.read_atom().expect("an atom").is(b"a"));
    assert_eq!(reader.end_list(), Ok(()));
}

#[test]
fn the_term_order_is_that_of_erlang() {
    let big = |shift: usize| Term::BigInt(BigInt::from(1) << shift);
    let improper = Term::ImproperList(vec![Term::Int(1)], Box::new(Term::Int(2)));
    let map =
        |pairs: &[(&str, i64)]| Term::Map(pairs.iter().map(|(k, v)| (atom(k), Term::Int(*v))).collect());
    // Strictly rising.
    let rising = [
        Term::BigInt(BigInt::from(-(1_i128 << 80))),
        Term::Float(-1e19),
        Term::Int(i64::MIN),
        Term::Int(-1),
        Term::Float(-0.5),
        Term::Int(0),
        Term::Float(0.5),
        Term::Int(1),
        Term::Int(300),
        Term::Float(300.5),
        Term::Int(9_007_199_254_740_991),
        Term::Float(9_007_199_254_740_992.0),
        Term::Int(9_007_199_254_740_993),
        Term::Int(i64::MAX),
        Term::Float(9_223_372_036_854_775_808.0),
        Term::BigInt((BigInt::from(1) << 63) + 1),
        big(64),
        Term::BigInt((BigInt::from(1) << 64) + 1),
        big(900),
        Term::Float(f64::MAX),
        big(1024),
        atom("a"),
        atom("b"),
        atom("é"),
        atom("→"),
        Term::tuple([]),
        Term::tuple([Term::Int(9)]),
        Term::tuple([Term::Int(1), Term::Int(2)]),
        Term::tuple([Term::Int(1), atom("a")]),
        map(&[]),
        map(&[("z", 1)]),
        map(&[("a", 1), ("b", 2)]),
        map(&[("b", 1), ("a", 2)]),
        map(&[("a", 1), ("c", 0)]),
        Term::nil(),
        improper,
        Term::list([Term::Int(1)]),
        Term::list([Term::Int(1), Term::Int(2)]),
        Term::list([Term::Int(1), Term::Float(2.5)]),
        Term::list([Term::Int(1), Term::Int(300)]),
        Term::list([Term::Int(1), atom("a")]),
        Term::list([Term::Int(2)]),
        Term::list([atom("a")]),
        Term::binary(*b""),
        Term::binary(*b"a"),
        Term::Bits(b"a\x80".to_vec(), 1),
        Term::binary(*b"aa"),
        Term::binary(*b"b"),
    ];
    // The bit string is a prefix-greater of "a" and, with its first bit set, above "aa" and below "b".
    let mut rising = rising.to_vec();
    let bits = rising.remove(rising.len() - 3);
    rising.insert(rising.len() - 1, bits);
    for (i, a) in rising.iter().enumerate() {
        for (j, b) in rising.iter().enumerate() {
            assert_eq!(a.order(b), i.cmp(&j), "{a:?} and {b:?}");
        }
    }
    assert_eq!(Term::Int(1).order(&Term::Float(1.0)), Ordering::Equal);
    assert_eq!(Term::Float(0.0).order(&Term::Float(-0.0)), Ordering::Equal);
    assert_eq!(
        Term::BigInt(BigInt::from(1) << 70).order(&Term::Float(2_f64.powi(70))),
        Ordering::Equal
    );
    // One list in two encodings.
    let string = Term::bytes_list(&[1, 2]).encode();
    let list = [&[108, 0, 0, 0, 2, 97, 1][..], &[98, 0, 0, 0, 2, 106]].concat();
    assert_eq!(term::compare(&string, &list), Ordering::Equal);
    assert_eq!(term::compare(&list, &string), Ordering::Equal);
}

fn any_term() -> impl Strategy<Value = Term> {
    let number = prop_oneof![
        any::<i64>().prop_map(Term::Int),
        (-300_i64..300).prop_map(Term::Int),
        (0_i64..256).prop_map(Term::Int),
        any::<i128>().prop_map(|value| match i64::try_from(value) {
            Ok(small) => Term::Int(small),
            Err(_) => Term::BigInt(BigInt::from(value)),
        }),
        any::<f64>()
            .prop_filter("finite", |value| value.is_finite())
            .prop_map(Term::Float),
    ];
    let leaf = prop_oneof![
        number,
        "[a-zé→]{0,5}".prop_map(|name| Term::atom(&name)),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(Term::Binary),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Term::bytes_list(&bytes)),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Term::Tuple),
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Term::List),
            proptest::collection::vec((inner.clone(), inner), 0..4).prop_map(Term::Map),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn terms_survive_a_round_trip(term in any_term()) {
        let encoded = term.encode();
        prop_assert_eq!(Term::decode(&encoded), Ok(term.clone()));
        prop_assert_eq!(Reader::new(&encoded).skip(), Ok(encoded.as_slice()));
        prop_assert_eq!(Term::decode_versioned(&term.encode_versioned()), Ok(term.clone()));
        prop_assert_eq!(term.external_size(), encoded.len() + 1);
        prop_assert_eq!(term.order(&term), Ordering::Equal);
    }

    #[test]
    fn every_cut_of_a_term_is_an_error(term in any_term(), at in any::<prop::sample::Index>()) {
        let encoded = term.encode();
        let cut = &encoded[..at.index(encoded.len())];
        prop_assert!(Term::decode(cut).is_err());
        prop_assert!(Reader::new(cut).skip().is_err());
    }

    #[test]
    fn the_order_is_total(a in any_term(), b in any_term(), c in any_term()) {
        prop_assert_eq!(a.order(&b), b.order(&a).reverse());
        let mut sorted = [a, b, c];
        sorted.sort_by(Term::order);
        prop_assert_ne!(sorted[0].order(&sorted[2]), Ordering::Greater);
    }
}
