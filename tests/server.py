#!/usr/bin/env python3
"""server.py BINARY [--data DIR] -- COMMAND...: run a command against a settee that was started for it, then stop it.

The server listens on a free port and keeps its data in DIR (by default a temporary folder that is removed). The command
finds it in the environment: COUCH_URL (with name and password), BASE (host:port) and ADM (name:password). Exits with
the command's own status, or with 1 when the server did not start or did not stop by itself.

`Server` is the same for tests in Python.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading

ADMIN = "adm"
PASSWORD = "pass"
START_SECONDS = 60
STOP_SECONDS = 30
READY = re.compile(r"settee listening on http://([0-9.]+):([0-9]+)")


class Server:
    """A running server; `kill` ends it as a crash would, `stop` asks it to end."""

    def __init__(self, binary, data, admin=ADMIN, password=PASSWORD):
        self.binary, self.data, self.admin, self.password = str(binary), str(data), admin, password
        self.process = self.host = self.port = None
        self.said = []

    def start(self):
        """Starts it, and waits for the line that names its port."""
        self.process = subprocess.Popen(
            [self.binary, "--data", self.data, "--port", "0", "--admin", "%s:%s" % (self.admin, self.password)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        ready = threading.Event()
        self.host = self.port = None
        self.said = []
        threading.Thread(target=self._listen, args=(self.process.stdout, ready), daemon=True).start()
        if not ready.wait(START_SECONDS) or self.port is None:
            self.kill()
            raise RuntimeError("the server did not start:\n" + "".join(self.said[-40:]))
        return self

    def _listen(self, output, ready):
        with contextlib.suppress(ValueError):
            for line in output:
                found = READY.search(line)
                if found and self.port is None:
                    self.host, self.port = found[1], int(found[2])
                    ready.set()
                self.said = self.said[-200:] + [line]
        ready.set()

    def environment(self):
        """What a command needs to find the server."""
        base, account = "%s:%d" % (self.host, self.port), "%s:%s" % (self.admin, self.password)
        return dict(os.environ, COUCH_URL="http://%s@%s" % (account, base), BASE=base, ADM=account)

    def kill(self):
        """SIGKILL: nothing is flushed, nothing is closed."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; an error when it does not end by itself, or not with status 0."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError("the server did not stop:\n" + "".join(self.said[-40:])) from None
        if status:
            raise RuntimeError("the server ended with status %d:\n%s" % (status, "".join(self.said[-40:])))

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, trace):
        if error is None:
            self.stop()
            return
        if self.process.poll() is None:
            self.kill()
        print("the server's last words:\n" + "".join(self.said[-40:]), file=sys.stderr)


def check_files(data, all_checked=False):
    """Reads every `.couch` file below a folder with the independent reader; the output where it finds problems."""
    paths = sorted(str(path) for path in pathlib.Path(data).rglob("*.couch"))
    if not paths:
        return "no .couch file below %s" % data
    reader = pathlib.Path(__file__).resolve().parent / "reader" / "couchfile.py"
    options = ["--all-checked"] if all_checked else []
    done = subprocess.run([sys.executable, str(reader), "--problems", *options, *paths],
                          capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main(arguments):
    if "--" not in arguments or arguments[0] == "--":
        print(__doc__, file=sys.stderr)
        return 2
    split = arguments.index("--")
    own, command = arguments[:split], arguments[split + 1:]
    with tempfile.TemporaryDirectory() as folder:
        data = own[own.index("--data") + 1] if "--data" in own else folder
        with Server(own[0], data) as server:
            status = subprocess.run(command, env=server.environment(), check=False).returncode
            if status:
                print("the server's last words:\n" + "".join(server.said[-40:]), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
