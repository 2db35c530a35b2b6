"""Erlang's external term format, CouchDB's compression container, and documents as JSON values.

Erlang values become Python values: atom -> Atom, binary -> bytes, tuple -> tuple, list -> list (a list of small
integers too), map -> dict, integers and floats as they are.
"""

import struct
import sys
import zlib


class Damaged(Exception):
    """Bytes that no writer of this format could have written."""


class Atom(str):
    """An Erlang atom; a plain str never stands for anything else here."""

    def __repr__(self):
        return "'%s'" % str(self)


NIL, UNDEFINED, TRUE, FALSE, NULL = (Atom(name) for name in ("nil", "undefined", "true", "false", "null"))

_DEPTH_MAX = 5000
# A level of nesting takes a few Python frames; documents 200 deep are ordinary in tests.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * _DEPTH_MAX))


class _Decoder:
    def __init__(self, data, at):
        self.data, self.at = data, at

    def take(self, count):
        end = self.at + count
        if end > len(self.data):
            raise Damaged("term cut short at byte %d of %d" % (self.at, len(self.data)))
        piece = self.data[self.at:end]
        self.at = end
        return piece

    def number(self, width):
        return int.from_bytes(self.take(width), "big")

    def big(self, width):
        size = self.number(width)
        negative = self.number(1)
        magnitude = int.from_bytes(self.take(size), "little")
        return -magnitude if negative else magnitude

    def items(self, count, depth):
        if count > len(self.data) - self.at:
            raise Damaged("%d elements announced, %d bytes left" % (count, len(self.data) - self.at))
        return [self.term(depth + 1) for _ in range(count)]

    def term(self, depth=0):
        if depth > _DEPTH_MAX:
            raise Damaged("term nested deeper than %d" % _DEPTH_MAX)
        tag = self.number(1)
        if tag == 97:
            return self.number(1)
        if tag == 98:
            return struct.unpack(">i", self.take(4))[0]
        if tag in (110, 111):
            return self.big(1 if tag == 110 else 4)
        if tag == 70:
            return struct.unpack(">d", self.take(8))[0]
        if tag in (100, 115, 118, 119):
            name = self.take(self.number(2 if tag in (100, 118) else 1))
            return Atom(name.decode("latin-1" if tag in (100, 115) else "utf-8"))
        if tag in (104, 105):
            return tuple(self.items(self.number(1 if tag == 104 else 4), depth))
        if tag == 106:
            return []
        if tag == 107:
            return list(self.take(self.number(2)))
        if tag == 108:
            found = self.items(self.number(4), depth)
            if self.number(1) != 106:
                raise Damaged("improper list")
            return found
        if tag == 109:
            return bytes(self.take(self.number(4)))
        if tag == 116:
            flat = self.items(2 * self.number(4), depth)
            return dict(zip(flat[::2], flat[1::2]))
        raise Damaged("unknown term tag %d" % tag)


def decode_with_rest(data):
    """The term at the start of `data`, and the bytes behind it."""
    if data[:1] != b"\x83":
        raise Damaged("no term: first byte %s" % data[:1].hex())
    if data[1:2] == b"P":
        inflate = zlib.decompressobj()
        plain = inflate.decompress(data[6:])
        if len(plain) != int.from_bytes(data[2:6], "big"):
            raise Damaged("compressed term has another length than it says")
        return _Decoder(plain, 0).term(), inflate.unused_data
    decoder = _Decoder(data, 1)
    return decoder.term(), bytes(data[decoder.at:])


def decode(data):
    """The one term that `data` holds, with nothing behind it."""
    term, rest = decode_with_rest(data)
    if rest:
        raise Damaged("%d bytes behind a term" % len(rest))
    return term


def _varint(data):
    value = 0
    for at in range(min(5, len(data))):
        value |= (data[at] & 0x7F) << 7 * at
        if data[at] < 0x80:
            return value, at + 1
    raise Damaged("snappy length cut short")


def unsnappy(data):
    """Undo one raw snappy block."""
    size, at = _varint(data)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                width = length - 59
                length = int.from_bytes(data[at:at + width], "little")
                at += width
            length += 1
            if at + length > len(data):
                raise Damaged("snappy literal cut short")
            out += data[at:at + length]
            at += length
            continue
        if kind == 1:
            length, offset = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | int.from_bytes(data[at:at + 1], "little")
        else:
            length, offset = (tag >> 2) + 1, int.from_bytes(data[at:at + 2 * (kind - 1)], "little")
        at += (1, 2, 4)[kind - 1]
        if not 0 < offset <= len(out):
            raise Damaged("snappy copy from before the start")
        start = len(out) - offset
        while length:
            piece = out[start:start + length]
            out += piece
            length -= len(piece)
        if len(out) > size:
            raise Damaged("snappy block longer than it says")
    if len(out) != size:
        raise Damaged("snappy block has %d bytes and says %d" % (len(out), size))
    return bytes(out)


def unpack(data):
    """The term in a compression container, and the name of the method."""
    first = data[:1]
    if first == b"\x01":
        return decode(unsnappy(data[1:])), "snappy"
    if first == b"\x83":
        return decode(data), "deflate" if data[1:2] == b"P" else "none"
    if data[:4] == b"\x28\xb5\x2f\xfd":
        raise Damaged("zstd, which this reader cannot undo")
    raise Damaged("unknown compression, first byte %s" % first.hex())


def to_json(term):
    """An ejson value as what json.dumps takes; a repeated member keeps its last value."""
    if isinstance(term, tuple) and len(term) == 1 and isinstance(term[0], list):
        return {to_json(key): to_json(value) for key, value in term[0]}
    if isinstance(term, Atom):
        # Shard map documents carry the atoms of a partitioned database's properties; they are texts as JSON.
        return {TRUE: True, FALSE: False, NULL: None}.get(term, str(term))
    if isinstance(term, bytes):
        return term.decode("utf-8", "replace")
    if isinstance(term, list):
        return [to_json(item) for item in term]
    if isinstance(term, (int, float)):
        return term
    raise Damaged("no JSON value: %r" % (term,))


def _float_size(value):
    if value in (0.0, 1.0):
        return 3
    sign = 1 if value < 0 else 0
    value = abs(value)
    if value < 1:
        for bound, size in ((1e-300, 3), (1e-100, 6), (1e-10, 5), (0.01, 4)):
            if value <= bound:
                return sign + size
        return sign + 3
    return sign + (5 if value >= 1e100 else 4 if value >= 1e10 else 3)


def json_size(term):
    """The size that CouchDB calls external: an estimate of the length as JSON."""
    if isinstance(term, tuple):
        members = term[0]
        if not members:
            return 2
        return 1 + sum(json_size(key) + json_size(value) + 2 for key, value in members)
    if isinstance(term, list):
        return 1 + sum(json_size(item) + 1 for item in term) if term else 2
    if isinstance(term, bytes):
        return len(term) + 2
    if isinstance(term, Atom):
        return 5 if term == FALSE else 4 if term in (TRUE, NULL) else len(term) + 2
    if isinstance(term, int):
        return len(str(term))
    return _float_size(term)


def show(term):
    """A term as Erlang would write it, near enough to read."""
    if isinstance(term, Atom):
        plain = term[:1].islower() and term.replace("_", "a").isalnum()
        return str(term) if plain else "'%s'" % term
    if isinstance(term, bytes):
        if all(32 <= byte < 127 and byte not in b'"\\' for byte in term):
            return '<<"%s">>' % term.decode()
        return "<<%s>>" % ",".join(map(str, term))
    if isinstance(term, tuple):
        return "{%s}" % ",".join(map(show, term))
    if isinstance(term, list):
        return "[%s]" % ",".join(map(show, term))
    if isinstance(term, dict):
        return "#{%s}" % ",".join("%s => %s" % (show(key), show(value)) for key, value in term.items())
    return repr(term)
