# SPDX-License-Identifier: Apache-2.0
"""The program `gigabar` that the wheel holds."""

import os
import sys
from pathlib import Path

PATH = Path(__file__).parent / "bin" / "gigabar"


def main() -> None:
    """Become the program."""
    os.execv(PATH, ["gigabar", *sys.argv[1:]])
