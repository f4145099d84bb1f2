# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder share: commands that are run, and the files that tell of them."""

import datetime
import json
import os
import pathlib
import signal
import subprocess
import tempfile

DEADLINE_S = 120


class TooLong(SystemExit):
    """A command was not done in time."""


def last_words(done):
    return ((done.stderr.strip() or done.stdout.strip()) or "failed").splitlines()[-1]


def execute(command, deadline_s=DEADLINE_S, **others):
    """A command that has ended by itself, whatever its exit status is."""
    # A group of its own, so that what the command started ends with it.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
                          **others) as process:
        try:
            out, err = process.communicate(timeout=deadline_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TooLong(f"{' '.join(command)}: not done after {deadline_s:.0f} s") from None
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def run(command, **others):
    """What a command prints; ends the program with its last words when it fails."""
    done = execute(command, **others)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {last_words(done)}")
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
