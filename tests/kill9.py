#!/usr/bin/env python3
"""kill9.py [--binary FILE] [--rounds N] [--seed N] [--seconds N]: no acknowledged write may be lost when the server dies.

Eight writers create, update and delete documents, one at a time and in batches, and note what was acknowledged. After a
random moment the server is killed with SIGKILL and started again on the same folder; then every document that was ever
acknowledged must be there, with at least the acknowledged generation, the body that belongs to its revision, and a row
in the changes feed. At the end the files are read by the independent reader, every chunk with its checksum.

(A killed process loses nothing that it had handed to the operating system. Loss of power is simulated in the engine's
own tests of its storage.)
"""

import argparse
import base64
import http.client
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

from server import ADMIN, PASSWORD, Server, check_files

DATABASE = "kill9"
WRITERS = 8
BATCH = 10
ALIVE_SECONDS = (0.1, 0.6)
KEYS_PER_REQUEST = 2000
TIMEOUT_SECONDS = 60
HEADERS = {
    "Authorization": "Basic " + base64.b64encode(("%s:%s" % (ADMIN, PASSWORD)).encode()).decode(),
    "Content-Type": "application/json",
    "Accept": "application/json",
}


def generation(rev):
    return int(rev.split("-")[0])


class Client:
    """One connection; `call` gives status and parsed body."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_SECONDS)

    def call(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        self.connection.request(method, "/%s%s" % (DATABASE, path), text, HEADERS)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


class Writer(threading.Thread):
    """Writes until the connection breaks; `acknowledged` maps ids to (revision, deleted)."""

    def __init__(self, server, number, round_number, seed, acknowledged):
        super().__init__(daemon=True)
        self.client = Client(server)
        self.prefix = "w%d-%d" % (number, round_number)
        self.random = random.Random("%s/%s" % (seed, self.prefix))
        self.acknowledged = acknowledged
        self.mine = [doc_id for doc_id in acknowledged if doc_id.startswith("w%d-" % number)]
        self.made = 0
        self.writes = 0
        self.refused = []

    def run(self):
        try:
            while True:
                self.random.choice((self.put, self.put, self.put, self.bulk, self.delete))()
        except (OSError, http.client.HTTPException, ValueError):
            # The server is gone, or was cut off in the middle of an answer: nothing was acknowledged.
            return
        except (KeyError, IndexError, TypeError) as error:
            self.refused.append(("an answer of another shape", repr(error)))

    def document(self, deleted=False):
        """A new document, or the next revision of one that this writer made."""
        if self.mine and (deleted or self.random.random() < 0.5):
            doc_id = self.random.choice(self.mine)
            rev, is_deleted = self.acknowledged[doc_id]
            doc = {"_id": doc_id, "n": generation(rev) + 1, "_rev": rev}
            if deleted and not is_deleted:
                doc["_deleted"] = True
        else:
            self.made += 1
            doc = {"_id": "%s-%d" % (self.prefix, self.made), "n": 1}
        doc["filler"] = "x" * self.random.randrange(400)
        return doc

    def note(self, doc, rev):
        if doc["_id"] not in self.acknowledged:
            self.mine.append(doc["_id"])
        self.acknowledged[doc["_id"]] = (rev, doc.get("_deleted", False))
        self.writes += 1

    def conflict(self, doc):
        """A write of an earlier round went through without an answer: go on from what the server has."""
        status, row = self.client.call("POST", "/_all_docs", {"keys": [doc["_id"]]})
        if status == 200 and "value" in row["rows"][0]:
            value = row["rows"][0]["value"]
            self.acknowledged[doc["_id"]] = (value["rev"], value.get("deleted", False))

    def put(self):
        self.single(self.document())

    def delete(self):
        self.single(self.document(deleted=True))

    def single(self, doc):
        status, answer = self.client.call("PUT", "/" + doc["_id"], doc)
        if status in (200, 201, 202):
            self.note(doc, answer["rev"])
        elif status == 409 and "_rev" in doc:
            self.conflict(doc)
        else:
            self.refused.append((status, answer))

    def bulk(self):
        docs = {doc["_id"]: doc for doc in (self.document() for _ in range(BATCH))}
        status, answers = self.client.call("POST", "/_bulk_docs", {"docs": list(docs.values())})
        if status not in (200, 201, 202):
            self.refused.append((status, answers))
            return
        for answer in answers:
            if answer.get("ok"):
                self.note(docs[answer["id"]], answer["rev"])
            elif answer.get("error") == "conflict" and "_rev" in docs[answer["id"]]:
                self.conflict(docs[answer["id"]])
            else:
                self.refused.append((status, answer))


def lost(client, acknowledged):
    """What is missing of everything that was acknowledged, as texts."""
    found = []
    ids = sorted(acknowledged)
    for start in range(0, len(ids), KEYS_PER_REQUEST):
        keys = ids[start:start + KEYS_PER_REQUEST]
        status, answer = client.call("POST", "/_all_docs?include_docs=true", {"keys": keys})
        if status != 200 or len(answer["rows"]) != len(keys):
            return ["_all_docs answers %d with %d rows of %d" % (status, len(answer.get("rows", ())), len(keys))]
        for doc_id, row in zip(keys, answer["rows"]):
            rev, deleted = acknowledged[doc_id]
            value = row.get("value")
            if not value:
                found.append("%s: %s acknowledged, now %s" % (doc_id, rev, row))
                continue
            now = value["rev"]
            same = now == rev and bool(value.get("deleted")) == deleted
            if not same and generation(now) <= generation(rev):
                found.append("%s: %s acknowledged, now %s" % (doc_id, rev, value))
            elif row.get("doc") and row["doc"].get("n") != generation(now):
                found.append("%s: body of generation %s at %s" % (doc_id, row["doc"].get("n"), now))
    status, answer = client.call("GET", "/_changes")
    rows = [row["id"] for row in answer["results"]]
    found += ["%s: not in the changes feed" % doc_id for doc_id in sorted(set(ids) - set(rows))]
    if len(rows) != len(set(rows)):
        found.append("the changes feed names a document twice")
    return found


def one_round(server, number, options, acknowledged):
    """Write, kill, start again, check; the texts of what went wrong, and how many writes were acknowledged."""
    chance = random.Random("%s/%s" % (options.seed, number))
    writers = [Writer(server, index, number, options.seed, acknowledged) for index in range(WRITERS)]
    for writer in writers:
        writer.start()
    # The moment of death is the random input of this test.
    time.sleep(chance.uniform(*ALIVE_SECONDS))
    server.kill()
    for writer in writers:
        writer.join(TIMEOUT_SECONDS)
    wrong = ["refused: %r" % (refusal,) for writer in writers for refusal in writer.refused[:3]]
    server.start()
    return wrong + lost(Client(server), acknowledged), sum(writer.writes for writer in writers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--binary", default=top / "target/release/settee")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=600, help="no new round begins after this time")
    options = parser.parse_args()
    began, passed, failed, writes, acknowledged = time.monotonic(), 0, 0, 0, {}
    with tempfile.TemporaryDirectory() as folder:
        with Server(options.binary, folder) as server:
            status, answer = Client(server).call("PUT", "")
            if status not in (200, 201, 202):
                raise SystemExit("the database cannot be made: %d %r" % (status, answer))
            for number in range(options.rounds):
                if time.monotonic() - began > options.seconds:
                    print("time is up after %d of %d rounds" % (number, options.rounds))
                    break
                wrong, written = one_round(server, number, options, acknowledged)
                writes += written
                passed, failed = passed + (not wrong), failed + bool(wrong)
                for text in wrong[:10]:
                    print("round %d (seed %d): %s" % (number, options.seed, text))
        problems = check_files(folder, all_checked=True)
        passed, failed = passed + (not problems), failed + bool(problems)
        if problems:
            print("the files after the last round:\n" + problems)
    if not writes:
        print("not one write was acknowledged")
        failed += 1
    print("%d writes of %d documents acknowledged in %d seconds, the server killed in each round"
          % (writes, len(acknowledged), time.monotonic() - began))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
