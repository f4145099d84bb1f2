#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the errors of the library that no test brings about: the calls of make_error() and its like in src that are never executed.
Its like are the functions of src that return an Error, and those that log a refusal.

usage: bench/untested_errors.py [options] [-- ctest's options]

Builds the tree with clang's coverage in build/coverage and runs its tests there. The counters live in files that the processes map, so
that ranks which are killed, or end without their exit handlers, count as well. What needs a GPU, a guest or a broken kernel has its
reason in untested_list.py, and is not listed.

Where several processes of a program run at the same time, a count is sometimes lost: a call that one test executes once may be listed all
the same. "-- -R TEST" runs the test that should reach it alone, and lists what that one does not reach.

exit code: 0 every error is brought about by a test, or has a reason; 1 others are not; 2 wrong options, a reason for a call that is not
there, a build that failed, or counters that cannot be read.
"""

import argparse
import bisect
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from untested_list import REASONS

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/coverage"
FLAGS = "-O0 -fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation"
DEFINITION = r"\bError (?:\w+::)*(\w+)\("
OTHER_MAKERS = {"refuse", "refuse_usage", "wrong"}  # return a Result, or an errno value
NO_MAKERS = {"error"}  # accessors and variables
LEFT_OUT = r"^install|Fuzz|^vm\.|^lanes"


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="only look whether each reason is of a call that is there")
    parser.add_argument("--idle", action="store_true", help="use only processor time that nobody else wants")
    parser.add_argument("--read-only", action="store_true", help="build and run nothing: read the counters that are there")
    parser.add_argument("--llvm", metavar="SUFFIX", default="-19", help="of clang's programs (default %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write every call with how often it was executed")
    options, rest = parser.parse_known_args(words)
    options.tests = [word for word in rest if word != "--"]
    return options


def give_up(why):
    print(f"untested_errors: {why}", file=sys.stderr)
    sys.exit(2)


def run(options, command, **how):
    quiet = ["chrt", "-i", "0", "nice", "-n", "19"] if options.idle else []
    return subprocess.run([*quiet, *map(str, command)], check=False, **how).returncode


def build_and_test(options):
    configure = ["cmake", "--preset", "clang", "-B", BUILD, "-DGIGABAR_WARNINGS_AS_ERRORS=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=OFF",
                 f"-DCMAKE_CXX_FLAGS_RELEASE={FLAGS}", f"-DCMAKE_C_FLAGS_RELEASE={FLAGS}", "-DGIGABAR_TEST_OPTIONS=",
                 f"-DCMAKE_CXX_COMPILER=clang++{options.llvm}", f"-DCMAKE_C_COMPILER=clang{options.llvm}"]
    if (ROOT / ".venv/cuda").is_dir():  # CUDA's headers, where ./run has brought them
        configure.append(f"-DGIGABAR_CUDA_ROOT={ROOT}/.venv/cuda")
    if run(options, configure, cwd=ROOT, stdout=subprocess.DEVNULL) != 0:
        give_up("the tree cannot be configured")
    if run(options, ["cmake", "--build", BUILD, "--", "-k", "0"], stdout=subprocess.DEVNULL) != 0:
        give_up("the build failed")
    shutil.rmtree(BUILD / "profiles", ignore_errors=True)
    # One file of counters for each program and pool slot; "%c": written as they count.
    environment = {**os.environ, "LLVM_PROFILE_FILE": str(BUILD / "profiles/%4m%c.profraw")}
    run(options, ["ctest", "--test-dir", BUILD, "-LE", "^(gpu|vm)$", "-E", LEFT_OUT, "-j", 2 * os.cpu_count(), "--timeout", "120", *options.tests],
        env=environment, stdout=subprocess.DEVNULL)


def programs():
    """The ELF files that have counters."""
    found = []
    for path in BUILD.rglob("*"):
        if path.is_file() and not path.is_symlink() and os.access(path, os.X_OK) and path.suffix in ("", ".so") or ".so." in path.name:
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    found.append(path)
    return found


def segments_of(options):
    """How often each stretch of code was executed: by file, the segments of each program."""
    merged = BUILD / "all.profdata"
    profiles = [str(path) for path in (BUILD / "profiles").glob("*.profraw") if path.stat().st_size]
    (BUILD / "profiles.txt").write_text("\n".join(profiles))
    if run(options, [f"llvm-profdata{options.llvm}", "merge", "--failure-mode=all", "-sparse", "-f", BUILD / "profiles.txt", "-o", merged]) != 0:
        give_up("the counters cannot be read")

    def files_of(program):
        done = subprocess.run([f"llvm-cov{options.llvm}", "export", "-skip-functions", "-skip-expansions", f"-instr-profile={merged}", str(program),
                               str(ROOT / "src")], capture_output=True, text=True, check=False)
        return json.loads(done.stdout)["data"][0]["files"] if done.returncode == 0 else []

    segments = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for files in pool.map(files_of, programs()):
            for file in files:
                segments.setdefault(os.path.relpath(file["filename"], ROOT), []).append([segment[:4] for segment in file["segments"]])
    if not segments:
        give_up("no program has counters for src")
    return segments


def count_at(program, line, column):
    """Executions of what stands there, by one program's segments (line, column, count, whether there is a count); None: no code."""
    at = bisect.bisect_right(program, [line, column, float("inf")]) - 1
    return program[at][2] if at >= 0 and program[at][3] else None


def call_end(text, at):
    """Behind the bracket that closes the one before `at`; brackets in strings do not count."""
    depth = 1
    while depth and at < len(text):
        if text[at] == '"':
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def calls():
    """Where src makes an error: file, line, column and the text of each call."""
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "src").rglob("*.[ch]pp")}
    names = OTHER_MAKERS.union(*(re.findall(DEFINITION, text) for text in texts.values())) - NO_MAKERS
    for name, text in sorted(texts.items()):
        for match in re.finditer(rf"\b({'|'.join(sorted(names))})\(", text):
            begin = text.rfind("\n", 0, match.start()) + 1
            if re.search(r"\bError (\w+::)*$", text[begin:match.start()]):
                continue  # the function itself
            call = " ".join(text[match.start():call_end(text, match.end())].split())
            yield {"file": name, "line": text.count("\n", 0, begin) + 1, "column": match.start() - begin + 1, "call": call}


def counted_calls(segments):
    """Those that some program has, with how often they were executed."""
    for call in calls():
        column = call.pop("column")
        counts = [count_at(program, call["line"], column) for program in segments.get(call["file"], [])]
        counts = [count for count in counts if count is not None]
        if counts:
            yield {**call, "count": max(counts)}


def is_of(reason, call):
    return reason.file == call["file"] and reason.part in call["call"]


def reason_for(call):
    return next((reason.why for reason in REASONS if is_of(reason, call)), None)


def check_reasons():
    known = list(calls())
    for reason in REASONS:
        if not any(is_of(reason, call) for call in known):
            give_up(f"{reason.file} makes no error with {reason.part!r}, for which there is a reason")


def main():
    options = parse(sys.argv[1:])
    check_reasons()
    if options.check:
        print(f"{len(REASONS)} reasons, each of calls that are there")
        return
    for tool in ("llvm-profdata", "llvm-cov"):  # before the work of half an hour
        if shutil.which(f"{tool}{options.llvm}") is None:
            give_up(f"there is no {tool}{options.llvm}: install Debian's package llvm{options.llvm}")
    if not options.read_only:
        build_and_test(options)
    found = list(counted_calls(segments_of(options)))
    missed = [call for call in found if call["count"] == 0]
    untested = [call for call in missed if reason_for(call) is None]
    for call in untested:
        print(f"{call['file']}:{call['line']}: {call['call'][:160]}")
    print(f"{len(found)} calls, {len(missed)} of them never executed, {len(untested)} of these without a reason")
    if options.json:
        options.json.write_text(json.dumps([{**call, "reason": reason_for(call)} for call in found], indent=1) + "\n")
    sys.exit(1 if untested else 0)


if __name__ == "__main__":
    main()
