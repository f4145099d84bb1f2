#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar softhca` and checks what it says: every operation, every fault, and that its own checks can fail. Options and exit
status as command_line_test.py.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import command_line_test as shared
from command_line_test import expect, expect_header, expect_refusal, expect_summary, is_near, run

OPS = ("write", "inline-write", "read", "fetch-add", "compare-swap")
FAULTS = ("late-record", "lost-record", "lost-doorbell", "reorder", "error", "wrap", "full-ring", "late-read", "stalled-hca",
          "stalled-consumer")
FEW = ("-i", "10", "-x", "2")
BRIEF = ("--timeout", "0.2")  # where waits are to end by their deadline; long enough for a machine that does other work


def results_of(*arguments, status=0):
    path = os.path.join(shared.FOLDER, "softhca.json")
    outcome = run("softhca", *arguments, "--json", path)
    expect(outcome.status == status, f"softhca {' '.join(arguments)}: not status {status}", outcome)
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    expect_header(document, "softhca")
    expect(all(result["is_as_expected"] == (status == 0) for result in document["results"]), "the verdicts", outcome)
    return document["results"], outcome


def result_of(*arguments, status=0):
    results, outcome = results_of(*arguments, status=status)
    expect(len(results) == 1, f"{len(results)} results", outcome)
    return results[0], outcome


# ---- help and usage ----


def test_softhca_help_names_options_and_faults():
    text = run("softhca", "--help").out
    for option in ("--op", "-m,", "-i,", "-x,", "-W,", "--queues", "--threads", "--proxies", "--slots", "--sharing", "--completions",
                   "--timeout", "--json", "--fault"):
        expect(option in text, f"--help lacks {option}\n{text}")
    words = re.sub(r"\s+", " ", text)
    for name in OPS + FAULTS:
        expect(re.search(rf"[ |]{name}\b", words), f"--help lacks {name}\n{text}")
    expect("--plant-fault" not in text, "--help shows what only tests use")


def test_softhca_wrong_usage_is_one_line_and_status_2():
    for arguments, words in ((("--op", "send"), ("--op", "send", "fetch-add")),
                             (("-m", "8:4"), ("-m 8:4", "MIN:MAX")),
                             (("-m", "0:8"), ("-m 0:8", "start at 1")),
                             (("-m", "128M"), ("-m 128M", "64M")),
                             (("--op", "fetch-add", "-m", "8"), ("-m 8", "leave -m out")),
                             (("--op", "inline-write", "-m", "64:64"), ("-m 64:64", "28", "--op write")),
                             (("-i", "0"), ("--iterations", "outside")),
                             (("--slots", "100"), ("--slots 100", "power of two", "take 128")),
                             (("--slots", "65536"), ("--slots", "outside")),
                             (("--queues", "0"), ("--queues", "outside")),
                             (("--proxies", "65"), ("--proxies", "outside")),
                             (("--threads", "2", "--sharing", "exclusive"), ("--sharing exclusive", "--queues 2", "--sharing device")),
                             (("--threads", "8", "--scope", "block", "--slots", "4"), ("--slots 4", "8 threads", "fewer --threads")),
                             (("--completions", "none"), ("--completions", "collapsed", "ordinary")),
                             (("--timeout", "0"), ("--timeout", "above 0")), (("--timeout-ms", "0"), ("--timeout-ms", "outside")),
                             (("-W", "65536", "-m", "64K:64K"), ("-m 65536", "limit", "smaller"))):
        expect_refusal(run("softhca", *arguments), 2, *words)


def test_softhca_faults_that_cannot_be_are_refused():
    for arguments, words in ((("--fault", "fire"), ("--fault fire", "unknown", "late-record")),
                             (("--fault", "error:0"), ("--fault error:0", "REQUEST", "1..")),
                             (("--fault", "error:x"), ("--fault error:x", "whole number")),
                             (("--fault", "error:"), ("--fault error:", "whole number")),
                             (("--fault", "full-ring:3"), ("--fault full-ring:3", "no number", "':3'")),
                             (("--fault", "reorder"), ("--fault reorder:80", "--queues 2")),
                             (("--fault", "late-read", "--op", "write"), ("--fault late-read", "--op read")),
                             (("--fault", "error:500", "-i", "10"), ("--fault error:500", "10 requests", "(-i)")),
                             (("--fault", "stalled-hca", "--slots", "4", "-W", "8"), ("--fault stalled-hca", "4 slots", "--slots")),
                             (("--syndrome", "bad"), ("--syndrome", "bad", "retries_exceeded"))):
        expect_refusal(run("softhca", *arguments), 2, *words)


# ---- without faults ----


def test_softhca_every_op_is_checked():
    results, outcome = results_of("-m", "16:64", *FEW)
    expect([(result["op"], result["bytes"]) for result in results] ==
           [("write", 16), ("write", 32), ("write", 64), ("inline-write", 16), ("read", 16), ("read", 32), ("read", 64),
            ("fetch-add", 8), ("compare-swap", 8)], "operations and sizes", outcome)
    for result in results:
        expect_summary(result, 10)
        expect(result["operations"] == 10 and result["failed"] == 0 and result["ends"] == {"ok": 10}, f"{result}")
        expect(result["fault"] is None and result["not_ok"] == [] and result["million_per_s"] > 0, f"{result}")
        rate = 10 / (result["mean_us"] * result["samples"])
        expect(is_near(result["million_per_s"], rate), f"rate and mean time differ: {result}")
    rows = [line.split() for line in outcome.out.splitlines() if not line.startswith("#")]
    expect(len(rows) == 9 and all(row[-1] == "Pass" and row[-2] == "none" for row in rows), "the table", outcome)


def test_softhca_options_reach_the_queues():
    result, _ = result_of("--op", "read", "-m", "8:8", *FEW, "-W", "3", "--threads", "2", "--scope", "block", "--queues", "2", "--proxies",
                          "2", "--slots", "64", "--sharing", "block", "--completions", "ordinary", "--confirm-reads", "--timeout", "5")
    expected = {"threads": 2, "scope": "block", "queues": 2, "proxies": 2, "slots": 64, "sharing": "block", "completions": "ordinary",
                "confirms_reads": True, "window": 3, "timeout_seconds": 5, "ends": {"ok": 120}}
    expect({key: result[key] for key in expected} == expected, f"{result}")
    expect([queue["work_requests"] for queue in result["by_queue"]] == [2 * 72] * 2, f"requests with the warm-up: {result}")


def test_softhca_json_on_standard_output():
    outcome = run("softhca", "--op", "write", "-m", "8:8", *FEW, "--json", "-")
    expect(outcome.status == 0, "--json -", outcome)
    expect_header(json.loads(outcome.out), "softhca")
    expect("# op" in outcome.err, "the text has not gone to standard error", outcome)


# ---- faults ----


def test_softhca_error_cqe():
    result, outcome = result_of("--op", "read", "--fault", "error:4", "--syndrome", "remote_access", *FEW)
    expect(result["ends"] == {"ok": 3, "peer_lost (remote_access)": 1, "peer_lost (not posted)": 1}, f"{result}")
    expect(result["failed"] == 2 and result["fault"]["injected"]["errors"] == 1 and result["wrong_count"] == 0, f"{result}")
    failed, refused = result["not_ok"]
    expect(failed["syndrome"] == "remote_access" and failed["last"] == "peer_lost" and failed["operation"] == 5, f"{failed}")
    expect(not refused["is_posted"] and refused["first"] == "peer_lost" and refused["syndrome"] is None, f"{refused}")
    expect("error:4: 1 request failed; 3 ok;" in outcome.out, "the fault is not told", outcome)


def test_softhca_all_faults_of_all_ops():
    results, outcome = results_of("--fault", "all", "--queues", "2", "--slots", "16", "-i", "60", "-x", "1", *BRIEF, "--op", "read")
    expect([result["fault"]["kind"] for result in results] == list(FAULTS), "the faults", outcome)
    expect(outcome.out.count("; expected: ") == len(FAULTS), "what is expected is not told", outcome)
    for result in results:
        expect(result["wrong_count"] == 0 and sum(result["ends"].values()) == result["operations"], f"ends and operations: {result}")
    by_kind = {result["fault"]["kind"]: result for result in results}
    expect(by_kind["reorder"]["fault"]["overtaken"] > 0 and by_kind["late-read"]["fault"]["early_reads"] >= 0, f"{by_kind}")
    expect(all(queue["has_wrapped"] for queue in by_kind["wrap"]["by_queue"]), f"{by_kind['wrap']}")
    results, _ = results_of("--fault", "error,wrap", "--fault", "stalled-consumer", *FEW)
    expect(len(results) == 5 * 3, "lists and repetition")


# ---- what it finds ----


def test_softhca_finds_what_is_wrong():
    for plant, words in (("data", ("wrong data", "operation 2", "expected", "found")),
                         ("guard", ("wrong data", "nothing was to write")),
                         ("error", ("operation 3", "peer_lost (retries_exceeded)")),
                         ("stall", ("operation 2", "timed_out", "after 0.2 s"))):
        for op in ("write", "read", "fetch-add"):
            result, outcome = result_of("--op", op, *FEW, *(() if op == "fetch-add" else ("-m", "8:8")), *BRIEF, "--plant-fault",
                                        plant, status=1)
            expect_refusal(outcome, 1, op, *words)
            expect("Fail" in outcome.out and "# NOT AS EXPECTED: " in outcome.out and result["complaint"], "it is told", outcome)


def test_softhca_ends_cleanly_when_it_is_interrupted():
    path = os.path.join(shared.FOLDER, "interrupted.json")
    process = subprocess.Popen([shared.OPTIONS.program, "softhca", "--op", "write", "-m", "8:8", "-i", "10000000", "-x", "0", "--json",
                                path],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    expect(process.returncode == 130 and "interrupted" in err, f"status {process.returncode}\n{out}\n{err}")
    with open(path, encoding="utf-8") as file:
        result = json.load(file)["results"][0]
    expect(0 < result["operations"] < 10000000 and result["is_as_expected"] is None, f"{result}")


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
