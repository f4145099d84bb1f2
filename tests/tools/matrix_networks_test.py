#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar matrix` over eight hosts in network name spaces, two behind each of four switches, whose links `tc` makes slow: the right
one must be named, and nothing where all are alike. Options and exit status as command_line_test.py; and --runs N of each case (1), from
--first-run M on (0), --ranks-of-host N (1), --rate-mbit R (24), which is far below what the processors move so that these do not decide,
--mtu M (1500), --size S of a write (32K), and --seconds S for one run (150). 64 ranks take some minutes on two processors:

    matrix_networks_test.py --program build/release/bin/gigabar --runs 50 --ranks-of-host 8 --rate-mbit 288 --mtu 9000 --size 16K --case CASE

Needs root, or a user name space in which it is root; and the kernel's schedulers tbf and htb.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HOSTS = 8
SWITCHES = 4
SKIPPED = 77
SLOWER = 3  # a slow link
LIFE_S = 1800  # most, of a network that nobody ended
INTERFACE = "gb0"


def fail(message, detail=""):
    raise SystemExit(f"FAILED: {message}\n{detail}")


def command(*words, network=None):
    """In the network of a process."""
    line = (["nsenter", "-t", str(network), "-n"] if network else []) + list(words)
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        fail(" ".join(line), done.stderr)


def why_not():
    """Why this machine cannot run the cases; empty: it can."""
    for name in ("ip", "tc", "nsenter", "unshare"):
        if not shutil.which(name):
            return f"there is no '{name}'; install iproute2 and util-linux"
    script = ("ip link add name a type veth peer name b && tc qdisc add dev a root tbf rate 1mbit burst 16kb latency 1s && "
              "tc qdisc add dev b root handle 1: htb && ip link add name c type bridge && mount -t sysfs none /sys")
    done = subprocess.run(["unshare", "--net", "--uts", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=30, check=False)
    return "" if done.returncode == 0 else f"the kernel has no name spaces, veth, bridge, tbf or htb for this user: {done.stderr.strip()}"


class Process:
    """With a network of its own, and a host name, that lives until it is ended."""

    def __init__(self, name):
        self.name = name
        # Interfaces are found in /sys, too, which shows those of the network in which it was mounted.
        script = f"mount -t sysfs none /sys && hostname {name} && echo up && exec sleep {LIFE_S}"
        self.child = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        if self.child.stdout.readline() != "up\n":
            fail(f"no name space for {name}")
        self.pid = self.child.pid
        command("ip", "link", "set", "lo", "up", network=self.pid)

    def enter(self):
        return ["nsenter", "-t", str(self.pid), "-n", "-u", "-m"]

    def end(self):
        self.child.kill()
        self.child.wait()


def limit(network, interface, rate_mbit):
    command("tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate", f"{rate_mbit}mbit", "burst", "16kb", "latency", "500ms",
            network=network)


class Cluster:
    """Hosts with a link each to a switch, switches with a link each to one above them; all switches in one network."""

    def __init__(self, rate_mbit, mtu):
        self.rate_mbit = rate_mbit
        self.switches = Process("switches")
        self.hosts = []
        self.in_switches("ip", "link", "add", "name", "spine", "type", "bridge")
        self.in_switches("ip", "link", "set", "spine", "up")
        for leaf in range(SWITCHES):
            self.in_switches("ip", "link", "add", "name", f"leaf{leaf}", "type", "bridge")
            self.in_switches("ip", "link", "add", "name", f"up{leaf}", "mtu", mtu, "type", "veth", "peer", "name", f"down{leaf}", "mtu", mtu)
            for end, bridge in ((f"up{leaf}", f"leaf{leaf}"), (f"down{leaf}", "spine")):
                self.in_switches("ip", "link", "set", end, "master", bridge, "up")
            self.in_switches("ip", "link", "set", f"leaf{leaf}", "up")
        for number in range(HOSTS):
            host = Process(f"node{number}")
            self.hosts.append(host)
            self.in_switches("ip", "link", "add", "name", f"port{number}", "mtu", mtu, "type", "veth", "peer", "name", INTERFACE, "mtu", mtu, "netns", str(host.pid))
            self.in_switches("ip", "link", "set", f"port{number}", "master", f"leaf{self.leaf_of(number)}", "up")
            command("ip", "address", "add", f"{self.address(number)}/24", "dev", INTERFACE, network=host.pid)
            command("ip", "link", "set", INTERFACE, "up", network=host.pid)
            self.limit_host(number)

    @staticmethod
    def leaf_of(host):
        return host * SWITCHES // HOSTS

    @staticmethod
    def address(host):
        return f"10.78.0.{host + 1}"

    def in_switches(self, *words):
        command(*words, network=self.switches.pid)

    def limit_host(self, host, slower=1):
        rate_mbit = self.rate_mbit // slower
        limit(self.hosts[host].pid, INTERFACE, rate_mbit)
        limit(self.switches.pid, f"port{host}", rate_mbit)

    def limit_switch(self, leaf):
        for end in (f"up{leaf}", f"down{leaf}"):
            limit(self.switches.pid, end, self.rate_mbit * (HOSTS // SWITCHES) // SLOWER)  # its hosts share it

    def limit_direction(self, sender, receiver):
        network = self.hosts[sender].pid
        command("tc", "qdisc", "del", "dev", INTERFACE, "root", network=network)
        command("tc", "qdisc", "add", "dev", INTERFACE, "root", "handle", "1:", "htb", "default", "10", network=network)
        for name, rate in (("1:10", self.rate_mbit), ("1:20", self.rate_mbit // SLOWER)):
            command("tc", "class", "add", "dev", INTERFACE, "parent", "1:", "classid", name, "htb", "rate", f"{rate}mbit", "burst", "16kb",
                    network=network)
        command("tc", "filter", "add", "dev", INTERFACE, "parent", "1:", "protocol", "ip", "u32", "match", "ip", "dst",
                self.address(receiver), "flowid", "1:20", network=network)

    def end(self):
        for process in [*self.hosts, self.switches]:
            process.end()


def run_matrix(cluster, options, folder):
    """The document of a run, and the exit status of rank 0."""
    count = HOSTS * options.ranks_of_host
    with open(os.path.join(folder, "switches"), "w", encoding="utf-8") as file:
        for leaf in range(SWITCHES):
            names = [host.name for number, host in enumerate(cluster.hosts) if cluster.leaf_of(number) == leaf]
            file.write(f"leaf{leaf} {' '.join(names)}\n")
    document = os.path.join(folder, "matrix.json")
    key = secrets.token_hex(32)
    ranks = []
    for rank in range(count):
        host, local = divmod(rank, options.ranks_of_host)
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(local), "MASTER_ADDR": cluster.address(0),
                       "MASTER_PORT": "29500", "GIGABAR_JOB_KEY": key, "GIGABAR_INTERFACES": INTERFACE, "GIGABAR_TUNING": "none"}
        words = [*cluster.hosts[host].enter(), options.program, "matrix", "--measure", "bandwidth", "--at-once", "host", "-s", options.size, "-W", "4",
                 "-i", "3", "-x", "1", "--timeout", "60", "--switches", os.path.join(folder, "switches")]
        output = open(os.path.join(folder, f"rank{rank}"), "w", encoding="utf-8")
        ranks.append(subprocess.Popen([*words, *(["--json", document, "--svg", os.path.join(folder, "matrix.svg")] if rank == 0 else [])],
                                      env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT))
        output.close()
    end = time.monotonic() + options.seconds
    try:
        for rank in ranks:
            rank.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGKILL)
                rank.wait()
    said = []
    for number in range(count):
        with open(os.path.join(folder, f"rank{number}"), encoding="utf-8") as file:
            said.append(file.read())
    statuses = [rank.returncode for rank in ranks]
    if statuses[0] not in (0, 3) or any(statuses[1:]):
        fail(f"exit statuses {statuses}", "\n".join(said[:3]))
    with open(document, encoding="utf-8") as file:
        return json.load(file), statuses[0], said[0]


def expect_named(options, plant, expected):
    """In each run exactly the text expected(run) is named, after plant(cluster, run)."""
    wrong = []
    for run in range(options.first_run, options.first_run + options.runs):
        cluster = Cluster(options.rate_mbit, options.mtu)
        try:
            plant(cluster, run)
            with tempfile.TemporaryDirectory() as folder:
                begin = time.monotonic()
                document, status, said = run_matrix(cluster, options, folder)
                found = [slow["text"] for result in document["results"] for slow in result["slow"]]
                wanted = expected(run)
                is_right = found == wanted and status == (3 if wanted else 0)
                print(f"run {run}: {found}{'' if is_right else f' instead of {wanted}'}, {time.monotonic() - begin:.0f} s", flush=True)
                if not is_right:
                    wrong.append(run)
                    print(said)
                if options.keep:
                    shutil.copytree(folder, os.path.join(options.keep, f"{options.case}{run}"))
        finally:
            cluster.end()
    if wrong:
        fail(f"{len(wrong)} of {options.runs} runs named something else: {wrong}")


def test_matrix_networks_healthy(options):
    expect_named(options, lambda cluster, run: None, lambda run: [])


def test_matrix_networks_slow_host(options):
    expect_named(options, lambda cluster, run: cluster.limit_host(run % HOSTS, SLOWER), lambda run: [f"host node{run % HOSTS}"])


def test_matrix_networks_slow_direction(options):
    def ends(run):
        sender = run % HOSTS
        return sender, (sender + 1 + run // HOSTS % (HOSTS - 1)) % HOSTS

    def name(run):
        sender, receiver = ends(run)
        if options.ranks_of_host == 1:
            return [f"pair {sender} to {receiver} (on node{sender}, on node{receiver})"]
        return [f"hosts node{sender} to node{receiver}"]

    expect_named(options, lambda cluster, run: cluster.limit_direction(*ends(run)), name)


def test_matrix_networks_slow_switch(options):
    expect_named(options, lambda cluster, run: cluster.limit_switch(run % SWITCHES), lambda run: [f"switch leaf{run % SWITCHES}"])


def main():
    cases = {name.removeprefix("test_"): case for name, case in globals().items() if name.startswith("test_")}
    parser = argparse.ArgumentParser()
    parser.add_argument("--program")
    parser.add_argument("--case", choices=cases)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--first-run", type=int, default=0)
    parser.add_argument("--ranks-of-host", type=int, default=1)
    parser.add_argument("--rate-mbit", type=int, default=24)
    parser.add_argument("--size", default="32K")
    parser.add_argument("--mtu", default="1500")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--keep", help="a folder for what the runs wrote")
    options = parser.parse_args()
    if options.list:
        print("\n".join(cases))
        return
    options.program = os.path.abspath(options.program)
    if os.geteuid() != 0 and "GIGABAR_TEST_IS_ROOT" not in os.environ:
        os.environ["GIGABAR_TEST_IS_ROOT"] = "1"
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", sys.executable, "-B", *sys.argv])
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    cases[options.case](options)


if __name__ == "__main__":
    main()
