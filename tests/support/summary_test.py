#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/summarise_tests.py says of reports, stages and tests that were left out."""

import pathlib
import subprocess
import sys
import tempfile

PASSED = '<testcase name="Suite.Passes" status="run"/>'
SKIPPED = '<testcase name="Suite.Skips" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>no GPU</system-out></testcase>'
FAILED = '<testcase name="Suite.Fails" status="fail"/>'
NOT_STARTED = '<testcase name="Suite.Gone" status="notrun"><skipped message="Unable to find executable"/></testcase>'


def summary(cases, left_out=None, checks="", rules=""):
    """The exit code and the lines for one report of these cases."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name, "preset")
        folder.mkdir()
        (folder / "tests.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        if left_out is not None:
            (folder / "left-out.txt").write_text(left_out)
        (folder / "checks").write_text(checks)
        (folder / "rules").write_text(rules)
        words = [sys.argv[1], "--checks", folder / "checks", "--expected-skips", folder / "rules", folder / "tests.xml"]
        run = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout.splitlines()


def expect(result, code, *lines):
    assert result[0] == code and all(line in result[1] for line in lines), f"not {code} with {lines}: {result}"


expect(summary([PASSED]), 0, "1 passed, 0 failed, 0 skipped")
expect(summary([]), 1, "0 passed, 1 failed, 0 skipped")
expect(summary([PASSED, FAILED]), 1, "1 passed, 1 failed, 0 skipped")
expect(summary([PASSED, NOT_STARTED]), 1, "1 passed, 1 failed, 0 skipped")
expect(summary([SKIPPED]), 1, "0 passed, 1 failed, 0 skipped")
expect(summary([SKIPPED], rules="preset:Suite.*\n"), 0, "skipped: preset:Suite.Skips: no GPU", "0 passed, 0 failed, 1 skipped")
expect(summary([PASSED], checks="passed tidy\n"), 0, "2 passed, 0 failed, 0 skipped")
expect(summary([PASSED], checks="skipped wheel: no time was left\n"), 0, "skipped: check wheel: no time was left", "1 passed, 0 failed, 1 skipped")
expect(summary([PASSED], checks="failed tidy: no time was left\n"), 1, "failed: check tidy: no time was left", "1 passed, 1 failed, 0 skipped")
names = 'Gpu.One\nGpu.Two<test::Way<0>>\nGpu.Two<test::Way<1>>\nOther/Gpu.One/a_b  # GetParam() = "a.b"\n'
expect(summary([PASSED], "tests that need a GPU\n" + names), 0, "left out: preset: 4 tests that need a GPU", "  Gpu: One, Two", "  Other/Gpu: One/a_b", "1 passed, 0 failed, 0 skipped")
expect(summary([PASSED], ""), 0, "1 passed, 0 failed, 0 skipped")
