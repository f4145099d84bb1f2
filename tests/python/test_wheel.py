# SPDX-License-Identifier: Apache-2.0
"""What the wheel holds beside the package."""

import ctypes
import json
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import gigabar


def test_the_program_runs() -> None:
    program = Path(sysconfig.get_path("scripts")) / "gigabar"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    assert version("gigabar") in said
    wrong = subprocess.run([program, "--no-such-option"], capture_output=True, text=True, timeout=30)
    assert wrong.returncode == 2 and "--no-such-option" in wrong.stderr


def test_a_report_is_made(tmp_path: Path) -> None:
    document, page = tmp_path / "document.json", tmp_path / "page.html"
    document.write_text(json.dumps(gigabar.topology().to_dict()))
    program = Path(sysconfig.get_path("scripts")) / "gigabar"
    subprocess.run([program, "report", document, "-o", page, "--python", sys.executable], timeout=60, check=True)
    assert "NUMA node 0" in page.read_text()


def test_both_libraries_load() -> None:
    folder = Path(gigabar.__file__).parent
    for name, function in [("libgigabar.so.1", "gigabar_version"), ("libgdrapi.so.2", "gdr_open")]:
        assert getattr(ctypes.CDLL(str(folder / "lib" / name)), function)
    assert (folder / "libexec" / "gigabar" / "gigabar-probe").is_file()
