#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar device-latency`, `device-bw`, `device-rate`, `pingpong` and `matvec` between ranks of this host, their kernels played by
the CPU, and checks what they say. Options and exit status as command_line_test.py.
"""

import json
import os
import re
import sys
import time

import command_line_test as shared
from command_line_test import expect, expect_header, expect_refusal, expect_summary, is_near, run
from ranks_test import TRANSPORT, Ended, free_port, ranks, rows, run_job, sizes, start_rank

OPS = {"device-latency": ("notify", "notify-ordered", "payload", "write-notify", "write-count", "message", "reply", "read", "fetch-add",
                          "compare-swap", "barrier"),
       "device-bw": ("write", "message", "read"),
       "device-rate": ("notify", "write", "write-notify", "message")}
WITH_SIZES = ("write", "read", "write-notify", "write-count", "message", "reply")
# Not by queues.
BY_STORES = ("write-count", "message", "reply")
SIDE_BY_SIDE = ("pingpong", "matvec")
ALL = (*OPS, *SIDE_BY_SIDE)
FEW = ("-i", "6", "-x", "2")


def small(name, op):
    """A few rounds of few bytes."""
    return ("--op", op, *FEW, *(("-m", "4:64") if op in WITH_SIZES else ()), *(("-W", "5") if name != "device-latency" else ()))


def document_of(name, *arguments, path_name="cpu", **variables):
    path = os.path.join(shared.FOLDER, "device.json")
    outcome = ranks(name, *arguments, *TRANSPORT, "--json", path, **variables)
    expect(outcome.status == 0, f"{name} {' '.join(arguments)} failed", outcome)
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    expect_header(document, name)
    expect("stand-in" in outcome.out, "the stand-in is not told", outcome)
    expect(document["path"] == path_name and len(document["ranks"]) == 2 and document["settings"], "path, ranks, settings")
    return document, outcome


def expect_result(result, name, op, samples, path_name="cpu"):
    expect(result["measure"] == name and result["op"] == op and result["path"] == path_name, f"{result}")
    expect_summary(result, samples)
    expect(result["samples"] == samples and result["warm_up"] == 2, f"samples: {result}")
    expect(abs(result["ns_per_tick"] - 1) < 0.01, f"a CPU's clock is in nanoseconds: {result}")
    expect(result["units"] >= 1 and result["threads"] >= 1 and result["blocks"] >= 1, f"the grid: {result}")


# ---- help and usage ----


def test_device_help_names_the_options():
    for name in ALL:
        text = run(name, "--help").out
        for option in ("-i,", *(("--vector-size", "-b,") if name == "matvec" else ("-m,", "-x,", "--scope")), "--threads", "--json", "--timeout",
                       *(("--queues", "--proxies", "--engine", "--hca") if name in OPS else ())):
            expect(option in text, f"{name} --help lacks {option}\n{text}")
        expect("--plant-fault" not in text, f"{name} --help shows what only tests use")
    for name, ops in OPS.items():
        text = run(name, "--help").out
        expect("-c,--validation" in text and "--blocks" in text and "all blocks as one" in " ".join(text.split()), f"{name} --help\n{text}")
        for op in ops:
            expect(re.search(rf"[ |]{op}\b", text), f"{name} --help lacks {op}\n{text}")


def test_device_wrong_usage_is_one_line_and_status_2():
    expect_refusal(ranks("device-latency", "--op", "write"), 2, "--op", "write", "notify")
    expect_refusal(ranks("device-bw", "--op", "notify"), 2, "--op", "notify", "write")
    expect_refusal(ranks("device-latency", "-m", "8:64"), 2, "-m 8:64", "--op notify", "leave -m out")
    for text in ("8:4", "x", "1:2:3", ":", "64G"):
        expect_refusal(ranks("device-bw", "-m", text), 2, f"-m {text}", "MIN:MAX")
    expect_refusal(ranks("device-bw", "-m", "6:12"), 2, "-m 6:12", "multiple of 4")
    expect_refusal(ranks("device-bw", "-m", "0:8"), 2, "-m 0:8", "multiple of 4")
    expect_refusal(ranks("device-latency", "--op", "reply", "-m", "8:128K"), 2, "-m 8:128K", "65536")
    expect_refusal(ranks("device-bw", "--op", "reply"), 2, "--op", "reply", "message")
    expect_refusal(ranks("device-latency", "-i", "0"), 2, "--iterations", "outside")
    expect_refusal(ranks("device-latency", "--blocks", "2"), 2, "--blocks 2", "--scope blocks")  # is of one scope
    expect_refusal(ranks("device-latency", "--scope", "blocks"), 2, "--scope blocks", "--op notify")
    expect_refusal(ranks("device-bw", "--scope", "blocks", "--queues", "1"), 2, "--queues 1", "--scope blocks")
    for op in BY_STORES:
        expect_refusal(ranks("device-latency", "--op", op, "--queues", "2"), 2, "--queues 2", f"--op {op}")
    expect_refusal(ranks("pingpong", "--scope", "blocks"), 2, "--scope", "blocks")
    expect_refusal(ranks("device-latency", "-W", "2"), 2)  # has no windows
    expect_refusal(ranks("device-latency", "--threads", "64"), 2, "--threads 64", "--scope block")
    expect_refusal(ranks("device-bw", "--scope", "grid"), 2, "--scope", "grid", "warp")
    expect_refusal(ranks("device-bw", "--threads", "1024"), 2, "--threads", "outside")
    expect_refusal(ranks("device-bw", "--blocks", "0"), 2, "--blocks", "outside")
    expect_refusal(ranks("device-rate", "-W", "0"), 2, "--window-size", "outside")
    expect_refusal(ranks("device-rate", "--queues", "17"), 2, "--queues", "outside")
    expect_refusal(ranks("device-rate", "--proxies", "0"), 2, "--proxies", "outside")
    expect_refusal(ranks("device-rate", "--timeout", "0"), 2, "--timeout", "above 0")
    expect_refusal(ranks("pingpong", "-m", "6:12"), 2, "-m 6:12", "multiple of 4")
    expect_refusal(ranks("pingpong", "--work-us", "x"), 2, "--work-us", "x")
    expect_refusal(ranks("matvec", "-m", "6:12"), 2, "--vector-size 6:12", "multiple of 4")
    expect_refusal(ranks("matvec", "-m", "256"), 2, "--vector-size 256", "240")
    expect_refusal(ranks("matvec", "-b", "8:4"), 2, "-b 8:4", "MIN:MAX")
    expect_refusal(ranks("matvec", "-i", "1"), 2, "--iterations", "outside")
    expect_refusal(ranks("matvec", "--under-way", "0"), 2, "--under-way", "outside")


def test_device_grids_that_cannot_be_are_refused():
    expect_refusal(ranks("device-rate", "--scope", "warp", "--threads", "40", *TRANSPORT), 2, "--threads 40", "multiple of 32")
    expect_refusal(ranks("device-rate", "--blocks", "1000", *TRANSPORT), 2, "--blocks 1000", "256", "use fewer")
    expect_refusal(ranks("device-bw", "--scope", "blocks", "--blocks", "257", *TRANSPORT), 2, "--blocks 257", "at most 256")
    expect_refusal(ranks("device-rate", "--threads", "64", "-i", "1000000", *TRANSPORT), 2, "-i 1000000", "samples", "take fewer")
    expect_refusal(ranks("matvec", "-i", "1000000", *TRANSPORT), 2, "-i 1000000", "products", "take fewer")


def test_device_ranks_of_a_wrong_number_are_refused_once():
    outcomes = run_job(*[("device-latency", *FEW)] * 3)
    expect_refusal(outcomes[0], 2, "3 ranks", "device-latency", "exactly 2")
    for other in outcomes[1:]:
        expect(other.status == 2 and other.err == "" and other.out == "", "it is said more than once", other)
    expect_refusal(run_job(("pingpong", *FEW))[0], 2, "1 rank,", "exactly 2")


def test_device_ranks_with_different_options_do_not_wait_for_each_other():
    for first_arguments, second_arguments in ((("-i", "5"), ("-i", "6")), (("--op", "payload"), ("--op", "notify"))):
        first, second = run_job(("device-latency", *first_arguments), ("device-latency", *second_arguments))
        expect_refusal(first, 2, "different options")
        expect(second.status == 2, "rank 1", second)


# ---- measuring ----


def test_device_latency_of_every_op_is_checked():
    for op in OPS["device-latency"]:
        document, outcome = document_of("device-latency", *small("device-latency", op), "-c")
        expect(sizes(outcome) == ([4, 8, 16, 32, 64] if op in WITH_SIZES else [0]), "the sizes", outcome)
        expect(all("Pass" in row and row[-1] == "cpu" for row in rows(outcome)), f"{op}", outcome)
        half = "a whole operation" if op in ("read", "fetch-add", "compare-swap", "barrier") else "half of a round trip"
        expect(half in outcome.out, "what is measured", outcome)
        for result in document["results"]:
            expect_result(result, "device-latency", op, 6)
            expect(result["is_checked"] and result["wrong_count"] == 0 and result["units"] == 1, f"{result}")


def test_device_latency_of_every_scope():
    for scope in ("thread", "warp", "block"):
        document, outcome = document_of("device-latency", "--op", "write-notify", "--scope", scope, *FEW, "-m", "1000:2000", "-c")
        expect(f"scope {scope}" in outcome.out and sizes(outcome) == [1000, 2000], "the scope", outcome)
        expect(document["results"][0]["scope"] == scope, f"{document['results'][0]}")


def test_device_ops_of_several_blocks():
    for name, ops in OPS.items():
        for op in (op for op in ops if op in WITH_SIZES):
            for check in ((), ("-c",)):
                # Blocks that meet are threads that wait for each other, more than there are processors.
                few = ("--op", op, "-i", "3", "-x", "2", "-m", "64:64", *(("-W", "3") if name != "device-latency" else ()))
                document, outcome = document_of(name, *few, "--scope", "blocks", "--blocks", "2", *check)
                expect("2 blocks of 2 threads, scope blocks" in outcome.out, "the scope", outcome)
                expect(all(("Pass" in row) == bool(check) for row in rows(outcome)), f"{op}", outcome)
                for result in document["results"]:
                    expect_result(result, name, op, 3)
                    expect(result["scope"] == "blocks" and result["blocks"] == 2 and result["units"] == 1, f"{result}")


def test_device_bw_of_every_op_is_checked():
    for op in OPS["device-bw"]:
        for grid in (("--blocks", "3", "--scope", "thread"), ("--scope", "warp",), ()):
            document, outcome = document_of("device-bw", *small("device-bw", op), *grid, "-c")
            expect(all("Pass" in row for row in rows(outcome)), f"{op}", outcome)
            for result in document["results"]:
                # Parts are multiples of 16 bytes.
                part = -(-result["bytes"] // result["blocks"] // 16) * 16
                units = -(-result["bytes"] // part)
                expect_result(result, "device-bw", op, 6)
                expect(result["gb_per_s"] > 0 and result["p99_gb_per_s"] <= result["p50_gb_per_s"], f"{result}")
                expect(result["window"] == 5 and result["units"] == units, f"{result}")
                mean = result["bytes"] * 5 / result["mean_us"] / 1e3
                expect(is_near(result["gb_per_s"], mean), f"rate and mean time differ: {result}")


def test_device_rate_of_every_op_is_checked():
    for op in OPS["device-rate"]:
        for window in ("1", "5"):
            document, outcome = document_of("device-rate", *small("device-rate", op)[:-2], "-W", window, "--threads", "2", "--blocks", "2", "-c")
            expect(all("Pass" in row for row in rows(outcome)), f"{op}", outcome)
            for result in document["results"]:
                expect_result(result, "device-rate", op, 6)
                rate = 4 * int(window) / result["mean_us"]
                expect(is_near(result["million_per_s"], rate), f"rate and mean time differ: {result}")


def test_device_commands_without_check_measure_too():
    for name, ops in OPS.items():
        for op in ops:
            document, outcome = document_of(name, *small(name, op))
            expect("Validation" not in outcome.out and not document["results"][0]["is_checked"], "it was checked", outcome)


# Whatever this machine has.
NO_ADAPTER = {"GIGABAR_MLX5_LIBRARY": "/nowhere/libmlx5.so.1"}


def test_device_commands_by_queues():
    for name, ops in OPS.items():
        for op in (op for op in ops if op not in BY_STORES):
            document, outcome = document_of(name, *small(name, op), "-c", "--queues", "2", "--proxies", "2", path_name="softhca", **NO_ADAPTER)
            for result in document["results"]:
                expect_result(result, name, op, 6 * (result["units"] if name == "device-latency" else 1), "softhca")
            queues = dict(document["queues"])
            reason = queues.pop("reason")
            expect(queues == {"count": 2, "proxy_threads": 2, "engine": "software_hca", "is_mapped": True}, f"{queues}")
            expect("software_hca: open HCA: " in reason, f"not why there is no HCA: {reason}")
            told = "# 2 queues to the partner, executed by: software_hca of 2 proxy threads"
            expect(told in outcome.out and "mapping of the CPU" in outcome.out, "queues untold", outcome)
    outcome = ranks("device-latency", *small("device-latency", "write-notify"), "--queues", "1", "--engine", "hca", *TRANSPORT, **NO_ADAPTER)
    expect(outcome.status == 1 and "engine hca" in outcome.err and "/nowhere/libmlx5.so.1" in outcome.err, "an engine that is not there is not refused", outcome)
    outcome = ranks("device-latency", *small("device-latency", "write-notify"), "-c", "--queues", "1", "--plant-fault", "8", *TRANSPORT)
    expect(outcome.status == 1 and "wrong data" in outcome.err, "the planted fault is not found", outcome)


def test_device_ranks_with_different_queues_do_not_wait_for_each_other():
    first, second = run_job(("device-latency", "--queues", "1"), ("device-latency", "--queues", "2"))
    expect_refusal(first, 2, "different options")
    expect(second.status == 2 and second.err == "", "it is said twice", second)


def test_pingpong_shows_both_ways():
    document, outcome = document_of("pingpong", *FEW, "-m", "64:256", "--work-us", "3")
    expect(sizes(outcome) == [64, 128, 256] and "kernel p50 (us)" in outcome.out and "CPU p50 (us)" in outcome.out, "columns", outcome)
    for result in document["results"]:
        for way in ("kernel", "cpu"):
            expect_summary(result[way], 6)
            expect(result[way]["samples"] == 6 and result[way]["min_us"] >= 6, f"both ranks compute: {result}")
        expect(is_near(result["ratio"], result["cpu"]["p50_us"] / result["kernel"]["p50_us"]), f"ratio: {result}")
        expect(result["work_us"] == 3 and result["wrong_count"] == 0 and result["path"] == "cpu", f"{result}")


def test_pingpong_of_every_scope():
    for scope in ("thread", "warp", "block"):
        _, outcome = document_of("pingpong", *FEW, "-m", "100:100", "--scope", scope, "--blocks", "3")
        expect(all("Pass" in row for row in rows(outcome)) and f"scope {scope}" in outcome.out, f"{scope}", outcome)


def test_matvec_shows_both_ways():
    document, outcome = document_of("matvec", "-m", "8:16", "-b", "1:2", "-i", "10", "--under-way", "3", "--blocks", "2")
    expect([(row[0], row[1]) for row in rows(outcome)] == [("8", "2"), ("8", "4"), ("16", "2"), ("16", "4")], "sizes", outcome)
    expect(all("Pass" in row for row in rows(outcome)), "checked", outcome)
    for result in document["results"]:
        expect(result["kernel_vectors_per_s"] > 0 and result["cpu_vectors_per_s"] > 0 and result["wrong_count"] == 0, f"{result}")
        expect(is_near(result["ratio"], result["kernel_vectors_per_s"] / result["cpu_vectors_per_s"]), f"ratio: {result}")
        expect(result["batches"] == 10 and result["batches_under_way"] == 3 and result["blocks"] == 2, f"{result}")


def test_matvec_with_fewer_batches_than_may_be_under_way():
    _, outcome = document_of("matvec", "-m", "4:4", "-b", "3:3", "-i", "2", "--under-way", "8", "--threads", "1", "--blocks", "1")
    expect([row[1] for row in rows(outcome)] == ["3"] and "Pass" in rows(outcome)[0], "two batches", outcome)


# ---- what goes wrong ----


def test_device_wrong_data_are_found_and_are_status_1():
    for name, op in (("device-latency", "write-notify"), ("device-latency", "write-count"), ("device-latency", "message"), ("device-latency", "reply"),
                     ("device-latency", "read"), ("device-bw", "write"), ("device-bw", "message"), ("device-bw", "read"), ("device-rate", "write"), ("device-rate", "message"),
                     ("device-rate", "write-notify")):
        arguments = small(name, op)
        outcome = ranks(name, *arguments, "-c", "--plant-fault", "16", *TRANSPORT)
        expect_refusal(outcome, 1, "wrong data", op, "offset 8")
        expect([row[0] for row in rows(outcome) if "Fail" in row] == ["16"], "the row that is wrong", outcome)
        expect("# DATA VALIDATION ERROR: " in outcome.out, "OSU's words", outcome)
    for name, op in (("device-latency", "notify"), ("device-latency", "payload"), ("device-latency", "fetch-add"),
                     ("device-latency", "compare-swap"), ("device-rate", "notify")):
        expect_refusal(ranks(name, *small(name, op), "--plant-fault", "0", *TRANSPORT), 1, "wrong data", op)
    expect_refusal(ranks("matvec", "-m", "8:8", "-b", "2:2", "-i", "6", "--plant-fault", *TRANSPORT), 1, "wrong data", "batch 5", "row")
    expect_refusal(ranks("pingpong", *FEW, "-m", "64:128", "--plant-fault", "128", *TRANSPORT), 1, "wrong data", "128 bytes", "offset")


def test_device_ranks_that_never_start_end_at_the_timeout():
    begin = time.monotonic()
    outcome = Ended(start_rank(0, 2, free_port(), "device-latency", *FEW, "--timeout", "1"))
    expect(outcome.status == 1 and len(outcome.err.splitlines()) >= 1, "a rank that never starts", outcome)
    expect(time.monotonic() - begin < 60, "it took too long", outcome)


def test_device_kernels_that_take_too_long_end_by_themselves():
    begin = time.monotonic()
    outcome = ranks("device-latency", "-i", "10000000", "--timeout", "1", *TRANSPORT)
    expect(outcome.status == 1 and "timed_out" in outcome.err and "--timeout" in outcome.err, "a kernel without end", outcome)
    expect(time.monotonic() - begin < 60, "it took too long", outcome)


def test_device_rank_that_is_killed_ends_the_job():
    port = free_port()
    processes = [start_rank(rank, 2, port, "device-latency", "-i", "10000000", "--timeout", "60", *TRANSPORT) for rank in range(2)]
    line = processes[0].stdout.readline()
    while line and "scope thread" not in line:
        line = processes[0].stdout.readline()
    time.sleep(0.3)
    begin = time.monotonic()
    processes[1].kill()
    first = Ended(processes[0])
    Ended(processes[1])
    expect(first.status == 1 and "rank" in first.err, "the lost peer is not told", first)
    expect(time.monotonic() - begin < 40, "it took longer than the deadline", first)


def test_device_json_on_standard_output():
    outcome = ranks("device-latency", *FEW, "--json", "-", *TRANSPORT)
    expect(outcome.status == 0, "--json -", outcome)
    expect_header(json.loads(outcome.out), "device-latency")
    expect("# Size" in outcome.err, "the text has not gone to standard error", outcome)
    expect_refusal(ranks("device-latency", *FEW, "--json", "/no/such/x.json", *TRANSPORT), 1, "--json", "/no/such")


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
