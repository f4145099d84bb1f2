#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of kernels of two builds of gigabar, in turns on one machine with two GPUs.

usage: bench/builds_in_turns.py --before PROGRAM --now PROGRAM [options]

Each round takes every case once by each program; who begins changes with the round. The figure of a program is the median of its
rounds (of a round: the median of its samples), and the ratio is that of the speeds, now to before. A case is slower where the ratio is
below --limit and the rounds of the two do not overlap.

exit code: 0 no case is slower; 1 one is, or a round failed; 2 wrong options.
"""

import argparse
import pathlib
import statistics
import sys

import reports

ROOT = pathlib.Path(__file__).resolve().parent.parent
LATENCY, BANDWIDTH, RATE = "device-latency", "device-bw", "device-rate"
UNITS = {LATENCY: "p50_us", BANDWIDTH: "p50_gb_per_s", RATE: "p50_million_per_s"}
CASES = [
    [LATENCY, "-i", "20000"],
    [LATENCY, "--op", "notify-ordered", "-i", "20000"],
    [LATENCY, "--op", "payload", "-i", "20000"],
    [LATENCY, "--op", "write-notify", "-m", "8:64K", "-i", "5000"],
    [LATENCY, "--op", "write-notify", "--scope", "thread", "-m", "8:8", "-i", "20000"],
    [LATENCY, "--op", "write-notify", "-m", "8:8", "-c", "-i", "20000"],
    [LATENCY, "--op", "read", "-m", "8:4K", "-i", "20000"],
    [LATENCY, "--op", "read", "--scope", "thread", "-m", "8:8", "-i", "20000"],
    [LATENCY, "--op", "fetch-add", "-i", "20000"],
    [LATENCY, "--op", "compare-swap", "-i", "20000"],
    [LATENCY, "--op", "barrier", "-i", "20000"],
    [LATENCY, "--queues", "1", "-i", "20000"],
    [LATENCY, "--op", "write-notify", "--queues", "1", "-m", "8:4K", "-i", "5000"],
    [LATENCY, "--op", "fetch-add", "--queues", "1", "-i", "5000"],
    [BANDWIDTH, "-m", "64K:16M", "-i", "60"],
    [BANDWIDTH, "--op", "read", "-m", "1M:16M", "-i", "60"],
    [RATE, "--threads", "256", "--blocks", "32"],
    [RATE, "--queues", "1"],
]


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--before", required=True, metavar="PROGRAM")
    parser.add_argument("--now", default=str(ROOT / "build/release/bin/gigabar"), metavar="PROGRAM", help="(default %(default)s)")
    parser.add_argument("--rounds", type=int, default=8, help="(default %(default)s)")
    parser.add_argument("--limit", type=float, default=0.98, metavar="RATIO", help="least ratio of the speeds (default %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write machine, date, command and all rounds")
    options = parser.parse_args(words)
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    return options


def speeds_of(command, report):
    return {(command, result.get("bytes", 0)): result[UNITS[command.split()[0]]] for result in report["results"]}


def ratio_of(command, before, now):
    before, now = statistics.median(before), statistics.median(now)
    return before / now if command.startswith(LATENCY) else now / before


def main(words):
    options = parse(words)
    programs = {"before": options.before, "now": options.now}
    rounds, head = {}, None
    for number in range(options.rounds):
        for case in CASES:
            for name in sorted(programs, reverse=number % 2 == 1):
                report = reports.report_of([programs[name], *case])
                head = head or report
                for key, figure in speeds_of(" ".join(case), report).items():
                    rounds.setdefault(key, {"before": [], "now": []})[name].append(figure)
    results, has_failed = [], False
    print(f"{'before':>10} {'now':>10} {'ratio':>6}")
    for (command, size), figures in rounds.items():
        ratio = ratio_of(command, figures["before"], figures["now"])
        is_apart = max(figures["now"]) < min(figures["before"]) or min(figures["now"]) > max(figures["before"])
        is_slower = ratio < options.limit and is_apart
        has_failed |= is_slower
        before, now = (statistics.median(figures[name]) for name in programs)
        results.append({"case": command, "bytes": size, "unit": UNITS[command.split()[0]], "before": before, "now": now, "ratio": ratio,
                        "rounds": figures})
        print(f"{before:>10.3f} {now:>10.3f} {ratio:>6.3f} {'SLOWER' if is_slower else '':6} {command} {size}", flush=True)
    if options.json:
        command = ["bench/builds_in_turns.py", "--rounds", str(options.rounds)]
        reports.write(options.json, "builds_in_turns", command, head, results=results)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
