#!/usr/bin/env python3
"""couchfile.py [--bodies] [--all-checked] [--problems] FILE...: read `.couch` files without the server's code, and check them.

Prints one JSON object per file: header, documents with every leaf, changes, local documents, purges, sizes, how many
chunks carry a checksum, and under "problems" whatever does not agree. The last line counts files; the exit status is 1
when a file has a problem. `--bodies` adds bodies and attachments, `--all-checked` counts a chunk without a checksum as a
problem, as it is for every chunk that settee wrote. `--problems` prints only files with problems, and only those.
"""

import hashlib
import json
import sys
import zlib

from terms import NIL, UNDEFINED, Atom, Damaged, decode_with_rest, json_size, show, to_json, unpack, decode
from xxh3 import xxh3_128

BLOCK = 4096
HEADER_FIELDS = (
    "disk_version update_seq time_seq_ptr id_tree seq_tree local_tree purge_tree purge_seq_tree security_ptr "
    "revs_limit uuid epochs compacted_seq purge_infos_limit props_ptr"
).split()
# Behind the term of a header that was written without a sync before it.
SEAL_MAGIC, SEAL_BYTES, REGION_BYTES_MAX = b"sealed\0", 32, 16 << 20
HEADER_DEFAULTS = dict(revs_limit=1000, compacted_seq=0, purge_infos_limit=1000, props_ptr=UNDEFINED)


def written_size(pos, logical):
    """Bytes of the file that `logical` bytes take from `pos` on: block prefixes included, the trailing one too."""
    offset = pos % BLOCK
    lead = 1 if offset == 0 else 0
    left = BLOCK - offset - lead
    if logical < left:
        return lead + logical
    blocks, rest = divmod(logical - left, BLOCK - 1)
    return lead + left + blocks * BLOCK + 1 + rest if logical - left else lead + left + 1


def sum_sizes(sizes):
    """(active, external) of what a value or a reduction holds for sizes; an old file has one number or none."""
    if isinstance(sizes, tuple):
        return sizes[-2], sizes[-1]
    return (sizes, 0) if isinstance(sizes, int) else (0, 0)


def rev_text(pos, rev):
    """A revision as users see it."""
    return "%d-%s" % (pos, rev.hex() if len(rev) == 16 and pos else rev.decode("utf-8", "replace"))


class Tree:
    """How one of the five trees reduces; `None` where it keeps no reduction."""

    def __init__(self, name, leaf, join):
        self.name, self.leaf, self.join = name, leaf, join


def _id_leaf(items):
    live = sum(1 for _, value in items if not value[1])
    sizes = [sum_sizes(value[2]) if len(value) == 4 else (0, 0) for _, value in items]
    return live, len(items) - live, sum(size[0] for size in sizes), sum(size[1] for size in sizes)


def _id_flat(reduction):
    if len(reduction) == 2:
        return reduction + (None, None)
    if isinstance(reduction[2], int):
        return reduction[:2] + (reduction[2], None)
    return reduction[:2] + sum_sizes(reduction[2])


def _id_join(reductions):
    flat = [_id_flat(reduction) for reduction in reductions]
    return tuple(None if any(one[i] is None for one in flat) else sum(one[i] for one in flat) for i in range(4))


ID = Tree("id", _id_leaf, _id_join)
SEQ = Tree("seq", len, sum)
LOCAL = Tree("local", None, None)
PURGE = Tree("purge", len, sum)
PURGE_SEQ = Tree("purge_seq", len, sum)


class CouchFile:
    """One `.couch` file, read whole; problems are gathered, not raised, once a header has been found."""

    def __init__(self, path):
        with open(path, "rb") as handle:
            self.data = handle.read()
        self.path = path
        self.problems = []
        self.checked = {}
        self.unchecked = {}
        self.checksum_kinds = {"xxh3": 0, "md5": 0}
        self.compression = {}
        self.last_kind = None
        self.trees = {}
        self.find_header()

    def problem(self, text, *values):
        self.problems.append(text % values)

    # Blocks and chunks

    def logical(self, pos, count):
        """`count` bytes from `pos` on without block prefixes, and where they end."""
        out = bytearray()
        while count:
            if pos % BLOCK == 0:
                pos += 1
            piece = self.data[pos:pos + min(count, BLOCK - pos % BLOCK)]
            if not piece:
                raise Damaged("reads beyond the end at %d" % pos)
            out += piece
            pos += len(piece)
            count -= len(piece)
        return bytes(out), pos

    def checksum_kind(self, payload, checksum):
        if xxh3_128(payload) == checksum:
            return "xxh3"
        return "md5" if hashlib.md5(payload).digest() == checksum else None

    def chunk(self, pos, kind):
        """Payload of the chunk at `pos`, and the bytes that it takes in the file."""
        word, pos_behind = self.logical(pos, 4)
        length = int.from_bytes(word, "big")
        has_checksum, length = length >> 31, length & 0x7FFFFFFF
        if length > len(self.data):
            raise Damaged("chunk at %d says %d bytes" % (pos, length))
        where = self.checked if has_checksum else self.unchecked
        where[kind] = where.get(kind, 0) + 1
        logical = 4 + 16 * has_checksum + length
        if has_checksum:
            checksum, pos_behind = self.logical(pos_behind, 16)
        payload, _ = self.logical(pos_behind, length)
        if has_checksum:
            found = self.checksum_kind(payload, checksum)
            if found is None:
                raise Damaged("checksum of the %s chunk at %d is wrong" % (kind, pos))
            self.checksum_kinds[found] += 1
            self.last_kind = found
        return payload, written_size(pos, logical)

    def term(self, pos, kind):
        """The term in the compressed chunk at `pos`, and the bytes that the chunk takes."""
        payload, written = self.chunk(pos, kind)
        term, method = unpack(payload)
        self.compression[method] = self.compression.get(method, 0) + 1
        return term, written

    # Header

    def header_at(self, block):
        """(term, bytes behind the term, end of the header) of the block, or Damaged. The seal is not looked at."""
        pos = block * BLOCK
        if self.data[pos:pos + 1] != b"\x01":
            raise Damaged("no header block")
        word, behind = self.logical(pos + 1, 4)
        length = int.from_bytes(word, "big")
        if not 16 < length <= len(self.data):
            raise Damaged("header of %d bytes" % length)
        body, end = self.logical(behind, length)
        if self.checksum_kind(body[16:], body[:16]) is None:
            raise Damaged("header checksum")
        term, rest = decode_with_rest(body[16:])
        if not isinstance(term, tuple) or term[:1] != (Atom("db_header"),):
            raise Damaged("not a database header")
        return term, rest, end

    def check_seal(self, pos, behind_term):
        """Whether the header at `pos` is sealed; Damaged when the bytes before it are not those it was written with."""
        if not behind_term.startswith(SEAL_MAGIC):
            return False
        if len(behind_term) != SEAL_BYTES or behind_term[len(SEAL_MAGIC)] != 1:
            raise Damaged("header at %d has an unknown seal" % pos)
        start = int.from_bytes(behind_term[8:16], "big")
        if not 0 <= pos - start <= REGION_BYTES_MAX:
            raise Damaged("seal of the header at %d begins at %d" % (pos, start))
        if xxh3_128(self.data[start:pos]) != behind_term[16:]:
            raise Damaged("bytes from %d to the header at %d are not those it was written with" % (start, pos))
        return True

    def find_header(self):
        skipped = 0
        for block in range(len(self.data) // BLOCK, -1, -1):
            try:
                term, rest, end = self.header_at(block)
                self.header_sealed = self.check_seal(block * BLOCK, rest)
            except Damaged:
                skipped += self.data[block * BLOCK:block * BLOCK + 1] == b"\x01"
                continue
            self.header_pos, self.header_end, self.behind_term = block * BLOCK, end, len(rest)
            self.headers_skipped = skipped
            # A header that ends with its block is followed by the prefix of the next; zeros behind it are space ahead.
            end += end % BLOCK == 0
            self.space_ahead = 0 if any(self.data[end:]) else max(len(self.data) - end, 0)
            self.header_term = term
            self.header = dict(HEADER_DEFAULTS)
            self.header.update(zip(HEADER_FIELDS, term[1:]))
            return
        raise Damaged("no valid header")

    # B-trees

    def walk(self, tree, pointer, above=None):
        """All (key, value) below a pointer; checks order, reductions and subtree sizes on the way."""
        pos, reduction = pointer[:2]
        node, written = self.term(pos, "node")
        kind, entries = node
        keys = [key for key, _ in entries]
        if not entries or any(not a < b for a, b in zip(keys, keys[1:])):
            self.problem("%s tree: keys of the node at %d are not in order", tree.name, pos)
        if above is not None and keys[-1] != above:
            self.problem("%s tree: last key of the node at %d is not its pointer's", tree.name, pos)
        if kind == "kv_node":
            below, found = 0, list(entries)
            computed = tree.leaf(entries) if tree.leaf else []
        elif kind == "kp_node":
            below, found, parts = 0, [], []
            for key, child in entries:
                items, size = self.walk(tree, child, key)
                found += items
                below = None if size is None or below is None else below + size
                parts.append(child[1])
            computed = tree.join(parts) if tree.join else []
        else:
            raise Damaged("%s tree: node at %d is a %r" % (tree.name, pos, kind))
        stored = _id_flat(reduction) if tree is ID else reduction
        if tree is ID:
            agrees = all(a is None or b is None or a == b for a, b in zip(stored, computed))
        else:
            agrees = stored == computed
        if not agrees:
            self.problem("%s tree: node at %d reduces to %r, stored is %r", tree.name, pos, computed, stored)
        size = None if below is None else below + written
        if len(pointer) == 3 and isinstance(pointer[2], int) and size != pointer[2]:
            self.problem("%s tree: node at %d has %r bytes below, stored is %r", tree.name, pos, size, pointer[2])
        self.trees[tree.name] = self.trees.get(tree.name, 0) + 1
        return found, size if len(pointer) == 3 else None

    def items(self, tree, root):
        if not isinstance(root, tuple):
            return [], 0
        return self.walk(tree, root)

    # Documents

    def leaves(self, rev_tree):
        """Every leaf as ([revision, parent, ...], value), and every stored inner value."""
        found, inner = [], []
        stack = [(pos, node, []) for pos, node in reversed(rev_tree)]
        while stack:
            pos, (rev, value, children), path = stack.pop()
            path = [rev_text(pos, rev)] + path
            if children:
                if value != []:
                    inner.append((path, value))
                stack += [(pos + 1, child, path) for child in reversed(children)]
            else:
                found.append((path, value))
        return found, inner

    def attachment(self, entry):
        """One attachment's description; its bytes are read and compared with their length and MD5."""
        if len(entry) == 8:
            name, kind, stream, stored, length, revpos, md5, encoding = entry
        else:
            name, kind, stream, stored, revpos, md5 = entry
            length, encoding = stored, Atom("identity")
        data = b"".join(self.chunk(part[0] if isinstance(part, tuple) else part, "attachment")[0] for part in stream)
        if len(data) != stored:
            self.problem("attachment %r has %d bytes, stored is %d", name, len(data), stored)
        if md5 and hashlib.md5(data).digest() != md5:
            self.problem("attachment %r has another MD5 than stored", name)
        gzipped = encoding in ("gzip", "true")
        plain = zlib.decompress(data, 47) if gzipped and data else data
        if isinstance(length, int) and gzipped and length not in (len(plain), stored):
            self.problem("attachment %r unpacks to %d bytes, stored is %d", name, len(plain), length)
        return {
            "name": name.decode("utf-8", "replace"), "content_type": kind.decode("utf-8", "replace"),
            "revpos": revpos, "stored": stored, "length": len(plain), "encoding": "gzip" if gzipped else "identity",
            "sha256": hashlib.sha256(plain).hexdigest(),
        }, (stream, stored)

    def revision(self, doc_id, path, value, bodies):
        """One stored revision: its body and attachments are read and compared with the leaf's figures."""
        deleted, ptr, seq = value[:3]
        active, external = sum_sizes(value[3]) if len(value) > 3 else (0, 0)
        atts = value[4] if len(value) > 4 else []
        leaf = {
            "deleted": bool(deleted), "ptr": str(ptr), "seq": seq,
            "sizes": {"active": active, "external": external}, "atts": show(atts),
        }
        payload, written = self.chunk(ptr, "summary")
        is_recent = self.last_kind == "xxh3"
        try:
            body, described = decode(payload)
        except Damaged:
            (body, described), _ = unpack(payload)
        body = unpack(body)[0] if isinstance(body, bytes) else body
        described = unpack(described)[0] if isinstance(described, bytes) else described
        if len(value) == 5 and active != written:
            self.problem("%s %s: summary takes %d bytes, leaf says %r", doc_id, path[0], written, active)
        # CouchDB 2 counted the size of the term instead; its files carry MD5 checksums.
        if len(value) == 5 and is_recent and external != json_size(body):
            self.problem("%s %s: external size is %d, leaf says %r", doc_id, path[0], json_size(body), external)
        read = [self.attachment(entry) for entry in described]
        if len(value) == 5 and sorted({repr(stream) for _, stream in read}) != sorted(map(repr, atts)):
            self.problem("%s %s: attachments of body and leaf differ", doc_id, path[0])
        if bodies:
            leaf["body"] = to_json(body)
            leaf["attachments"] = [described for described, _ in read]
        return leaf

    def document(self, key, value, bodies):
        seq, deleted, rev_tree = value[0], value[1], value[-1]
        sizes = sum_sizes(value[2]) if len(value) == 4 else (0, 0)
        doc_id = key.decode("utf-8", "replace")
        leaves, inner = self.leaves(rev_tree)
        shown, streams, active, external = [], {}, 0, 0
        for path, leaf in leaves:
            if leaf == []:
                shown.append({"path": path, "leaf": None})
                continue
            shown.append({"path": path, "leaf": self.guarded(doc_id, path, leaf, bodies)})
            if len(leaf) == 5:
                leaf_sizes = sum_sizes(leaf[3])
                active, external = active + leaf_sizes[0], external + leaf_sizes[1]
                streams.update((repr(stream), stream[1]) for stream in leaf[4])
        for path, stored in inner:
            self.guarded(doc_id, path, stored, False)
        attached = sum(streams.values())
        purged = isinstance(self.header.get("purge_seq_tree"), tuple)
        if len(value) == 4 and not purged and leaves[0][1] and len(leaves[0][1]) == 5:
            if sizes != (active + attached, external + attached):
                self.problem("%s: sizes are %r, stored is %r", doc_id, (active + attached, external + attached), sizes)
        return {
            "id": doc_id, "update_seq": seq, "deleted": bool(deleted),
            "sizes": {"active": sizes[0], "external": sizes[1]}, "leafs": shown,
        }

    def guarded(self, doc_id, path, value, bodies):
        """A revision, or None and a problem when its bytes are damaged: the others are still read."""
        try:
            return self.revision(doc_id, path, value, bodies)
        except (Damaged, zlib.error, ValueError, TypeError) as error:
            self.problem("%s %s: %s", doc_id, path[0], error)
            return None

    # The whole

    def pointed(self, field, kind, default):
        pos = self.header[field]
        if isinstance(pos, Atom) or (field == "time_seq_ptr" and pos == 0):
            return default
        return self.term(pos, kind)[0]

    def by_seq(self, ids, seqs):
        """Changes in order; the two trees must tell the same of every document."""
        by_id = {key: (value[0], value[1], value[-1]) for key, value in ids}
        for seq, value in seqs:
            if len(value) == 3 and isinstance(value[1], list):
                continue
            if by_id.get(value[0]) != (seq, value[1], value[-1]):
                self.problem("seq tree: %d tells otherwise of %r than the id tree", seq, value[0])
        if len(by_id) != len(seqs):
            self.problem("%d documents by id, %d by sequence", len(by_id), len(seqs))
        if seqs and seqs[-1][0] > self.header["update_seq"]:
            self.problem("sequence %d is above the header's %d", seqs[-1][0], self.header["update_seq"])
        return [[seq, value[0].decode("utf-8", "replace")] for seq, value in seqs]

    def purges(self, by_uuid, by_seq):
        expected = sorted((value[0], key) + tuple(value[1:]) for key, value in by_uuid)
        found = [(seq,) + tuple(value) for seq, value in by_seq]
        if expected != found:
            self.problem("purge trees tell different things")
        return [
            {"seq": seq, "uuid": uuid.hex(), "id": doc_id.decode("utf-8", "replace"),
             "revs": [rev_text(pos, rev) for pos, rev in revs]}
            for seq, uuid, doc_id, revs in found
        ]

    def read(self, bodies=False, all_checked=False):
        """Everything that the file says, as what json.dumps takes."""
        header, roots = self.header, []
        found = {}
        for tree, field in ((ID, "id_tree"), (SEQ, "seq_tree"), (LOCAL, "local_tree"),
                            (PURGE, "purge_tree"), (PURGE_SEQ, "purge_seq_tree")):
            try:
                found[tree.name], size = self.items(tree, header.get(field, NIL))
            except (Damaged, ValueError, TypeError) as error:
                self.problem("%s tree: %s", tree.name, error)
                found[tree.name], size = [], None
            roots.append(size)
        counts = _id_flat(header["id_tree"][1]) if isinstance(header["id_tree"], tuple) else (0, 0, 0, 0)
        active = None if None in roots or counts[2] is None else counts[2] + sum(roots)
        told = {
            "file": self.path,
            "header": {name: show(header.get(name, UNDEFINED)) for name in HEADER_FIELDS},
            "header_pos": self.header_pos, "header_end": self.header_end, "headers_skipped": self.headers_skipped,
            "header_sealed": self.header_sealed, "space_ahead": self.space_ahead,
            "bytes_behind_header": len(self.data) - self.header_end, "bytes_behind_term": self.behind_term,
            "disk_version": header["disk_version"], "update_seq": header["update_seq"],
            "doc_count": counts[0], "del_doc_count": counts[1],
            "sizes": {"active": active, "external": counts[3], "file": len(self.data) - self.space_ahead},
            "docs": [self.document(key, value, bodies) for key, value in found["id"]],
            "changes": self.by_seq(found["id"], found["seq"]),
            "local_docs": [
                {"id": key.decode("utf-8", "replace"), "rev": rev if isinstance(rev, int) else rev.decode(),
                 "body": to_json(body)} for key, (rev, body) in found["local"]
            ],
            "purges": self.purges(found["purge"], found["purge_seq"]),
            "security": show(self.pointed("security_ptr", "security", [])),
            "props": show(self.pointed("props_ptr", "props", [])),
            "time_seq": show(self.pointed("time_seq_ptr", "time_seq", {})),
        }
        if all_checked and self.unchecked:
            self.problem("chunks without a checksum: %r", self.unchecked)
        told.update(nodes=self.trees, chunks_with_checksum=self.checked, chunks_without=self.unchecked,
                    checksum_kinds=self.checksum_kinds, compression=self.compression, problems=self.problems)
        return told


def main(arguments):
    flags = {argument for argument in arguments if argument.startswith("--")}
    paths = [argument for argument in arguments if not argument.startswith("--")]
    if not paths or flags - {"--bodies", "--all-checked", "--problems"}:
        print(__doc__, file=sys.stderr)
        return 2
    bad = 0
    for path in paths:
        try:
            told = CouchFile(path).read("--bodies" in flags, "--all-checked" in flags)
        except Damaged as error:
            told = {"file": path, "problems": [str(error)]}
        bad += bool(told["problems"])
        if "--problems" in flags:
            told = {"file": path, "problems": told["problems"]}
            if not told["problems"]:
                continue
        print(json.dumps(told, ensure_ascii=False))
    print("%d files, %d with problems" % (len(paths), bad), file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
