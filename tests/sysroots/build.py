#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the constructed machines: archives in the format that `gigabar doctor --machine` opens.

build.py --out FOLDER              every machine, as FOLDER/<name>.json
build.py --check FOLDER            whether --out would write the same bytes again; exit status 1 when not
build.py --folder NAME FOLDER      one machine as a tree of files, to look at it with other programs
build.py --list                    the names
"""

import argparse
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import machines  # noqa: E402  (needs the path above)


def path_of(folder, name):
    return os.path.join(folder, f"{name}.json")


def read(folder, name):
    with open(path_of(folder, name), encoding="utf-8", newline="") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--out", metavar="FOLDER")
    task.add_argument("--check", metavar="FOLDER")
    task.add_argument("--folder", nargs=2, metavar=("NAME", "FOLDER"))
    task.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(machines.NAMES))
    elif options.folder:
        name, folder = options.folder
        if name not in machines.NAMES:
            parser.error(f"there is no machine '{name}'; the names are {', '.join(machines.NAMES)}")
        if os.path.isdir(folder) and os.listdir(folder):
            parser.error(f"{folder} is not empty")
        machines.build(name).write_folder(os.path.abspath(folder))
    elif options.check:
        differing = [name for name in machines.NAMES if read(options.check, name) != machines.build(name).to_json()]
        if differing:
            sys.exit(f"{options.check} has other archives of {', '.join(differing)}")
    else:
        os.makedirs(options.out, exist_ok=True)
        for name in machines.NAMES:
            with open(path_of(options.out, name), "w", encoding="utf-8", newline="\n") as file:
                file.write(machines.build(name).to_json())


if __name__ == "__main__":
    main()
