#!/usr/bin/env python3
"""fixtures_served.py [--binary FILE] [--update]: serve CouchDB's own data folders and compare every answer with CouchDB's.

Each fixture folder is copied, served, and asked the 569 requests of its expected.json by check_expected.py, which lies
beside the fixtures. What may differ, by kind of request, stands in fixtures_served.json; more differences fail, and so
do fewer, until `--update` has written the new figures. Afterwards the files are read by the independent reader.

The fixtures are in `$SETTEE_FIXTURES`, by default `../shared/fixtures` beside the repository.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from server import Server, check_files

TOP = pathlib.Path(__file__).resolve().parent.parent
FIXTURES = pathlib.Path(os.environ.get("SETTEE_FIXTURES", TOP.parent / "shared" / "fixtures"))
DIRECTORIES = ("couchdb-3.5-snappy-uncompacted", "couchdb-3.5-snappy-compacted", "couchdb-3.5-none-uncompacted")
EXPECTED = TOP / "tests" / "fixtures_served.json"


def kind(method, path):
    """A request without its names: `GET */_design/*/_view/*`."""
    parts = path.split("?")[0].lstrip("/").split("/")
    return method + " " + "/".join(part if part.startswith("_") else "*" for part in parts)


def differences(server, directory):
    """How many answers differ, by kind of request; the lines that say so; how many were compared."""
    done = subprocess.run(
        [sys.executable, str(FIXTURES / "check_expected.py"), "http://%s:%d" % (server.host, server.port),
         str(FIXTURES / directory / "expected.json")], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or not lines or not lines[-1].endswith("differ"):
        raise RuntimeError("check_expected.py did not finish:\n" + done.stdout[-2000:] + done.stderr[-2000:])
    told = [line for line in lines if line.startswith("DIFF ")]
    return collections.Counter(kind(*line.split(" ")[1:3]) for line in told), told, int(lines[-1].split()[0])


def serve(binary, directory):
    """Differences of one fixture folder, and what the reader says of its files afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data"
        shutil.copytree(FIXTURES / directory / "data", data)
        for path in (data, *data.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)
        with Server(binary, data, "admin", "pass") as server:
            counted = differences(server, directory)
        return *counted, check_files(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=TOP / "target/release/settee")
    parser.add_argument("--update", action="store_true", help="write the differences that were found as expected")
    options = parser.parse_args()
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    found, failed, equal = {}, 0, 0
    for directory in DIRECTORIES:
        counted, told, asked, problems = serve(options.binary, directory)
        found[directory] = dict(sorted(counted.items()))
        allowed = expected.get(directory, {})
        for name in sorted(set(counted) | set(allowed)):
            if counted.get(name, 0) == allowed.get(name, 0):
                continue
            failed += 1
            print("%s: %s: %d differ, %d expected" % (directory, name, counted.get(name, 0), allowed.get(name, 0)))
            print("\n".join("   " + line for line in told if kind(*line.split(" ")[1:3]) == name))
        if problems:
            failed += 1
            print("%s: the reader finds problems in the files:\n%s" % (directory, problems))
        equal += asked - sum(counted.values())
        print("%s: %d of %d answers equal" % (directory, asked - sum(counted.values()), asked))
    if options.update:
        EXPECTED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print("%d passed, %d failed" % (equal, failed))
    return 1 if failed and not options.update else 0


if __name__ == "__main__":
    sys.exit(main())
