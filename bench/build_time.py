#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times what a newcomer does: ./run, ./test, ./test --quick and .ci/run in a fresh clone of this repository, each with nothing compiled.

usage: bench/build_time.py [options]

Every measurement has a clone of its own, and ccache a folder of its own that is empty: what one stage of .ci/run leaves there, the next
one finds, as on a new machine. With --no-cache ccache is off. Packages are installed before, and CUDA's wheels with them; that is timed
too, as `install_s`. The output goes to LOGS/NAME.log.

--bare NAME=TREE times ./run, with everything that it installs, in a copy of TREE, which debootstrap made:
  debootstrap --variant=minbase --include=ca-certificates,git bookworm TREE
It needs root. Of this machine the copy has /proc, /sys, what is in the environment, and the plain device nodes.

exit code: 0 every command ended well and within its limit (--limits); 1 one did not; 2 wrong options.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from processor import processor

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMANDS = {"run": ["./run"], "quick": ["./test", "--quick"], "test": ["./test"], "ci": ["bash", ".ci/run"]}
SLOWEST = 10  # translation units that are named
INSTALL = "source scripts/setup.sh; parse_options ''; if ! has_cuda_toolkit; then need_cuda_wheels; fi; need_packages \"${build_packages[@]}\""


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--what", metavar="LIST", help=f"of {','.join(COMMANDS)} (default: run)")
    parser.add_argument("--bare", action="append", default=[], metavar="NAME=TREE", help="may be repeated; then --what is none by default")
    parser.add_argument("--revision", default="HEAD", help="what is cloned (default %(default)s)")
    parser.add_argument("--no-cache", action="store_true", help="with ccache off, also between the stages of .ci/run")
    parser.add_argument("--limits", default="", metavar="LIST", help="most seconds, as in run=300,test=2400")
    parser.add_argument("--unit-limit", type=float, metavar="S", help="most seconds of one translation unit")
    parser.add_argument("--logs", type=pathlib.Path, metavar="FOLDER", help="(default: a new folder, which is named at the end)")
    parser.add_argument("--json", metavar="FILE", help="write machine, revision, date, commands and seconds; what FILE has of other commands stays")
    options = parser.parse_args(words)
    options.what = options.what.split(",") if options.what else [] if options.bare else ["run"]
    for entry in options.bare:
        if "=" not in entry or not os.path.isdir(entry.split("=", 1)[1]):
            parser.error(f"--bare '{entry}' is not NAME=TREE with a folder TREE")
    for name in options.what:
        if name not in COMMANDS:
            parser.error(f"--what '{name}' is not one of {', '.join(COMMANDS)}")
    try:
        options.limits = {name: float(seconds) for name, seconds in (entry.split("=") for entry in options.limits.split(",") if entry)}
    except ValueError:
        parser.error(f"--limits '{options.limits}' is not a list as in run=300,test=2400")
    return options


def system():
    with open("/etc/os-release", encoding="utf-8") as file:
        return dict(line.rstrip().split("=", 1) for line in file if "=" in line).get("PRETTY_NAME", "unknown").strip('"')


def output_of(*command):
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    return lines[0] if lines else None


def machine():
    return {
        "processor": processor(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "system": system(),
        "compiler": output_of("c++", "--version"),
    }


def units(build):
    """Seconds of each edge of the builds below the folder, the slowest first."""
    found = {}
    for log in build.glob("*/.ninja_log"):
        for line in log.read_text().splitlines():
            parts = line.split("\t")
            if len(parts) == 5 and parts[3].endswith((".o", ".gch", ".pch", ".fatbin")):
                found[f"{log.parent.name}/{parts[3]}"] = (int(parts[1]) - int(parts[0])) / 1000
    return sorted(found.items(), key=lambda unit: -unit[1])


def short(path):
    return re.sub(r"CMakeFiles/[^/]+\.dir/", "", path)


def cloned(folder, options):
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "--quiet", options.revision], check=True)
    return folder


def timed(command, clone, log, **how):
    """Runs it, and says what is measured of every command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    with open(log, "wb") as file:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False, **how).returncode
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = units(clone / "build")
    return {
        "revision": output_of("git", "-C", str(clone), "rev-parse", "--short", "HEAD"),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "exit_status": status,
        "seconds": round(seconds, 1),
        "processor_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "compiled": len(found),
        "compiled_s": round(sum(unit[1] for unit in found), 1),
        "slowest": [{"unit": short(unit), "seconds": round(unit_s, 1)} for unit, unit_s in found[:SLOWEST]],
        "stages": stages(log.read_text(errors="replace")),
    }


# Of this machine's /dev only what every program expects.
BARE_SCRIPT = """
mount -t tmpfs tmpfs "$0/dev"
for node in null zero full random urandom tty; do touch "$0/dev/$node"; mount --bind "/dev/$node" "$0/dev/$node"; done
mkdir "$0/dev/shm" "$0/dev/pts"
mount -t tmpfs tmpfs "$0/dev/shm"
ln -s /proc/self/fd "$0/dev/fd"
mount --rbind /proc "$0/proc"
mount --rbind /sys "$0/sys"
exec chroot "$0" /bin/bash -c 'cd /root/gigabar && exec ./run'
"""


def measure_bare(name, tree, options, folder):
    root = folder / name
    subprocess.run(["cp", "-a", tree, str(root)], check=True)
    clone = cloned(root / "root" / "gigabar", options)
    environment = {**os.environ, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-ec", BARE_SCRIPT, str(root)]
    result = timed(command, clone, options.logs / f"{name}.log", env=environment)
    result["command"] = "./run, in a bare tree"
    shutil.rmtree(root, ignore_errors=True)
    return result


def measure(name, options, folder):
    clone = cloned(folder / name, options)
    environment = {**os.environ, "CCACHE_DIR": str(folder / f"{name}-cache")}
    if options.no_cache:
        environment["CCACHE_DISABLE"] = "1"
    began = time.monotonic()
    subprocess.run(["bash", "-c", INSTALL], cwd=clone, env=environment, check=True, stdout=subprocess.DEVNULL)
    install_s = time.monotonic() - began
    result = timed(COMMANDS[name], clone, options.logs / f"{name}.log", cwd=clone, env=environment)
    result |= {"command": " ".join(COMMANDS[name]), "ccache": "off" if options.no_cache else "empty at first", "install_s": round(install_s, 1)}
    shutil.rmtree(clone, ignore_errors=True)
    return result


def stages(text):
    """Of .ci/run: seconds of each stage."""
    return {stage: int(seconds) for stage, seconds in re.findall(r"^=== ([\w-]+): (?:passed|FAILED) after (\d+) s", text, re.MULTILINE)}


def complaints(name, result, options):
    if result["exit_status"] != 0:
        yield f"{name}: exit status {result['exit_status']}; see {options.logs / name}.log"
    if name in options.limits and result["seconds"] > options.limits[name]:
        yield f"{name}: {result['seconds']} s, at most {options.limits[name]} were wanted"
    if options.unit_limit and result["slowest"] and result["slowest"][0]["seconds"] > options.unit_limit:
        yield f"{name}: {result['slowest'][0]['unit']} took {result['slowest'][0]['seconds']} s, at most {options.unit_limit} were wanted"


def write(path, results):
    document = {"tool": "build_time", "results": {}}
    if os.path.exists(path):
        document = json.loads(pathlib.Path(path).read_text())
    document["machine"] = machine()
    document["results"].update(results)
    pathlib.Path(path).write_text(json.dumps(document, indent=2) + "\n")


def main():
    options = parse(sys.argv[1:])
    options.logs = options.logs or pathlib.Path(tempfile.mkdtemp(prefix="build-time-logs-"))
    options.logs.mkdir(parents=True, exist_ok=True)
    options.logs = options.logs.resolve()
    failed = False
    with tempfile.TemporaryDirectory(prefix="build-time-") as folder:
        bare = dict(entry.split("=", 1) for entry in options.bare)
        for name in [*options.what, *bare]:
            how = (measure_bare, name, bare[name]) if name in bare else (measure, name)
            result = how[0](*how[1:], options, pathlib.Path(folder))
            print(f"{result['command']}: {result['seconds']:.0f} s, {result['processor_s']:.0f} processor-seconds, exit status {result['exit_status']}")
            print(f"  {result['compiled']} units in {result['compiled_s']:.0f} s; the slowest:")
            for unit in result["slowest"]:
                print(f"  {unit['seconds']:7.1f} s  {unit['unit']}")
            for stage, seconds in result["stages"].items():
                print(f"  {seconds:5} s  stage {stage}")
            for line in complaints(name, result, options):
                failed = True
                print(f"build_time.py: {line}", file=sys.stderr)
            if options.json:
                write(options.json, {name: result})
            sys.stdout.flush()
    print(f"logs: {options.logs}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
