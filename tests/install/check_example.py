#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_example.py EXAMPLES PAGE...: every C and C++ program in the pages is, letter by letter, one of the examples, which are built and run.
Pages leave out the line of the licence."""

import pathlib
import re
import sys

LICENCE = re.compile(r"(// SPDX-License-Identifier: Apache-2.0|/\* SPDX-License-Identifier: Apache-2.0 \*/)\n")
examples = {LICENCE.sub("", path.read_text(), count=1): path.name for path in pathlib.Path(sys.argv[1]).glob("*.c*")}
shown, wrong = [], []
for page in sys.argv[2:]:
    for program in re.findall(r"^ *```(?:cpp|c\+\+|c|cuda)\n(.*?)^ *```$", pathlib.Path(page).read_text(), re.DOTALL | re.MULTILINE):
        (shown if program in examples else wrong).append(f"{page}: {examples.get(program, program[:200])}")
if len(shown) < 4:
    wrong.append(f"only {len(shown)} programs were found; the pages have more")
sys.exit("\n".join(["no example is like this program:", *wrong]) if wrong else None)
