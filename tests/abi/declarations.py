#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""declarations.py HEADERS: what gigabar.h in the folder HEADERS declares, as C without comments; the compiler is $CC.

tests/abi/gigabar_1_0.h is this output of the first version, and is never changed. A release that adds functions or members adds its own:
  tests/abi/declarations.py include >tests/abi/gigabar_1_1.h
"""

import os
import re
import subprocess
import sys

HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tests/abi/declarations.py: what libgigabar.so.1 promised to C programs in one version. Never changed. */
/* clang-format off */
#include <stddef.h>
#include <stdint.h>
"""


def preprocessed(headers, *options):
    command = [os.environ.get("CC", "cc"), "-std=c11", "-E", *options, "-I", headers, "-x", "c", "-"]
    return subprocess.run(command, input="#include <gigabar.h>\n", check=True, capture_output=True, text=True).stdout.splitlines()


def constants(headers):
    """The macros that are numbers."""
    return sorted(line for line in preprocessed(headers, "-dM") if re.match(r"#define GIGABAR_\w+ \(?(U?INT|GIGABAR_)", line))


def declarations(headers):
    lines, is_ours = [], False
    for line in preprocessed(headers):
        if marker := re.match(r'# \d+ "([^"]*)"', line):
            is_ours = bool(re.search(r"(^|/)gigabar(\.h|/\w+\.h)$", marker[1]))
        elif is_ours and line.strip():
            lines.append(line.strip())
    one = re.sub(r"\s+", " ", " ".join(lines)).replace('__attribute__((visibility("default"))) ', "")
    return split(one)


def split(text):
    """One declaration a line, cut at the semicolons outside of braces."""
    result, begin, depth = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == ";" and depth == 0:
            result.append(text[begin:at + 1].strip())
            begin = at + 1
    return result


if __name__ == "__main__":
    print(HEAD + "\n".join(constants(sys.argv[1]) + declarations(sys.argv[1])))
