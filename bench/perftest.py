#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `gigabar latency` and `gigabar bw` with perftest's ib_write_lat, ib_send_lat and ib_write_bw, side by side on one machine; with
--measures "mpi latency,mpi bandwidth" (over rxe) with Open MPI over UCX, and with "libfabric latency" (over siw) with fi_pingpong.

usage: tests/vm/guest -- bench/perftest.py [options]

A write is compared as perftest does it: the target looks at its memory (`--op put`). What a write with a notification takes, which
is what programs do and perftest does not have, is shown beside it against the same figure; it has no limit. Over rxe, where a
notification is a second write, it is also compared with two writes by bench/two_writes.c (`write+word`).

Rounds of the two alternate, each a process pair of its own between the two devices of a network, in host memory. The figure of a round
is what the tool itself calls typical (the median of a latency, the average of a bandwidth); the figure of a tool is the median of its
rounds. A round that is worse than 1.4 times the tool's best one (--disturbed) was disturbed: the two processes did not run at the same
time, which virtual processors of a busy machine do not always. Such rounds are counted, told, and made up for by further ones.
With --by-best the best samples of all rounds are compared instead, which a busy machine spoils least.

exit code: 0 every ratio is within its limit; 1 one is not; 2 wrong options; 77 perftest or the devices are not there.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = 77
ROUND_DEADLINE_S = 60
COPIED_BYTES = 4096  # longer writes are not copied, and wait for no word
DEPTH = 128  # writes under way: perftest's own depth, and that of a link
MOST_WINDOW = 512  # of gigabar
CONNECT_ATTEMPTS = 40
CONNECT_PAUSE_S = 0.25
PORTS = range(18600, 19600)  # one after the other, so that no round meets the end of the one before


@dataclasses.dataclass
class Network:
    name: str
    first: str  # devices
    second: str
    options: list  # of perftest
    server: str  # where its client finds its server


@dataclasses.dataclass
class Measure:
    name: str
    command: list  # of gigabar
    tool: str  # beside it
    is_latency: bool
    network: str = ""  # where that tool works; empty: everywhere


@dataclasses.dataclass
class Round:
    typical: float  # us, or MB/s
    best: float


MEASURES = [
    Measure("write latency", ["latency", "--op", "put"], "ib_write_lat", True),
    Measure("write+notify", ["latency", "--op", "write"], "ib_write_lat", True),
    Measure("write+word", ["latency", "--op", "write"], "two_writes", True, "rxe"),
    Measure("send latency", ["latency", "--op", "send"], "ib_send_lat", True),
    Measure("write bandwidth", ["bw", "--op", "write"], "ib_write_bw", False),
    Measure("mpi latency", ["latency", "--op", "send"], "mpirun", True, "rxe"),
    Measure("mpi bandwidth", ["bw", "--op", "send"], "mpirun", False, "rxe"),
    Measure("libfabric latency", ["latency", "--op", "send"], "fi_pingpong", True, "siw"),
]
USUAL = [measure.name for measure in MEASURES if measure.tool.startswith("ib_") or measure.tool == "two_writes"]
PACKAGES = {"two_writes": "gcc, libibverbs-dev", "mpirun": "openmpi-bin, libopenmpi-dev", "fi_pingpong": "libfabric-bin"}
SOURCES = {"mpirun": ROOT / "bench/mpi_ping_pong.c", "two_writes": ROOT / "bench/two_writes.c"}  # compiled when they are needed
# Over verbs, one device per rank. By the link-local address: with that of IPv4 UCX 1.13 finds no peer over soft-RoCE.
MPI_OPTIONS = ["--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
MPI_RANK = ["-n", "1", "-x", "UCX_TLS=rc_verbs,ud_verbs,self", "-x", "UCX_IB_GID_INDEX=0"]


class Failed(Exception):
    """A round that gave no figure, and why."""


def bytes_of(text):
    units = {"K": 1 << 10, "M": 1 << 20}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not number.isdecimal() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no size")
    return int(number) * unit


def list_of(kind):
    return lambda text: [kind(word) for word in text.split(",")]


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--gigabar", default=str(ROOT / "build/release/bin/gigabar"), help="the program (default %(default)s)")
    parser.add_argument("--networks", type=list_of(str), default=["rxe", "siw"], help="rxe, siw or both (default both)")
    parser.add_argument("--measures", type=list_of(str), default=USUAL, help="default: %(default)s")
    parser.add_argument("--sizes", type=list_of(bytes_of), default=[8, 64, 1024], help="of latencies (default 8,64,1K)")
    parser.add_argument("--bw-sizes", type=list_of(bytes_of), default=[65536, 1 << 20], help="of bandwidths (default 64K,1M)")
    parser.add_argument("--iterations", type=int, default=1000, help="of a latency's round (default %(default)s)")
    parser.add_argument("--bw-bytes", type=bytes_of, default=64 << 20, help="that a bandwidth's round moves (default 64M)")
    parser.add_argument("--rounds", type=int, default=5, help="undisturbed ones of each tool (default %(default)s)")
    parser.add_argument("--most-rounds", type=int, default=20, help="of each tool, disturbed ones with them (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=1500, help="after which only missing figures are still measured (default %(default)s)")
    parser.add_argument("--by-best", action="store_true", help="judge by the shortest sample, or the best round of a bandwidth")
    parser.add_argument("--disturbed", type=float, default=1.4, help="how much worse than the best round one counts as that (default %(default)s)")
    parser.add_argument("--write-limit", type=float, default=1.25, help="most of gigabar/perftest (default %(default)s)")
    parser.add_argument("--send-limit", type=float, default=1.35, help="the same (default %(default)s)")
    parser.add_argument("--bw-limit", type=float, default=0.95, help="least of gigabar/perftest (default %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="tell each round")
    parser.add_argument("--json", metavar="FILE", help="write machine, date, command and all rounds")
    options = parser.parse_args(words)
    known = [measure.name for measure in MEASURES]
    for name in options.measures:
        if name not in known:
            parser.error(f"'{name}' is not one of {', '.join(known)}")
    if set(options.networks) - {"rxe", "siw"}:
        parser.error("networks are rxe and siw")
    if options.rounds < 1 or options.most_rounds < options.rounds:
        parser.error("--most-rounds is below --rounds, or nothing is to be done")
    return options


def networks_of(options):
    made = {
        # The exchange before the test goes over loopback; the devices are named.
        "rxe": Network("rxe", "rxe0", "rxe1", ["-x", "1"], "127.0.0.1"),
        # iWARP connects by rdma_cm only.
        "siw": Network("siw", "siw0", "siw1", ["-R"], os.environ.get("GIGABAR_VM_SIW_PEER", "10.78.0.2")),
    }
    return [made[name] for name in options.networks]


def why_not(options, cases):
    """Why nothing can be compared here, or nothing."""
    if not cases:
        return "no measure is left of these sizes over these networks"
    for tool in sorted({case.measure.tool for case in cases}):
        if shutil.which("cc" if tool == "two_writes" else tool) is None:
            return f"{tool} is not installed (package {PACKAGES.get(tool, 'perftest')})"
    for network in networks_of(options):
        for device in (network.first, network.second):
            if not os.path.exists(f"/sys/class/infiniband/{device}"):
                return f"there is no RDMA device {device}"
    return None


# --- One round -------------------------------------------------------------------------------------------------------------------


def run(command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ROUND_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"no end after {ROUND_DEADLINE_S} s: {' '.join(command)}") from late
    return done


def last_line(text):
    return (text.strip().splitlines() or ["nothing"])[-1]


def rounds_of(options, measure, size):
    """Iterations, and writes of each where a bandwidth is measured. ib_write_bw waits once, behind its last write; gigabar behind each
    window, so that one window is what perftest writes. The link has DEPTH under way in any window."""
    if measure.is_latency:
        return options.iterations, DEPTH
    writes = max(options.bw_bytes // size, DEPTH)
    return (1, min(writes, MOST_WINDOW)) if measure.tool == "ib_write_bw" else (max(writes // DEPTH, 2), DEPTH)


def gigabar_command(options, network, measure, size):
    count, window = rounds_of(options, measure, size)
    window = [] if measure.is_latency else ["-W", str(window)]
    rails = ["--transport", "verbs", "--rails", f"{network.first},{network.second}", "--rail-policy", "fixed"]
    return [options.gigabar, *measure.command, *rails, "-m", f"{size}:{size}", "-i", str(count), *window]


def gigabar_round(options, network, measure, size):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "result.json")
        done = run([*gigabar_command(options, network, measure, size), "--json", str(path)])
        if done.returncode != 0:
            raise Failed(f"gigabar: {last_line(done.stderr)}")
        result = json.loads(path.read_text())["results"][0]
    if result["path"]["transport"] != "verbs":
        raise Failed(f"gigabar took {result['path_text']}")
    if not measure.is_latency:
        return Round(result["mb_per_s"], result["mb_per_s"])
    return Round(result["p50_us"], result["min_us"])


def mpi_round(options, network, measure, size):
    count, window = rounds_of(options, measure, size)
    program = [options.programs["mpirun"], "latency" if measure.is_latency else "bw", str(size), str(count), str(window)]
    ranks = [[*MPI_RANK, "-x", f"UCX_NET_DEVICES={device}:1", *program] for device in (network.first, network.second)]
    done = run(["mpirun", *MPI_OPTIONS, *ranks[0], ":", *ranks[1]])
    if done.returncode != 0:
        raise Failed(f"mpirun: {last_line(done.stderr + done.stdout)}")
    figure = float(last_line(done.stdout))
    return Round(figure, figure)


def libfabric_round(options, network, size):
    command = ["fi_pingpong", "-p", "verbs", "-e", "msg", "-I", str(options.iterations), "-S", str(size)]
    with subprocess.Popen([*command, "-d", network.second], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            time.sleep(4 * CONNECT_PAUSE_S)
            done = run([*command, "-d", network.first, network.server])
        finally:
            server.kill()
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) >= 7 and words[0] == ("1k" if size == 1024 else str(size)):
            return Round(float(words[-2]), float(words[-2]))  # bytes, sent, acknowledged, total, time, MB/s, us one way, rate
    raise Failed(f"fi_pingpong: {last_line(done.stdout + done.stderr)}")


def two_writes_round(options, network, size):
    done = run([options.programs["two_writes"], network.first, network.second, str(size), str(options.iterations)])
    if done.returncode != 0:
        raise Failed(f"two_writes: {last_line(done.stderr)}")
    best, typical = done.stdout.split()
    return Round(float(typical), float(best))


def beside_round(options, network, measure, size, ports):
    if measure.tool == "two_writes":
        return two_writes_round(options, network, size)
    if measure.tool == "mpirun":
        return mpi_round(options, network, measure, size)
    if measure.tool == "fi_pingpong":
        return libfabric_round(options, network, size)
    return perftest_round(options, network, measure, size, next(ports))


def perftest_command(options, network, measure, size):
    count, window = rounds_of(options, measure, size)
    count = count if measure.is_latency else window
    return [measure.tool, *network.options, "-s", str(size), "-n", str(count), *([] if measure.is_latency else ["--report_gbits"])]


def perftest_round(options, network, measure, size, port):
    command = [*perftest_command(options, network, measure, size), "-p", str(port)]
    with subprocess.Popen([*command, "-d", network.second], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(CONNECT_ATTEMPTS):
                time.sleep(CONNECT_PAUSE_S)
                done = run([*command, "-d", network.first, network.server])
                if done.returncode == 0 or server.poll() is not None:
                    break
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(10)
        finally:
            server.kill()
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) >= 5 and words[0] == str(size):
            # Latency: bytes, iterations, least, most, typical. Bandwidth: bytes, iterations, peak, average in Gb/s.
            if not measure.is_latency:
                return Round(float(words[3]) * 125, float(words[3]) * 125)
            return Round(float(words[4]), float(words[2]))
    raise Failed(f"{measure.tool}: {last_line(done.stdout + done.stderr)}")


# --- All rounds ------------------------------------------------------------------------------------------------------------------


def undisturbed(rounds, is_latency, factor):
    figures = [each.typical for each in rounds]
    if is_latency:
        return [figure for figure in figures if figure <= factor * min(figures)]
    return [figure for figure in figures if figure * factor >= max(figures)]


def figure_of(rounds, measure, options):
    if options.by_best:
        return (min if measure.is_latency else max)(each.best for each in rounds)
    return statistics.median(undisturbed(rounds, measure.is_latency, options.disturbed))


class Case:
    """One measure of one size on one network, and its rounds so far."""

    def __init__(self, options, network, measure, size):
        self.options, self.network, self.measure, self.size = options, network, measure, size
        self.rounds = {"beside": [], "gigabar": []}
        self.failures = []

    def run_round(self, turn, ports):
        for name in sorted(self.rounds, reverse=turn % 2 == 0):
            begin = time.monotonic()
            try:
                if name == "gigabar":
                    self.rounds[name].append(gigabar_round(self.options, self.network, self.measure, self.size))
                else:
                    self.rounds[name].append(beside_round(self.options, self.network, self.measure, self.size, ports))
                said = str(self.rounds[name][-1])
            except Failed as failure:
                said = str(failure)
                self.failures.append(said)
            if self.options.verbose:
                seconds = time.monotonic() - begin
                print(f"{self.network.name} {self.measure.name} {self.size} {name}: {said} in {seconds:.1f} s", file=sys.stderr, flush=True)

    def good_counts(self):
        latency, factor = self.measure.is_latency, self.options.disturbed
        return {name: len(undisturbed(rounds, latency, factor)) if rounds else 0 for name, rounds in self.rounds.items()}

    def has_all(self):
        return all(self.rounds.values())

    def is_done(self):
        return min(self.good_counts().values()) >= self.options.rounds

    def limit(self):
        if self.measure.tool == "ib_write_bw":
            return self.options.bw_limit
        limits = {"ib_send_lat": self.options.send_limit} | dict.fromkeys(("ib_write_lat", "two_writes"), self.options.write_limit)
        return None if self.measure.name == "write+notify" else limits.get(self.measure.tool)

    def result(self):
        options, network, measure, limit = self.options, self.network, self.measure, self.limit()
        result = {
            "network": network.name,
            "measure": measure.name,
            "beside_tool": measure.tool,
            "bytes": self.size,
            "unit": "us" if measure.is_latency else "mb_per_s",
            "limit": limit,
            "rounds": {name: [dataclasses.asdict(each) for each in rounds] for name, rounds in self.rounds.items()},
            "is_by_best": options.by_best,
            "undisturbed": self.good_counts(),
            "failures": self.failures,
            "gigabar_command": " ".join(["gigabar", *gigabar_command(options, network, measure, self.size)[1:]]),
            "gigabar": None,
            "beside": None,
            "ratio": None,
            "is_within": False,
        }
        if self.has_all():
            result |= {name: figure_of(rounds, measure, options) for name, rounds in self.rounds.items()}
            result["ratio"] = result["gigabar"] / result["beside"]
            result["is_within"] = limit is None or (result["ratio"] <= limit if measure.is_latency else result["ratio"] >= limit)
        return result


def cases_of(options):
    return [
        Case(options, network, measure, size)
        for network in networks_of(options)
        for measure in MEASURES
        if measure.name in options.measures and measure.network in ("", network.name)
        for size in (options.sizes if measure.is_latency else options.bw_sizes)
        if measure.tool != "two_writes" or size <= COPIED_BYTES
    ]


def run_rounds(options, cases):
    """All cases in turn, so that each one's rounds are spread over the whole time."""
    ports = iter(PORTS)
    end = time.monotonic() + options.seconds
    for turn in range(options.most_rounds):
        for case in cases:
            if case.is_done() or (case.has_all() and time.monotonic() >= end):
                continue
            case.run_round(turn, ports)
            if options.json:
                write_json(options, [case.result() for case in cases])
        if all(case.is_done() for case in cases):
            return


def show(result):
    if result["ratio"] is None:
        print(f"{result['network']:4} {result['measure']:16} {result['bytes']:8}  no figure: {last_line('; '.join(result['failures']))}", flush=True)
        return
    counts = " ".join(f"{result['undisturbed'][name]}/{len(result['rounds'][name])}" for name in ("beside", "gigabar"))
    verdict = "" if result["is_within"] else f"  missed: the limit is {result['limit']}"
    figures = f"{result['beside']:9.2f} {result['gigabar']:9.2f} {result['ratio']:6.2f}"
    print(f"{result['network']:4} {result['measure']:16} {result['bytes']:8} {figures}  {counts}{verdict}", flush=True)


def version_of(command):
    done = run(command)
    lines = [line.strip() for line in (done.stdout or done.stderr).splitlines() if any(letter.isdigit() for letter in line)]
    return lines[0] if lines else "unknown"


def cpu():
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown"


def write_json(options, results):
    document = {
        "schema": 1,
        "tool": "perftest",
        "command": ["bench/perftest.py", *sys.argv[1:]],
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": {
            "host": platform.node(),
            "cpu": cpu(),
            "kernel": platform.release(),
            "cores": os.cpu_count(),
            "is_virtual": "GIGABAR_VM_JOB" in os.environ,
        },
        "versions": options.versions,
        "units": {"us": "microseconds, one way", "mb_per_s": "10^6 bytes per second"},
        "results": results,
    }
    pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def compiled(tool, folder):
    program = str(pathlib.Path(folder, tool))
    compiler, library = ("mpicc", []) if tool == "mpirun" else ("cc", ["-libverbs"])
    if (made := run([compiler, "-O2", "-o", program, str(SOURCES[tool]), *library])).returncode != 0:
        missing = [line for line in made.stderr.splitlines() if "No such file" in line or "cannot find -l" in line]
        if not missing:
            sys.exit(f"{compiler}: {last_line(made.stderr)}")
        print(f"skipped: {missing[0]} ({PACKAGES[tool]})")
        sys.exit(SKIPPED)
    return program


def main():
    options = parse(sys.argv[1:])
    cases = cases_of(options)
    if reason := why_not(options, cases):
        print(f"skipped: {reason}")
        return SKIPPED
    tools = {case.measure.tool for case in cases}
    if any(tool.startswith("ib_") for tool in tools):
        tools = {tool for tool in tools if not tool.startswith("ib_")} | {"ib_write_lat"}
    programs = {"fi_pingpong": "fi_info"}  # has no version of its own
    options.versions = {tool: version_of([programs.get(tool, tool), "--version"]) for tool in sorted(tools - {"two_writes"})}
    options.versions["gigabar"] = version_of([options.gigabar, "--version"])
    with tempfile.TemporaryDirectory() as folder:
        options.programs = {tool: compiled(tool, folder) for tool in tools if tool in SOURCES}
        run_rounds(options, cases)
    print(f"# us one way, or MB/s; {'the best samples' if options.by_best else 'medians of rounds'}; rounds: undisturbed/all of the other, of gigabar")
    print(f"# {'net':2} {'measure':16} {'bytes':>8} {'beside':>9} {'gigabar':>9} {'ratio':>6}  rounds")
    results = [case.result() for case in cases]
    for result in results:
        show(result)
    return 0 if all(result["is_within"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
