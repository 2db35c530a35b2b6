//! Throughput of the codecs on typical documents: JSON to term, term to JSON, compression, comparison.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use settee_engine::codec::compress::{Compression, compress, decompress_into};
use settee_engine::codec::json::{JsonReader, ejson_size, json_to_term, term_to_json};
use settee_engine::codec::term;
use std::hint::black_box;

/// A document of 334 bytes, of the kind that CouchDB's own cluster benchmark writes.
fn typical() -> String {
    let mut json = String::from(
        r#"{"_id":"0000012345","type":"measurement","created":"2026-01-01T12:00:00Z","count":123456,"ratio":0.7531,"active":true,"tags":["red","green","blue"],"owner":{"name":"Ada Lovelace","mail":"ada@example.org","age":36},"location":{"lat":52.5163,"lon":13.3777},"note":""#,
    );
    while json.len() < 332 {
        json.push('x');
    }
    json + "\"}"
}

fn samples() -> Vec<(&'static str, String)> {
    let array = |items: Vec<String>| format!("[{}]", items.join(","));
    let escaped = format!("{{\"text\":\"{}\"}}", "line \\\"quoted\\\"\\n äöü ".repeat(20));
    vec![
        ("doc_334", typical()),
        ("ints_1000", array((1..=1000).map(|i| i.to_string()).collect())),
        (
            "floats_1000",
            array((1..=1000).map(|i| format!("{i}.0")).collect()),
        ),
        (
            "decimals_1000",
            array((1..=1000).map(|i| format!("{}", f64::from(i) / 7.0)).collect()),
        ),
        ("docs_100", array(vec![typical(); 100])),
        (
            "text",
            format!("{{\"text\":\"{}\"}}", "plain words without escapes ".repeat(100)),
        ),
        ("escapes", escaped),
    ]
}

fn json(c: &mut Criterion) {
    for (name, json) in samples() {
        let mut term = Vec::new();
        json_to_term(json.as_bytes(), &mut term).expect("valid json");
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Bytes(json.len() as u64));
        let mut out = Vec::new();
        group.bench_function("json_to_term", |b| {
            b.iter(|| {
                out.clear();
                json_to_term(black_box(json.as_bytes()), &mut out).expect("valid json");
                out.len()
            });
        });
        group.bench_function("term_to_json", |b| {
            b.iter(|| {
                out.clear();
                term_to_json(black_box(&term), &mut out).expect("a valid term");
                out.len()
            });
        });
        group.finish();
    }
}

fn walks(c: &mut Criterion) {
    let json = typical();
    let mut raw = Vec::new();
    json_to_term(json.as_bytes(), &mut raw).expect("valid json");
    let mut group = c.benchmark_group("walk");
    group.throughput(Throughput::Bytes(json.len() as u64));
    group.bench_function("skip_value", |b| {
        b.iter(|| {
            JsonReader::new(black_box(json.as_bytes())).and_then(|mut r| r.skip_value().map(<[u8]>::len))
        });
    });
    group.bench_function("skip_term", |b| {
        b.iter(|| term::Reader::new(black_box(&raw)).skip().map(<[u8]>::len))
    });
    group.bench_function("ejson_size", |b| b.iter(|| ejson_size(black_box(&raw))));
    group.bench_function("compare_terms", |b| {
        b.iter(|| term::compare(black_box(&raw), black_box(&raw)))
    });
    let (x, y) = (b"\x6d\0\0\0\x0a0000012345", b"\x6d\0\0\0\x0a0000012346");
    group.bench_function("compare_ids", |b| {
        b.iter(|| term::compare(black_box(x), black_box(y)))
    });
    group.finish();
}

fn compression(c: &mut Criterion) {
    let mut versioned = vec![term::VERSION];
    json_to_term(typical().as_bytes(), &mut versioned).expect("valid json");
    let mut group = c.benchmark_group("compress");
    group.throughput(Throughput::Bytes(versioned.len() as u64));
    for method in [Compression::Snappy, Compression::Deflate(6), Compression::Zstd(3)] {
        let (mut stored, mut buffer) = (Vec::new(), Vec::new());
        group.bench_function(format!("{method}"), |b| {
            b.iter(|| {
                stored.clear();
                compress(black_box(&versioned), method, &mut stored);
                stored.len()
            });
        });
        group.bench_function(format!("{method} back"), |b| {
            b.iter(|| decompress_into(black_box(&stored), &mut buffer).map(<[u8]>::len));
        });
    }
    group.finish();
}

criterion_group!(benches, json, walks, compression);
criterion_main!(benches);
