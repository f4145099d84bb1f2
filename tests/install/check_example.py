#!/usr/bin/env python3
"""check_example.py PAGE EXAMPLE: the page's C++ program is the example that is built and run, letter by letter."""

import difflib
import pathlib
import re
import sys

page, example = (pathlib.Path(name).read_text() for name in sys.argv[1:])
programs = re.findall(r"^```cpp\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
if len(programs) != 1:
    sys.exit(f"the page has {len(programs)} C++ programs; one was expected")
difference = list(difflib.unified_diff(example.splitlines(), programs[0].splitlines(), sys.argv[2], sys.argv[1], lineterm=""))
sys.exit("\n".join(difference) or None)
