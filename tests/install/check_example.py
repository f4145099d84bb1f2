#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_example.py EXAMPLES PAGE...: every C and C++ program in the pages is, letter by letter, one of the examples, which are built and run;
and docs/README.md names, for each public header, at least two examples that include it, and names every example.
Pages leave out the line of the licence."""

import pathlib
import re
import sys

MIN_EXAMPLES = 2
LICENCE = re.compile(r"(// SPDX-License-Identifier: Apache-2.0|/\* SPDX-License-Identifier: Apache-2.0 \*/)\n")
folder = pathlib.Path(sys.argv[1])
examples = {LICENCE.sub("", path.read_text(), count=1): path.name for path in folder.glob("*.c*")}
shown, wrong = [], []
for page in sys.argv[2:]:
    for program in re.findall(r"^ *```(?:cpp|c\+\+|c|cuda)\n(.*?)^ *```$", pathlib.Path(page).read_text(), re.DOTALL | re.MULTILINE):
        (shown if program in examples else wrong).append(f"{page}: {examples.get(program, program[:200])}")
if len(shown) < 4:
    wrong.append(f"only {len(shown)} programs were found; the pages have more")
if wrong:
    wrong.insert(0, "no example is like this program:")

# --- The index of headers and examples ---
root = folder.parent
headers = root / "include"


def included(file):
    """The public headers that a file includes, itself or through others."""
    found = {header for header in re.findall(r'#include [<"]([\w/]+\.hp?p?)[">]', file.read_text()) if (headers / header).is_file()}
    return found.union(*(included(headers / header) for header in found))


index = (root / "docs" / "README.md").read_text()
named = {}
for row in re.findall(r"^\|.*\.\./include/.*\|$", index, re.MULTILINE):
    for header in re.findall(r"\.\./include/([\w/.]+)", row):
        named.setdefault(header, set()).update(re.findall(r"\.\./examples/([\w.]+)", row))
for header in sorted(str(path.relative_to(headers)) for path in headers.rglob("*.h*")):
    if header == "gigabar/export.hpp":  # one macro, for the other headers
        continue
    using = {name for name in named.get(header, set()) if (folder / name).is_file() and header in included(folder / name)}
    if len(using) < MIN_EXAMPLES:
        wrong.append(f"docs/README.md: {header} has {len(using)} examples that include it, not {MIN_EXAMPLES}")
missing = set(examples.values()) - set().union(*named.values())
wrong += [f"docs/README.md does not name the example {name}" for name in sorted(missing)]
sys.exit("\n".join(wrong) if wrong else None)
