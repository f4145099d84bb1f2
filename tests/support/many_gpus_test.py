#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs bench/many_gpus.py on stand-in devices: whole, and with a command that fails, wrong data, a pair that is slow.

--list prints the cases; --program GIGABAR --case NAME runs one. Exit status: 0 passed, 1 failed.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import types

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import many_gpus  # noqa: E402
import tables  # noqa: E402

OPTIONS = None
FOLDER = None
# Times of stand-ins on a machine that does other work beside say nothing.
LOOSE = ["--limit", "pair_ratio=1000000000", "--limit", "join_s=60", "--limit", "survey_s=60", "--limit", "nvbandwidth_ratio=0"]
NVBANDWIDTH = """#!{python}
import json, sys
name = sys.argv[sys.argv.index("-t") + 1]
size = int(sys.argv[sys.argv.index("-b") + 1])
row = ["{cell}", "N/A", "{cell}"]
case = {{"name": name, "status": "Passed" if size == 512 and "-j" in sys.argv else "Error", "bandwidth_matrix": [row, row, row]}}
print(json.dumps({{"nvbandwidth": {{"testcases": [case]}}}}))
"""


DOT = "#!/bin/sh\necho a picture\n"


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def edit(script):
    """A fault that changes the report of a command."""
    return f'"$real" "$@" || exit; for last; do :; done; sed -i {shlex.quote(script)} "$last"; exit'


def program(name, text):
    """A program of this text in a folder for `name` alone."""
    path = pathlib.Path(FOLDER) / f"with_{name}" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def nvbandwidth(cell):
    return program("nvbandwidth", NVBANDWIDTH.format(python=sys.executable, cell=cell))


def path_with_dot():
    """Graphviz need not be installed."""
    return f"{program('dot', DOT).parent}:{os.environ['PATH']}"


class Run:
    """What one run of the bench left behind."""

    def __init__(self, stand_ins, *words, fault="", path=None):
        """`fault`: a line of a shell script that runs in place of gigabar and may end it; "$real" is the program. `path`: another PATH."""
        self.out = pathlib.Path(FOLDER) / "out"
        gigabar = program("gigabar", f'#!/bin/sh\nreal={shlex.quote(OPTIONS.program)}\n{fault}\nexec "$real" "$@"\n')
        many_ranks = gigabar.with_name("many_ranks")
        if not many_ranks.exists():
            many_ranks.symlink_to(pathlib.Path(OPTIONS.program).with_name("many_ranks"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIGABAR_", "CUDA_"))}
        environment = {**kept, "GIGABAR_STAND_IN": str(stand_ins), "HOME": FOLDER, "PATH": path_with_dot() if path is None else path}
        self.done = subprocess.run([sys.executable, "-B", BENCH / "many_gpus.py", "--gigabar", gigabar, "--out", self.out, *words], env=environment,
                                   stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=170, check=False)

    def file(self, name=""):
        return json.loads((self.out / f"many-gpus{name}.json").read_text())

    def row(self, what):
        return next(row for row in self.file()["results"] if row["what"].startswith(what))

    def expect_status(self, status):
        expect(self.done.returncode == status, f"expected exit status {status}, not {self.done.returncode}\n{self.done.stdout}\n{self.done.stderr}")

    def expect_not(self, wrong):
        """These rows and no others say `not`, in the table too, each with its reason. `wrong`: words of the reason, by the row's beginning."""
        self.expect_status(1)
        lines = self.done.stdout.splitlines()
        found = [row["what"] for row in self.file()["results"] if row["verdict"] == "not"]
        expect(len(found) == len(wrong) and all(row.startswith(what) for row, what in zip(found, wrong)), f"not: {found}\n{self.done.stdout}")
        for what, words in wrong.items():
            expect(any(line.startswith(what) and line.endswith("  not") for line in lines), f"the table has no {what}\n{self.done.stdout}")
            expect(not words or any(all(word in line for word in words) for line in lines if line.startswith("not: ")),
                   f"no {words} in\n{self.done.stdout}")


def test_rounds_have_every_pair_once():
    for count in range(2, 10):
        rounds = list(many_gpus.rounds_of(count))
        pairs = [pair for pairs in rounds for pair in pairs]
        expect(sorted(pairs) == [(a, b) for a in range(count) for b in range(a + 1, count)], f"{count}: {pairs}")
        for pairs in rounds:
            gpus = [gpu for pair in pairs for gpu in pair]
            expect(len(gpus) == len(set(gpus)) == count - count % 2, f"{count}: {pairs}")


def test_eight_gpus_within_the_budget():
    run = Run(8, "--budget", "40", *LOOSE)
    run.expect_status(0)
    files = sorted(path.name for path in run.out.iterdir())
    expect(len(files) <= 8 and "many-gpus-topology.svg" in files, f"files: {files}")
    for path in run.out.glob("*.json"):
        expect(len(json.loads(path.read_text())["results"]) > 0, f"{path} is empty")
    document = run.file()
    expect(document["is_stand_in"] is True and document["device"]["is_stand_in"] is True and len(document["devices"]) == 8, f"{document}")
    expect(list(document["seconds"]) == list(many_gpus.STEPS), f"{document['seconds']}")
    # Whatever has no figure is named.
    expect(document["left_out"] or all(row["verdict"] == "ok" for row in document["results"]), run.done.stdout)


def test_a_rank_on_each_of_eight_gpus():
    run = Run(8, "--steps", "ranks", *LOOSE)
    run.expect_status(0)
    expect({row["verdict"] for row in run.file()["results"]} == {"ok"}, run.done.stdout)
    expect(run.row("a rank is killed")["figure"].startswith("7 of 7 others did"), run.done.stdout)


def test_nothing_is_left_out_where_there_is_time():
    run = Run(3, "--budget", "170", "--steps", "machine,ranks,pairs,at-once,kernels", "--nvbandwidth", nvbandwidth("1e-6"), *LOOSE)
    run.expect_status(0)
    expect(run.file()["left_out"] == [] and {row["verdict"] for row in run.file()["results"]} == {"ok"}, run.done.stdout)
    pairs = run.file("-pairs")["results"]
    expect([result["measure"] for result in pairs] == [measure.name for measure in (*many_gpus.PAIR_MEASURES, *many_gpus.KERNEL_MEASURES)], f"{pairs}")
    for result in pairs:
        is_whole = all((cell is None) == (row == column) for row, line in enumerate(result["matrix"]) for column, cell in enumerate(line))
        expect(is_whole and len(result["matrix"]) == 3 and result["paths"], f"{result}")
    ranks = {result["measure"]: result for result in run.file("-ranks")["results"]}
    expect(set(ranks) == {"join", "ring", "all_to_all", "kill", "matvec_ring"} and len(ranks["matvec_ring"]["edges"]) == 3, f"{ranks}")
    for case in run.file("-presets")["results"]:
        # One row of three cells at most, of which nvbandwidth's last has two.
        wanted = min(2e-6, case["nvbandwidth_sum"])
        expect(abs(case["nvbandwidth_sum"] - wanted) < 1e-12 and abs(case["ratio"] - case["sum"] / wanted) < 1e-3 * case["ratio"], f"{case}")
    expect_tables(run.out)


def expect_tables(folder):
    """Figures of stand-ins make no table; the same, of a machine with GPUs, make all."""
    names = [name for name in tables.SETS if name.startswith("many-gpus")]
    tables.RESULTS, tables.ROOT = folder, folder
    expect(len(names) == 4, f"{names}")
    for name in names:
        try:
            tables.table(name)
        except SystemExit as refused:
            expect("stand-in" in str(refused), f"{refused}")
        else:
            raise AssertionError(f"{name}: a table of stand-ins")
        path = folder / f"{name}.json"
        path.write_text(path.read_text().replace('"is_stand_in": true', '"is_stand_in": false'))
        text = tables.table(name)
        expect(text.count("\n|") > 4 and "3 × stand-in" in text and "bench/many_gpus.py" in text, f"{name}: {text}")
        (folder / f"{name}.json").unlink()
        expect(tables.table(name) == "_Not measured yet._", f"{name}: a table of nothing")


def test_what_does_not_fit_is_named():
    run = Run(8, "--budget", "12", *LOOSE, fault='case "$1" in doctor|latency|run|survey) exec sleep 300;; esac')
    run.expect_status(0)
    left_out = run.file()["left_out"]
    for what in ("doctor", "8 ranks join", "8 B between ranks (28 times)", "survey"):
        expect(what in left_out and any(line.startswith("left out: ") and what in line for line in run.done.stdout.splitlines()), f"no {what}: {left_out}")
    without = [row for row in run.file()["results"] if row["verdict"] == "left out"]
    expect(len(without) > 4 and not any(row["figure"] for row in without), run.done.stdout)


def test_a_command_that_fails():
    fault = '[ "$1" = doctor ] && { echo "gigabar doctor: planted" >&2; exit 7; }'
    Run(2, "--steps", "machine", fault=fault).expect_not({"doctor": ("exit status 7", "gigabar doctor: planted")})


def test_a_command_without_a_report():
    fault = '[ "$1" = doctor ] && exit 0'
    Run(2, "--steps", "machine", fault=fault).expect_not({"doctor": ("no report",)})


def test_a_pair_that_fails_has_wrong_data_or_is_slow():
    slow, none = edit('s/"p50_us": /&999999999999/'), edit('s/"p50_us": /&0, "was": /')
    fault = ('case "$CUDA_VISIBLE_DEVICES $*" in "1,2 bw "*) echo "gigabar bw: planted" >&2; exit 1;; '
             '"0,2 latency "*" 64K:64K "*) exec "$real" "$@" --plant-fault 65536;; '
             f'"1,2 device-latency "*) {slow};; "0,1 device-latency "*) {none};; esac')
    run = Run(3, "--budget", "150", "--steps", "pairs", *LOOSE, fault=fault)
    run.expect_not({"notification between kernels": ("GPUs 1,2", "× the best pair"), "64 MiB between ranks": ("GPUs 1,2: gigabar bw", "planted"),
                    "64 KiB between ranks": ("GPUs 0,2", "wrong data")})
    expect(any("GPUs 0,1" in line and "p50_us is 0" in line for line in run.done.stdout.splitlines()), run.done.stdout)
    matrix = next(result["matrix"] for result in run.file("-pairs")["results"] if result["measure"] == "rank_bandwidth")
    expect(matrix[1][2] is None and matrix[2][1] is not None, f"{matrix}")


def test_wrong_data_of_ranks():
    fault = 'case "$*" in *"--neighbours 2 --bytes"*) exec "$real" "$@" --plant-fault 1;; esac'
    Run(4, "--steps", "ranks", *LOOSE, fault=fault).expect_not({"ring of ranks": ("is not what rank 1 wrote",)})


def test_a_figure_that_is_not_as_wanted():
    Run(2, "--steps", "ranks", *LOOSE, "--limit", "join_s=0").expect_not({"2 ranks join": ()})
    run = Run(2, "--steps", "at-once", "--nvbandwidth", nvbandwidth("1e9"))
    run.expect_status(1)
    expect([row["verdict"] for row in run.file()["results"]] == ["not"] * 5, run.done.stdout)


def test_an_nvbandwidth_that_fails_is_no_failure_of_ours():
    run = Run(2, "--steps", "at-once", "--nvbandwidth", "/bin/false")
    run.expect_status(0)
    expect(len(run.file()["left_out"]) == 4 and all("nvbandwidth" in text for text in run.file()["left_out"]), run.done.stdout)


def test_an_unexpected_report_is_named_and_the_run_goes_on():
    no_total = edit('s/"group": ""/"group": "another"/')
    run = Run(2, "--steps", "at-once", "--nvbandwidth", nvbandwidth("0"), fault=f'case "$*" in "streams -t "*) {no_total};; esac')
    run.expect_not({many_gpus.AT_ONCE: ("unexpected report", "StopIteration")})
    left_out = run.file()["left_out"]
    expect(left_out == [f"nvbandwidth {name}: all figures are 0" for name in many_gpus.WANTED_PRESETS], f"{left_out}")
    fault = f'case "$1" in doctor) {edit("s/verdict/another/")};; esac'
    Run(2, "--steps", "machine,ranks", *LOOSE, fault=fault).expect_not({"machine": ("unexpected report", "KeyError")})


def test_what_the_machine_cannot_run_is_named():
    waived = edit('s/"waived": ""/"waived": "planted"/')
    run = Run(2, "--steps", "at-once", fault=f'case "$*" in *" one_to_all_read_ce "*) {waived};; esac')
    run.expect_status(0)
    expect(run.row("one_to_all_read_ce")["verdict"] == "left out" and run.file()["left_out"] == ["one_to_all_read_ce: planted"], run.done.stdout)


def test_without_graphviz():
    run = Run(2, "--steps", "machine", path=FOLDER)
    run.expect_status(0)
    expect(run.row("topology")["figure"] == "read" and not list(run.out.glob("*.svg")), run.done.stdout)
    expect(len(run.file()["left_out"]) == 1 and "Graphviz" in run.file()["left_out"][0], run.done.stdout)


def test_files_of_an_earlier_run_go():
    """Those of the steps that run, even where nothing takes their place."""
    out = pathlib.Path(FOLDER) / "out"
    out.mkdir()
    for name in ("topology.json", "topology.svg", "doctor.json", "ranks.json", "pairs.json", "presets.json", "survey.json"):
        (out / f"many-gpus-{name}").write_text("earlier")
    run = Run(2, "--steps", "machine,at-once", fault='[ "$1" = info ] || exit 9')
    run.expect_status(1)
    left = sorted(path.name for path in out.iterdir())
    expect(left == ["many-gpus-pairs.json", "many-gpus-ranks.json", "many-gpus-survey.json", "many-gpus.json"], f"{left}")


def test_what_fits_into_a_budget_of_four_gpus():
    """By a clock of its own, with what commands are taken to need on four H200: only copies with the host, the last ones, do not fit."""
    gpus = [{"is_stand_in": True, "uuid": "", "index": index} for index in range(4)]
    result = {"drivers": {}, "verdict": "ok", "is_checked": True, "wrong_count": 0, "path": "nvlink", "p50_us": 1, "p50_mb_per_s": 1, "gb_per_s": 1,
              "million_per_s": 1, "kernel_vectors_per_s": 1, "waived": "", "unit": "GB/s", "matrices": [{"rows": [[1]]}], "transfers": [],
              "totals": [{"group": "", "aggregate_gb_per_s": {"median": 1}}]}
    report = {"machine": None, "device": None, "notes": [], "ranks": [], "results": [result | {"what": "device", "device": gpu} for gpu in gpus]}
    ranks = "opened after 1 s, barrier 1 s, data: data checked 1 s\nall: 1 GB/s together\n"
    survivors = "".join(f"rank {rank}: peer_lost, and went on\n" for rank in range(3))
    case = {"nvbandwidth": {"testcases": [{"status": "Passed", "bandwidth_matrix": [["1"]]}]}}
    presets = subprocess.run([OPTIONS.program, "streams", "--list-presets"], capture_output=True, text=True, timeout=60, check=True).stdout
    clock, lock = [0.0], threading.Lock()

    def execute(command, deadline_s, **_):
        name = command[1]
        # Two pairs run at once, so that each takes half of the time.
        seconds = {"info": 1, "topology": 2, "doctor": 4, "run": 3, "streams": 3, "-t": 3}.get(name, 1)
        if name == "survey":
            seconds = int(command[command.index("--budget") + 1])
        with lock:
            clock[0] += min(seconds, deadline_s)
        if seconds > deadline_s:
            raise many_gpus.reports.TooLong("late")
        if "--json" in command:
            pathlib.Path(command[-1]).write_text(json.dumps(report))
        is_kill = "--kill" in command
        out = {"run": survivors if is_kill else ranks, "streams": presets, "-t": json.dumps(case)}.get(name, "")
        return subprocess.CompletedProcess(command, 137 if is_kill else 0, out, "")

    os.environ["PATH"] = path_with_dot()
    many_gpus.reports.execute = execute
    many_gpus.time = types.SimpleNamespace(monotonic=lambda: clock[0])
    words = ["--out", FOLDER, "--gigabar", OPTIONS.program, "--nvbandwidth", "nvbandwidth", "--budget", "255"]
    status = many_gpus.main(words)
    document, cases = (json.loads((pathlib.Path(FOLDER) / f"many-gpus{name}.json").read_text()) for name in ("", "-presets"))
    expect(status == 0 and clock[0] <= 255, f"exit status {status} after {clock[0]} s")
    expect({row["verdict"] for row in document["results"]} == {"ok"}, f"{document['results']}")
    expect(all(re.match(r"(preset|nvbandwidth) \w*host", what) for what in document["left_out"]), f"{document['left_out']}")
    wanted = {name for name in re.findall(r"^([a-z]\w+)", presets, re.MULTILINE) if "host" not in name} | {many_gpus.AT_ONCE}
    measured = {case["name"] for case in cases["results"] if case["ratio"] is not None}
    expect(len(wanted) == 19 and wanted <= measured, f"not measured: {wanted - measured}")
    clock[0] = 0
    status = many_gpus.main([*words, "--steps", "at-once,presets"])
    left_out = json.loads((pathlib.Path(FOLDER) / "many-gpus.json").read_text())["left_out"]
    expect(status == 0 and clock[0] <= 255 and not left_out, f"exit status {status} after {clock[0]} s: {left_out}")


def test_wrong_usage():
    for words in (["--steps", "none"], ["--budget", "0"], ["--at-once", "0"], ["--limit", "join_s"], ["--limit", "none=1"]):
        run = Run(2, *words)
        run.expect_status(2)
        expect(words[0] in run.done.stderr, run.done.stderr)
    Run(1).expect_status(2)


CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}


def main():
    global OPTIONS, FOLDER
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--program")
    parser.add_argument("--case", choices=sorted(CASES))
    OPTIONS = parser.parse_args()
    if OPTIONS.list:
        print("\n".join(CASES))
        return 0
    OPTIONS.program = os.path.abspath(OPTIONS.program)
    with tempfile.TemporaryDirectory() as FOLDER:
        try:
            CASES[OPTIONS.case]()
        except AssertionError as failure:
            print(f"failed: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
