#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar latency`, `bw`, `bibw`, `multi-lat`, `mbw-mr` between ranks of this host and checks what they say. Options and exit
status as command_line_test.py.
"""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import command_line_test as shared
from command_line_test import expect, expect_header, expect_refusal, expect_summary, is_near, run

LAUNCHERS = ("PMIX_", "PMI_", "OMPI_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_")
ALL = ("latency", "bw", "bibw", "multi-lat", "mbw-mr")
SHORT = ("-i", "20", "-x", "2", "-m", "1:64")
TRANSPORT = ("--transport", "local")


def ranks(*arguments, **variables):
    """The command without a launcher's word: it starts its own ranks."""
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        del os.environ[name]
    return run(*arguments, **variables)


def rows(outcome):
    """The data: one list of words per line that is no comment."""
    return [line.split() for line in outcome.out.splitlines() if line and not line.startswith("#")]


def sizes(outcome):
    return [int(row[0]) for row in rows(outcome)]


def measured(*arguments, **variables):
    """A run that must succeed, every line of which is data or a comment."""
    outcome = ranks(*arguments, *TRANSPORT, **variables)
    expect(outcome.status == 0, f"{' '.join(arguments)} failed", outcome)
    expect(rows(outcome), "no data", outcome)
    for row in rows(outcome):
        expect(row[0].isdigit() and math.isfinite(float(row[1])) and float(row[1]) >= 0, f"not a row of data: {row}", outcome)
    return outcome


def document_of(*arguments, **variables):
    path = os.path.join(shared.FOLDER, "ranks.json")
    outcome = measured(*arguments, "--json", path, **variables)
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    expect_header(document, arguments[0])
    return document, outcome


# ---- help and usage ----


def test_ranks_help_names_osus_options():
    for name in ALL:
        text = run(name, "--help").out
        for letter in "dmixc" + ("W" if "b" in name else "") + ("p" if name.startswith("m") else ""):
            expect(re.search(rf"^\s+-{letter}\b", text, re.MULTILINE), f"{name} --help lacks -{letter}\n{text}")
        for option in ("--op", "--compare", "--json", "--gdr-limit", "--gdr-read-limit", "--kernel-limit", "--chunk", "--rails", "--rail-policy",
                       "--transport", "--require", "--forbid", "--eager-limit", "--stripe", "--cpus", "--timeout"):
            expect(option in text, f"{name} --help lacks {option}\n{text}")
        expect("--plant-fault" not in text, f"{name} --help shows what only tests use")


def test_ranks_wrong_usage_is_one_line_and_status_2():
    expect_refusal(ranks("latency", "-d", "rocm"), 2, "-d rocm", "cuda")
    expect_refusal(ranks("latency", "D", "D"), 2, "'D'", "-d cuda")
    expect_refusal(ranks("latency", "-d", "cuda", "D"), 2, "two")
    expect_refusal(ranks("latency", "-d", "cuda", "M", "M"), 2, "'M'", "H (host)")
    expect_refusal(ranks("latency", "-d", "cuda", "D", "D", "D"), 2)
    for text in ("8:4", "x", "1:2:3", ":", "-1", "64G"):
        expect_refusal(ranks("latency", "-m=" + text if text == "-1" else "-m", text), 2)
    expect_refusal(ranks("latency", "-m", "8:4"), 2, "-m 8:4", "MIN:MAX")
    expect_refusal(ranks("bw", "-m", "0:4"), 2, "-m 0:4", "start at 1")
    expect_refusal(ranks("latency", "-i", "0"), 2, "--iterations", "outside")
    expect_refusal(ranks("latency", "-x", "-1"), 2, "--warmup")
    expect_refusal(ranks("bw", "-W", "0"), 2, "--window-size", "outside")
    expect_refusal(ranks("bw", "-W", "513"), 2, "--window-size", "512")
    expect_refusal(ranks("latency", "-W", "4"), 2)  # has no windows
    expect_refusal(ranks("bw", "-p", "2"), 2)  # is for one pair
    expect_refusal(ranks("mbw-mr", "-p", "0"), 2, "--pairs", "outside")
    expect_refusal(ranks("mbw-mr", "--threads", "17"), 2, "--threads", "outside")
    expect_refusal(ranks("bw", "--threads", "2"), 2)  # is of one thread
    expect_refusal(ranks("latency", "--op", "get"), 2, "--op", "get", "write")
    expect_refusal(ranks("bw", "--op", "put"), 2, "--op put", "latency")
    expect_refusal(ranks("latency", "-d", "cuda", "D", "H", "--op", "put"), 2, "--op put", "host memory")
    expect_refusal(ranks("latency", "--op", "put", "-c"), 2, "--op put", "-c")
    expect_refusal(ranks("latency", "--op", "put", "-m", "0:8"), 2, "-m 0:8", "start at 1")
    expect_refusal(ranks("latency", "--require", "nvlink"), 2, "--require", "nvlink", "p2p")
    expect_refusal(ranks("latency", "--require", "p2p", "--forbid", "p2p"), 2, "p2p")
    expect_refusal(ranks("latency", "--require", "p2p", "--compare"), 2, "--compare", "--require p2p")
    expect_refusal(ranks("latency", "--transport", "mpi"), 2, "--transport", "mpi")
    expect_refusal(ranks("latency", "--gdr-limit", "much"), 2, "--gdr-limit", "much", "unlimited")
    expect_refusal(ranks("latency", "--timeout", "0"), 2, "--timeout", "above 0")
    for name in ALL:
        expect_refusal(ranks(name, "--cpus", "60000"), 2, "--cpus", "60000", "CPU 60000", "near, or any")
    expect_refusal(ranks("latency", "--cpus", "1-"), 2, "--cpus", "'1-'", "0-7,16")


# ---- under an environment that says who the rank is ----


def start_rank(rank, rank_count, port, *arguments, **more):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS + ("GIGABAR_", "XDG_"))}
    environment.update({"GIGABAR_STAND_IN": "1", "HOME": shared.FOLDER, "RANK": str(rank), "WORLD_SIZE": str(rank_count),
                        "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                        "GIGABAR_JOB_KEY": "00112233445566778899aabbccddeeff"})
    environment.update(more)
    return subprocess.Popen([shared.OPTIONS.program, *arguments], env=environment, cwd=shared.FOLDER, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Ended:
    def __init__(self, process):
        self.out, self.err = process.communicate(timeout=120)
        self.status = process.returncode

    __str__ = shared.Outcome.__str__


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_job(*lines_of_arguments, **more):
    port = free_port()
    processes = [start_rank(rank, len(lines_of_arguments), port, *arguments, *TRANSPORT, **more)
                 for rank, arguments in enumerate(lines_of_arguments)]
    try:
        return [Ended(process) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def test_ranks_of_a_launcher_are_one_job_and_rank_0_speaks():
    first, second = run_job(*[("latency", *SHORT)] * 2)
    expect(first.status == 0 and sizes(first) == [1, 2, 4, 8, 16, 32, 64], "rank 0", first)
    expect(second.status == 0 and second.out == "" and second.err == "", "rank 1 is not silent", second)


def test_ranks_of_a_wrong_number_are_refused_once():
    outcomes = run_job(*[("latency", *SHORT)] * 3)
    expect_refusal(outcomes[0], 2, "3 ranks", "latency", "exactly 2")
    for other in outcomes[1:]:
        expect(other.status == 2 and other.err == "" and other.out == "", "it is said more than once", other)
    expect_refusal(run_job(("bibw", *SHORT))[0], 2, "1 rank,", "exactly 2")
    expect_refusal(run_job(*[("mbw-mr", *SHORT)] * 3)[0], 2, "3 ranks", "even")
    expect_refusal(run_job(*[("mbw-mr", *SHORT, "-p", "2")] * 3)[0], 2, "--pairs 2", "4 ranks")


def test_ranks_beyond_the_pairs_are_idle():
    outcomes = run_job(*[("mbw-mr", *SHORT, "-p", "1")] * 3)
    expect(all(outcome.status == 0 for outcome in outcomes), "a job with a rank too many", outcomes[0])
    expect("pairs: 1" in outcomes[0].out, "the pairs", outcomes[0])


def test_ranks_with_different_options_do_not_wait_for_each_other():
    first, second = run_job(("latency", "-i", "20", "-m", "1:64"), ("latency", "-i", "21", "-m", "1:64"))
    expect_refusal(first, 2, "different options")
    expect(second.status == 2, "rank 1", second)


def test_ranks_of_a_wrong_number_are_not_waited_for():
    for name, count, *words in (("latency", 1 << 20, "exactly 2"), ("tune", 1 << 20, "exactly 2"), ("device-bw", 1 << 20, "exactly 2"),
                                ("mbw-mr", (1 << 20) - 1, "even"), ("matrix", 1, "1 rank,")):
        begin = time.monotonic()
        outcome = Ended(start_rank(0, count, free_port(), name, "--timeout", "60"))
        expect_refusal(outcome, 2, *words)
        expect(time.monotonic() - begin < 30, "the ranks were waited for", outcome)


def test_ranks_half_an_environment_is_an_error():
    outcome = ranks("latency", *SHORT, RANK="0")
    expect(outcome.status == 1 and "WORLD_SIZE" in outcome.err, "half an environment", outcome)


def test_ranks_that_never_start_end_at_the_timeout():
    begin = time.monotonic()
    for command in (("latency", *SHORT), ("device-latency",), ("tune", "-m", "128K:128K", "--no-store")):
        outcome = Ended(start_rank(0, 2, free_port(), *command, "--timeout", "1"))
        expect_refusal(outcome, 1, "not every rank has come within 1 s (--timeout)", "rank 1 of 2: it has left no address", "MASTER_ADDR", "printed")
        expect("all_reduce" not in outcome.err and "barrier" not in outcome.err, "speaks of itself", outcome)
    expect(time.monotonic() - begin < 60, "it took too long", outcome)


def test_ranks_that_never_start_are_not_too_many_for_the_timeout():
    begin = time.monotonic()
    outcome = Ended(start_rank(0, 20000, free_port(), "matrix", "--timeout", "2"))
    expect_refusal(outcome, 1, "not every rank has come within 2 s (--timeout)", "more of 20000")
    expect(time.monotonic() - begin < 12, "the time-out is not kept", outcome)


def test_ranks_that_never_start_are_named_among_those_that_did():
    port = free_port()
    processes = [start_rank(rank, 4, port, "mbw-mr", *SHORT, "--timeout", "2") for rank in (0, 2)]
    first, other = (Ended(process) for process in processes)
    expect_refusal(first, 1, "ranks 1, 3 of 4: it has left no address", "they were started")
    expect(other.status == 1 and "rank 2: " in other.err, "the rank that came", other)
    expect("all_reduce" not in other.err, "speaks of itself", other)


# ---- alone ----


def test_latency_alone_starts_two_ranks():
    document, outcome = document_of("latency", "-m", "0:16K", "-i", "50", "-x", "5")
    expect(sizes(outcome) == [0] + [2**power for power in range(15)], "the sizes", outcome)
    expect(re.search(r"^# Size          Latency \(us\) +p50 \(us\) +p99 \(us\)  Path$", outcome.out, re.MULTILINE), "headings", outcome)
    expect("# rank 1: " in outcome.out and "host memory" in outcome.out, "who is who", outcome)
    expect(all(" local" in line for line in outcome.out.splitlines() if line[0].isdigit()), "a row without path", outcome)
    expect(document["device"] is None and document["buffers"] == "H H", "no device is in use")
    expect(len(document["ranks"]) == 2 and document["settings"] and document["peers"], "ranks, settings, peers")
    for result in document["results"]:
        expect_summary(result, 50)
        expect(result["samples"] == 50 and result["warm_up"] == 5, f"samples: {result}")
        expect(result["path"]["transport"] == "local" and result["path"]["reason"], f"path: {result['path']}")


def test_latency_of_every_kind_and_kind_of_buffer_is_checked():
    for kind in ("send", "write", "read"):
        for buffers in (("H", "H"), ("D", "H"), ("H", "D"), ("D", "D")):
            outcome = measured("latency", "-d", "cuda", *buffers, "--op", kind, "-c", "-i", "10", "-x", "2", "-m", "1:32K")
            expect(all(row[2] == "Pass" for row in rows(outcome)), f"{kind} {buffers}", outcome)
            expect(("# note: stand-in" in outcome.out) == ("D" in buffers), "stand-ins are not told", outcome)


def test_latency_of_puts_is_that_of_memory_seen():
    document, outcome = document_of("latency", "--op", "put", "-i", "50", "-x", "5", "-m", "16K")
    expect(sizes(outcome) == [2**power for power in range(15)], "the sizes", outcome)
    expect("seen in the target's memory" in outcome.out, "what is measured", outcome)
    for result in document["results"]:
        expect_summary(result, 50)
        expect(result["kind"] == "put" and result["path"]["transport"] == "local", f"{result}")


def test_bandwidth_of_every_kind_is_checked():
    for name in ("bw", "bibw"):
        for kind in ("send", "write", "read"):
            document, outcome = document_of(name, "-d", "cuda", "--op", kind, "-c", "-i", "4", "-x", "1", "-m", "1:256K", "-W", "16")
            expect(all(row[2] == "Pass" for row in rows(outcome)), f"{name} {kind}", outcome)
            for result in document["results"]:
                expect(result["mb_per_s"] > 0 and result["window"] == 16 and result["is_checked"], f"{result}")


def test_pairs_run_at_once():
    for name in ("multi-lat", "mbw-mr"):
        for kind in ("send", "write", "read"):
            document, outcome = document_of(name, "--op", kind, "-p", "2", "-c", "-i", "5", "-x", "1", "-m", "1:4K")
            expect("# [ pairs: 2 ]" in outcome.out, "the pairs", outcome)
            for result in document["results"]:
                expect(result["samples"] == 10 and result["pairs"] == 2, f"both pairs' samples: {result}")
                if name == "mbw-mr":
                    expect(len(result["pair_mb_per_s"]) == 2 and result["messages_per_s"] > 0, f"{result}")
                    rate = result["mb_per_s"] * 1e6 / result["bytes"]
                    expect(is_near(result["messages_per_s"], rate), f"rate and bandwidth differ: {result}")


def test_threads_run_at_once():
    for kind in ("send", "write", "read"):
        document, outcome = document_of("mbw-mr", "--op", kind, "--threads", "3", "-p", "2", "-c", "-i", "5", "-x", "1", "-m", "1:4K")
        expect("# [ pairs: 2 ] [ window size: 64 ] [ threads: 3 ]" in outcome.out, "the threads", outcome)
        for result in document["results"]:
            expect(result["samples"] == 30 and result["threads"] == 3, f"all threads' samples: {result}")
            expect(result["messages_per_s"] > 0 and result["is_checked"] and result["wrong_count"] == 0, f"{result}")
    outcome = ranks("mbw-mr", "--op", "write", "--threads", "2", "-c", "-i", "5", "-m", "16:16", "--plant-fault", "16", *TRANSPORT)
    expect_refusal(outcome, 1, "wrong data", "16 bytes")
    outcome = ranks("mbw-mr", "--threads", "2", "-i", "5", "-m", "64K:64K", "--require", "gdr", "-d", "cuda", *TRANSPORT)
    expect(outcome.status == 1 and "gdr" in outcome.err, "a thread that fails ends the run", outcome)


def test_wrong_data_is_found_and_is_status_1():
    for name, kind in (("latency", "send"), ("latency", "write"), ("latency", "read"), ("bw", "send"), ("mbw-mr", "write")):
        outcome = ranks(name, "--op", kind, "-c", "-i", "5", "-m", "8:64", "--plant-fault", "16", *TRANSPORT)
        expect_refusal(outcome, 1, "wrong data", "16 bytes", "offset 8")
        expect([row[0] for row in rows(outcome) if "Fail" in row] == ["16"], "the row that is wrong", outcome)
        expect("# DATA VALIDATION ERROR: " in outcome.out, "OSU's words", outcome)


def test_compare_shows_the_same_without_gdr_and_p2p():
    document, outcome = document_of("latency", "-d", "cuda", "--compare", "-i", "20", "-m", "64K:256K", "--op", "write")
    expect("p50 without" in outcome.out and "Path without gdr, p2p" in outcome.out, "headings", outcome)
    for result in document["results"]:
        other = result["without_gdr_p2p"]
        expect(other["path"]["path"] not in ("gdr", "p2p"), f"a forbidden path was taken: {other['path']}")
        expect(is_near(result["ratio"], other["p50_us"] / result["p50_us"]), f"ratio: {result}")


def test_paths_follow_require_and_forbid():
    document, _ = document_of("latency", "-d", "cuda", "--forbid", "p2p", "--forbid", "bar", "-i", "5", "-m", "64K:64K")
    expect(document["results"][0]["path"]["path"] == "staged", f"{document['results'][0]['path']}")
    outcome = ranks("latency", "-d", "cuda", "--require", "gdr", "-i", "5", "-m", "64K:64K", *TRANSPORT)
    expect(outcome.status == 1 and "gdr" in outcome.err, "the local transport has no gdr", outcome)


def test_a_preferred_path_is_taken_where_it_is_possible():
    for path in ("staged", "p2p", "bar"):
        document, _ = document_of("latency", "-d", "cuda", "--prefer", path, "-i", "5", "-m", "64K:64K")
        expect(document["results"][0]["path"]["path"] == path, f"--prefer {path}: {document['results'][0]['path']}")
    # Over `local` there is no gdr: what is preferred and not possible leaves the choice as it is.
    usual, _ = document_of("latency", "-d", "cuda", "-i", "5", "-m", "64K:64K")
    document, _ = document_of("latency", "-d", "cuda", "--prefer", "gdr", "-i", "5", "-m", "64K:64K")
    expect(document["results"][0]["path"]["path"] == usual["results"][0]["path"]["path"], f"{document['results'][0]['path']}")


def test_settings_that_are_not_defaults_are_printed():
    outcome = measured("latency", *SHORT, "--chunk", "64K", GIGABAR_GDR_LIMIT="8K")
    expect("# chunk: 65536 (option)" in outcome.out and "# gdr_limit: 8192 (GIGABAR_GDR_LIMIT)" in outcome.out, "settings", outcome)
    outcome = ranks("latency", *SHORT, GIGABAR_CHUNK="much")
    expect(outcome.status == 1 and "GIGABAR_CHUNK" in outcome.err and "much" in outcome.err, "a bad variable", outcome)


def test_cpus_are_printed_and_all_threads_are_there():
    own = max(os.sched_getaffinity(0))

    def shown(document):
        return [setting for setting in document["settings"] if setting["name"] == "cpus"]

    document, outcome = document_of("latency", *SHORT, "--cpus", str(own))
    (setting,) = shown(document)
    expect(setting["source"] == "option" and re.fullmatch(rf"{own}( \(node \d+\))?", setting["value"]), f"JSON: {setting}")
    expect(f"# cpus: {setting['value']} (option)" in outcome.out, "text", outcome)
    (setting,) = shown(document_of("latency", *SHORT)[0])
    expect(setting["source"] == "default" and setting["value"].startswith("near: "), f"JSON: {setting}")
    outcome = ranks("latency", *SHORT, GIGABAR_CPUS="60000")
    expect(outcome.status == 1 and "GIGABAR_CPUS" in outcome.err and "CPU 60000" in outcome.err, "a bad variable", outcome)

    # The program's own thread too, since here it is ours.
    port = free_port()
    processes = [start_rank(rank, 2, port, "latency", "-i", "100000000", "-m", "8:8", "--cpus", str(own), *TRANSPORT)
                 for rank in range(2)]
    try:
        line = processes[0].stdout.readline()
        while line and not line.startswith("# Size"):
            line = processes[0].stdout.readline()
        seen = {}
        for process in processes:
            for task in os.listdir(f"/proc/{process.pid}/task"):
                seen[process.pid, task] = os.sched_getaffinity(int(task))
        expect(len(seen) >= 4 and all(cpus == {own} for cpus in seen.values()), f"threads elsewhere than on {own}: {seen}")
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_ranks_json_on_standard_output():
    outcome = ranks("latency", *SHORT, "--json", "-", *TRANSPORT)
    expect(outcome.status == 0, "--json -", outcome)
    expect_header(json.loads(outcome.out), "latency")
    expect("# Size" in outcome.err, "the text has not gone to standard error", outcome)
    expect_refusal(ranks("latency", *SHORT, "--json", "/no/such/x.json", *TRANSPORT), 1, "--json", "/no/such")


def test_interrupt_ends_all_ranks():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS + ("GIGABAR_",))}
    environment.update(GIGABAR_STAND_IN="1", HOME=shared.FOLDER)
    process = subprocess.Popen([shared.OPTIONS.program, "latency", "-i", "100000000", "-m", "8:8", *TRANSPORT], env=environment,
                               cwd=shared.FOLDER, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    line = process.stdout.readline()
    while line and not line.startswith("# Size"):
        line = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    # The pipes end when the last of them has ended.
    outcome = Ended(process)
    expect(outcome.status == 143, "the status of a signal", outcome)


def test_a_rank_that_is_killed_ends_the_job():
    port = free_port()
    processes = [start_rank(rank, 2, port, "latency", "-i", "100000000", "-m", "8:8", *TRANSPORT) for rank in range(2)]
    line = processes[0].stdout.readline()
    while line and not line.startswith("# Size"):
        line = processes[0].stdout.readline()
    time.sleep(0.1)
    begin = time.monotonic()
    processes[1].kill()
    first = Ended(processes[0])
    Ended(processes[1])
    expect(first.status == 1 and "rank 1" in first.err and len(first.err.splitlines()) == 1, "the lost peer is not named", first)
    expect(time.monotonic() - begin < 30, "it took longer than the deadline", first)


def test_a_rank_that_hangs_is_named():
    for name in ("latency", "bw"):
        port = free_port()
        processes = [start_rank(rank, 2, port, name, "-i", "100000000", "-m", "8:8", "--timeout", "5", *TRANSPORT) for rank in range(2)]
        try:
            line = processes[0].stdout.readline()
            while line and not line.startswith("# Size"):
                line = processes[0].stdout.readline()
            time.sleep(2)  # both are in the rounds by then
            processes[1].send_signal(signal.SIGSTOP)
            first = Ended(processes[0])
        finally:
            for process in processes:
                process.kill()
                process.communicate()
        expect_refusal(first, 1, "rank 1 has not answered within 5 s (--timeout)", "still runs")


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
