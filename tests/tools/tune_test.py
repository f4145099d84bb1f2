#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar tune` between ranks of this host and checks what it says and stores, and that fabrics take it. Options and exit
status as command_line_test.py.
"""

import json
import os
import re
import sys

import command_line_test as shared
import ranks_test
from command_line_test import expect, expect_header, expect_refusal, run
from ranks_test import TRANSPORT, ranks, run_job

# Few rounds of few sizes: what is tested is not what is best on this machine.
SHORT = ("-m", "128K:256K", "-i", "2", "-x", "1")
LATENCY = ("latency", "-m", "8:8", "-i", "2", "-x", "0", *TRANSPORT)


def tuning_file():
    return os.path.join(shared.FOLDER, "tuning.json")


def tune(*arguments, **variables):
    variables.setdefault("GIGABAR_TUNING", tuning_file())
    return ranks("tune", *arguments, *TRANSPORT, **variables)


def stored():
    with open(tuning_file(), encoding="utf-8") as file:
        return json.load(file)


def test_tune_help_names_the_options_of_the_other_commands():
    text = run("tune", "--help").out
    for option in ("--accelerator", "-m", "-i", "-x", "--no-store", "--store", "--json", "--transport", "--rails", "--rail-count", "--gdr-limit",
                   "--gdr-read-limit", "--chunk", "--stripe", "--cpus", "--timeout", "GIGABAR_TUNING"):
        expect(option in text, f"tune --help lacks {option}\n{text}")


def test_tune_wrong_usage_is_one_line_and_status_2():
    expect_refusal(tune("--accelerator", "rocm"), 2, "--accelerator rocm", "cuda or host")
    for text in ("8:4", "0:4", "x", "512M"):
        expect_refusal(tune("-m", text), 2, "-m " + text, "1K:4M")
    expect_refusal(tune("-i", "0"), 2, "--iterations", "outside")
    expect_refusal(tune("-x", "-1"), 2, "--warmup")
    expect_refusal(tune("--chunk", "1"), 2, "--chunk")
    expect_refusal(tune("--timeout", "0"), 2, "--timeout", "above 0")
    expect_refusal(tune("--cpus", "60000"), 2, "--cpus", "CPU 60000")
    expect_refusal(tune("D", "D"), 2)
    expect(not os.path.exists(tuning_file()), "something was stored")


def test_tune_stores_what_fabrics_then_take():
    path = os.path.join(shared.FOLDER, "tune.json")
    outcome = tune(*SHORT, "--json", path)
    expect(outcome.status == 0, "tune failed", outcome)
    chosen = re.search(r"^chunk: (\d+) (KiB|MiB): \S", outcome.out, re.MULTILINE)
    expect(chosen and "chunk 256 KiB us" in outcome.out and f"stored in {tuning_file()}" in outcome.out, "the table", outcome)
    expect("stand-in, local, same host" in outcome.out and "[stand-in]" in outcome.out, "the pair", outcome)
    chunk = int(chosen.group(1)) * (1024 if chosen.group(2) == "KiB" else 1024**2)

    # What cannot be measured is said, and nothing is stored for it.
    for name in ("gdr_limit", "gdr_read_limit"):
        expect(re.search(rf"^{name}: not measured: gdr needs RDMA, and the transport between these ranks is local; .*verbs", outcome.out,
                         re.MULTILINE), name, outcome)
    expect("stripe: not measured: there is one rail" in outcome.out, "one rail", outcome)
    document = stored()
    expect(document["format"] == "gigabar tuning" and document["machine"]["processor"], f"the fingerprint: {document}")
    expect(len(document["pairs"]) == 1, f"one pair: {document}")
    pair = document["pairs"][0]
    expect((pair["device"], pair["transport"], pair["peer"]) == ("stand-in", "local", "same host"), f"the pair: {pair}")
    expect((pair["chunk"], pair["gdr_limit"], pair["gdr_read_limit"], pair["stripe"]) == (chunk, None, None, None), f"values: {pair}")

    with open(path, encoding="utf-8") as file:
        written = json.load(file)
    expect_header(written, "tune")
    (result,) = written["results"]
    expect(result["stored"] == tuning_file() and len(result["findings"]) == 4, f"JSON: {result}")
    finding = result["findings"][0]
    expect(finding["bytes"] == chunk and finding["sizes"] == [131072, 262144] and len(finding["curves"]) == 8, f"JSON: {finding}")

    # Every fabric of this machine takes it, and says from where.
    line = f"# chunk (local, same host): {chunk} (tuned, {tuning_file()})"
    outcome = ranks(*LATENCY, GIGABAR_TUNING=tuning_file())
    expect(outcome.status == 0 and line in outcome.out, f"'{line}' is missing", outcome)
    for how in (("--chunk", "64K"), ()):
        variables = {} if how else {"GIGABAR_CHUNK": "64K"}
        outcome = ranks(*LATENCY, *how, GIGABAR_TUNING=tuning_file(), **variables)
        expect("# chunk: 65536 (" in outcome.out and "tuned" not in outcome.out, "what was given does not win", outcome)
    outcome = ranks(*LATENCY, GIGABAR_TUNING="none")
    expect(outcome.status == 0 and "tuned" not in outcome.out, "none", outcome)


def test_tune_stores_in_the_cache_folder():
    cache = os.path.join(shared.FOLDER, "cache")
    outcome = ranks("tune", *SHORT, *TRANSPORT, XDG_CACHE_HOME=cache)
    expect(outcome.status == 0, "tune failed", outcome)
    names = [name for name in os.listdir(os.path.join(cache, "gigabar")) if name.endswith(".json")]
    expect(len(names) == 1 and re.fullmatch(r"tuning-[0-9a-f]{16}\.json", names[0]), f"the file: {names}", outcome)
    outcome = ranks(*LATENCY, XDG_CACHE_HOME=cache)
    expect(f"(tuned, {cache}/gigabar/{names[0]})" in outcome.out, "it is not found", outcome)


def test_tune_stores_where_it_is_told():
    for option in ("--no-store", "--dry-run"):
        outcome = tune(*SHORT, option)
        expect(outcome.status == 0 and "\nchunk: " in outcome.out and "not stored: --no-store" in outcome.out, option, outcome)
        expect(not os.path.exists(tuning_file()), "something was stored")
    place = os.path.join(shared.FOLDER, "elsewhere.json")
    outcome = tune(*SHORT, "--store", place)
    expect(outcome.status == 0 and f"stored in {place}" in outcome.out and os.path.exists(place), "--store FILE", outcome)
    expect(not os.path.exists(tuning_file()), "something was stored in the usual place")


def test_tune_that_measured_nothing_has_failed():
    for arguments, cause in ((("-m", "128K", "--accelerator", "host"), "take --accelerator cuda"), (("-m", "2K"), "no size is at least 128 KiB")):
        outcome = tune("-i", "2", "-x", "1", *arguments)
        expect_refusal(outcome, 1, "nothing could be measured", cause)
        expect("the path gdr is required" not in outcome.out + outcome.err, "a cause of its own making", outcome)
        expect(not os.path.exists(tuning_file()), "something was stored")


def test_tune_does_not_measure_what_is_given():
    outcome = tune(*SHORT, "--chunk", "64K", "--gdr-limit", "8K", "--gdr-read-limit", "8K", "--stripe", "8K")
    expect(outcome.status == 1 and "not stored: nothing could be measured" in outcome.out, "given options", outcome)
    for option in ("--chunk", "--gdr-limit", "--gdr-read-limit", "--stripe"):
        expect(f"not measured: {option} is given" in outcome.out, option, outcome)
    outcome = tune("--accelerator", "host", *SHORT)
    expect("chunk: not measured: host memory" in outcome.out, "host memory is not staged", outcome)


def test_tune_malformed_file_is_refused_and_named():
    with open(tuning_file(), "w", encoding="utf-8") as file:
        file.write('{"format": "gigabar tuning"')
    outcome = tune(*SHORT)
    expect(outcome.status == 1 and tuning_file() in outcome.err and "delete the file" in outcome.err, "tune", outcome)
    expect("\nchunk: " in outcome.out, "what was measured is not told", outcome)
    with open(tuning_file(), encoding="utf-8") as file:
        expect(file.read() == '{"format": "gigabar tuning"', "the file was changed")
    outcome = ranks(*LATENCY, GIGABAR_TUNING=tuning_file())
    expect(outcome.status == 0 and "tuned limits not used" in outcome.err and "delete the file" in outcome.err, "latency", outcome)


def test_tune_that_cannot_store_says_so():
    outcome = tune(*SHORT, GIGABAR_TUNING="/proc/no/tuning.json")
    expect(outcome.status == 1 and "/proc/no/tuning.json" in outcome.err and "\nchunk: " in outcome.out, "an unwritable place", outcome)


def job(*lines_of_arguments):
    return run_job(*[("tune", *arguments) for arguments in lines_of_arguments], GIGABAR_TUNING=tuning_file())


def test_tune_of_a_launcher_is_one_job_and_rank_0_speaks():
    first, second = job(SHORT, SHORT)
    expect(first.status == 0 and "stored in" in first.out, "rank 0", first)
    expect(second.status == 0 and second.out == "" and second.err == "", "rank 1 is not silent", second)
    expect(len(stored()["pairs"]) == 1, "the pair")


def test_tune_is_for_two_ranks_with_the_same_options():
    outcomes = job(SHORT, SHORT, SHORT)
    expect_refusal(outcomes[0], 2, "3 ranks", "exactly 2")
    expect(all(outcome.status == 2 and outcome.err == "" for outcome in outcomes[1:]), "it is said more than once", outcomes[1])
    first, second = job(SHORT, ("-m", "128K:256K", "-i", "3", "-x", "1"))
    expect_refusal(first, 2, "different options")
    expect(second.status == 2, "rank 1", second)


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}
assert ranks_test  # its cases are not ours

if __name__ == "__main__":
    sys.exit(shared.main())
