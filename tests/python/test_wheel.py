# SPDX-License-Identifier: Apache-2.0
"""What the wheel holds beside the package."""

import ctypes
import subprocess
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


def test_both_libraries_load() -> None:
    folder = Path(gigabar.__file__).parent
    for name, function in [("libgigabar.so.1", "gigabar_version"), ("libgdrapi.so.2", "gdr_open")]:
        assert getattr(ctypes.CDLL(str(folder / "lib" / name)), function)
    assert (folder / "libexec" / "gigabar" / "gigabar-probe").is_file()
