#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ranks over the transport tcp with bare sockets and with ucx, in turns on one machine.

usage: bench/tcp_in_turns.py [options]

  latency    `gigabar latency --op send` of two ranks over loopback beside tcp_ping_pong.c: one connection with the same socket options
  bandwidth  `gigabar bw --op write` over tcp beside ucx, between two network namespaces that a pair of virtual interfaces joins (this
             needs root); with --loopback in one
  lanes      `gigabar bw --op write` over tcp with four connections and loopback beside four connections of iperf3, each in a process of
             its own; sealed; with --gpu also from GPU memory to GPU memory; with --earlier PROGRAM also beside a version of gigabar
             whose ucx has four connections
  sends      send(), as tcp calls it, beside what could take its place: MSG_ZEROCOPY and io_uring, over one connection of
             tcp_send_ways.c (this needs liburing-dev), and over two at once; over loopback, and, unless --loopback, between two
             namespaces

Each round takes every contender once, in an order that the next round reverses. The figure of a contender is the median of its rounds
(of a round: the median of its samples or windows). The ratio is that of the first one to what is beside it; where a figure stands for a
time it is to be small.

exit code: 0 every ratio is within its limit; 1 one is not, or a round failed; 2 wrong options.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile
import time

import reports

ROOT = pathlib.Path(__file__).resolve().parent.parent
BYTES, ROUNDS = 8, 20000  # of the latencies
MOST_LATENCY, LEAST_BANDWIDTH = 1.15, 1.0
LANES, LANES_BYTES = 4, 16 << 20
LEAST_OF_SENDS = 0.7
LEAST_OF_IPERF, LEAST_OF_GPU, LEAST_SEALED_MB_PER_S = 0.95, 0.95, 10_000
INTERFACE = "gigabar0"
WAYS, PIECE_BYTES, SENDS_S, FIRST_PORT = ("send", "zerocopy", "io_uring", "io_uring_zerocopy"), 256 << 10, 1, 21200


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--gigabar", default=str(ROOT / "build/release/bin/gigabar"), help="the program (default %(default)s)")
    parser.add_argument("--what", default="latency,bandwidth", help="(default %(default)s)")
    parser.add_argument("--sizes", default="64K,1M", help="of the bandwidths (default %(default)s)")
    parser.add_argument("--gpu", action="store_true", help="lanes: GPU memory too")
    parser.add_argument("--earlier", metavar="PROGRAM", help="lanes: an earlier gigabar, over ucx")
    parser.add_argument("--loopback", action="store_true", help="bandwidths over loopback")
    parser.add_argument("--rounds", type=int, default=7, help="(default %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write machine, date, command and all rounds")
    options = parser.parse_args(words)
    options.gigabar = str(pathlib.Path(options.gigabar).resolve())  # another namespace begins in another folder
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    if any(name not in ("latency", "bandwidth", "lanes", "sends") for name in options.what.split(",")):
        parser.error(f"--what '{options.what}' has more than latency, bandwidth, lanes and sends")
    return options


class Loopback(contextlib.nullcontext):
    """Two ranks that the program starts by itself."""

    def __enter__(self):
        return self

    def report(self, command):
        return reports.report_of(command)

    def sender(self, program, way, port):
        return contextlib.nullcontext([program, way, *sent_words("127.0.0.1", port)])


class Namespaces:
    """Two ranks, each in a network namespace of its own (and a mount namespace with its /sys), for as long as the object is entered."""

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.holders = [stack.enter_context(self.namespace()) for _ in range(2)]
            link = [item for holder in self.holders for item in ("netns", str(holder.pid))]
            self.inside(0, "ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, *link[2:])
            for side in range(2):
                self.inside(side, "ip", "address", "add", f"10.79.0.{side + 1}/24", "dev", INTERFACE)
                for interface in ("lo", INTERFACE):
                    self.inside(side, "ip", "link", "set", interface, "up")
            deadline = time.monotonic() + 10
            while not all("state UP" in self.inside(side, "ip", "link", "show", INTERFACE) for side in range(2)):
                if time.monotonic() > deadline:
                    raise SystemExit(f"{INTERFACE} is not up after 10 s")
                time.sleep(0.05)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    @contextlib.contextmanager
    def namespace(self):
        # UCX looks for interfaces in /sys. The holder ends with its standard input.
        words = ["unshare", "--net", "--mount", "sh", "-c", "mount -t sysfs none /sys && echo && read end"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            yield holder

    def entered(self, side, command):
        return ["nsenter", "--net", "--mount", "--target", str(self.holders[side].pid), "--", *command]

    def inside(self, side, *command):
        return reports.run(self.entered(side, command))

    def report(self, command):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "report.json"
            key = secrets.token_hex(32)
            ranks = []
            for side in range(2):
                job = {"RANK": str(side), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "10.79.0.1", "MASTER_PORT": "21000",
                       "GIGABAR_JOB_KEY": key, "GIGABAR_INTERFACES": INTERFACE, "GIGABAR_LAUNCHER": "environment"}
                words = self.entered(side, [*command, *(["--json", str(file)] if side == 0 else [])])
                ranks.append(subprocess.Popen(words, env=os.environ | job, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
            try:
                codes = [rank.wait(reports.DEADLINE_S) for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
            if codes != [0, 0]:
                raise SystemExit(f"{' '.join(command)}: the ranks ended with {codes}")
            return json.loads(file.read_text())

    @contextlib.contextmanager
    def sender(self, program, way, port):
        words = sent_words("10.79.0.2", port)
        with subprocess.Popen(self.entered(1, [program, f"-{way}", *words]), stdin=subprocess.DEVNULL) as receiver:
            try:
                yield self.entered(0, [program, f"+{way}", *words])
            finally:
                receiver.kill()


def sent_words(address, port):
    return [address, str(PIECE_BYTES), str(SENDS_S), str(port)]


def over(transport, options, command, *others):
    return [options.gigabar, command, "-d", "host", "H", "H", "--transport", transport, *others,
            *(["--ucx-trust-network"] if transport == "ucx" else [])]


def in_turns(options, contenders):
    rounds = {name: [] for name in contenders}
    for round_number in range(options.rounds):
        for name in list(contenders)[:: 1 if round_number % 2 == 0 else -1]:
            rounds[name].append(contenders[name]())
    return rounds


def tell(results, measure, size, unit, rounds, beside, limit, name="tcp"):
    """`beside`: another contender, or a figure."""
    medians = {name: statistics.median(figures) for name, figures in rounds.items()}
    ratio = medians[name] / medians.get(beside, beside)
    is_right = ratio <= limit if unit == "us" else ratio >= limit
    results.append({"measure": measure, "bytes": size, "unit": unit, "medians": medians, "of": name, "beside": beside, "ratio": ratio, "limit": limit,
                    "rounds": rounds})
    figures = ", ".join(f"{name} {median:.2f}" for name, median in medians.items())
    print(f"{measure}, {size} bytes: {figures} {unit}; {name} is {ratio:.3f} of {beside}, limit {limit}", flush=True)
    return is_right


def latency(options, results, heads, folder):
    bare = str(pathlib.Path(folder) / "tcp_ping_pong")
    reports.run(["cc", "-O2", "-o", bare, str(ROOT / "bench/tcp_ping_pong.c")])

    def ranks(transport):
        report = reports.report_of(over(transport, options, "latency", "--op", "send", "-m", f"{BYTES}:{BYTES}", "-i", str(ROUNDS)))
        heads.append(report)
        return report["results"][0]["p50_us"]

    contenders = {"bare": lambda: float(reports.run([bare, str(BYTES), str(ROUNDS)]).split()[1])}
    contenders |= {name: lambda name=name: ranks(name) for name in ("tcp", "ucx")}
    return tell(results, "latency", BYTES, "us", in_turns(options, contenders), "bare", MOST_LATENCY)


def bandwidth(options, results, heads, between):
    are_right = True
    for size in options.sizes.split(","):

        def ranks(transport, size=size):
            command = over(transport, options, "bw", "--op", "write", "-m", f"{size}:{size}", "-i", "100")
            heads.append(between.report(command))
            return heads[-1]["results"][0]["p50_mb_per_s"]

        rounds = in_turns(options, {name: lambda name=name: ranks(name) for name in ("tcp", "ucx")})
        where = "bandwidth over loopback" if options.loopback else "bandwidth between namespaces"
        are_right &= tell(results, where, heads[-1]["results"][0]["bytes"], "mb_per_s", rounds, "ucx", LEAST_BANDWIDTH)
    return are_right


def iperf():
    """MB/s of all connections together."""
    ports = range(21100, 21100 + LANES)
    servers = [subprocess.Popen(["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL) for port in ports]
    try:
        time.sleep(0.3)
        words = ["iperf3", "-c", "127.0.0.1", "-t", "2", "-J", "-p"]
        clients = [subprocess.Popen([*words, str(port)], stdout=subprocess.PIPE, text=True) for port in ports]
        reports_of = [json.loads(client.communicate(timeout=reports.DEADLINE_S)[0]) for client in clients]
        return sum(report["end"]["sum_received"]["bits_per_second"] for report in reports_of) / 8e6
    finally:
        for server in servers:
            server.kill()
            server.wait()


def lanes(options, results, heads):
    size = f"{LANES_BYTES}:{LANES_BYTES}"

    def ranks(program, transport, protection="authenticated", ends=("host", "H", "H")):
        os.environ |= {"GIGABAR_TCP_CONNECTIONS": str(LANES), "GIGABAR_UCX_CONNECTIONS": str(LANES), "GIGABAR_TCP_PROTECTION": protection}
        words = [program, "bw", "-d", *ends, "--transport", transport, "--op", "write", "-m", size, "-i", "20"]
        report = reports.report_of([*words, *(["--ucx-trust-network"] if transport == "ucx" else [])])
        if program == options.gigabar:
            heads.append(report)
        return report["results"][0]["p50_mb_per_s"]

    contenders = {"tcp": lambda: ranks(options.gigabar, "tcp"), "sealed": lambda: ranks(options.gigabar, "tcp", "sealed"), "iperf3": iperf}
    if options.gpu:
        contenders["gpu"] = lambda: ranks(options.gigabar, "tcp", ends=("cuda", "D", "D"))
    if options.earlier:
        contenders["earlier"] = lambda: ranks(options.earlier, "ucx")
    rounds = in_turns(options, contenders)

    def judge(name, beside, limit):
        return tell(results, f"{LANES} connections over loopback", LANES_BYTES, "mb_per_s", rounds, beside, limit, name)

    are_right = judge("tcp", "iperf3", LEAST_OF_IPERF) & judge("sealed", LEAST_SEALED_MB_PER_S, 1.0)
    if options.gpu:
        are_right &= judge("gpu", "tcp", LEAST_OF_GPU)
    if options.earlier:
        are_right &= judge("tcp", "earlier", LEAST_BANDWIDTH)
    return are_right


def sends(options, results, heads, folder):
    program = str(pathlib.Path(folder) / "tcp_send_ways")
    reports.run(["cc", "-O2", "-DWITH_IO_URING", "-o", program, str(ROOT / "bench/tcp_send_ways.c"), "-luring"])
    heads.append(reports.report_of(over("tcp", options, "latency", "-m", "8:8", "-i", "10")))
    places = [("over loopback", Loopback()), *([] if options.loopback else [("between namespaces", Namespaces())])]
    are_right = True
    for where, place in places:
        with place as between:
            are_right &= all([sends_at_once(results, options, program, count, where, between) for count in (1, 2)])
    return are_right


def sends_at_once(results, options, program, count, where, between):
    """So many connections."""
    others = {way: [] for way in WAYS}

    def rate(way):
        with contextlib.ExitStack() as stack:
            commands = [stack.enter_context(between.sender(program, way, FIRST_PORT + number)) for number in range(count)]
            with concurrent.futures.ThreadPoolExecutor() as pool:
                said = [list(map(float, out.split())) for out in pool.map(reports.run, commands)]
        others[way].append({"sender_cpu_s_per_gb": statistics.mean(each[1] for each in said), "copied_percent": statistics.mean(each[2] for each in said)})
        return sum(each[0] for each in said)

    rounds = in_turns(options, {way: lambda way=way: rate(way) for way in WAYS})
    fastest = max(WAYS[1:], key=lambda way: statistics.median(rounds[way]))
    measure = f"{count} connection{'s' if count > 1 else ''} {where}"
    is_right = tell(results, measure, PIECE_BYTES, "mb_per_s", rounds, fastest, LEAST_OF_SENDS, "send")
    results[-1]["others"] = {way: {key: statistics.median(each[key] for each in figures) for key in figures[0]} for way, figures in others.items()}
    return is_right


def main(words):
    options = parse(words)
    results, heads, are_right = [], [], True
    if "latency" in options.what.split(","):
        with tempfile.TemporaryDirectory() as folder:
            are_right &= latency(options, results, heads, folder)
    if "bandwidth" in options.what.split(","):
        with Loopback() if options.loopback else Namespaces() as between:
            are_right &= bandwidth(options, results, heads, between)
    if "lanes" in options.what.split(","):
        are_right &= lanes(options, results, heads)
    if "sends" in options.what.split(","):
        with tempfile.TemporaryDirectory() as folder:
            are_right &= sends(options, results, heads, folder)
    if options.json:
        reports.write(options.json, "tcp_in_turns", ["bench/tcp_in_turns.py", *words], heads[0], results=results)
    return 0 if are_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
