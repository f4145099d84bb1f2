#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""components_test.py SOURCE LIST: whether every component of SOURCE includes headers of the components in its DEPENDS, of all of them,
and of no others.

LIST has a line for each component, its fields separated by tabs: name, folder below src/, public headers and DEPENDS, both separated by
semicolons. A file belongs to the component of the nearest folder above it; a public header to the one that lists it.

exit code: 0 all do, and the planted faults were found; 1 otherwise.
"""

import dataclasses
import pathlib
import re
import sys

SUFFIXES = {".cpp", ".hpp", ".cu", ".h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^">]+)[">]', re.M)
# Made of all components: the shared library, and the program that it starts.
ABOVE_ALL = {"gigabar", "probe"}


@dataclasses.dataclass
class Component:
    folder: str
    headers: list
    depends: list


def read_list(text):
    components = {}
    for line in text.splitlines():
        name, folder, headers, depends = line.split("\t")
        components[name] = Component(folder, [h for h in headers.split(";") if h], [d for d in depends.split(";") if d])
    return components


def read_tree(source):
    """Every file of src/ and include/, named as an #include names it, with the headers that it includes."""
    tree = {}
    for top in ("src", "include"):
        for path in sorted((source / top).rglob("*")):
            name = path.relative_to(source / top)
            if path.suffix in SUFFIXES and name.parts[0] not in (ABOVE_ALL if top == "src" else ()):
                tree[str(name)] = INCLUDE.findall(path.read_text())
    return tree


def owner_of(name, components):
    for component, one in components.items():
        if name in one.headers:
            return component
    folders = {one.folder: component for component, one in components.items()}
    return next((folders[str(above)] for above in pathlib.PurePath(name).parents if str(above) in folders), None)


def cycle_in(components):
    """The components that depend on each other, or none."""
    left = dict(components)
    while free := [name for name, one in left.items() if not set(one.depends) & set(left)]:
        for name in free:
            del left[name]
    return sorted(left)


def faults_of(components, tree):
    owners = {name: owner_of(name, components) for name in tree}
    faults = [f"{name} belongs to no component: list it in HEADERS" for name, owner in owners.items() if owner is None]
    used = {name: set() for name in components}
    for name, includes in tree.items():
        for other in includes:
            below = owners.get(other)
            if below is None or owners[name] in (None, below):
                continue
            used[owners[name]].add(below)
            if below not in components[owners[name]].depends:
                faults.append(f"{name} includes {other} of '{below}', which is not in DEPENDS of '{owners[name]}'")
    for name, one in components.items():
        faults += [f"'{name}' has '{below}' in DEPENDS and includes nothing of it" for below in one.depends if below not in used[name]]
    if cycle := cycle_in(components):
        faults.append(f"depend on each other: {', '.join(cycle)}")
    return faults


def check_the_check():
    """What each planted fault is answered with; a rule that finds nothing would find nothing in the project either."""
    tree = {"low/a.hpp": [], "gigabar/low.hpp": [], "high/b.cpp": ["low/a.hpp", "gigabar/low.hpp", "vector"]}
    low, high = Component("low", ["gigabar/low.hpp"], []), Component("high", [], ["low"])
    cases = [
        ("nothing", {"low": low, "high": high}, tree, []),
        ("upwards", {"low": low, "high": high}, tree | {"low/c.cpp": ["high/b.hpp"], "high/b.hpp": []}, ["not in DEPENDS of 'low'"]),
        ("public header upwards", {"low": low, "high": Component("high", ["gigabar/high.hpp"], ["low"])},
         tree | {"gigabar/high.hpp": [], "gigabar/low.hpp": ["gigabar/high.hpp"]}, ["not in DEPENDS of 'low'"]),
        ("unused", {"low": low, "high": high, "top": Component("top", [], ["low"])}, tree, ["includes nothing of it"]),
        ("nobody's", {"low": Component("low", [], []), "high": high}, tree, ["belongs to no component"]),
        ("circle", {"low": Component("low", ["gigabar/low.hpp"], ["high"]), "high": high},
         tree | {"low/c.cpp": ["high/b.hpp"], "high/b.hpp": []}, ["depend on each other: high, low"]),
    ]
    for what, components, files, expected in cases:
        faults = faults_of(components, files)
        if len(faults) != len(expected) or any(part not in fault for part, fault in zip(expected, faults)):
            return [f"the check itself: '{what}' gave {faults}, not {expected}"]
    return []


def main():
    source, listed = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    faults = check_the_check()
    components, tree = read_list(listed.read_text()), read_tree(source)
    if len(components) < 10 or len(tree) < 100:
        faults.append(f"{len(components)} components and {len(tree)} files were found: too few to be the project")
    faults += faults_of(components, tree)
    for fault in faults:
        print(fault)
    print(f"{len(components)} components, {len(tree)} files, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
