#!/usr/bin/env python3
"""Compares the bandwidth between two ranks, GPU to GPU, with that of copies in one process (cudaMemcpyPeerAsync), in turns.

usage: bench/beside_copies.py [options]

Each round runs, for each size, `gigabar streams` with the copy engine that reads and the one that writes, then `gigabar bw --kind write`
between two ranks of this host. All meet the same machine; the figure of each is the median of its rounds, and the ratio is that to
the better of the two copies.

exit code: 0 every ratio is at least --limit; 1 one is not, or a round failed; 2 wrong options.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEADLINE_S = 120
BATCH_BYTES = 4 << 30  # that the copies of a round move, at most
MOST_COPIES = 512


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--gigabar", default=str(ROOT / "build/release/bin/gigabar"), help="the program (default %(default)s)")
    parser.add_argument("--mib", default="4,16,64", help="sizes in MiB (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--limit", type=float, default=0.95, help="least ratio (default %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write machine, date, command and all rounds")
    options = parser.parse_args(words)
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    if not all(size.isdecimal() and int(size) > 0 for size in options.mib.split(",")):
        parser.error(f"--mib '{options.mib}' is no list of sizes")
    return options


def report_of(command):
    """What a command of gigabar writes as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "report.json"
        done = subprocess.run([*command, "--json", str(file)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}")
        return json.loads(file.read_text())


def copies(options, executor, mib):
    count = max(16, min(MOST_COPIES, BATCH_BYTES // (mib << 20)))
    report = report_of([options.gigabar, "streams", "-t", f"gpu0->gpu1 {executor} bytes={mib}M iterations={count}", "--repeats", "3",
                        "--no-verify"])
    return report, report["results"][0]["transfers"][0]["life_gb_per_s"]["median"]


def ranks(options, mib):
    size = f"{mib}M:{mib}M"
    report = report_of([options.gigabar, "bw", "-d", "cuda", "D", "D", "--kind", "write", "--transport", "local", "-m", size])
    return report["results"][0]["p50_mb_per_s"] / 1e3


def main(words):
    options = parse(words)
    sizes = [int(size) for size in options.mib.split(",")]
    kinds = ("ce-pull", "ce-push", "ranks")
    rounds = {(mib, kind): [] for mib in sizes for kind in kinds}
    for _ in range(options.rounds):
        for mib in sizes:
            for executor in kinds[:2]:
                head, rate = copies(options, executor, mib)
                rounds[mib, executor].append(rate)
            rounds[mib, "ranks"].append(ranks(options, mib))
    results = []
    print(f"{'MiB':>6} {'copies, GB/s':>13} {'ranks, GB/s':>12} {'ratio':>6}")
    for mib in sizes:
        medians = {kind: statistics.median(rounds[mib, kind]) for kind in kinds}
        best = max(medians["ce-pull"], medians["ce-push"])
        results.append({"bytes": mib << 20, "copies_gb_per_s": best, "ranks_gb_per_s": medians["ranks"], "ratio": medians["ranks"] / best,
                        "rounds_gb_per_s": {kind: rounds[mib, kind] for kind in kinds}})
        print(f"{mib:>6} {best:>13.1f} {medians['ranks']:>12.1f} {medians['ranks'] / best:>6.3f}")
    if options.json:
        report = {"schema": 1, "tool": "beside_copies", "command": ["bench/beside_copies.py", *words],
                  "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "machine": head["machine"],
                  "device": head["device"], "results": results}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(result["ratio"] >= options.limit for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
