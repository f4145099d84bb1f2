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


def faulty(op, fault, *arguments):
    """The result of one operation with one fault, whose data were right."""
    result, outcome = result_of("--op", op, "--fault", fault, *(() if "-i" in arguments else FEW), *arguments)
    expect(result["fault"]["kind"] == fault.split(":")[0] and fault.split(":")[0] in outcome.out, "the fault is not told", outcome)
    expect(result["fault"]["expected"] and "expected: " in outcome.out, "what is expected is not told", outcome)
    expect(result["wrong_count"] == 0, f"{result}")
    expect(sum(result["ends"].values()) == result["operations"], f"ends and operations: {result}")
    return result


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


def test_softhca_threads_queues_and_windows():
    for shape, sharing, operations in ((("--threads", "3", "--queues", "2"), "device", 90),
                                       (("--threads", "2", "--queues", "2", "--proxies", "2"), "exclusive", 60),
                                       (("--queues", "3", "--completions", "ordinary"), "exclusive", 90),
                                       (("--threads", "3", "--scope", "block", "--queues", "2", "--slots", "8"), "exclusive", 180),
                                       (("--threads", "2", "--sharing", "block", "--completions", "ordinary"), "block", 60)):
        for op in ("write", "compare-swap"):
            result, outcome = result_of("--op", op, *(("-m", "100:100") if op == "write" else ()), "-W", "3", *FEW, *shape)
            expect(result["sharing"] == sharing and result["operations"] == operations and result["ends"] == {"ok": operations},
                   f"{shape}: {result}", outcome)
            requests = sum(queue["work_requests"] for queue in result["by_queue"])
            expect(requests == operations * 12 // 10, f"requests with the warm-up: {result}")


def test_softhca_confirmed_reads_take_two_requests():
    result, _ = result_of("--op", "read", "-m", "8:8", *FEW, "--confirm-reads")
    expect(result["confirms_reads"] and result["by_queue"][0]["work_requests"] == 2 * 12, f"{result}")


def test_softhca_json_on_standard_output():
    outcome = run("softhca", "--op", "write", "-m", "8:8", *FEW, "--json", "-")
    expect(outcome.status == 0, "--json -", outcome)
    expect_header(json.loads(outcome.out), "softhca")
    expect("# op" in outcome.err, "the text has not gone to standard error", outcome)


# ---- faults ----


def test_softhca_late_record():
    result = faulty("write", "late-record:5")
    expect(result["ends"] == {"ok": 10} and result["fault"]["injected"]["late_records"] == 10, f"{result}")


def test_softhca_lost_records_and_doorbells():
    for kind, counter in (("lost-record", "lost_records"), ("lost-doorbell", "lost_doorbells")):
        result = faulty("fetch-add", f"{kind}:2", *BRIEF)
        expect(result["fault"]["injected"][counter] == 2, f"{result}")
        expect(result["ends"] == {"ok": 8, "timed_out, then ok": 2} and result["failed"] == 0, f"{result}")
        expect([one["operation"] for one in result["not_ok"]] == [2, 3], f"the first two behind the warm-up: {result}")
    # The last doorbell of all is lost: the command rings once more.
    result = faulty("write", "lost-doorbell:3", *BRIEF, "-i", "3")
    expect(result["ends"] == {"timed_out, then ok": 3}, f"{result}")


def test_softhca_reordering_between_queues():
    result = faulty("write", "reorder", "--queues", "2", "-i", "60")
    expect(result["fault"]["overtaken"] > 0 and result["fault"]["injected"]["polls_sat_out"] > 0, f"{result}")
    expect(result["ends"] == {"ok": 120}, f"{result}")


def test_softhca_error_cqe():
    for completions in ("collapsed", "ordinary"):
        for syndrome, status in (("remote_access", "peer_lost"), ("local_protection", "device_error")):
            result = faulty("read", "error:4", "--syndrome", syndrome, "--completions", completions)
            expect(result["ends"] == {"ok": 3, f"{status} ({syndrome})": 1, f"{status} (not posted)": 1}, f"{result}")
            expect(result["failed"] == 2 and result["fault"]["injected"]["errors"] == 1, f"{result}")
            failed, refused = result["not_ok"]
            expect(failed["syndrome"] == syndrome and failed["last"] == status and failed["operation"] == 5, f"{failed}")
            expect(not refused["is_posted"] and refused["first"] == status, f"{refused}")


def test_softhca_requests_behind_an_error_are_flushed():
    result = faulty("write", "error:2", "-W", "4", "--completions", "ordinary")
    expect(result["ends"] == {"ok": 1, "peer_lost (retries_exceeded)": 1, "peer_lost (flushed)": 2, "peer_lost (not posted)": 1},
           f"{result}")
    expect(result["by_queue"][0]["error_cqes"] == 3, f"{result}")
    # A collapsed CQ may have lost the first failure; the data are those of one request all the same.
    faulty("write", "error:2", "-W", "4")
    faulty("write", "error:5", "--threads", "3", "--scope", "block")


def test_softhca_indexes_wrap():
    result = faulty("compare-swap", "wrap:5")
    expect(result["by_queue"][0]["has_wrapped"] and result["ends"] == {"ok": 10}, f"{result}")
    result = faulty("write", "wrap:60", "--completions", "ordinary", "--slots", "16")  # the rounds follow the number
    expect(result["by_queue"][0]["has_wrapped"] and result["operations"] == 61, f"{result}")


def test_softhca_index_counts_all_its_16_bits():
    result = faulty("write", "wrap:65536", "-W", "4096", "-m", "1:1", "--slots", "16384")
    expect(result["by_queue"][0]["has_wrapped"] and result["operations"] >= 65536, f"{result}")


def test_softhca_full_ring():
    for op, extra, room in (("write", (), 16), ("read", ("--confirm-reads",), 8)):
        result = faulty(op, "full-ring", "--slots", "16", *BRIEF, *extra)
        expect(result["ends"] == {"ok": room, "timed_out (not posted)": 1} and result["failed"] == 1, f"{result}")
    result = faulty("write", "full-ring", "--slots", "16", "--threads", "3", *BRIEF)
    expect(result["ends"] == {"ok": 16, "timed_out (not posted)": 3}, f"{result}")


def test_softhca_late_read_data():
    result = faulty("read", "late-read")
    expect(result["ends"] == {"ok": 10} and result["fault"]["injected"]["late_reads"] == 10, f"{result}")
    result = faulty("read", "late-read", "--confirm-reads")
    expect(result["ends"] == {"ok": 10} and result["fault"]["early_reads"] == 0, f"{result}")


def test_softhca_stalled():
    result = faulty("write", "stalled-hca", "-W", "3", *BRIEF)
    expect(result["ends"] == {"timed_out, then ok": 3} and result["fault"]["injected"]["polls_stalled"] > 0, f"{result}")
    for completions in ("collapsed", "ordinary"):
        result = faulty("write", "stalled-consumer:1", "--slots", "64", "--completions", completions)
        expect(result["ends"] == {"ok": 64}, f"{result}")


def test_softhca_all_faults_of_all_ops():
    results, outcome = results_of("--fault", "all", "--queues", "2", "--slots", "16", "-i", "60", "-x", "1", *BRIEF, "--op", "read")
    expect([result["fault"]["kind"] for result in results] == list(FAULTS), "the faults", outcome)
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


def test_softhca_a_fault_does_not_hide_another():
    result_of("--op", "write", "--fault", "wrap:3", *FEW, "--plant-fault", "data", status=1)
    result_of("--op", "write", "--fault", "late-record:2", *FEW, "--plant-fault", "guard", status=1)


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
