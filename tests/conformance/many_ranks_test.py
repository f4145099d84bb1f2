#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wires up many stand-in ranks on this machine with `gigabar run` and many_ranks, within a minute.

--ranks is lowered to what the limits of this process and its memory leave, and never below 16. --plant-fault checks the check: one
rank writes something else, and the job must end with an error that names it.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import time

LIMIT_SECONDS = 60
RANK_BYTES = 4 << 20  # more than a rank was ever seen to hold alone
LEAST = 16


def allowed(limit, wanted):
    """The number of ranks that a soft limit allows; `wanted` where there is none."""
    soft, _ = resource.getrlimit(limit)
    return wanted if soft == resource.RLIM_INFINITY else soft


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as file:
        return int(re.search(r"^MemAvailable:\s+(\d+) kB", file.read(), re.MULTILINE).group(1)) * 1024


def rank_count(wanted):
    # Rank 0 has a descriptor for each other one, and 64 for itself; a rank has three threads.
    by_limits = min(allowed(resource.RLIMIT_NOFILE, wanted + 128) - 128, allowed(resource.RLIMIT_NPROC, 4 * wanted) // 4)
    count = min(wanted, by_limits, available_bytes() // 2 // RANK_BYTES)
    if count < LEAST:
        sys.exit(f"the limits of this process or its memory leave room for {count} ranks; {LEAST} are the least")
    return count


def run(options, count, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIGABAR_")}
    environment["GIGABAR_TRANSPORTS"] = options.transports
    command = [options.program, "run", "-n", str(count), "--stand-in", "1", "--timeout", str(LIMIT_SECONDS), "--", options.rank_program,
               *arguments, "--seconds", str(LIMIT_SECONDS)]
    begin = time.monotonic()
    ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=LIMIT_SECONDS + 30, check=False)
    return ended, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--rank-program", required=True)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--transports", default="local")
    parser.add_argument("--plant-fault", action="store_true")
    options = parser.parse_args()
    count = rank_count(options.ranks)
    if options.plant_fault:
        ended, _ = run(options, count, "--plant-fault", "3")
        if ended.returncode != 1 or "is not what rank 3 wrote" not in ended.stderr:
            sys.exit(f"wrong data was not found: status {ended.returncode}\n{ended.stdout}{ended.stderr}")
        return
    ended, took_seconds = run(options, count, "--neighbours", "4")
    print(f"{took_seconds:.1f} s with the start and the end of the processes\n{ended.stdout}{ended.stderr}", end="")
    if ended.returncode != 0 or not ended.stdout.startswith(f"{count} ranks: "):
        sys.exit(f"status {ended.returncode}")
    if count < options.ranks:
        print(f"only {count} of {options.ranks} ranks: see the limits of this process")


main()
