#!/usr/bin/env python3
"""Compares `gigabar latency` and `gigabar bw` with perftest's ib_write_lat, ib_send_lat and ib_write_bw, side by side on one machine.

usage: tests/vm/guest -- bench/perftest.py [options]

Rounds of the two alternate, each a process pair of its own between the two devices of a network, in host memory. The figure of a round
is what the tool itself calls typical (the median of a latency, the average of a bandwidth); the figure of a tool is the median of its
rounds. A round that is worse than twice the tool's best one (--disturbed) was disturbed: the two processes did not run at the same
time, which virtual processors of a busy machine do not always. Such rounds are counted, told, and made up for by further ones.

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
ROUND_DEADLINE_S = 90
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
    tool: str  # of perftest
    is_latency: bool


MEASURES = [
    Measure("write latency", ["latency", "--kind", "write"], "ib_write_lat", True),
    Measure("send latency", ["latency", "--kind", "send"], "ib_send_lat", True),
    Measure("write bandwidth", ["bw", "--kind", "write"], "ib_write_bw", False),
]


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
    parser.add_argument("--measures", type=list_of(str), default=[measure.name for measure in MEASURES], help="default: %(default)s")
    parser.add_argument("--sizes", type=list_of(bytes_of), default=[8, 64, 1024], help="of latencies (default 8,64,1K)")
    parser.add_argument("--bw-sizes", type=list_of(bytes_of), default=[65536, 1 << 20], help="of bandwidths (default 64K,1M)")
    parser.add_argument("--iterations", type=int, default=1000, help="of a latency's round (default %(default)s)")
    parser.add_argument("--bw-bytes", type=bytes_of, default=64 << 20, help="that a bandwidth's round moves, at least (default 64M)")
    parser.add_argument("--rounds", type=int, default=5, help="undisturbed ones of each tool (default %(default)s)")
    parser.add_argument("--most-rounds", type=int, default=20, help="of each tool, disturbed ones with them (default %(default)s)")
    parser.add_argument("--disturbed", type=float, default=2.0, help="how much worse than the best round one counts as that (default %(default)s)")
    parser.add_argument("--write-limit", type=float, default=1.25, help="most of gigabar/perftest (default %(default)s)")
    parser.add_argument("--send-limit", type=float, default=1.35, help="the same (default %(default)s)")
    parser.add_argument("--bw-limit", type=float, default=0.95, help="least of gigabar/perftest (default %(default)s)")
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


def why_not(options):
    """Why nothing can be compared here, or nothing."""
    for tool in ("ib_write_lat", "ib_send_lat", "ib_write_bw"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (package perftest)"
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


def gigabar_command(options, network, measure, size, count):
    rails = ["--transport", "verbs", "--rails", f"{network.first},{network.second}", "--rail-policy", "fixed"]
    return [options.gigabar, *measure.command, *rails, "-m", f"{size}:{size}", "-i", str(count)]


def gigabar_round(options, network, measure, size):
    count = options.iterations
    if not measure.is_latency:
        count = max(options.bw_bytes // (64 * size), 2)  # windows of 64
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "result.json")
        done = run([*gigabar_command(options, network, measure, size, count), "--json", str(path)])
        if done.returncode != 0:
            raise Failed(f"gigabar: {last_line(done.stderr)}")
        result = json.loads(path.read_text())["results"][0]
    if result["path"]["transport"] != "verbs":
        raise Failed(f"gigabar took {result['path_text']}")
    return result["p50_us"] if measure.is_latency else result["mb_per_s"]


def perftest_command(options, network, measure, size):
    count = options.iterations if measure.is_latency else max(options.bw_bytes // size, 128)
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
            return float(words[4]) if measure.is_latency else float(words[3]) * 125
    raise Failed(f"{measure.tool}: {last_line(done.stdout + done.stderr)}")


# --- All rounds ------------------------------------------------------------------------------------------------------------------


def undisturbed(figures, is_latency, factor):
    if not figures:
        return []
    if is_latency:
        return [figure for figure in figures if figure <= factor * min(figures)]
    return [figure for figure in figures if figure * factor >= max(figures)]


def compare(options, network, measure, size, ports):
    rounds = {"perftest": [], "gigabar": []}
    failures = []
    for turn in range(options.most_rounds):
        for name in sorted(rounds, reverse=turn % 2 == 0):
            try:
                if name == "gigabar":
                    rounds[name].append(gigabar_round(options, network, measure, size))
                else:
                    rounds[name].append(perftest_round(options, network, measure, size, next(ports)))
            except Failed as failure:
                failures.append(str(failure))
        good = {name: undisturbed(figures, measure.is_latency, options.disturbed) for name, figures in rounds.items()}
        if all(len(figures) >= options.rounds for figures in good.values()):
            break
    limit = options.bw_limit if not measure.is_latency else options.send_limit if "send" in measure.command else options.write_limit
    result = {
        "network": network.name,
        "measure": measure.name,
        "bytes": size,
        "unit": "us" if measure.is_latency else "mb_per_s",
        "limit": limit,
        "rounds": rounds,
        "undisturbed": {name: len(figures) for name, figures in good.items()},
        "failures": failures,
        "gigabar_command": " ".join(["gigabar", *gigabar_command(options, network, measure, size, options.iterations)[1:]]),
        "perftest_command": " ".join(perftest_command(options, network, measure, size)),
        "gigabar": None,
        "perftest": None,
        "ratio": None,
        "is_within": False,
    }
    if all(good.values()):
        result |= {name: statistics.median(figures) for name, figures in good.items()}
        result["ratio"] = result["gigabar"] / result["perftest"]
        result["is_within"] = result["ratio"] <= limit if measure.is_latency else result["ratio"] >= limit
    return result


def show(result):
    if result["ratio"] is None:
        print(f"{result['network']:4} {result['measure']:16} {result['bytes']:8}  no figure: {last_line('; '.join(result['failures']))}", flush=True)
        return
    counts = " ".join(f"{result['undisturbed'][name]}/{len(result['rounds'][name])}" for name in ("perftest", "gigabar"))
    verdict = "" if result["is_within"] else f"  missed: the limit is {result['limit']}"
    figures = f"{result['perftest']:9.2f} {result['gigabar']:9.2f} {result['ratio']:6.2f}"
    print(f"{result['network']:4} {result['measure']:16} {result['bytes']:8} {figures}  {counts}{verdict}", flush=True)


def version_of(command):
    done = run(command)
    return last_line(done.stdout or done.stderr)


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
        "versions": {"gigabar": version_of([options.gigabar, "--version"]), "perftest": version_of(["ib_write_lat", "--version"])},
        "units": {"us": "microseconds, one way", "mb_per_s": "10^6 bytes per second"},
        "results": results,
    }
    pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main():
    options = parse(sys.argv[1:])
    if reason := why_not(options):
        print(f"skipped: {reason}")
        return SKIPPED
    ports = iter(PORTS)
    print("# one way in us, bandwidth in MB/s; rounds: undisturbed/all of perftest, of gigabar")
    print(f"# {'net':2} {'measure':16} {'bytes':>8} {'perftest':>9} {'gigabar':>9} {'ratio':>6}  rounds", flush=True)
    results = []
    for network in networks_of(options):
        for measure in (measure for measure in MEASURES if measure.name in options.measures):
            for size in options.sizes if measure.is_latency else options.bw_sizes:
                results.append(compare(options, network, measure, size, ports))
                show(results[-1])
    if options.json:
        write_json(options, results)
    return 0 if all(result["is_within"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
