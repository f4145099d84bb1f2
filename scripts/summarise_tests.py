#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads ctest's JUnit reports and prints each skipped test with its reason, each failed one with what it printed, and
'N passed, N failed, N skipped'.

With --checks FILE its lines 'passed NAME', 'failed NAME' and 'skipped NAME: reason' count as tests too. With --expected-skips FILE a
skipped test that no line of FILE allows is a failure. A line is a regular expression that must match 'REPORT:TEST' wholly (REPORT is the
name of the folder that holds the report); blank lines and lines that begin with # are not rules. Tests that ctest was not asked to run
stand in left-out.txt beside a report, below one line that says why; they are counted and named.
"""

import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

LINES_OF_A_FAILURE = 40


def read_rules(path):
    lines = (line.strip() for line in pathlib.Path(path).read_text().splitlines())
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def is_skipped(case):
    """Whether the test asked to be skipped; ctest also writes <skipped> when it could not start a program."""
    mark = case.find("skipped")
    return case.get("status") == "notrun" and mark is not None and mark.get("message", "").startswith("SKIP_")


def skip_reason(case):
    """The text that the test gave: what stands under GoogleTest's 'Skipped', or the last line it printed."""
    output = [line.strip() for line in (case.findtext("system-out") or "").splitlines() if line.strip()]
    for index, line in enumerate(output[:-1]):
        if line.endswith(": Skipped"):
            return output[index + 1]
    return output[-1] if output else "no reason given"


def failure_lines(case):
    """What a failed test printed: of GoogleTest's programs only the tests that failed or did not end; of each, and of another program,
    the last lines."""
    output = (case.findtext("system-out") or "").splitlines()
    starts = [index for index, line in enumerate(output) if line.startswith("[ RUN ")]
    lines = []
    for start, end in zip(starts, starts[1:] + [len(output)]):
        text = output[start:end]
        result = next((index for index, line in enumerate(text) if line.startswith(("[       OK ]", "[  SKIPPED ]", "[  FAILED  ]"))), None)
        if result is None:
            lines += text[-LINES_OF_A_FAILURE:]
        elif text[result].startswith("[  FAILED  ]"):
            lines += text[: result + 1][-LINES_OF_A_FAILURE:]
    return lines or output[-LINES_OF_A_FAILURE:]


def left_out_lines(path):
    """What left-out.txt says: how many tests, why, and their names without types and parameters, a suite to a line."""
    try:
        why, *names = path.read_text().split("\n")
    except FileNotFoundError:
        return []
    suites = {}
    count = 0
    for name in filter(None, names):
        suite, _, test = re.sub(r"<.*|\s+# .*", "", name).rpartition(".")
        suites.setdefault(suite, {})[test] = True
        count += 1
    if count == 0:
        return []
    return [f"left out: {path.parent.name}: {count} {why}"] + [f"  {suite}: {', '.join(tests)}" for suite, tests in suites.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*", type=pathlib.Path)
    parser.add_argument("--expected-skips", metavar="FILE")
    parser.add_argument("--checks", metavar="FILE")
    arguments = parser.parse_args()
    rules = None if arguments.expected_skips is None else read_rules(arguments.expected_skips)

    passed = failed = skipped = 0
    for report in arguments.reports:
        try:
            cases = list(xml.parse(report).getroot().iter("testcase"))
        except (OSError, xml.ParseError) as error:
            print(f"failed: {report}: no readable report ({error})")
            failed += 1
            continue
        if not cases:
            print(f"failed: {report}: no test ran")
            failed += 1
        for case in cases:
            name = f"{report.parent.name}:{case.get('name')}"
            status = case.get("status")
            if status == "run":
                passed += 1
            elif is_skipped(case):
                reason = skip_reason(case)
                if rules is None or any(rule.fullmatch(name) for rule in rules):
                    skipped += 1
                    print(f"skipped: {name}: {reason}")
                else:
                    failed += 1
                    print(f"failed: {name}: skipped and not expected to be: {reason}")
            else:
                failed += 1
                print(f"failed: {name} ({status})")
                print("\n".join(f"  {line}" for line in failure_lines(case)))
    for report in arguments.reports:
        for line in left_out_lines(report.parent / "left-out.txt"):
            print(line)
    for line in [] if arguments.checks is None else pathlib.Path(arguments.checks).read_text().splitlines():
        if line.startswith("passed "):
            passed += 1
        elif line.startswith("skipped "):
            skipped += 1
            print(line.replace("skipped ", "skipped: check ", 1))
        else:
            failed += 1
            print(line.replace("failed ", "failed: check ", 1))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
