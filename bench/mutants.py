#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants changes in the code, one at a time, and runs the tests that have to notice each: a test that passes by accident lets its change live.

usage: bench/mutants.py [options]

The changes are those of mutant_list.py. They are planted in a copy of the tree with a build folder of its own (build/mutants), of which
only the object with the change and the test program are built again. First every test is run without a change: one that fails then, or
that no filter names, tells nothing, and is an error. A change died when a test failed or did not end in time.

exit code: 0 every change died, or has a reason to live; 1 another one lived; 2 wrong options, a pattern that does not stand exactly once
in its file, code that does not compile, or tests that fail without a change.
"""

import argparse
import collections
import datetime
import fcntl
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

from mutant_list import MUTANTS
from processor import processor

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREE = ROOT / "build/mutants/tree"
ENVIRONMENT = {"GTEST_BRIEF": "1", "GTEST_FAIL_FAST": "1"}
MOST_LIVING = 3


class Failure(Exception):
    """What ends the run with exit code 2."""


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="only look whether each pattern stands exactly once in its file")
    parser.add_argument("--list", action="store_true", help="only print the changes and the tests that have to notice them")
    parser.add_argument("--only", metavar="REGEX", default="", help="those whose name matches")
    parser.add_argument("--idle", action="store_true", help="use only processor time that nobody else wants, and one compiler at a time")
    parser.add_argument("--deadline", type=float, default=120, metavar="S", help="of one run of the tests (default %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write machine, date, command and what became of each; what FILE has of others stays")
    return parser.parse_args(words)


def wrong_patterns(mutants):
    """Sentences about patterns that do not name one place."""
    wrong = [f"{name}: {count} changes have that name" for name, count in collections.Counter(one.name for one in mutants).items() if count != 1]
    for mutant in mutants:
        count = (ROOT / mutant.file).read_text().count(mutant.find) if (ROOT / mutant.file).is_file() else 0
        if count != 1:
            wrong.append(f"{mutant.name}: the pattern stands {count} times in {mutant.file}: {mutant.find!r}")
        if mutant.find == mutant.replace:
            wrong.append(f"{mutant.name}: it changes nothing")
    return wrong


def update_tree():
    """Makes TREE what the working tree is; a file that has not changed keeps its time, so that nothing is built for it."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True).stdout
    wanted = [name for name in os.fsdecode(listed).split("\0") if name and (ROOT / name).is_file()]
    for name in wanted:
        source, target = ROOT / name, TREE / name
        content = source.read_bytes()
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        target.chmod(source.stat().st_mode)
    known = set(wanted)
    for path in TREE.rglob("*"):
        name = str(path.relative_to(TREE))
        if not name.startswith(("build/", ".venv", ".git")) and path.is_file() and name not in known:
            path.unlink()
    # The toolkit of the working tree serves both.
    if (ROOT / ".venv").exists() and not (TREE / ".venv").exists():
        (TREE / ".venv").symlink_to(ROOT / ".venv")


def lock_tree():
    """Two runs would plant into each other's builds. The lock goes with the process."""
    TREE.mkdir(parents=True, exist_ok=True)
    lock = os.open(TREE, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Failure(f"another run plants in {TREE}; wait for its end") from None


def run(options, command, **more):
    prefix = ["chrt", "-i", "0", "nice", "-n", "19"] if options.idle else []
    return subprocess.run(prefix + command, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **more)


def configure(options):
    done = run(options, ["bash", "-c", "source scripts/setup.sh && parse_options '' --no-install && prepare"])
    if done.returncode != 0:
        raise Failure(f"cannot configure {TREE}:\n{done.stdout}")


def build(options, program):
    """The compiler's messages when it failed."""
    environment = os.environ | {"CCACHE_NOHASHDIR": "1", "CCACHE_BASEDIR": str(TREE), "CCACHE_SLOPPINESS": "pch_defines,time_macros"}
    done = run(options, ["ninja", "-C", "build/release", *(["-j1"] if options.idle else []), program], env=environment)
    return None if done.returncode == 0 else done.stdout


def program_file(program):
    found = [path for path in (TREE / "build/release/tests").rglob(program) if path.is_file() and os.access(path, os.X_OK)]
    if len(found) != 1:
        raise Failure(f"there are {len(found)} programs '{program}' in {TREE}/build/release/tests")
    return found[0]


def failed_tests(options, program, tests):
    """The tests that failed, or what else ended the run; an empty list when all passed."""
    command = [str(program_file(program)), f"--gtest_filter={tests}"]
    prefix = ["chrt", "-i", "0", "nice", "-n", "19"] if options.idle else []
    # Ranks talk over shared memory, where the filter does not name another way.
    transport = {"GIGABAR_CONFORMANCE_TRANSPORTS": "ucx" if "ucx_" in tests else "local"}
    process = subprocess.Popen(prefix + command, cwd=TREE, env=os.environ | ENVIRONMENT | transport, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", start_new_session=True)
    try:
        output, _ = process.communicate(timeout=options.deadline)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return ["no end within the deadline"]
    if process.returncode == 0:
        return []
    names = re.findall(r"^\[  FAILED  \] ([\w/.]+\.[\w/.]+)", output, re.M)
    last = output.strip().splitlines()[-1] if output.strip() else ""
    return list(dict.fromkeys(names)) or [f"exit code {process.returncode}: {last}"]


def check_baseline(options, mutants):
    """Every filter names a test, and each passes without a change."""
    for program in dict.fromkeys(one.program for one in mutants):
        if messages := build(options, program):
            raise Failure(f"{program} does not build without a change:\n{messages}")
    wrong = []
    for program, tests in dict.fromkeys((one.program, one.tests) for one in mutants):
        failed = failed_tests(options, program, tests)
        if failed:
            wrong.append(f"without a change: {program} --gtest_filter={shlex.quote(tests)}: {', '.join(failed)}")
    if wrong:
        raise Failure("\n".join(wrong))


def plant(options, mutant):
    path = TREE / mutant.file
    before = path.read_text()
    began = time.monotonic()
    try:
        path.write_text(before.replace(mutant.find, mutant.replace))
        if messages := build(options, mutant.program):
            raise Failure(f"{mutant.name} does not compile:\n{messages}")
        failed = failed_tests(options, mutant.program, mutant.tests)
    finally:
        path.write_text(before)
    return {
        "name": mutant.name,
        "component": mutant.component,
        "file": mutant.file,
        "find": mutant.find,
        "replace": mutant.replace,
        "program": mutant.program,
        "tests": mutant.tests,
        "result": "died" if failed else "lived",
        "noticed_by": failed,
        "may_live": mutant.lives,
        "seconds": round(time.monotonic() - began, 1),
    }


def write(options, results):
    """The results of this run, and those of an earlier one of changes that are still the same."""
    if options.json is None:
        return
    earlier = json.loads(options.json.read_text())["results"] if options.json.exists() else []
    known = {result["name"]: result for result in earlier} | {result["name"]: result for result in results}
    keys = ("file", "find", "replace", "program", "tests")
    kept = [known[one.name] for one in MUTANTS if one.name in known and all(known[one.name][key] == getattr(one, key) for key in keys)]
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    document = {
        "tool": "mutants",
        "machine": {"cpu": processor(), "processors": os.cpu_count()},
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "revision": revision,
        "command": shlex.join(["bench/mutants.py", *sys.argv[1:]]),
        "results": kept,
    }
    options.json.write_text(json.dumps(document, indent=1) + "\n")


def main():
    options = parse(sys.argv[1:])
    mutants = [one for one in MUTANTS if re.search(options.only, one.name)]
    if wrong := wrong_patterns(MUTANTS):
        raise Failure("\n".join(wrong))
    living_by_right = [one.name for one in MUTANTS if one.lives]
    if len(living_by_right) > MOST_LIVING:
        raise Failure(f"more than {MOST_LIVING} changes may live: {', '.join(living_by_right)}")
    if options.list:
        for one in mutants:
            print(f"{one.component}: {one.name}: {one.program} --gtest_filter={one.tests}")
    if options.check or options.list:
        print(f"{len(mutants)} changes; every pattern stands exactly once")
        return 0
    lock_tree()
    update_tree()
    configure(options)
    check_baseline(options, mutants)
    results = []
    for mutant in mutants:
        result = plant(options, mutant)
        results.append(result)
        write(options, results)
        print(f"{result['result']} after {result['seconds']:.0f} s: {mutant.name}: {', '.join(result['noticed_by']) or mutant.tests}", flush=True)
    lived = [one for one in results if one["result"] == "lived"]
    for one in lived:
        print(f"lived: {one['name']}: {one['may_live'] or 'no test notices it'}")
    print(f"{len(results)} planted, {len(results) - len(lived)} died, {len(lived)} lived")
    return 1 if any(not one["may_live"] for one in lived) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"mutants: {failure}", file=sys.stderr)
        sys.exit(2)
