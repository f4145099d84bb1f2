#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""abi_test.py HEADERS: whether a program that was compiled with one of gigabar_1_*.h works with HEADERS: every declaration is still there, structures have grown at their end only, and no number has changed.

exit code: 0 it does, and the planted faults were found; 1 otherwise."""

import pathlib
import re
import sys

import declarations


def described(file):
    """Its macros and declarations."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith(("#include", "/*"))]
    return [line for line in lines if line[0] == "#"] + declarations.split(" ".join(line for line in lines if line[0] != "#"))


def structures(all_of_them):
    """Members in their order, by the structure's name."""
    found = {}
    for one in all_of_them:
        if shape := re.fullmatch(r"typedef struct (\w+) \{ (.*) \} \1;", one):
            found[shape[1]] = [member.strip() for member in shape[2].split(";") if member.strip()]
    return found


def numbers(all_of_them):
    return {name: value for one in all_of_them if one.startswith("enum {") for name, value in re.findall(r"(\w+) = (-?\d+)", one)}


def faults_of(before, now):
    faults = []
    old, new = structures(before), structures(now)
    for name, members in old.items():
        grown = new.get(name, [])
        if grown[:len(members)] != members:
            faults.append(f"{name}: its members have changed")
        elif len(grown) > len(members) and members[0] != "uint64_t struct_size":
            faults.append(f"{name}: has grown, and has no struct_size")
    for name, value in numbers(before).items():
        if numbers(now).get(name) != value:
            faults.append(f"{name}: is no longer {value}")
    # The mask of all members grows with the structure.
    kept = [one for one in before if "{" not in one and not re.match(r"#define \w+_ALL ", one)]
    return faults + [f"is gone or has changed: {one}" for one in kept if one not in now]


def check_the_check(before):
    """What each planted fault is answered with."""
    def planted(old, new):
        assert any(old in one for one in before), old
        return faults_of(before, [one.replace(old, new) for one in before])

    cases = [("a changed parameter", planted("size_t bytes, gigabar_allocator", "uint32_t bytes, gigabar_allocator"), 1),
             ("a function that is gone", faults_of(before, [one for one in before if " gigabar_unmap(" not in one]), 1),
             ("a renumbered status", planted("GIGABAR_BUSY = 9", "GIGABAR_BUSY = 19"), 1),
             ("a bit of another meaning", planted("#define GIGABAR_MAP_BACKEND (UINT64_C(1) << 0)", "#define GIGABAR_MAP_BACKEND (UINT64_C(1) << 3)"), 1),
             ("a member in the middle", planted("int32_t inherit_on_fork;", "int32_t other; int32_t inherit_on_fork;"), 1),
             ("a member at the end", planted("int32_t inherit_on_fork;", "int32_t inherit_on_fork; int32_t other;"), 0),
             ("a structure that never grows, grown", planted("preference gdr, p2p, bar, staged;", "preference gdr, p2p, bar, staged; int x;"), 1),
             ("nothing", faults_of(before, before), 0)]
    return [f"the check itself: {what} gave {faults}" for what, faults, count in cases if len(faults) != count]


def main():
    now = declarations.constants(sys.argv[1]) + declarations.declarations(sys.argv[1])
    files = sorted(pathlib.Path(__file__).parent.glob("gigabar_1_*.h"))
    faults = check_the_check(described(files[0]))
    for file in files:
        before = described(file)
        faults += [f"{file.name}: {fault}" for fault in faults_of(before, now)]
        if len(before) < 170 or len(structures(before)) < 10 or len(numbers(before)) < 50:
            faults.append(f"{file.name} has too few declarations to be the interface")
    print("\n".join(faults) or f"{len(files)} versions hold")
    return 1 if faults else 0


sys.exit(main())
