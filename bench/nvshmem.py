#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what kernels of two ranks of this host do by Gigabar with the same by NVSHMEM, in turns: one JSON file.

usage: bench/nvshmem.py [options]

Needs nvcc and the Python package nvidia-nvshmem-cu13 (or --nvshmem). On a machine with one GPU both ranks share it; there CUDA's
Multi-Process Service must run (nvidia-cuda-mps-control -d). NVLink multicast stays off.

exit code: 0 everything was measured; 1 a run failed; 2 wrong options.
"""

import argparse
import importlib.util
import os
import pathlib
import statistics
import sys
import tempfile

import reports

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "bench/nvshmem_ping_pong.cu"

MIB = 1 << 20


def put_signal(size, *ways):
    return [(("put-signal", size, 512, 1), "device-latency", [*way, "-m", f"{size}:{size}"]) for way in ways]


WRITE = ["--op", "write-notify", "--scope", "block"]
MESSAGE = ["--op", "message", "--scope", "block"]
REPLY = ["--op", "reply", "--scope", "block"]
COUNT = ["--op", "write-count", "--scope", "blocks", "--blocks", "8"]
# What NVSHMEM's program calls it, bytes, threads, blocks; the same by gigabar, which may offer several ways.
PAIRS = [
    (("signal", 0, 1, 1), "device-latency", ["--op", "notify"]),
    (("fetch-add", 0, 1, 1), "device-latency", ["--op", "fetch-add"]),
    (("put-signal", 8, 1, 1), "device-latency", ["--op", "write-notify", "--scope", "thread", "-m", "8:8"]),
    (("put-signal", 8, 1, 1), "device-latency", ["--op", "message", "--scope", "warp", "-m", "8:8"]),
    (("put-signal", 8, 1, 1), "device-latency", ["--op", "reply", "--scope", "warp", "-m", "8:8"]),
    *put_signal(8, WRITE),
    *put_signal(1536, WRITE, MESSAGE, REPLY),
    *put_signal(6144, WRITE, MESSAGE, REPLY),
    *put_signal(12288, WRITE, MESSAGE, REPLY),
    *put_signal(49152, WRITE, MESSAGE, REPLY),
    *put_signal(65536, WRITE, COUNT),
    *put_signal(MIB // 4, WRITE, COUNT),
    *put_signal(MIB, WRITE, COUNT),
    *put_signal(4 * MIB, WRITE, COUNT),
    *((("put", 64 * MIB, 512, blocks), "device-bw", ["--op", "write", "--blocks", str(blocks), "-m", "64M:64M"]) for blocks in (16, 32, 64)),
]


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--gigabar", default=str(ROOT / "build/release/bin/gigabar"), help="the program (default %(default)s)")
    parser.add_argument("--nvcc", default="nvcc", help="(default %(default)s)")
    parser.add_argument("--nvshmem", metavar="FOLDER", help="with include/ and lib/ (default: the Python package's)")
    parser.add_argument("--rounds", type=int, default=3, help="(default %(default)s)")
    parser.add_argument("--json", metavar="FILE", required=True, help="write machine, date, commands and results")
    options = parser.parse_args(words)
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    if options.nvshmem is None:
        package = importlib.util.find_spec("nvidia.nvshmem")
        if package is None:
            parser.error("--nvshmem: the Python package nvidia-nvshmem-cu13 is not installed; name NVSHMEM's folder")
        options.nvshmem = list(package.submodule_search_locations)[0]
    return options


def build(options, folder):
    program = folder / "nvshmem_ping_pong"
    reports.run([options.nvcc, "-std=c++17", "-O2", "-rdc=true", "-arch=native", f"-I{options.nvshmem}/include", str(SOURCE), "-o", str(program),
                 f"-L{options.nvshmem}/lib", "-lnvshmem_device", "-l:libnvshmem_host.so.3", "-lcuda"])
    return program


def by_nvshmem(options, program, has_one_gpu):
    """p50 of each measure."""
    others = dict(os.environ, NVSHMEM_DISABLE_NVLS="1", NVSHMEM_REMOTE_TRANSPORT="none", NVSHMEM_SYMMETRIC_SIZE="256M",
                  LD_LIBRARY_PATH=f"{options.nvshmem}/lib:" + os.environ.get("LD_LIBRARY_PATH", ""))
    if has_one_gpu:
        others["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "50"  # without it NVSHMEM lets processes on one GPU not wait for each other
    with tempfile.TemporaryDirectory() as folder:
        lines = reports.run([str(program), folder], env=others).splitlines()
    return {(words[0], *map(int, words[1:4])): float(words[4]) for words in map(str.split, lines) if len(words) == 6}


def version_of(folder):
    words = (pathlib.Path(folder) / "include/non_abi/nvshmem_version.h").read_text().split()
    return ".".join(words[words.index(f"NVSHMEM_VENDOR_{part}_VERSION") + 1] for part in ("MAJOR", "MINOR", "PATCH"))


def main(words):
    options = parse(words)
    head = None
    rounds = [{"nvshmem": [], "gigabar": []} for _ in PAIRS]
    with tempfile.TemporaryDirectory() as folder:
        program = build(options, pathlib.Path(folder))
        for _ in range(options.rounds):
            for (_, command, arguments), both in zip(PAIRS, rounds):
                report = reports.report_of([options.gigabar, command, *arguments])
                head = head or report
                both["gigabar"].append(report["results"][0]["p50_us" if command == "device-latency" else "gb_per_s"])
            figures = by_nvshmem(options, program, head["results"][0]["path"] == "same GPU")
            for (what, _, _), both in zip(PAIRS, rounds):
                both["nvshmem"].append(figures[what])
    results = []
    for ((name, size, threads, blocks), command, arguments), both in zip(PAIRS, rounds):
        medians = {who: statistics.median(values) for who, values in both.items()}
        results.append({"nvshmem_op": name, "command": ["gigabar", command, *arguments], "bytes": size, "threads": threads, "blocks": blocks,
                        "path": head["results"][0]["path"], "unit": "us" if command == "device-latency" else "gb_per_s", **medians,
                        "rounds": both})
        way = arguments[arguments.index("--op") + 1]
        print(f"{name:>10} {size:>9} {blocks:>3} x {threads:<4} NVSHMEM {medians['nvshmem']:>9.3f}  gigabar {way} {medians['gigabar']:>9.3f}", flush=True)
    reports.write(options.json, "nvshmem", ["bench/nvshmem.py"], head, versions={"NVSHMEM": version_of(options.nvshmem)}, results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
