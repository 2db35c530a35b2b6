#!/usr/bin/env python3
"""cases.py [--binary FILE] [--update] [NUMBER ...]: replay reproductions of public bug reports against a server.

The cases and the program that runs them lie beside the fixtures, in `$SETTEE_FIXTURES/../cases`. Those that are not
answered rightly yet stand in cases_open.json with the reason; one more fails this test, and so does one less, until the
list is right again (`--update` writes it, keeping the reasons).
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from server import Server

TOP = pathlib.Path(__file__).resolve().parent.parent
FIXTURES = pathlib.Path(os.environ.get("SETTEE_FIXTURES", TOP.parent / "shared" / "fixtures"))
OPEN = TOP / "tests" / "cases_open.json"
RESULT = re.compile(r"^(PASS|FAIL) +([0-9]+) ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=TOP / "target/release/settee")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("numbers", nargs="*")
    options = parser.parse_args()
    reasons = json.loads(OPEN.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, Server(options.binary, folder) as server:
        done = subprocess.run([sys.executable, str(FIXTURES.parent / "cases" / "run_http_cases.py"), *options.numbers],
                              env=server.environment(), stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    results = {found[2]: found[1] == "PASS" for found in map(RESULT.match, done.stdout.splitlines()) if found}
    wrong = {number for number, right in results.items() if not right}
    unexpected = sorted(wrong - set(reasons), key=int)
    mended = sorted(number for number in reasons if results.get(number))
    if options.update:
        kept = {number: reasons.get(number, "not looked into yet") for number in sorted(wrong, key=int)}
        OPEN.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    for number in unexpected:
        print("case %s is answered wrongly" % number)
    for number in mended:
        print("case %s is answered rightly now: take it out of %s" % (number, OPEN.name))
    failed = len(unexpected) + len(mended) + bool(done.returncode) + (not results)
    print("%d passed, %d failed, %d skipped" % (len(results) - len(wrong), failed, len(wrong) - len(unexpected)))
    return 1 if failed and not options.update else 0


if __name__ == "__main__":
    sys.exit(main())
