#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a machine with two GPUs or more within a time budget: each pair of GPUs, all GPUs at once, and a job with a rank on each.

usage: bench/many_gpus.py --out FOLDER [options]

The steps run in the order of their importance, each until its own deadline; time that a step does not need goes to the next one. What does
not fit is left out and named. Pairs are measured in rounds of disjoint pairs, all pairs of a round at once.

  machine  topology with its picture, doctor
  ranks    a rank on each GPU: how long they take to join, a ring, all to all, a rank that is killed. Needs the program many_ranks, which
           is built with the tests, beside gigabar
  pairs    each pair of GPUs: latencies between kernels, latencies and bandwidth between ranks
  at-once  all GPUs copy to all others in one process; one GPU to all, all to one
  survey   `gigabar survey`
  kernels  each pair of GPUs: bandwidth, rate and checked writes of kernels; products of a matrix and vectors from each GPU to the next
  presets  the other test cases of nvbandwidth

FOLDER gets many-gpus.json, many-gpus-{pairs,presets,ranks,survey,topology,doctor}.json and many-gpus-topology.svg.

exit code: 0 nothing failed, and what is wanted was reached or left out; 1 something failed, data were wrong, or a figure is not as wanted;
2 wrong options, or fewer than two GPUs.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time

import reports
from many_gpus_measures import KERNEL_MEASURES, PAIR_MEASURES

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {"survey_s": 60, "join_s": 2, "pair_ratio": 1.10, "nvbandwidth_ratio": 0.97}
PATIENCE_S = 60  # with one command that has time
AT_THE_END_S = 2  # for the files and the table
UNITS = {"us": "µs", "gb_per_s": "GB/s", "million_per_s": "million/s", "ns": "ns"}
WANTED_PRESETS = ["all_to_one_write_ce", "one_to_all_write_ce", "all_to_one_read_ce", "one_to_all_read_ce"]
FEW_COPIES = ["-s", "16K", "-i", "2", "--repeats", "1"]
AT_ONCE = "all to all, copy engines, one process"


class NoTime(Exception):
    """The step's deadline has come."""


class Failure(Exception):
    """A command failed, or its data were wrong; says which and why."""


@dataclasses.dataclass
class Row:
    """A line of the table at the end."""
    what: str
    figure: str = ""
    wanted: str = ""
    is_as_wanted: bool = True
    reasons: list = dataclasses.field(default_factory=list)

    @property
    def verdict(self):
        if self.reasons or not self.is_as_wanted:
            return "not"
        return "ok" if self.figure else "left out"


class Bench:
    """What all steps share: the program and the GPUs, the time that is left, and what was found."""

    def __init__(self, options):
        self.options = options
        self.begin = time.monotonic()
        self.deadline = self.begin + options.budget
        self.share_s = options.budget  # of the step that runs
        self.rows, self.seconds = [], {}
        self.out_of_time = collections.Counter()  # what was left out, and how often
        self.notes = []  # what others left out, and why
        self.pairs, self.ranks, self.presets = [], [], []
        self.head = self.report(["info"])
        self.gpus = [result["device"] for result in self.head["results"] if result["what"] == "device"]
        self.drivers = self.head["results"][0]["drivers"]
        self.is_stand_in = self.gpus[0]["is_stand_in"]
        # As CUDA_VISIBLE_DEVICES names them; stand-ins have no ids.
        self.ids = [gpu["uuid"] or str(gpu["index"]) for gpu in self.gpus]

    @property
    def count(self):
        return len(self.gpus)

    def execute(self, command, patience_s=PATIENCE_S, **others):
        """A command that ended by itself. One that outlasts patience_s has failed; one that meets the step's deadline has not."""
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise NoTime
        try:
            return reports.execute(command, deadline_s=min(patience_s, left_s), **others)
        except reports.TooLong as late:
            if left_s < patience_s:
                raise NoTime from None
            raise Failure(str(late)) from None
        except OSError as error:
            raise Failure(f"{command[0]}: {error.strerror}") from None

    def report(self, words, gpus=None, statuses=(0,), is_kept=False, patience_s=PATIENCE_S):
        """The JSON of a command of gigabar that sees these GPUs only; is_kept: among the files of the run."""
        environment = dict(os.environ)
        if gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.ids[gpu] for gpu in gpus)
        with tempfile.TemporaryDirectory() as folder:
            path = self.options.out / f"many-gpus-{words[0]}.json" if is_kept else pathlib.Path(folder) / "report.json"
            done = self.execute([self.options.gigabar, *words, "--json", str(path)], patience_s, env=environment)
            if done.returncode not in statuses:
                raise Failure(f"{self.text(words, gpus)}: exit status {done.returncode}: {reports.last_words(done)}")
            try:
                return json.loads(path.read_text())
            except (OSError, ValueError) as error:
                raise Failure(f"{self.text(words, gpus)}: no report: {error}") from None

    def amount(self, many, few):
        """Options that say how much is done: little on stand-ins, whose figures say nothing."""
        return few if self.is_stand_in else many

    @staticmethod
    def text(words, gpus=None):
        return ("" if gpus is None else f"GPUs {','.join(map(str, gpus))}: ") + "gigabar " + " ".join(words)

    def row(self, what, **others):
        self.rows.append(Row(what, **others))
        return self.rows[-1]

    @property
    def left_out(self):
        return [what if times == 1 else f"{what} ({times} times)" for what, times in self.out_of_time.items()] + self.notes

    def attempt(self, row, what, function, where=""):
        """What the function returns; nothing where it failed, which the row says, or had no time, which is noted."""
        try:
            return function()
        except NoTime:
            self.out_of_time[what] += 1
        except Failure as error:
            row.reasons.append(str(error))
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration) as error:
            row.reasons.append(f"{what}{where}: unexpected report: {type(error).__name__}: {error}")
        return None


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--out", metavar="FOLDER", type=pathlib.Path, required=True, help="where the files go")
    parser.add_argument("--gigabar", default=str(ROOT / "build/release/bin/gigabar"), help="the program (default %(default)s)")
    parser.add_argument("--nvbandwidth", metavar="PROGRAM", help="NVIDIA's, to compare with")
    parser.add_argument("--budget", type=float, default=480, metavar="SECONDS", help="of the whole run (default %(default)s)")
    parser.add_argument("--steps", default=",".join(STEPS), help="(default %(default)s)")
    parser.add_argument("--at-once", type=int, metavar="N", help="most pairs of a round that run at once (default: all)")
    parser.add_argument("--limit", action="append", default=[], metavar="NAME=NUMBER",
                        help=f"another limit than {', '.join(f'{name}={number}' for name, number in LIMITS.items())}")
    options = parser.parse_args(words)
    if options.budget <= AT_THE_END_S:
        parser.error(f"--budget is more than {AT_THE_END_S}")
    if options.at_once is not None and options.at_once < 1:
        parser.error("--at-once is at least 1")
    options.steps = options.steps.split(",")
    for name in options.steps:
        if name not in STEPS:
            parser.error(f"--steps '{name}' is not one of {', '.join(STEPS)}")
    options.limits = dict(LIMITS)
    for text in options.limit:
        name, _, number = text.partition("=")
        if name not in LIMITS or not re.fullmatch(r"\d+(\.\d+)?", number):
            parser.error(f"--limit '{text}' is not NAME=NUMBER, with NAME one of {', '.join(LIMITS)}")
        options.limits[name] = float(number)
    return options


# --- Pairs ---


def rounds_of(count):
    """Every pair once, in rounds of disjoint pairs: one GPU stands still, and the others go round it."""
    seats = [*range(count)] + [None] * (count % 2)
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        yield [tuple(sorted(pair)) for pair in zip(seats[:half], reversed(seats[half:])) if None not in pair]
        seats.insert(1, seats.pop())


def result_of_pair(bench, pair, words, figure, scale):
    """A figure of one pair, and its path; raises for other GPUs, and for wrong data, with which gigabar fails."""
    report = bench.report(words, gpus=pair)
    used = [rank["device"]["uuid"] for rank in report["ranks"]]
    if not bench.is_stand_in and used != [bench.ids[gpu] for gpu in pair]:
        raise Failure(f"{bench.text(words, pair)}: the ranks used the GPUs {', '.join(map(str, used))}")
    result = report["results"][0]
    if result["wrong_count"] or ("-c" in words and not result["is_checked"]):
        raise Failure(f"{bench.text(words, pair)}: {result['wrong_count']} wrong, checked: {result.get('is_checked')}")
    if result[figure] <= 0:
        raise Failure(f"{bench.text(words, pair)}: {figure} is {result[figure]}")
    return result[figure] * scale, result.get("path_text") or result["path"]


def run_pairs(bench, row, what, rounds, function):
    """The pairs of all rounds and their function(pair) where it succeeded; the disjoint pairs of a round run at once."""
    most = bench.options.at_once or bench.count
    for pairs in (pairs[at:at + most] for pairs in rounds for at in range(0, len(pairs), most)):
        with concurrent.futures.ThreadPoolExecutor(max_workers=len(pairs)) as pool:
            found = pool.map(lambda pair: bench.attempt(row, what, lambda: function(pair), f", GPUs {pair[0]},{pair[1]}"), pairs)
            yield from ((pair, each) for pair, each in zip(pairs, found) if each is not None)


def measure_pairs(bench, measure):
    """A matrix of all pairs, and its row."""
    row = bench.row(f"{measure.what}, each pair")
    matrix = [[None] * bench.count for _ in range(bench.count)]
    paths = collections.Counter()
    rounds = list(rounds_of(bench.count))
    if measure.is_directed:
        rounds += [[pair[::-1] for pair in pairs] for pairs in rounds]
    words = [*measure.command, *bench.amount(measure.many, measure.few)]
    def least(pair):
        return min(result_of_pair(bench, pair, words, measure.figure, measure.scale) for _ in range(measure.starts))
    for (a, b), (figure, path) in run_pairs(bench, row, measure.what, rounds, least):
        matrix[a][b] = figure
        paths[path] += 1
        if not measure.is_directed:
            matrix[b][a] = figure
    figures = [figure for line in matrix for figure in line if figure is not None]
    if figures:
        row.figure = f"{min(figures):.4g} to {max(figures):.4g} {UNITS[measure.unit]}, {', '.join(sorted(paths))}"
        if paths.total() < (pair_count := sum(len(pairs) for pairs in rounds)):
            row.figure += f", {paths.total()} of {pair_count}"
        bench.pairs.append({"measure": measure.name, "what": measure.what, "unit": measure.unit, "matrix": matrix, "paths": dict(paths),
                            "command": ["gigabar", *words]})
    return row, matrix


def pairs_step(bench):
    for measure in PAIR_MEASURES:
        row, matrix = measure_pairs(bench, measure)
        if measure.name == "kernel_notify":
            judge_spread(bench, row, matrix)


def judge_spread(bench, row, matrix):
    """All pairs are nearly as fast as the best one."""
    limit = bench.options.limits["pair_ratio"]
    row.wanted = f"at most {limit:g} × the best"
    times = {(a, b): matrix[a][b] for a in range(bench.count) for b in range(a) if matrix[a][b] is not None}
    if not times:
        return
    best = min(times.values())
    row.figure += f", {max(times.values()) / best:.2f} × the best"
    row.reasons += [f"{row.what}: GPUs {b},{a}: {value:.4g} µs, {value / best:.2f} × the best pair"
                    for (a, b), value in times.items() if value > limit * best]


def kernels_step(bench):
    for measure in KERNEL_MEASURES:
        measure_pairs(bench, measure)
    matvec_ring(bench)


def matvec_ring(bench):
    """Each GPU gets vectors of the one before it: edges of the ring that share no GPU at once."""
    count = bench.count
    edges = [(gpu, (gpu + 1) % count) for gpu in range(count)]
    row = bench.row("matvec, each GPU and the next")
    few = ["--vector-size", "32:32", "-b", "1:1", "-i", "3", "--blocks", "2"]
    words = ["matvec", *bench.amount(["--vector-size", "64:64", "-b", "8:8"], few)]
    even = count - count % 2
    rounds = (edges[0:even:2], edges[1:even:2], edges[even:])
    rates = {edge: rate for edge, (rate, _) in run_pairs(bench, row, "matvec", rounds,
                                                         lambda edge: result_of_pair(bench, edge, words, "kernel_vectors_per_s", 1e-6))}
    if rates:
        row.figure = f"{min(rates.values()):.4g} to {max(rates.values()):.4g} million vectors/s"
        bench.ranks.append({"measure": "matvec_ring", "unit": "million_vectors_per_s", "command": ["gigabar", *words],
                            "edges": [{"from": b, "to": a, "value": rate} for (a, b), rate in rates.items()]})


# --- The machine, and a rank on each GPU ---


def machine_step(bench):
    row = bench.row("topology")
    drawn = ["--svg", str(bench.options.out / "many-gpus-topology.svg")] if shutil.which("dot") else []
    if not drawn:
        bench.notes.append("the picture of the topology: Graphviz's 'dot' is not installed")
    if bench.attempt(row, "topology", lambda: bench.report(["topology", *drawn], is_kept=True)):
        row.figure = "drawn" if drawn else "read"
    row = bench.row("doctor")
    # Status 1 says that a check failed, which is a finding about the machine.
    found = bench.attempt(row, "doctor", lambda: bench.report(["doctor"], statuses=(0, 1), is_kept=True))
    if found:
        counts = collections.Counter(result["verdict"] for result in found["results"])
        row.figure = ", ".join(f"{counts[verdict]} {verdict}" for verdict in sorted(counts))


def job(bench, *words, launcher=()):
    """A job of many_ranks with a rank on each GPU, and how long it took."""
    program = pathlib.Path(bench.options.gigabar).with_name("many_ranks")
    if not program.exists():
        raise Failure(f"{program}: not there; build the tests, or the target many_ranks")
    command = [bench.options.gigabar, "run", *launcher, "-n", str(bench.count), "--timeout", str(PATIENCE_S), "--", str(program), *words]
    begin = time.monotonic()
    return bench.execute(command), time.monotonic() - begin


def failure_of_job(done, words):
    """With what the ranks themselves say; the last words are those of `gigabar run`."""
    told = [line for line in done.stderr.splitlines() if line.startswith("rank ")]
    return f"many_ranks {' '.join(words)}: exit status {done.returncode}: {'; '.join(told) or reports.last_words(done)}"


def job_of_ranks(bench, words, pattern):
    """The numbers in what rank 0 of many_ranks prints, and how long it took. It must succeed, which it does only when all data were right."""
    done, took_s = job(bench, *words)
    numbers = re.search(pattern, done.stdout)
    if done.returncode != 0 or not numbers:
        raise Failure(failure_of_job(done, words))
    return [*map(float, numbers.groups()), took_s]


def ranks_step(bench):
    join(bench)
    count = bench.count
    amount = bench.amount(["--bytes", str(64 << 20), "--rounds", "20"], ["--bytes", "4096", "--rounds", "2"])
    write_round(bench, "ring of ranks", "ring", ["--neighbours", str(min(2, count - 1)), *amount])
    write_round(bench, "all ranks to all", "all_to_all", ["--neighbours", str(count - 1), *amount])
    kill(bench)


def join(bench):
    limit = bench.options.limits["join_s"]
    row = bench.row(f"{bench.count} ranks join", wanted=f"at most {limit:g} s")
    times = r"opened after ([\d.]+) s, barrier ([\d.]+) s, .* data checked ([\d.]+) s"
    found = bench.attempt(row, row.what, lambda: job_of_ranks(bench, ["--neighbours", str(min(2, bench.count - 1))], times))
    if found:
        opened_s, joined_s, checked_s, took_s = found
        row.figure, row.is_as_wanted = f"{joined_s:.2f} s, their fabrics are open after {opened_s:.2f} s", joined_s <= limit
        bench.ranks.append({"measure": "join", "ranks": bench.count, "opened_s": opened_s, "joined_s": joined_s, "checked_s": checked_s,
                            "processes_s": took_s})


def write_round(bench, what, name, words):
    row = bench.row(what)
    found = bench.attempt(row, what, lambda: job_of_ranks(bench, words, r": ([\d.]+) GB/s together"))
    if found:
        row.figure = f"{found[0]:.4g} GB/s together"
        bench.ranks.append({"measure": name, "ranks": bench.count, "gb_per_s": found[0], "command": ["many_ranks", *words]})


def kill(bench):
    """The last rank is killed; the others name it and end by themselves."""
    row = bench.row("a rank is killed", wanted="the others name it")
    victim = bench.count - 1
    words = ("--neighbours", str(victim), "--kill", str(victim))
    found = bench.attempt(row, row.what, lambda: job(bench, *words, launcher=("--keep-going",)))
    if not found:
        return
    done, took_s = found
    told = sorted(done.stdout.splitlines())
    row.figure = f"{len(told)} of {victim} others did, {took_s:.1f} s in all"
    if done.returncode != 128 + signal.SIGKILL or told != sorted(f"rank {rank}: peer_lost, and went on" for rank in range(victim)):
        row.reasons.append(failure_of_job(done, words))
    bench.ranks.append({"measure": "kill", "ranks": bench.count, "others_that_named_it": len(told), "seconds": took_s})


# --- All GPUs in one process ---


def by_gigabar(bench, name):
    """The last matrix of a test case, and its unit; nothing where the machine cannot run it."""
    amount = bench.amount(["-s", "512M", "-i", "16", "--repeats", "3"], FEW_COPIES)
    result = bench.report(["streams", "--preset", name, *amount], patience_s=math.inf)["results"][0]  # it has as many cells as pairs
    if result["waived"]:
        bench.notes.append(f"{name}: {result['waived']}")
        return None
    rows = result["matrices"][-1]["rows"]
    return {"name": name, "unit": result["unit"], "rows": rows, "sum": sum_of(rows, name), "nvbandwidth_sum": None, "ratio": None}


def by_nvbandwidth(bench, name):
    """The same rows by nvbandwidth, of all matrices of the case one below the other."""
    done = bench.execute([bench.options.nvbandwidth, "-t", name, "-b", "512", "-i", "3", "-j"], math.inf)
    text = done.stdout[done.stdout.find("{"):]
    case = json.loads(text)["nvbandwidth"]["testcases"][0]
    if case["status"] != "Passed":
        raise Failure(f"nvbandwidth -t {name}: {case['status']}")
    return [[float(cell) for cell in row if cell != "N/A"] for row in case["bandwidth_matrix"]]


def sum_of(rows, name):
    total = sum(cell for row in rows for cell in row if cell is not None)
    if total <= 0:
        raise Failure(f"{name}: all figures are 0")
    return total


def test_case(bench, row, name):
    """One of nvbandwidth's test cases by gigabar and by nvbandwidth; the ratio of the speeds where both ran."""
    case = bench.attempt(row, f"preset {name}", lambda: by_gigabar(bench, name))
    if case and bench.options.nvbandwidth:
        what, beside = f"nvbandwidth {name}", Row(name)
        theirs = bench.attempt(beside, what, lambda: sum_of(by_nvbandwidth(bench, name)[-len(case["rows"]):], what))
        bench.notes += beside.reasons  # it is no failure of ours
        if theirs:
            case |= {"nvbandwidth_sum": theirs, "ratio": theirs / case["sum"] if case["unit"] == "ns" else case["sum"] / theirs}
    if case:
        bench.presets.append(case)
    return case


def at_once_step(bench):
    references = []
    for name in WANTED_PRESETS:
        row = bench.row(name)
        case = test_case(bench, row, name)
        if case:
            tell_rate(bench, row, case["sum"] / bench.count, case["ratio"])
            references += [case["nvbandwidth_sum"] / bench.count] if case["ratio"] else []
    all_to_all(bench, min(references, default=None))


def tell_rate(bench, row, rate, ratio):
    row.figure = f"{rate:.4g} GB/s for each GPU"
    if ratio is not None:
        limit = bench.options.limits["nvbandwidth_ratio"]
        row.figure += f", {ratio:.3f} of nvbandwidth's"
        row.wanted = f"at least {limit:g} of nvbandwidth's"
        row.is_as_wanted = ratio >= limit


def all_to_all(bench, reference):
    """Every GPU fills its link in both directions, so it gets no more than all to one, or one to all, whichever is slower."""
    row = bench.row(AT_ONCE)
    count = bench.count
    transfers = ";".join(f"gpu{a}->gpu{b} ce-push" for a in range(count) for b in range(count) if a != b)
    amount = bench.amount(["-s", "256M", "-i", "40", "--repeats", "3"], FEW_COPIES)

    def measure():
        result = bench.report(["streams", "-t", transfers, *amount])["results"][0]
        unchecked = [transfer["text"] for transfer in result["transfers"] if not transfer["is_verified"]]
        row.reasons += [f"{AT_ONCE}: {text}: the data was not verified" for text in unchecked]
        return next(total for total in result["totals"] if total["group"] == "")["aggregate_gb_per_s"]["median"] / count

    rate = bench.attempt(row, AT_ONCE, measure)
    if rate is None:
        return
    ratio = rate / reference if reference else None
    tell_rate(bench, row, rate, ratio)
    bench.presets.append({"name": AT_ONCE, "unit": "GB/s", "rows": None, "sum": rate * count,
                          "nvbandwidth_sum": reference and reference * count, "ratio": ratio})


def presets_step(bench):
    done = {case["name"] for case in bench.presets}
    row = bench.row("nvbandwidth's other test cases")
    names = bench.attempt(row, row.what, lambda: preset_names(bench)) or []
    cases = [case for case in (test_case(bench, row, name) for name in names if name not in done) if case]
    if cases:
        row.figure = f"{len(cases)} measured"
        ratios = [case["ratio"] for case in cases if case["ratio"] is not None]
        if ratios:
            row.figure += f", {min(ratios):.2f} to {max(ratios):.2f} of nvbandwidth's, median {statistics.median(ratios):.3f}"


def preset_names(bench):
    """Those with GPU memory alone first: those with the host take longest."""
    done = bench.execute([bench.options.gigabar, "streams", "--list-presets"])
    names = re.findall(r"^\s*([a-z]\w*(?:_ce|_sm|_copy))\b", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not names:
        raise Failure(f"gigabar streams --list-presets: exit status {done.returncode}: {reports.last_words(done)}")
    return sorted(names, key=lambda name: ("host" in name, "bidirectional" in name))


def survey_step(bench):
    limit = bench.options.limits["survey_s"]
    row = bench.row("survey", wanted=f"at most {limit:g} s")
    budget_s = max(1, min(50, int(0.7 * bench.share_s)))  # what other steps have left is for the test cases
    begin = time.monotonic()
    found = bench.attempt(row, "survey", lambda: bench.report(["survey", "--budget", str(budget_s)], is_kept=True, patience_s=math.inf))
    took_s = time.monotonic() - begin
    if found:
        row.figure, row.is_as_wanted = f"{took_s:.1f} s", took_s <= limit
        bench.notes += [f"survey: {note}" for note in found["notes"] if note.startswith("left out")]


# The share of the budget of each, in seconds of 480, and its files.
STEPS = {"machine": (machine_step, 35, ["topology", "doctor"]), "ranks": (ranks_step, 45, ["ranks"]), "pairs": (pairs_step, 130, ["pairs"]),
         "at-once": (at_once_step, 60, ["presets"]), "survey": (survey_step, 70, ["survey"]), "kernels": (kernels_step, 60, ["pairs", "ranks"]),
         "presets": (presets_step, 80, ["presets"])}


def remove_earlier(options):
    """A file of an earlier run does not stay where a step of this one finds nothing."""
    for name in {name for step in options.steps for name in STEPS[step][2]}:
        for path in options.out.glob(f"many-gpus-{name}.*"):
            path.unlink()


def write(bench):
    """After each step, so that a run that is ended from outside leaves what it has."""
    options = bench.options
    command = ["bench/many_gpus.py", "--budget", f"{options.budget:g}", "--steps", ",".join(options.steps)]
    rows = [{"what": row.what, "figure": row.figure, "wanted": row.wanted, "verdict": row.verdict, "reasons": row.reasons} for row in bench.rows]
    documents = {"": rows, "-pairs": bench.pairs, "-ranks": bench.ranks, "-presets": bench.presets}
    for name, results in documents.items():
        others = {} if name else {"left_out": bench.left_out, "seconds": bench.seconds, "limits": options.limits}
        if results:
            reports.write(options.out / f"many-gpus{name}.json", f"many_gpus{name.replace('-', '_')}", command, bench.head, is_stand_in=bench.is_stand_in,
                          devices=bench.gpus, drivers=bench.drivers, **others, results=results)


def print_table(bench):
    lines = [("what", "figure", "wanted", ""), *((row.what, row.figure, row.wanted, row.verdict) for row in bench.rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    if bench.left_out:
        print("left out:", "; ".join(bench.left_out))
    print(*(f"not: {reason}\n" for row in bench.rows for reason in row.reasons), sep="", end="")
    if bench.is_stand_in:
        print("stand-ins: host memory plays the GPUs, so the figures say nothing about a GPU")


def main(words):
    options = parse(words)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        bench = Bench(options)
    except (Failure, NoTime) as error:
        raise SystemExit(str(error) or "gigabar info: no time") from None
    if bench.count < 2:
        print(f"{bench.count} GPU: two at least are needed", file=sys.stderr)
        return 2
    share = (options.budget - AT_THE_END_S) / sum(STEPS[name][1] for name in options.steps)
    bench.deadline = bench.begin
    remove_earlier(options)
    for name in (name for name in STEPS if name in options.steps):
        function, seconds, _ = STEPS[name]
        bench.share_s = share * seconds
        bench.deadline += bench.share_s
        begin = time.monotonic()
        row = Row(name)
        bench.attempt(row, name, lambda: function(bench))
        bench.rows += [row] if row.reasons else []
        bench.seconds[name] = round(time.monotonic() - begin, 1)
        print(f"{name}: {bench.seconds[name]:.1f} s", file=sys.stderr, flush=True)
        write(bench)
    print_table(bench)
    return 1 if any(row.verdict == "not" for row in bench.rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
