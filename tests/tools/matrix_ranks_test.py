#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar matrix` between ranks of this host and checks what it says. Options and exit status as command_line_test.py."""

import csv
import json
import os
import re
import shlex
import socket
import sys
import xml.etree.ElementTree

import command_line_test as shared
from command_line_test import expect, expect_header, expect_refusal
from outputs_test import on_a_terminal
from ranks_test import ranks

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "operations.md")
SHORT = ("matrix", "-s", "4K", "-W", "4", "-i", "3", "-x", "1", "--transport", "local", "--again", "0")


def path_of(name):
    return os.path.join(shared.FOLDER, name)


def document_of(*arguments, **variables):
    """Of a run that succeeds; what is slow on a busy machine is not looked at."""
    outcome = ranks(*SHORT, *arguments, "--json", path_of("matrix.json"), **variables)
    expect(outcome.status in (0, 3), " ".join(arguments), outcome)
    with open(path_of("matrix.json"), encoding="utf-8") as file:
        document = json.load(file)
    expect_header(document, "matrix")
    expect(document["is_slow"] == (outcome.status == 3), "is_slow", outcome)
    return document, outcome


def expect_all_pairs(document, count):
    expect(len(document["ranks"]) == count and len(document["places"]) == count, "ranks")
    for result in document["results"]:
        figures = result["us" if result["measure"] == "latency" else "gb_per_s"]
        for rows in (figures, result["paths"]):
            expect(len(rows) == count and all(len(row) == count for row in rows), f"{result['measure']}: the form")
            for sender, row in enumerate(rows):
                expect(all((value is None) == (sender == receiver) for receiver, value in enumerate(row)), f"{result['measure']}: row {sender}: {row}")
        texts = {document["path_texts"][index] for row in result["paths"] for index in row if index is not None}
        expect(texts and all(text.startswith("local ") for text in texts), f"paths {texts}")
        expect(sum(kind["paths"] for kind in result["kinds"]) == count * (count - 1), "kinds")


def test_matrix_measures_every_pair_of_ranks():
    for count, all_at_once in ((2, ("all",)), (3, ("all", "one")), (5, ("host",)), (6, ("all", "one"))):  # an odd number: one rests
        for at_once in all_at_once:
            document, outcome = document_of("-n", str(count), "--at-once", at_once)
            expect([result["measure"] for result in document["results"]] == ["bandwidth", "latency"], "measures")
            expect(document["at_once"] == at_once, "at_once")
            expect_all_pairs(document, count)
            lines = [line for line in outcome.out.splitlines() if line[:1].isdigit()]
            expect(len(lines) == 2 * count, "a line for each rank and measure", outcome)


def test_matrix_page_is_true():
    """The commands of docs/operations.md run, with ranks of this host in place of those of a launcher."""
    with open(PAGE, encoding="utf-8") as file:
        page = file.read().split("\n## The slow part of a job\n")[1]
    (block,) = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    with open(path_of("switches.txt"), "w", encoding="utf-8") as file:
        file.write(f"leaf1 {socket.gethostname()}\n")
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    expect(len(commands) == 3, "commands")
    for words in commands:
        options = words[words.index("matrix") + 1 :]
        outcome = ranks("matrix", *options, *SHORT[1:], *([] if "-n" in options else ["-n", "2"]), GIGABAR_STAND_IN="2")
        expect(outcome.status in (0, 3), " ".join(words), outcome)


def test_matrix_measures_one_of_both():
    for measure in ("latency", "bandwidth"):
        document, _ = document_of("-n", "3", "--measure", measure, "--csv", path_of("one.csv"))
        expect([result["measure"] for result in document["results"]] == [measure], measure)
        expect_all_pairs(document, 3)
        with open(path_of("one.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        expect(len(rows) == 6 and all((row["latency_us"] != "") == (measure == "latency") for row in rows), f"{rows}")


def test_matrix_of_devices_checks_data_and_draws():
    document, outcome = document_of("-d", "cuda", "-n", "4", "-c", "--svg", path_of("m.svg"), "--csv", path_of("m.csv"), GIGABAR_STAND_IN="2")
    expect(document["buffers"] == "D D" and document["is_checked"] and document["wrong_count"] == 0, "checked", outcome)
    expect([rank["device"]["index"] for rank in document["ranks"]] == [0, 1, 0, 1], "devices")
    expect("stand-in" in outcome.out, "stand-ins are named", outcome)
    expect_all_pairs(document, 4)
    drawing = xml.etree.ElementTree.parse(path_of("m.svg")).getroot()
    titles = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}title")]
    expect(len(titles) == 24 and any("GB/s" in title for title in titles) and any(" us" in title for title in titles), f"{titles}")
    with open(path_of("m.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expect(len(rows) == 12, f"{len(rows)} paths")
    for row in rows:
        rate = document["results"][0]["gb_per_s"][int(row["from"])][int(row["to"])]
        expect(abs(float(row["gb_per_s"]) - rate) <= 1e-4 * rate, f"{row}: not {rate}")


def test_matrix_names_its_switches():
    host = document_of("-n", "2")[0]["hosts"][0]
    with open(path_of("switches"), "w", encoding="utf-8") as file:
        file.write(f"leaf1 {host} other\n")
    document, _ = document_of("-n", "2", "--switches", path_of("switches"))
    expect(document["switches"] == ["leaf1"] and all(place["switch"] == 0 for place in document["places"]), f"{document['places']}")
    document, _ = document_of("-n", "2", SLURM_TOPOLOGY_ADDR=f"top.leaf7.{host}", SLURM_TOPOLOGY_ADDR_PATTERN="switch.switch.node")
    expect(document["switches"] == ["leaf7"], f"Slurm: {document['switches']}")


def test_matrix_wrong_usage_is_one_line_and_status_2():
    with open(path_of("bad"), "w", encoding="utf-8") as file:
        file.write("leaf1\n")
    expect_refusal(ranks("matrix", "-d", "rocm"), 2, "-d rocm", "cuda")
    expect_refusal(ranks("matrix", "-n", "1"), 2, "--ranks", "outside")
    expect_refusal(ranks("matrix", "--at-once", "two"), 2, "--at-once", "host")
    expect_refusal(ranks("matrix", "--measure", "rate"), 2, "--measure", "latency")
    expect_refusal(ranks("matrix", "--switches", path_of("bad")), 2, "line 1", "leaf1")
    expect_refusal(ranks("matrix", "--switches", path_of("absent")), 2, "--switches", "absent")
    expect_refusal(ranks("matrix", "--svg", path_of("m"), "--csv", path_of("m")), 2, "--svg and --csv name the same file")
    expect(not os.path.exists(path_of("m")), "something was written")


def test_matrix_shows_the_time_that_is_left():
    outcome = on_a_terminal("matrix", "-n", "6", "--at-once", "one", "-i", "80", "--measure", "bandwidth", "--again", "0")
    expect(outcome.status in (0, 3) and "batch 1 of 15" in outcome.err and " s left" in outcome.err, "progress", outcome)


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
