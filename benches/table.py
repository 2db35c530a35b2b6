#!/usr/bin/env python3
"""benches/table.py [--binary FILE] [--runs N] [--url URL]: the table of docs/PERFORMANCE.md.

Runs `settee bench` for q=8 with small documents and q=2 with medium ones, several times each, and prints the median of
each row beside CouchDB 3.5.2's figure for two cores and the ratio. Beside them, measured in the same minutes: data syncs
per second, alone and by eight threads at once, which bound every durable write; and start and idle memory of the server.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

TOP = pathlib.Path(__file__).resolve().parent.parent
# Documents per second; alone on such a machine, by CouchDB's own fabric_bench.
COUCHDB = {
    ("8", "small"): {"add_docs": 31000, "get_random_doc": 7700, "all_docs": 175000, "all_docs_include_docs": 56500,
                     "changes": 60000, "single_doc_updates": 450},
    ("2", "medium"): {"add_docs": 1200, "get_random_doc": 3700, "all_docs": 120000, "all_docs_include_docs": 6200,
                      "changes": 79000, "single_doc_updates": 390},
}
DOCS = {"small": "100000", "medium": "20000"}


def syncs(threads, count=300):
    """4 KiB appends with a data sync each, per second, over all threads."""
    def write(path):
        with open(path, "wb", buffering=0) as file:
            for _ in range(count):
                file.write(b"x" * 4096)
                os.fdatasync(file.fileno())
    with tempfile.TemporaryDirectory(dir=".") as folder:
        workers = [threading.Thread(target=write, args=(os.path.join(folder, str(n)),)) for n in range(threads)]
        began = time.monotonic()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return round(threads * count / (time.monotonic() - began))


def start(binary, folder):
    """Milliseconds from the start of a server to its first answer, and its resident memory in kB two seconds later."""
    began = time.monotonic()
    server = subprocess.Popen([binary, "--data", folder, "--port", "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    address = next(line.split()[-1] for line in server.stdout if "listening on" in line)
    urllib.request.urlopen(address + "/_up").read()
    first = round((time.monotonic() - began) * 1000)
    time.sleep(2)
    status = pathlib.Path("/proc/%d/status" % server.pid).read_text(encoding="utf-8")
    server.terminate()
    server.wait()
    return first, int(status.split("VmRSS:")[1].split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(TOP / "target" / "release" / "settee"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--url", help="measure this server instead of this process")
    options = parser.parse_args()
    print("append of 4 KiB and data sync: %d/s alone, %d/s by eight threads" % (syncs(1), syncs(8)))
    if not options.url:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            starts = [start(options.binary, folder) for _ in range(options.runs + 1)]
        print("first answer after %d ms at a first start, %d ms at later ones; idle %d kB resident" % (
            starts[0][0], statistics.median(first for first, _ in starts[1:]), statistics.median(kb for _, kb in starts)))
    for (q, size), peer in COUCHDB.items():
        command = [options.binary, "bench", "--json", "--q", q, "--doc-size", size, "--docs", DOCS[size]]
        if options.url:
            command += ["--url", options.url]
        rows = {}
        for _ in range(options.runs):
            answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            for row in answer["rows"]:
                rows.setdefault(row["name"], []).append(row["hz"])
        print("\n| q=%s, %s | settee | CouchDB | ratio |\n|---|---|---|---|" % (q, size))
        for name, values in rows.items():
            median = statistics.median(values)
            print("| %s | %d | %d | %.1f |" % (name, median, peer[name], median / peer[name]))


if __name__ == "__main__":
    main()
