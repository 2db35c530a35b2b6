"""Tests of the independent reader: against published vectors, and against what CouchDB says of its own files.

The files are the fixtures in `$SETTEE_FIXTURES` (by default `../shared/fixtures` beside the repository); where they are
missing, those tests are skipped and say so.
"""

import json
import os
import pathlib
import tempfile
import unittest

import couchfile
import terms
from terms import Atom
from xxh3 import xxh3_128

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = pathlib.Path(os.environ.get("SETTEE_FIXTURES", HERE.parent.parent.parent / "shared" / "fixtures"))
DIRECTORIES = ("couchdb-3.5-snappy-uncompacted", "couchdb-3.5-snappy-compacted", "couchdb-3.5-none-uncompacted")


class Literal:
    """A reader of Erlang literals as CouchDB prints them."""

    CLOSERS = {"{": "}", "[": "]"}

    def __init__(self, text):
        self.text, self.at = text, 0

    def accept(self, piece):
        if self.text.startswith(piece, self.at):
            self.at += len(piece)
            return True
        return False

    def until(self, stops):
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in stops:
            self.at += 2 if self.text[self.at] == "\\" else 1
        return self.text[start:self.at]

    def sequence(self, closer, separator=","):
        found = []
        while not self.accept(closer):
            found.append(self.term())
            self.accept(separator)
        return found

    def pairs(self):
        found = {}
        while not self.accept("}"):
            key = self.term()
            assert self.accept(" => ")
            found[key] = self.term()
            self.accept(",")
        return found

    def binary(self):
        if self.accept('"'):
            value = self.until('"').encode("latin-1")
            assert self.accept('"') and self.accept(">>")
            return value
        return bytes(self.sequence(">>"))

    def term(self):
        if self.accept("<<"):
            return self.binary()
        if self.accept("#{"):
            return self.pairs()
        if self.accept("{"):
            return tuple(self.sequence("}"))
        if self.accept("["):
            return self.sequence("]")
        if self.accept('"'):
            value = list(self.until('"').encode("latin-1"))
            self.accept('"')
            return value
        if self.accept("'"):
            value = self.until("'")
            self.accept("'")
            return Atom(value)
        word = self.until(",}]> ")
        if word[0].isdigit() or word[0] == "-":
            return float(word) if "." in word else int(word)
        return Atom(word)


def literal(text):
    return Literal(text).term()


class Vectors(unittest.TestCase):
    def test_xxh3(self):
        with open(HERE / "vectors.json", encoding="utf-8") as handle:
            for text, times, expected in json.load(handle)["xxh3_128"]:
                self.assertEqual(xxh3_128(text.encode() * times).hex(), expected, (text, times))

    def test_written_sizes_count_every_prefix_byte(self):
        for pos, payload, written in ((0, 5000, 5006), (5006, 10, 14), (0, 4090, 4095), (0, 4091, 4097),
                                      (0, 4092, 4098), (4095, 3, 8), (0, 8185, 8191), (0, 8186, 8193)):
            self.assertEqual(couchfile.written_size(pos, 4 + payload), written, (pos, payload))

    def test_a_header_counts_when_its_seal_fits(self):
        def header(seq, before, region_start, version=1):
            """`before` up to its next block, and a sealed header."""
            before += bytes(-len(before) % 4096)
            nils = b"d\x00\x03nil" * 12
            term = b"\x83h\x10d\x00\x09db_headera\x08a" + bytes([seq]) + b"a\x00" + nils
            seal = b"sealed\0" + bytes([version]) + region_start.to_bytes(8, "big") + xxh3_128(before[region_start:])
            payload = term + seal
            return before + b"\x01" + (len(payload) + 16).to_bytes(4, "big") + xxh3_128(payload) + payload

        old = header(1, b"", 0)
        new = header(2, old + b"chunks", len(old))
        torn = new.replace(b"chunks", b"chinks")
        unknown = header(3, old, len(old), version=2)
        beyond = header(3, old, len(old)).replace(len(old).to_bytes(8, "big"), (1 << 40).to_bytes(8, "big"))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "sealed.couch"
            for data, seq, skipped, ahead in ((old, 1, 0, 0), (new, 2, 0, 0), (new + bytes(9000), 2, 0, 9000),
                                              (torn, 1, 1, 0), (unknown, 1, 1, 0), (beyond, 1, 1, 0)):
                path.write_bytes(data)
                found = couchfile.CouchFile(path)
                self.assertEqual((found.header["update_seq"], found.headers_skipped, found.space_ahead),
                                 (seq, skipped, ahead))
                self.assertTrue(found.header_sealed)

    def test_compression_container(self):
        plain = "8368026400076b765f6e6f64656c0000000168026d000000016161016a"
        node = (Atom("kv_node"), [(b"a", 1)])
        self.assertEqual(terms.unpack(bytes.fromhex(plain)), (node, "none"))
        self.assertEqual(terms.unpack(bytes.fromhex("011d70" + plain)), (node, "snappy"))
        self.assertEqual(terms.unpack(bytes.fromhex("010204836a")), ([], "snappy"))

    def test_damage_is_an_error_and_not_a_crash(self):
        for text in ("", "83", "836d00000005aa", "836c7fffffff", "01ffffffffff", "0105f0", "0504", "83ff"):
            with self.assertRaises(terms.Damaged):
                terms.unpack(bytes.fromhex(text))


@unittest.skipUnless(FIXTURES.is_dir(), "no fixtures at $SETTEE_FIXTURES")
class Fixtures(unittest.TestCase):
    maxDiff = 2000

    def compare(self, name, told, expected):
        header = list(couchfile.CouchFile(told["file"]).header_term)
        theirs = list(literal(expected["header_term"]))
        # After a compaction CouchDB has the compacted sequence in memory, and on disk only after the next commit.
        compacted = 1 + couchfile.HEADER_FIELDS.index("compacted_seq")
        if header[compacted] == 0:
            theirs[compacted] = 0
        self.assertEqual(terms.show(header), terms.show(theirs), name)
        for field in ("update_seq", "doc_count", "del_doc_count", "disk_version"):
            self.assertEqual(told[field], expected[field], (name, field))
        for field in ("security", "time_seq"):
            mine, theirs = literal(told[field]), literal(expected[field])
            # A security object is stored without its outer tuple, and no bins are no term at all.
            mine = (mine,) if field == "security" else mine or {Atom("v"): 1, Atom("bins"): []}
            self.assertEqual(mine, theirs, (name, field))
        self.assertEqual(told["props"], expected["props"], name)
        sizes = dict(literal(expected["size_info"]))
        self.assertEqual(told["sizes"], {str(key): value for key, value in sizes.items()}, name)
        self.assertEqual(told["changes"], expected["changes"], name)
        for mine, theirs in zip(told["docs"], expected["docs"], strict=True):
            for leaf in mine["leafs"]:
                self.assertIn("body", leaf["leaf"], (name, mine["id"]))
                del leaf["leaf"]["body"], leaf["leaf"]["attachments"]
            for doc in (mine, theirs):
                doc["leafs"].sort(key=lambda leaf: leaf["path"])
            self.assertEqual(mine, theirs, name)
        for mine, theirs in zip(told["local_docs"], expected["local_docs"], strict=True):
            self.assertEqual((mine["id"], mine["body"]), (theirs["id"], theirs["body"]), name)
            self.assertEqual(literal(theirs["revs"]), (0, [str(mine["rev"]).encode()]), name)
        for mine, theirs in zip(told["purges"], expected["purges"], strict=True):
            theirs["uuid"] = theirs["uuid"].removeprefix("hex:")
            self.assertEqual(mine, theirs, name)

    def test_every_shard_is_read_as_couchdb_reads_it(self):
        for directory in DIRECTORIES:
            with open(FIXTURES / directory / "shards.json", encoding="utf-8") as handle:
                shards = json.load(handle)
            for name, expected in shards.items():
                path = FIXTURES / directory / "data" / (name + ".couch")
                told = couchfile.CouchFile(path).read(bodies=True)
                self.assertEqual(told["problems"], [], name)
                self.compare("%s %s" % (directory, name), told, expected)

    def test_old_files_are_read(self):
        for path in sorted((FIXTURES / "upstream").glob("*.couch")):
            told = couchfile.CouchFile(path).read(bodies=True)
            self.assertEqual(told["problems"], [], path.name)
            self.assertGreater(told["doc_count"], 0, path.name)

    def test_damaged_files(self):
        expected = {"00": ("ab", 0), "01": ("ab", 0), "02": ("a", 0), "05": ("a", 0), "07": ("d1d2d3d4d5", 0),
                    "06": ("d1d2d3d4d5", 1)}
        for path in sorted((FIXTURES / "damaged").glob("*.couch")):
            number = path.name[:2]
            if number not in expected:
                with self.assertRaises(terms.Damaged):
                    couchfile.CouchFile(path)
                continue
            told = couchfile.CouchFile(path).read()
            found = "".join(doc["id"] for doc in told["docs"]), len(told["problems"])
            self.assertEqual(found, expected[number], path.name)

    def test_a_flipped_bit_anywhere_in_use_is_noticed(self):
        good = (FIXTURES / "damaged" / "00-good.couch").read_bytes()
        base = couchfile.CouchFile(FIXTURES / "damaged" / "00-good.couch").read(bodies=True)
        ptr = int(base["docs"][0]["leafs"][0]["leaf"]["ptr"])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "flipped.couch"
            for at in (ptr + 1, ptr + 30, base["header_pos"] + 40):
                bad = bytearray(good)
                bad[at] ^= 1
                path.write_bytes(bad)
                told = couchfile.CouchFile(path).read(bodies=True)
                self.assertTrue(told["problems"] or told["headers_skipped"], at)


if __name__ == "__main__":
    unittest.main()
