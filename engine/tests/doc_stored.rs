//! What files hold of documents: revision ids, summaries, infos, local documents, attachment streams.

use proptest::prelude::*;
use settee_engine::codec::checksum::md5;
use settee_engine::codec::compress::Compression;
use settee_engine::codec::json::json_to_term;
use settee_engine::codec::term::Term;
use settee_engine::doc::info::{id_value_view, seq_value_view};
use settee_engine::doc::local::{local_revs, next_local_rev, read_local_doc, write_local_value};
use settee_engine::doc::revtree::{Leaf, RevPath, Sizes};
use settee_engine::doc::stream::{Announced, StreamOptions, StreamWriter};
use settee_engine::doc::summary::{SummaryView, SummaryWriter};
use settee_engine::doc::{
    AttDigest, Attachment, DocError, Encoding, FullDocInfo, JsonOptions, RevContent, StoredDocError,
    new_rev_id, new_rev_ids, recreated_rev_id,
};
use settee_engine::ids::{DocId, Rev, RevId};

fn term(json: &str) -> Vec<u8> {
    let mut term = Vec::new();
    json_to_term(json.as_bytes(), &mut term).expect("json");
    term
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The revision id of an edit, alone and in a batch with others.
fn rev_id(deleted: bool, parent: Option<&Rev>, body: &[u8], atts: &[AttDigest<'_>]) -> RevId {
    let content = |deleted| RevContent {
        deleted,
        parent,
        body,
        atts: atts.iter().copied().collect(),
    };
    let alone = new_rev_id(&content(deleted));
    let others = [deleted, !deleted, deleted].into_iter().cycle().take(20);
    let ids = new_rev_ids(&others.map(content).collect::<Vec<_>>());
    assert_eq!([&ids[0], &ids[2], &ids[18]], [&alone; 3]);
    assert_ne!(ids[1], alone);
    alone
}

#[test]
fn revision_ids_are_couchdbs() {
    let first = Rev::new(1, rev_id(false, None, &term("{}"), &[]));
    assert_eq!(first.to_string(), "1-967a00dff5e02add41819138abb3284d");
    let second = Rev::new(2, rev_id(false, Some(&first), &term(r#"{"x":1}"#), &[]));
    assert_eq!(second.to_string(), "2-fedd31dc95d711d8c91924773772bb35");
    let third = Rev::new(3, rev_id(true, Some(&second), &term("{}"), &[]));
    assert_eq!(third.to_string(), "3-29b51679a5827240c44f0b7ba06b764b");
    let (hello, bye) = (md5(b"hello"), md5(b"bye"));
    let atts = [
        AttDigest {
            name: "f.txt",
            content_type: "text/plain",
            md5: &hello,
        },
        AttDigest {
            name: "g.bin",
            content_type: "application/octet-stream",
            md5: &bye,
        },
    ];
    let with_atts = rev_id(false, None, &term(r#"{"a":[1,2,3],"b":1.5,"c":null}"#), &atts);
    assert_eq!(hex(with_atts.as_bytes()), "7b20f679ef5d8c7f8c9445ead6bbf8ac");
    let again = recreated_rev_id(&third, &term("{}"), 0);
    assert_eq!(again, rev_id(false, Some(&third), &term("{}"), &[]));
    assert_ne!(recreated_rev_id(&third, &term("{}"), 1), again);
}

#[test]
fn a_recreated_document_hashes_its_attachments_as_undefined() {
    let parent = Rev::new(3, settee_engine::ids::RevId::from_md5([9; 16]));
    let undefined = || Term::atom("undefined");
    let att = Term::tuple(vec![undefined(), undefined(), undefined()]);
    let hashed = Term::list(vec![
        Term::boolean(false),
        Term::uint(3),
        Term::binary([9; 16]),
        Term::tuple(vec![Term::nil()]),
        Term::list(vec![att]),
    ]);
    assert_eq!(
        recreated_rev_id(&parent, &term("{}"), 1).as_bytes(),
        md5(&hashed.encode_versioned())
    );
}

fn attachment(name: &str, md5: &[u8]) -> Attachment {
    Attachment {
        name: name.to_owned(),
        content_type: "text/plain".to_owned(),
        stream: vec![(4096, 10), (5000, 7)],
        att_len: 17,
        disk_len: 30,
        revpos: 2,
        md5: md5.to_vec(),
        encoding: Encoding::Gzip,
    }
}

fn summary(body: &str, atts: &[Attachment], compression: Compression) -> Vec<u8> {
    let mut out = Vec::new();
    SummaryWriter::new(compression).write(&term(body), atts, &mut out);
    out
}

#[test]
fn summaries_are_couchdbs() {
    let empty = summary("{}", &[], Compression::Snappy);
    assert_eq!(hex(&empty), "8368026d0000000701040c8368016a6d00000005010204836a");
    let atts = [
        attachment("a", &[7; 16]),
        Attachment {
            encoding: Encoding::Identity,
            ..attachment("b", &[])
        },
    ];
    for compression in [
        Compression::None,
        Compression::Snappy,
        Compression::Deflate(6),
        Compression::Zstd(3),
    ] {
        for atts in [&atts[..], &[]] {
            let json = format!(r#"{{"x":"{}"}}"#, "long ".repeat(100));
            let payload = summary(&json, atts, compression);
            let view = SummaryView::parse(&payload).expect("a summary");
            assert_eq!(view.body().as_deref(), Ok(term(&json).as_slice()));
            assert_eq!(view.body_into(&mut Vec::new()), Ok(term(&json).as_slice()));
            assert_eq!(view.has_attachments(), Ok(!atts.is_empty()));
            assert_eq!(view.attachments().as_deref(), Ok(atts));
        }
    }
}

#[test]
fn attachment_terms_of_all_releases_are_read() {
    let int = Term::uint;
    let text = |text: &str| Term::binary(text.as_bytes());
    let stream = || {
        Term::list(vec![
            Term::tuple(vec![int(4096), int(10)]),
            Term::tuple(vec![int(5000), int(7)]),
        ])
    };
    let eight = |encoding: &str| {
        let md5 = Term::binary([7; 16]);
        let sizes = [int(17), int(30), int(2)];
        let [att_len, disk_len, revpos] = sizes;
        let parts = vec![
            text("a"),
            text("text/plain"),
            stream(),
            att_len,
            disk_len,
            revpos,
            md5,
            Term::atom(encoding),
        ];
        Term::tuple(parts)
    };
    let extended = Term::list(vec![Term::tuple(vec![Term::atom("headers"), Term::nil()])]);
    let md5 = Term::binary([7; 16]);
    let six = Term::tuple(vec![
        text("a"),
        text("text/plain"),
        stream(),
        int(17),
        int(2),
        md5,
    ]);
    let two = Term::tuple(vec![
        text("a"),
        Term::tuple(vec![text("text/plain"), stream(), int(17)]),
    ]);
    let new = attachment("a", &[7; 16]);
    let old = Attachment {
        disk_len: 17,
        encoding: Encoding::Identity,
        ..new.clone()
    };
    let oldest = Attachment {
        revpos: 0,
        md5: vec![],
        ..old.clone()
    };
    let identity = Attachment {
        encoding: Encoding::Identity,
        ..new.clone()
    };
    let cases = [
        (eight("gzip"), new.clone()),
        (eight("true"), new.clone()),
        (eight("false"), identity),
        (Term::tuple(vec![eight("gzip"), extended]), new),
        (six, old),
        (two, oldest),
    ];
    for (term, expected) in cases {
        // The oldest files have the body and the list as terms instead of binaries.
        let old_summary =
            Term::tuple(vec![Term::tuple(vec![Term::nil()]), Term::list(vec![term])]).encode_versioned();
        let view = SummaryView::parse(&old_summary).expect("a summary");
        assert_eq!(view.attachments(), Ok(vec![expected]));
        assert_eq!(view.body().as_deref(), Ok(b"\x68\x01\x6a".as_slice()));
    }
}

#[test]
fn infos_of_all_releases_are_read() {
    let mut info = FullDocInfo::new(DocId::new("doc").expect("an id"));
    let leaf = Leaf {
        ptr: 70,
        seq: 5,
        sizes: Sizes {
            active: 100,
            external: 9,
        },
        ..Leaf::default()
    };
    info.tree
        .merge(&RevPath::single("1-a".parse().expect("a revision")), Some(leaf));
    info.seq = 5;
    info.refresh();
    let (mut id_value, mut seq_value) = (Vec::new(), Vec::new());
    info.encode_id(&mut id_value);
    info.encode_seq(&mut seq_value);
    assert_eq!(FullDocInfo::decode_id(b"doc", &id_value).as_ref(), Ok(&info));
    assert_eq!(FullDocInfo::decode_seq(5, &seq_value).as_ref(), Ok(&info));
    assert_eq!(
        info.sizes,
        Sizes {
            active: 100,
            external: 9
        }
    );
    let (seq, view) = id_value_view(&id_value).expect("a value");
    assert_eq!((seq, view.deleted, view.sizes), (5, false, info.sizes));
    assert_eq!(
        seq_value_view(&seq_value).map(|(id, view)| (id, view.tree)),
        Ok((b"doc".as_slice(), view.tree))
    );
    // Without sizes, as before CouchDB 1.2.
    let full = Term::decode(&id_value).expect("a term");
    let parts = full.as_tuple().expect("a tuple");
    let old = Term::tuple(vec![parts[0].clone(), parts[1].clone(), parts[3].clone()]).encode();
    let read = FullDocInfo::decode_id(b"doc", &old).expect("an info");
    assert_eq!((read.sizes, &read.tree), (Sizes::default(), &info.tree));
    // Lists of live and of deleted leaves.
    let leaf = |id: &str, pos, seq, ptr| {
        let rev = Term::tuple(vec![Term::uint(pos), Term::binary(id.as_bytes())]);
        Term::tuple(vec![rev, Term::uint(seq), Term::uint(ptr)])
    };
    let lists = vec![
        Term::list(vec![leaf("a", 2, 4, 50)]),
        Term::list(vec![leaf("b", 3, 5, 60)]),
    ];
    let ancient = Term::tuple([vec![Term::binary(*b"doc")], lists].concat()).encode();
    let read = FullDocInfo::decode_seq(5, &ancient).expect("an info");
    assert_eq!((read.tree.len(), read.deleted, read.high_seq()), (2, false, 5));
    assert_eq!(
        read.tree.winner().map(|node| node.rev().to_string()),
        Some("2-a".to_owned())
    );
}

#[test]
fn local_documents_count_their_writes() {
    let given = |text: &str| RevPath::single(text.parse().expect("a revision"));
    assert_eq!(next_local_rev(&RevPath::default(), false), Ok(1));
    assert_eq!(next_local_rev(&given("0-5"), false), Ok(6));
    assert_eq!(next_local_rev(&given("0-5"), true), Ok(0));
    for bad in ["0-a", "1-1", "0-", "0-18446744073709551615"] {
        assert_eq!(
            next_local_rev(&given(bad), false),
            Err(DocError::InvalidRevFormat),
            "{bad}"
        );
    }
    let mut value = Vec::new();
    write_local_value(6, &term(r#"{"a":1}"#), &mut value);
    let doc = read_local_doc(DocId::new("_local/x").expect("an id"), &value).expect("a document");
    assert_eq!(doc.revs, local_revs(6));
    let mut json = Vec::new();
    doc.write_json(&mut json, &JsonOptions::default()).expect("json");
    assert_eq!(json, br#"{"_id":"_local/x","_rev":"0-6","a":1}"#);
    let old = Term::tuple(vec![Term::binary(*b"7"), Term::tuple(vec![Term::nil()])]).encode();
    assert_eq!(
        read_local_doc(doc.id, &old).map(|doc| doc.revs),
        Ok(local_revs(7))
    );
}

/// Writes `pieces` as one attachment; returns it with its stored chunks.
fn write(
    pieces: &[&[u8]],
    content_type: &str,
    announced: &Announced,
) -> Result<(Attachment, Vec<Vec<u8>>), DocError> {
    let mut writer = StreamWriter::new(&StreamOptions::default(), content_type, announced.encoding);
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    let mut sink = |chunk: &[u8]| {
        chunks.push(chunk.to_vec());
        Ok::<u64, ()>(chunks.len() as u64 * 1000)
    };
    for piece in pieces {
        writer.write(piece, &mut sink).expect("a sink that takes all");
    }
    let end = writer.finish(&mut sink).expect("a sink that takes all");
    Ok((end.into_attachment("n", content_type, 1, announced)?, chunks))
}

#[test]
fn streams_are_cut_where_the_buffer_would_overflow() {
    let (thousand, large) = ([1; 1000], [2; 9000]);
    let announced = Announced::default();
    let pieces: [&[u8]; 7] = [
        &thousand, &thousand, &thousand, &thousand, &thousand, &large, &thousand,
    ];
    let (att, chunks) = write(&pieces, "image/png", &announced).expect("an attachment");
    assert_eq!(
        chunks.iter().map(Vec::len).collect::<Vec<_>>(),
        [5000, 9000, 1000]
    );
    assert_eq!(att.stream, [(1000, 5000), (2000, 9000), (3000, 1000)]);
    assert_eq!(
        (att.att_len, att.disk_len, att.encoding),
        (15000, 15000, Encoding::Identity)
    );
    assert_eq!(att.md5, md5(&chunks.concat()));
    let (empty, chunks) = write(&[], "image/png", &announced).expect("an attachment");
    assert_eq!((empty.stream, empty.att_len, chunks.len()), (vec![], 0, 0));
}

#[test]
fn text_is_compressed_and_comes_back() {
    let text = "abc ".repeat(5000);
    let (att, chunks) = write(
        &[text.as_bytes(), b"end"],
        "text/plain; charset=utf-8",
        &Announced::default(),
    )
    .expect("ok");
    let stored = chunks.concat();
    assert_eq!(
        (att.encoding, att.disk_len, att.att_len),
        (Encoding::Gzip, 20_003, stored.len() as u64)
    );
    assert!(stored.len() < 1000 && stored.starts_with(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]));
    assert_eq!(
        att.decode(&stored).as_deref(),
        Ok([text.as_bytes(), b"end"].concat().as_slice())
    );
    let mut damaged = stored.clone();
    damaged[20] ^= 1;
    assert!(matches!(
        att.decode(&damaged),
        Err(StoredDocError::DamagedAttachment { .. })
    ));
    let undetected = Attachment { md5: vec![], ..att };
    assert!(undetected.decode(&damaged).is_err() && undetected.decode(&stored[..50]).is_err());
    let (empty, chunks) = write(&[], "text/plain", &Announced::default()).expect("an attachment");
    assert_eq!(empty.decode(&chunks.concat()).as_deref(), Ok(b"".as_slice()));
}

#[test]
fn what_a_client_announced_is_checked() {
    let announced = |digest: &[u8], att_len| Announced {
        digest: Some(md5(digest)),
        att_len,
        ..Announced::default()
    };
    assert!(write(&[b"hello"], "text/plain", &announced(b"hello", Some(5))).is_ok());
    let wrong = write(&[b"hello"], "text/plain", &announced(b"hallo", None));
    assert_eq!(wrong, Err(DocError::Md5Mismatch { name: "n".to_owned() }));
    assert_eq!(
        write(&[b"hello"], "a/b", &announced(b"hello", Some(6))),
        Err(DocError::AttachmentShorter)
    );
    assert_eq!(
        write(&[b"hello"], "a/b", &announced(b"hello", Some(4))),
        Err(DocError::AttachmentLonger)
    );
    let gzip = Announced {
        encoding: Encoding::Gzip,
        att_len: Some(5),
        disk_len: Some(40),
        digest: None,
    };
    let (att, _) = write(&[b"hello"], "text/plain", &gzip).expect("an attachment");
    assert_eq!((att.att_len, att.disk_len, att.encoding), (5, 40, Encoding::Gzip));
    let unknown = Announced {
        att_len: None,
        ..gzip
    };
    let (att, _) = write(&[b"hello"], "text/plain", &unknown).expect("an attachment");
    assert_eq!((att.att_len, att.disk_len), (5, 5));
}

#[test]
fn types_are_matched_as_configured() {
    let options = StreamOptions::default();
    let yes = [
        "text/html",
        "TEXT/Plain",
        "text/css;charset=x",
        "application/json ; a=b",
        " application/xml",
    ];
    let no = [
        "image/png",
        "application/jsonx",
        "xtext/html",
        "",
        "application/octet-stream",
    ];
    assert!(yes.iter().all(|content_type| options.compresses(content_type)));
    assert!(!no.iter().any(|content_type| options.compresses(content_type)));
    let off = StreamOptions {
        compression_level: 0,
        ..StreamOptions::default()
    };
    assert!(!off.compresses("text/html"));
    let none = StreamOptions {
        compressible_types: String::new(),
        ..StreamOptions::default()
    };
    assert!(!none.compresses("text/html"));
    let all = StreamOptions {
        compressible_types: "*".to_owned(),
        ..StreamOptions::default()
    };
    assert!(all.compresses("image/png"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_bytes_come_back_from_a_stream(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6000), 0..8), text in any::<bool>(),
    ) {
        let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let content_type = if text { "text/plain" } else { "image/png" };
        let (att, chunks) = write(&slices, content_type, &Announced::default()).expect("an attachment");
        let stored = chunks.concat();
        prop_assert_eq!(att.att_len, stored.len() as u64);
        prop_assert_eq!(att.stream.iter().map(|(_, len)| len).sum::<u64>(), att.att_len);
        let decoded = att.decode(&stored).expect("own bytes");
        prop_assert_eq!(decoded.as_ref(), pieces.concat());
    }

    #[test]
    fn damaged_terms_are_survived(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut payload = summary(r#"{"a":[1,2,{"b":null}]}"#, &[attachment("a", &[7; 16])], Compression::None);
        let at = at.index(payload.len());
        payload[at] = byte;
        for payload in [&payload[..], &payload[..cut.index(payload.len())]] {
            if let Ok(view) = SummaryView::parse(payload) {
                let _ = (view.body(), view.attachments());
            }
            let _ = FullDocInfo::decode_id(b"x", payload);
            let _ = FullDocInfo::decode_seq(1, payload);
            let _ = settee_engine::doc::local::read_local_value(payload);
        }
    }
}
