# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder share: commands that are run, and the files that tell of them."""

import datetime
import json
import pathlib
import subprocess
import tempfile

DEADLINE_S = 120


def run(command, **others):
    """What a command prints; ends the program with its last words when it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False, **others)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {((done.stderr.strip() or done.stdout.strip()) or 'failed').splitlines()[-1]}")
    return done.stdout


def report_of(command):
    """What a command of gigabar writes as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "report.json"
        run([*command, "--json", str(file)])
        return json.loads(file.read_text())


def write(path, tool, command, head, **others):
    """A report of many runs, made on the machine that `head`, one of theirs, was made on."""
    report = {"schema": 1, "tool": tool, "command": command,
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "machine": head["machine"],
              "device": head["device"], "mapping": None, **others}
    pathlib.Path(path).write_text(json.dumps(report, indent=2) + "\n")
