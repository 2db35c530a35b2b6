//! JSON: what CouchDB does with recorded texts, round trips, hostile input.

use proptest::prelude::*;
use settee_engine::codec::json::{
    INTEGER_DIGITS_MAX, JSON_DEPTH_MAX, JsonError, JsonLimits, JsonReader, Kind, ObjectBuilder, ejson_size,
    json_to_term, members_to_json, term_to_json, write_json_float, write_json_string,
};
use settee_engine::codec::term::{Term, TermError, write};
use std::borrow::Cow;

fn term(json: &[u8]) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::new();
    json_to_term(json, &mut out).map(|()| out)
}

fn print(term: &[u8]) -> String {
    let mut out = Vec::new();
    term_to_json(term, &mut out).expect("a term with a json form");
    String::from_utf8(out).expect("json is utf-8")
}

fn through(json: &str) -> String {
    print(&term(json.as_bytes()).expect(json))
}

#[test]
fn texts_become_what_couchdb_makes_of_them() {
    let cases = [
        ("{}", "{}"),
        (" [ ] ", "[]"),
        ("[[],{},[{}]]", "[[],{},[{}]]"),
        (r#"{"a":1,"b":2,"a":3}"#, r#"{"b":2,"a":3}"#),
        (r#"{"a":1,"\u0061":{"a":2,"a":[]}}"#, r#"{"a":{"a":[]}}"#),
        (
            r#"{"z":1,"a":{"y":null},"m":true}"#,
            r#"{"z":1,"a":{"y":null},"m":true}"#,
        ),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        (
            "-123456789012345678901234567890123456789012345678901",
            "-123456789012345678901234567890123456789012345678901",
        ),
        (
            "[9223372036854775807,9223372036854775808,-9223372036854775808,-9223372036854775809]",
            "[9223372036854775807,9223372036854775808,-9223372036854775808,-9223372036854775809]",
        ),
        ("999999999999999999", "999999999999999999"),
        ("-0", "0"),
        ("-0.0", "0.0"),
        ("1e3", "1.0e3"),
        ("1200.0", "1.2e3"),
        ("300.0", "300.0"),
        ("1e20", "1.0e20"),
        ("0.0001", "0.0001"),
        ("0.00001", "1.0e-5"),
        ("1.0e-7", "1.0e-7"),
        ("1.0", "1.0"),
        ("1E+2", "100.0"),
        ("1e-400", "0.0"),
        ("9007199254740991.0", "9007199254740991.0"),
        ("9007199254740992.0", "9.007199254740992e15"),
        ("123.456", "123.456"),
        ("-1.5", "-1.5"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1.7976931348623157e308", "1.7976931348623157e308"),
        ("5e-324", "5.0e-324"),
        (
            r#""\u001f\u0007\b\f\n\r\t\"\\\/""#,
            r#""\u001F\u0007\b\f\n\r\t\"\\/""#,
        ),
        (r#""\ud83d\ude00\u00e9é""#, "\"\u{1f600}éé\""),
        ("\"\u{2028}\u{7f}\"", "\"\u{2028}\u{7f}\""),
        (r#"{"\u0000":"\u0000"}"#, r#"{"\u0000":"\u0000"}"#),
        ("[0,1,255]", "[0,1,255]"),
        ("[0,1,256]", "[0,1,256]"),
        ("[true,false,null]", "[true,false,null]"),
        (
            "\t{ \"a\" : [ 1 , 2 ]\r\n, \"b\" : { } } ",
            r#"{"a":[1,2],"b":{}}"#,
        ),
    ];
    for (json, expected) in cases {
        assert_eq!(through(json), expected, "{json}");
    }
}

#[test]
fn texts_that_couchdb_refuses_are_refused() {
    let cases: [&[u8]; 52] = [
        b"",
        b" ",
        b"{",
        b"[",
        b"}",
        b"]",
        b"[1",
        b"[1,",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"{,}",
        b"{\"a\"}",
        b"{\"a\":}",
        b"{\"a\":1,}",
        b"{\"a\":1 \"b\":2}",
        b"{a:1}",
        b"{1:1}",
        b"{\"a\":1]",
        b"[1}",
        b"1e400",
        b"-1e400",
        b"NaN",
        b"Infinity",
        b"-",
        b"01",
        b"-01",
        b"+1",
        b".5",
        b"5.",
        b"1e",
        b"1e+",
        b"1.e1",
        b"0x1",
        b"tru",
        b"nulll",
        b"\"",
        b"\"\\",
        b"\"\\x\"",
        b"\"\\u12\"",
        b"\"\\u12g4\"",
        b"\"\\ud800\"",
        b"\"\\udc00\"",
        b"\"\\ud800\\u0041\"",
        b"\"\\ud800x\"",
        b"\"\xff\"",
        b"\"\xed\xa0\x80\"",
        b"\"\n\"",
        b"\xef\xbb\xbf1",
        b"1 x",
        b"/**/1",
        b"'a'",
    ];
    for json in cases {
        let text = String::from_utf8_lossy(json);
        assert!(term(json).is_err(), "{text}");
        let skipped = JsonReader::new(json).and_then(|mut reader| {
            reader.skip_value()?;
            reader.end()
        });
        assert!(skipped.is_err(), "skipped {text}");
    }
    let error = term(b"[1,\xff]").expect_err("not utf-8");
    assert_eq!(error.to_string(), "invalid utf-8 at byte 3");
}

#[test]
fn terms_are_those_that_otp_makes() {
    let decode = |json: &str| Term::decode(&term(json.as_bytes()).expect(json)).expect("well formed");
    for json in [
        "{\"a\":[1,2,3],\"b\":1.5,\"c\":null}",
        "[1,-1,256,4294967296,\"x\",[],{},true]",
        "[[153,120,0,0]]",
    ] {
        let raw = term(json.as_bytes()).expect(json);
        assert_eq!(decode(json).encode(), raw, "{json}");
    }
    assert_eq!(
        term(b"[[153,120,0,0]]").expect("valid"),
        b"\x6c\0\0\0\x01\x6b\0\x04\x99\x78\0\0\x6a"
    );
    let long = format!("[{}]", vec!["7"; 65_535].join(","));
    assert_eq!(term(long.as_bytes()).expect("valid")[0], 107);
    let longer = format!("[{}]", vec!["7"; 65_536].join(","));
    let raw = term(longer.as_bytes()).expect("valid");
    assert_eq!((raw[0], decode(&longer).encode() == raw), (108, true));
    assert_eq!(print(&raw), longer);
    // As many bytes as byte elements would take, but other elements.
    for json in ["[[],{}]", "[{},[]]", "[[],{},1]"] {
        assert_eq!(decode(json).encode(), term(json.as_bytes()).expect(json));
        assert_eq!(through(json), json);
    }
}

#[test]
fn duplicates_are_found_among_many_members() {
    for count in [15, 16, 17, 40, 1000] {
        let name =
            |i: usize| format!("a rather long name with its number {i:05} in the middle of equal ends");
        let mut members: Vec<String> = (0..count).map(|i| format!("\"{}\":{i}", name(i))).collect();
        let plain = format!("{{{}}}", members.join(","));
        assert_eq!(through(&plain), plain);
        members.push(format!("\"{}\":[]", name(3)));
        members.push(format!("\"{}\":{{}}", name(0)));
        members.push(format!("\"{}\":1.5", name(3)));
        let doubled = format!("{{{}}}", members.join(","));
        members.remove(count);
        members.remove(3);
        members.remove(0);
        assert_eq!(
            through(&doubled),
            format!("{{{}}}", members.join(",")),
            "{count} members"
        );
    }
}

#[test]
fn depth_is_bounded_without_recursion() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nest = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        assert_eq!(through(&nest(JSON_DEPTH_MAX - 1)), nest(JSON_DEPTH_MAX - 1));
        assert!(term(nest(JSON_DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(term(open.repeat(1_000_000).as_bytes()).is_err());
        assert!(
            JsonReader::new(nest(JSON_DEPTH_MAX + 1).as_bytes())
                .expect("utf-8")
                .skip_value()
                .is_err()
        );
    }
    let deep = [&[108, 0, 0, 0, 1].repeat(JSON_DEPTH_MAX + 1)[..], &[106]].concat();
    let mut out = b"kept".to_vec();
    assert_eq!(
        term_to_json(&deep, &mut out),
        Err(TermError::TooDeep {
            limit: JSON_DEPTH_MAX
        })
    );
    assert_eq!(out, b"kept");
}

#[test]
fn long_integers_are_bounded() {
    let longest = "9".repeat(INTEGER_DIGITS_MAX);
    assert_eq!(through(&longest), longest);
    assert!(term(format!("{longest}9").as_bytes()).is_err());
    let negative = format!("-{}", "9".repeat(300));
    assert_eq!(through(&negative), negative);
    let mut huge = vec![111, 0, 0, 0xff, 0xff, 0];
    huge.resize(6 + 0xffff, 1);
    assert!(matches!(
        term_to_json(&huge, &mut Vec::new()),
        Err(TermError::IntegerTooLong { .. })
    ));
}

#[test]
fn limits_can_be_narrowed() {
    let limits = JsonLimits {
        max_depth: 2,
        max_integer_digits: 40,
        max_bytes: 60,
    };
    let read = |json: &str| {
        let mut out = Vec::new();
        JsonReader::with_limits(json.as_bytes(), limits)?.value_to_term(&mut out)
    };
    assert_eq!(read("[[1]]"), Ok(()));
    assert!(read("[[[1]]]").is_err());
    assert_eq!(read(&"1".repeat(40)), Ok(()));
    assert!(read(&"1".repeat(41)).is_err());
    assert!(read(&" ".repeat(61)).is_err());
}

#[test]
fn terms_without_a_json_form_are_refused() {
    let refused = [
        Term::tuple([]),
        Term::tuple([Term::Int(1)]),
        Term::tuple([Term::list([Term::Int(1)])]),
        Term::tuple([Term::list([Term::Int(300)])]),
        Term::tuple([Term::list([Term::tuple([Term::Int(1), Term::Int(2)])])]),
        Term::ImproperList(vec![Term::Int(1)], Box::new(Term::Int(2))),
        Term::Bits(vec![128], 1),
    ];
    for term in refused {
        let mut out = b"kept".to_vec();
        assert!(term_to_json(&term.encode(), &mut out).is_err(), "{term:?}");
        assert_eq!(out, b"kept");
    }
    let not_finite = [70, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0];
    assert!(term_to_json(&not_finite, &mut Vec::new()).is_err());
    assert!(term_to_json(b"\x61\x01\x61\x01", &mut Vec::new()).is_err());
}

#[test]
fn other_terms_print_as_couchdb_prints_them() {
    assert_eq!(print(&Term::atom("déjà").encode()), "\"déjà\"");
    assert_eq!(
        print(
            &Term::Map(vec![
                (Term::atom("a"), Term::Int(1)),
                (Term::binary(*b"b"), Term::nil())
            ])
            .encode()
        ),
        r#"{"a":1,"b":[]}"#
    );
    assert_eq!(
        print(&Term::binary(*b"a\xffb\xc3").encode()),
        "\"a\u{fffd}b\u{fffd}\""
    );
    let object = Term::tuple([Term::list([Term::tuple([Term::atom("ok"), Term::boolean(true)])])]);
    assert_eq!(print(&object.encode()), r#"{"ok":true}"#);
}

#[test]
fn members_print_without_their_braces() {
    let mut out = b"{\"_id\":\"x\"".to_vec();
    let mut first = false;
    for json in ["{\"a\":1,\"b\":[2]}", "{}", "{\"c\":{}}"] {
        members_to_json(&term(json.as_bytes()).expect(json), &mut out, &mut first).expect("an object");
    }
    out.push(b'}');
    assert_eq!(out, br#"{"_id":"x","a":1,"b":[2],"c":{}}"#);
    let (mut out, mut first) = (Vec::new(), true);
    members_to_json(&term(b"{}").expect("valid"), &mut out, &mut first).expect("an object");
    assert_eq!((out.is_empty(), first), (true, true));
    members_to_json(&term(b"{\"a\":1}").expect("valid"), &mut out, &mut first).expect("an object");
    assert_eq!((out.as_slice(), first), (&b"\"a\":1"[..], false));
    assert!(members_to_json(&term(b"[1]").expect("valid"), &mut out, &mut first).is_err());
}

#[test]
fn a_caller_can_walk_a_text_and_route_its_members() -> Result<(), JsonError> {
    let json = br#" {"_id":"d\u00e9", "n" : 5, "_deleted":true, "list":[1, {"x":null} ,"s"], "raw": [ 1 ], "n":6.5} "#;
    let mut reader = JsonReader::new(json)?;
    let mut body = Vec::new();
    let mut object = ObjectBuilder::begin(&mut body);
    let mut seen = Vec::new();
    assert_eq!(reader.peek_kind()?, Kind::Object);
    reader.begin_object()?;
    while let Some(name) = reader.next_member()? {
        match name.as_ref() {
            "_id" => seen.push(reader.read_string()?.into_owned()),
            "_deleted" => seen.push(reader.read_bool()?.to_string()),
            "raw" => seen.push(String::from_utf8_lossy(reader.skip_value()?).into_owned()),
            _ => {
                object.name(&mut body, name.as_bytes());
                reader.value_to_term(&mut body)?;
            }
        }
    }
    reader.end()?;
    assert_eq!(object.len(), 3);
    object.finish(&mut body);
    assert_eq!(seen, ["dé", "true", "[ 1 ]"]);
    assert_eq!(print(&body), r#"{"list":[1,{"x":null},"s"],"n":6.5}"#);

    let mut reader = JsonReader::new(b"[1, -9223372036854775808, 2.5, 7, null, \"plain\", []]")?;
    reader.begin_array()?;
    assert!(reader.next_element()?);
    assert_eq!(reader.read_i64()?, 1);
    assert!(reader.next_element()?);
    assert_eq!(reader.read_i64()?, i64::MIN);
    assert!(reader.next_element()?);
    assert_eq!(reader.read_f64()?, 2.5);
    assert!(reader.next_element()?);
    assert_eq!(reader.read_f64()?, 7.0);
    assert!(reader.next_element()?);
    assert!(reader.read_bool().is_err());
    reader.read_null()?;
    assert!(reader.next_element()?);
    assert!(matches!(reader.read_string()?, Cow::Borrowed("plain")));
    assert!(reader.next_element()?);
    reader.begin_array()?;
    assert!(!reader.next_element()?);
    assert!(!reader.next_element()?);
    reader.end()
}

#[test]
fn walking_refuses_what_reading_refuses() {
    let walk = |json: &str| -> Result<(), JsonError> {
        let mut reader = JsonReader::new(json.as_bytes())?;
        reader.begin_object()?;
        while reader.next_member()?.is_some() {
            reader.skip_value()?;
        }
        reader.end()
    };
    assert_eq!(walk("{\"a\":[1,2],\"b\":{}}"), Ok(()));
    for json in [
        "{\"a\":1,}",
        "{,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\" 1}",
        "{\"a\":1",
        "{\"a\":1}x",
        "{\"a\":1]",
        "[1]",
        "{1:1}",
    ] {
        assert!(walk(json).is_err(), "{json}");
    }
}

#[test]
fn sizes_are_counted_as_couchdb_counts_them() {
    let cases = [
        ("{}", 2),
        ("[]", 2),
        ("[1]", 3),
        ("[1,22,333]", 10),
        ("{\"a\":1}", 7),
        ("{\"a\":{\"b\":[]}}", 14),
        ("[[],{},300]", 11),
        ("\"abc\"", 5),
        ("null", 4),
        ("true", 4),
        ("false", 5),
        ("0", 1),
        ("-7", 2),
        ("9999", 4),
        ("10000", 5),
        ("999999999999999999", 19),
        ("123456789012345678901", 21),
        ("-123456789012345678901", 22),
        ("0.0", 3),
        ("1.0", 3),
        ("-2.5", 4),
        ("0.5", 3),
        ("0.005", 4),
        ("1e-11", 5),
        ("1e-101", 6),
        ("1e-301", 3),
        ("1e10", 4),
        ("1e100", 5),
        ("99.5", 3),
    ];
    for (json, size) in cases {
        assert_eq!(ejson_size(&term(json.as_bytes()).expect(json)), size, "{json}");
    }
}

/// What the reading side of the floats' rule says, in a plain way, from the digits of the standard library.
fn float_by_rule(value: f64) -> String {
    if value == 0.0 {
        return "0.0".into();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let fixed = match format!("{}", value.abs()) {
        whole if !whole.contains('.') => whole + ".0",
        text => text,
    };
    let scientific = match format!("{:e}", value.abs()) {
        text if text.contains('.') => text,
        text => text.replace('e', ".0e"),
    };
    let shortest = if value.abs() >= 2_f64.powi(53) || scientific.len() < fixed.len() {
        scientific
    } else {
        fixed
    };
    format!("{sign}{shortest}")
}

/// The text is the one by the rule; where two shortest texts lie equally near, the even one may stand instead, as Ryu
/// chooses it.
fn assert_float_text(value: f64) {
    let (text, expected) = (float_text(value), float_by_rule(value));
    let odd = text
        .split('e')
        .next()
        .is_some_and(|digits| digits.ends_with(['1', '3', '5', '7', '9']));
    let even = text.len() == expected.len() && text.parse() == Ok(value) && !odd;
    assert!(text == expected || even, "{text} instead of {expected}");
}

fn float_text(value: f64) -> String {
    let mut out = Vec::new();
    write_json_float(&mut out, value);
    String::from_utf8(out).expect("ascii")
}

#[test]
fn floats_print_by_the_rule() {
    for exponent in -324..309 {
        for mantissa in ["1", "1.5", "9.9", "1.234567", "9.007199254740993"] {
            let value: f64 = format!("{mantissa}e{exponent}").parse().expect("a number");
            if value.is_finite() {
                assert_float_text(value);
            }
        }
    }
    for value in 0..20_000 {
        for value in [
            f64::from(value),
            f64::from(value) * 1000.0,
            f64::from(value) / 8.0,
            -f64::from(value) / 100.0,
        ] {
            assert_float_text(value);
        }
    }
}

/// JSON values with their compact text.
fn any_json() -> impl Strategy<Value = String> {
    let string = proptest::collection::vec(any::<char>(), 0..12).prop_map(|chars| {
        let mut out = Vec::new();
        write_json_string(&mut out, chars.into_iter().collect::<String>());
        String::from_utf8(out).expect("utf-8")
    });
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        any::<i64>().prop_map(|value| value.to_string()),
        (0..256).prop_map(|value: i32| value.to_string()),
        "-?[1-9][0-9]{0,60}",
        any::<f64>()
            .prop_filter("finite", |value| value.is_finite())
            .prop_map(float_text),
        string.clone(),
    ];
    leaf.prop_recursive(5, 80, 10, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..10)
                .prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::vec((string.clone(), inner), 0..24).prop_map(|mut members| {
                let mut names = std::collections::HashSet::new();
                members.retain(|(name, _)| names.insert(name.clone()));
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(name, value)| format!("{name}:{value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compact_json_survives_a_round_trip(json in any_json()) {
        let raw = term(json.as_bytes()).expect("valid");
        prop_assert_eq!(print(&raw), json.clone());
        // The streaming writer makes the bytes that encoding the tree makes.
        prop_assert_eq!(Term::decode(&raw).expect("well formed").encode(), raw);
        let mut reader = JsonReader::new(json.as_bytes()).expect("utf-8");
        prop_assert_eq!(reader.skip_value().expect("valid"), json.as_bytes());
    }

    #[test]
    fn every_cut_of_a_container_is_an_error(json in any_json(), at in any::<prop::sample::Index>()) {
        let json = format!("[{json}]");
        prop_assert!(term(&json.as_bytes()[..at.index(json.len())]).is_err());
    }

    #[test]
    fn floats_read_back_as_themselves(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        let text = float_text(value);
        assert_float_text(value);
        let mut expected = Vec::new();
        write::float(&mut expected, if value == 0.0 { 0.0 } else { value });
        prop_assert_eq!(term(text.as_bytes()).expect("valid"), expected);
    }

    #[test]
    fn decimal_texts_read_as_the_nearest_double(text in "-?(0|[1-9][0-9]{0,20})\\.[0-9]{1,20}(e[+-]?[0-9]{1,2})?") {
        let mut expected = Vec::new();
        write::float(&mut expected, text.parse().expect("a number"));
        prop_assert_eq!(term(text.as_bytes()).expect("valid"), expected);
    }
}
