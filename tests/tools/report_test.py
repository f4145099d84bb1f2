#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gigabar report`: pages of every kind of document, of this program and of bench/results; differences; files that are no documents.
Options and exit status as command_line_test.py.
"""

import copy
import html.parser
import json
import os
import pathlib
import random
import re
import sys
import time

import command_line_test as shared
from command_line_test import expect, expect_refusal, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "python"))

import gigabar_report  # noqa: E402
from gigabar_report import curves, differences, topology  # noqa: E402
from gigabar_report.documents import MAX_BYTES, TOOLS  # noqa: E402
from gigabar_report.html import number_text  # noqa: E402

RANKS = ("-m", "1:4K", "-i", "20", "-x", "2")
COMMANDS = {"survey": ("--budget", "1", "--no-probes"), "streams": ("--htod=0", "--dtoh=0", "-s", "1M", "-i", "2"), "copylat": ("-s", "4K", "--budget", "2"), "latency": RANKS, "bw": RANKS,
            "matrix": ("-n", "3", "-s", "64K", "-i", "2", "-x", "1"),
            "doctor": ("--no-probes",), "topology": (), "preflight": ("--budget", "1")}


class Page(html.parser.HTMLParser):
    """What is in a page: its texts, and what is wrong with it."""

    def __init__(self, text):
        super().__init__()
        self.open, self.problems, self.ids, self.links, self.texts, self.counts = [], [], [], [], [], {}
        self.feed(text)
        self.close()
        self.problems += [f"{name} is not closed" for name in self.open]
        self.problems += [f"the id {name} is there {self.ids.count(name)} times" for name in set(self.ids) if self.ids.count(name) > 1]
        self.problems += [f"{link} leads nowhere" for link in self.links if link[1:] not in self.ids]

    def handle_starttag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for key, value in attributes:
            if key == "id":
                self.ids.append(value)
            elif key in ("href", "xlink:href"):
                self.links.append(value)
            elif key in ("src", "srcset", "data", "action") or key.startswith("on") or tag in ("script", "iframe", "object", "base"):
                self.problems.append(f"<{tag} {key}={value}>")
            for target in re.findall(r"url\((.*?)\)", value or ""):
                self.links.append(target)
        if tag not in ("meta", "br", "col"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes something else")

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def text(self):
        return re.sub(r"\s+", " ", "".join(self.texts))


def in_folder(name):
    return os.path.join(shared.FOLDER, name)


def write(name, content):
    path = in_folder(name)
    with open(path, "w" if isinstance(content, str) else "wb") as file:
        file.write(content)
    return path


def written(name, document):
    return write(name, json.dumps(document))


def read_page(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    page = Page(text)
    expect(not page.problems, f"{path}: {page.problems[:5]}")
    expect(text.startswith("<!DOCTYPE html>\n") and not re.search(r"<script|@import|https?://(?!www\.w3\.org/)", text), f"{path}: something from outside")
    return page


def page_of(*files, before=()):
    output = in_folder("page.html")
    outcome = run("report", *map(str, files), "-o", output, *(("--before", *map(str, before)) if before else ()))
    expect(outcome.status == 0, f"report {files}", outcome)
    expect(outcome.out == f"drawn: {output}, {len(files) + len(before)} document{'s' if len(files) + len(before) > 1 else ''} in "
                          f"{os.path.getsize(output)} bytes\n" and not outcome.err, "what it prints", outcome)
    return read_page(output)


def of_this_program(commands=tuple(COMMANDS)):
    """Files of these commands, on two stand-ins."""
    paths = {}
    for command in commands:
        if command not in shared.subcommands():
            continue
        paths[command] = in_folder(f"{command}.json")
        outcome = run(command, *COMMANDS[command], "--json", paths[command], GIGABAR_STAND_IN="2")
        expect(outcome.status in (0, 1, 3), command, outcome)  # this machine need not be fit, and may be too slow to tell
    return paths


def result(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def test_report_of_every_kind_that_this_program_writes():
    paths = of_this_program()
    paths["compare"] = in_folder("compare.json")
    run("compare", paths["survey"], paths["survey"], "--json", paths["compare"])
    marks = {"survey": "measured", "streams": "data verified", "copylat": "Time of one copy, host to device", "latency": "p99",
             "bw": "rate, GB/s", "matrix": "'matrix' of 3 ranks", "doctor": "findings of the doctor",
             "topology": "NUMA node 0", "preflight": "checks and requirements", "compare": "did not judge"}
    for command, path in paths.items():
        page = page_of(path)
        expect(marks[command] in page.text(), f"{command}: its page does not have '{marks[command]}': {page.text()[:2000]}")
        expect(f"{command}" in page.text() and "Documents" in page.text(), f"{command}: where it is from")
        if command in ("survey", "streams", "copylat"):
            expect("Host memory played the GPU" in page.text(), f"{command}: not labelled as of a stand-in")
    page = page_of(*paths.values())
    for name in ("verdicts", "differences", "findings", "topology", "copies", "rates", "ranks", "sources"):
        expect(page.ids.count(name) == 1, f"no section {name}")
    expect(page.ids.index("verdicts") == 0, f"verdicts are not first: {page.ids[:3]}")


def test_report_of_all_results():
    paths = sorted(path for path in RESULTS.glob("*.json") if json.loads(path.read_text(encoding="utf-8")).get("tool") in TOOLS)
    expect(len(paths) > 30, f"{len(paths)} results")
    page = page_of(*paths)
    expect(page.counts["figure"] >= 5, f"{page.counts['figure']} curves")
    for path in paths:
        expect(path.stem in page.text(), f"{path.stem} is not named")
    expect("Host memory played" not in page.text(), "figures of GPUs are labelled as of stand-ins")


def test_report_draws_the_limit_of_the_link():
    page = page_of(RESULTS / "h200-ranks-bw.json", RESULTS / "h200-topology.json")
    expect("limit of the link: 478.1 GB/s, NVLink x18" in page.text(), page.text()[:3000])
    page = page_of(RESULTS / "h200-ranks-bw.json")
    expect("limit of the link:" not in page.text() and "The link's limit is not known here: give a document of 'gigabar topology'" in page.text(), page.text())
    text = page_of(RESULTS / "h200-streams-six.json").text()
    expect("51.40 GB/s of 63.02, 82 %" in text and "383.2 GB/s of 478.1, 80 %" in text, f"bars: {text[:3000]}")


def test_report_draws_curves_twice_and_has_their_figures():
    page = page_of(RESULTS / "h200-ranks-write.json")
    expect(page.counts["svg"] == 2 + 2, f"{page.counts['svg']} drawings: wide and narrow, and a sample of each of two lines")
    text = page.text()
    for word in ("time, µs (logarithmic)", "size (logarithmic)", "p50", "p99", "local bar up to 2 KiB; local p2p up to 4 MiB"):
        expect(word in text, f"no '{word}'")
    first = next(each for each in result("h200-ranks-write")["results"] if each["bytes"] == 8)
    expect(f"8 B{first['p50_us']:.3f}{first['p99_us']:.3f}" in text, "the table has not the figures of 8 B")


def test_report_draws_the_topology():
    text = page_of(RESULTS / "many-gpus-topology.json").text()
    for word in ("4 GPUs, 1 NIC, 1 NUMA node", "GPU 3 NVIDIA H100 80GB HBM3", "NVLink: 18 of 18 active", "PCIe 5.0 x16", "NV18 478.1"):
        expect(word in text, f"no '{word}' in {text[:2000]}")
    for path in sorted((ROOT / "tests" / "sysroots").rglob("*.json")):
        outcome = run("topology", "--sysroot", str(path), "--json", in_folder("constructed.json"))
        if outcome.status != 0:
            continue
        with open(in_folder("constructed.json"), encoding="utf-8") as file:
            drawn = next(each for each in json.load(file)["results"] if each["what"] == "topology")
        text = page_of(in_folder("constructed.json")).text()
        for index, gpu in enumerate(drawn["gpus"]):
            expect(f"GPU {index if gpu['cuda_index'] is None else gpu['cuda_index']} " in text and gpu["address"] in text, f"{path.stem}: no GPU {index}")
        for nic in drawn["nics"]:
            expect(f"NIC {nic['rdma_device'] or nic['name']}" in text, f"{path.stem}: no NIC {nic['name']}")


def test_report_draws_a_tree_of_bridges():
    def bridge(address, parent, width):
        link = {"gt_per_s": 16, "width": width, "most_gt_per_s": 32, "most_width": 16}
        return {"address": address, "vendor": 1, "device": 1, "class_code": 1, "name": None, "is_bridge": True, "parent": parent, "root_complex": None, "numa_node": 1,
                "link": link, "driver": None}

    document = result("many-gpus-topology")
    drawn = document["results"][0]
    # A root port, a switch with two ports, a GPU below each; the second of them at eight lanes.
    drawn["pci"] = [bridge("r", None, 16), bridge("s", 0, 16), bridge("a", 1, 16), bridge("b", 1, 16), bridge("g0", 2, 16), bridge("g1", 3, 8)]
    drawn["gpus"] = [{**drawn["gpus"][0], "pci": 4, "address": "g0"}, {**drawn["gpus"][1], "pci": 5, "address": "g1"}]
    drawn["nics"], drawn["nvlinks"], drawn["routes"], drawn["nearest_nics"] = [], [], [], []
    page = page_of(written("tree.json", document))
    text = page.text()
    expect("NUMA node 0: CPUs 0-63, 9.6 GiB of host memoryno GPU or NIC" in text, f"the empty node: {text[:1500]}")
    expect("NUMA node not known" in text and text.count("PCI bridge") == 1 and "PCI bridge s, PCIe 5.0 x16" in text, f"bridges: {text[:1500]}")
    expect(text.count("narrowed: 8 of 16 lanes") == 1, f"the narrow link: {text[:1500]}")


def changed(document, factor, keys=None):
    """With other figures."""
    document = copy.deepcopy(document)
    for each in document["results"]:
        if keys is None or each["key"] in keys:
            for name in ("value", "min", "max"):
                each[name] *= factor
    return document


def verdicts(page):
    return re.search(r"((?:[▼▲=?] \d+ (?:worse|better|same|not judged) ?)+)", page.text()).group(1).strip()


def test_report_marks_differences_as_compare_does():
    before = result("many-gpus-survey")
    times, rates = (sorted(each["key"] for each in before["results"] if each["unit"] == unit and each["max"] - each["min"] < 0.05 * each["value"])
                    for unit in ("us", "GB/s"))
    expect(len(times) > 4 and len(rates) > 4, "no quiet figures")
    now = changed(changed(before, 2, times[:2]), 2, rates[:3])
    next(each for each in now["results"] if each["key"] == times[3])["passes"] = 1
    now["machine"]["kernel"] = "7.0"
    now["findings"][0]["verdict"] = "FAIL"
    files = written("now.json", now), written("before.json", before)
    page = page_of(files[0], before=[files[1]])
    expect(verdicts(page) == f"▼ 2 worse ▲ 3 better = {len(before['results']) - 6} same ? 1 not judged", f"verdicts: {verdicts(page)}")
    text = page.text()
    expect(f"▼ worse{times[0]}" in text and "+100.0 %" in text and f"▲ better{rates[0]}" in text, "the rows")
    expect("≠ changedkernel" in text and "7.0" in text and f"≠ changed{now['findings'][0]['check']}" in text, "facts and verdicts")
    outcome = run("compare", *reversed(files), "--json", in_folder("compare.json"))
    expect(outcome.status == 1, "compare", outcome)
    counts = json.loads(pathlib.Path(in_folder("compare.json")).read_text(encoding="utf-8"))["counts"]
    wanted = {"same": len(before["results"]) - 6, "better": 3, "worse": 2, "unjudged": 1, "failed": 0, "unmatched": 0}
    expect(counts == wanted, f"compare counts otherwise: {counts}")
    expect(verdicts(page_of(in_folder("compare.json"))) == f"▼ 2 worse ▲ 3 better = {counts['same']} same ? 1 not judged", "a page of compare's document")
    failed = next(each for each in now["results"] if each["key"] == times[0])
    for name in ("value", "min", "max"):
        failed.pop(name)
    failed["failure"] = "no free range"
    outcome = run("compare", files[1], written("failed.json", now), "--json", in_folder("compare.json"))
    expect(outcome.status == 1, "compare with a figure that fails", outcome)
    page = page_of(in_folder("compare.json"))
    expect(verdicts(page).startswith("▼ 2 worse ▲ 3 better") and f"▼ worse{times[0]}: fails" in page.text() and "no free range" in page.text(), "it is not shown")


def with_times(document, factor, name):
    document = copy.deepcopy(document)
    for each in document["results"]:
        for key in ("min_us", "p50_us", "p99_us", "max_us", "mean_us"):
            each[key] *= factor
    return written(name, document)


def test_report_marks_differences_between_runs_of_ranks():
    document = result("h200-ranks-write")
    for each in document["results"]:
        each["min_us"] = each["p50_us"]  # a run without noise of its own
    first, same, slower, faster = (with_times(document, factor, f"{name}.json") for factor, name in ((1, "first"), (1.05, "same"), (1.3, "slower"), (0.7, "faster")))
    expect(verdicts(page_of(same, before=[first])) == "= 23 same", "5 % are noise")
    expect(verdicts(page_of(slower, before=[first])) == "▼ 23 worse", "30 % more")
    expect(verdicts(page_of(faster, before=[first])) == "▲ 23 better", "30 % less")
    # The runs before differ so much from each other that their median tells nothing of today's.
    expect(verdicts(page_of(slower, before=[first, slower, faster])) == "= 23 same", "within the range of three runs")
    page = page_of(slower, before=[first])
    expect("before: first" in page.text() and page.counts["figure"] == 1, "both are in one chart")
    rate = result("h200-ranks-bw")
    slow = copy.deepcopy(rate)
    for each in slow["results"]:
        each["mb_per_s"] /= 2
    expect(verdicts(page_of(written("slow.json", slow), before=[written("rate.json", rate)])) == "▼ 13 worse", "half the rate")
    # With other options, and one of each: the same question.
    slow["command"][3:3] = ["--forbid", "gdr"]
    expect(verdicts(page_of(written("slow.json", slow), before=[in_folder("rate.json")])) == "▼ 13 worse", "other options")
    outcome = run("report", in_folder("rate.json"), "-o", in_folder("x.html"), "--before", str(RESULTS / "h200-survey.json"))
    expect_refusal(outcome, 2, "--before", "h200-survey.json", "'survey'", "of now too")


def matrix_document(changes=None, **members):
    """Of four ranks on two hosts, the second of which is slow."""
    rates = [[None, 100.0, 20.0, 21.0], [101.0, None, 20.0, 20.5], [20.0, 20.5, None, 99.0], [5.0, 21.0, 100.0, None]]
    kinds = [{"kind": "paths within a host", "paths": 4, "slow_paths": 0, "usual_gb_per_s": 100.0, "slow_below_share": 0.7},
             {"kind": "paths between hosts", "paths": 8, "slow_paths": 1, "usual_gb_per_s": 20.0, "slow_below_share": 0.7}]
    slow = {"part": "pair", "number": 3, "second": 0, "way": "sending", "text": "rank 3 to rank 0", "share": 0.25, "paths": 1, "others": [],
            "worst": {"from": 3, "to": 0, "gb_per_s": 5.0, "path": "verbs gdr"}}
    measured = {"measure": "bandwidth", "bytes": 1 << 20, "iterations": 10, "warm_up": 2, "window": 16, "kinds": kinds, "slow": [slow], "gb_per_s": rates, "paths": []}
    return {"schema": 2, "tool": "matrix", "command": ["gigabar", "matrix"], "results": [measured | (changes or {})], "ranks": [{"rank": rank} for rank in range(4)],
            "places": [{"host": rank // 2, "rail": None, "switch": None} for rank in range(4)], "hosts": ["a", "b"], "switches": [], "is_checked": True,
            "wrong_count": 0, "is_slow": True, **members}


def test_report_marks_slow_pairs_of_ranks():
    text = page_of(written("pairs.json", matrix_document())).text()
    expect("! WARN pairs: 'matrix' of 4 ranks; 1 of 12 paths slow; all data right" in text, text[:600])
    expect("rank 3 to rank 0: 25 % of the usual on 1 path; the worst, from rank 3 to rank 0: 5.000 GB/s, verbs gdr" in text, text[:2000])
    expect("bandwidth, GB/s: rows send, columns receive; !: slow" in text and "35.000 !21.00100.0–" in text and text.count(" !") == 2, f"cells: {text[:2000]}")
    places = [{"host": rank, "rail": None, "switch": rank // 2} for rank in range(4)]
    kinds = [{"kind": "paths behind one switch", "paths": 4, "slow_paths": 4, "usual_us": 1.0, "slow_below_share": 0.7},
             {"kind": "paths between switches", "paths": 8, "slow_paths": 1, "usual_us": 20.0, "slow_below_share": 0.9}]
    latency = {"measure": "latency", "kinds": kinds, "slow": [], "gb_per_s": None, "us": matrix_document()["results"][0]["gb_per_s"]}
    text = page_of(written("switches.json", matrix_document(latency, places=places, switches=["s", "t"]))).text()
    expect("100.0 !20.0021.00" in text and "35.00021.00100.0 !–" in text and text.count(" !") == 1 + 4, f"latencies: {text[:2000]}")
    text = page_of(written("right.json", matrix_document({"kinds": [], "slow": []}, is_slow=False, is_checked=False))).text()
    expect("✓ PASS right: 'matrix' of 4 ranks; 0 of 0 paths slow; data was not compared" in text, text[:600])
    expect("✗ FAIL wrong: " in page_of(written("wrong.json", matrix_document(wrong_count=2))).text(), "wrong data")
    wide = [[1.0] * 40] * 40
    expect("A table of 40 ranks is not shown" in page_of(written("wide.json", matrix_document({"gb_per_s": wide}))).text(), "a wide table")
    slower = matrix_document()
    slower["results"][0]["kinds"][1]["usual_gb_per_s"] = 10.0
    expect(verdicts(page_of(written("slower.json", slower), before=[in_folder("pairs.json")])) == "▼ 1 worse = 1 same", "half of what was usual")


def test_report_draws_copies_by_size():
    page = page_of(RESULTS / "h200-copylat.json")
    text = page.text()
    for words in ("Time of one copy, host to device", "Time of one copy, device to host", "Time of a copy, back to back, host to device",
                  "h200-copylat, cudaMemcpy", "mapping rm, write_combined", "What a call adds to the copy",
                  "Raw kernels, h200-copylat", "sizeavx512avx2movdir64bsse2generic"):
        expect(words in text, f"no '{words}'")
    expect(page.counts["figure"] == 4, f"{page.counts['figure']} curves")
    whole = result("h200-copylat")
    first = next(each for each in whole["results"] if each["measure"] == "copy" and each["bytes"] == 1)
    ours, other = first["methods"][:2]
    row = "".join(number_text(figure) for figure in (ours["p50_us"], ours["p99_us"], other["p50_us"], other["p99_us"]))
    expect(f"1 B{row}" in text, f"the table has not {row}")
    expect(f"✓ PASS h200-copylat: copies of 25 sizes; all data right; copy_to of 1 B takes {number_text(ours['p50_us'])} µs" in text, text[:600])
    single = {**whole, "results": [each for each in whole["results"] if each["measure"] == "copy"]}
    before = written("single.json", single)
    single["results"][5]["data_checked"] = False
    for method in (method for each in single["results"] for method in each["methods"]):
        method["min_us"] = method["p50_us"] = method["p50_us"] * 3
    text = page_of(written("slower.json", single), before=[before]).text()
    expect("▼ 100 worse" in text and "copy to device, copy_to, 1 B" in text and "before: single, copy_to" in text, text[:1000])
    expect("i note slower: copies of 25 sizes; data compared in 49 of 50 measurements, and right" in text, text[:600])


def test_report_tells_what_is_wrong_in_words():
    document = result("h200-ranks-write")
    document["results"][3]["wrong_count"] = 7
    text = page_of(written("wrong.json", document)).text()
    expect("✗ FAIL wrong: 'latency' of 23 sizes; wrong data at 1 size" in text, text[:600])
    document = result("h200-streams-six")
    document["results"][0]["transfers"][2].update(error={"status": "failed", "message": "the link fell off", "native_name": "", "native_code": 1})
    text = page_of(written("failed.json", document)).text()
    expect("✗ FAIL failed: 6 transfers, 1 failed" in text and "the link fell off" in text, text[:600])
    document = result("h200-doctor")
    finding = next(each for each in document["results"] if each["verdict"] == "PASS")
    finding.update(verdict="FAIL", statement="it is broken", remedy="mend it", needs_reboot=True)
    text = page_of(written("sick.json", document)).text()
    expect("✗ 1 FAIL" in text and "it is broken" in text and "Remedy: mend it (needs a reboot)" in text, text[:900])
    places = [text.index(words) for words in ("✗ FAIL", "! WARN Virtual machine", "passed or do not apply")]
    expect(places == sorted(places) and text.index("it is broken") < places[1], f"a failure is not first: {places}")


def expect_no_document(path, *words):
    old = write("kept.html", "old")
    outcome = run("report", path, "-o", old)
    expect_refusal(outcome, 2, path, ";", *words)
    expect(pathlib.Path(old).read_text(encoding="utf-8") == "old", "the output was written")


def test_report_refuses_what_is_no_document():
    whole = (RESULTS / "h200-topology.json").read_text(encoding="utf-8")
    expect_no_document(in_folder("nothing.json"), "No such file", "gigabar COMMAND --json FILE")
    expect_no_document(shared.FOLDER, "directory")
    expect_no_document(write("empty.json", ""), "empty", "write it again")
    for part in (len(whole) // 3, len(whole) // 2, len(whole) - 3):
        expect_no_document(write("cut.json", whole[:part]), "cut off in line", "write it again")
    expect_no_document(write("text.json", "a letter\n"), "is not JSON (line 1")
    expect_no_document(write("binary.json", b"\xff\xfe\x00\x01" * 100), "not UTF-8")
    expect_no_document(write("deep.json", "[" * 200000), "nested too deeply")
    expect_no_document(write("list.json", "[1, 2]"), "not a document of gigabar")
    expect_no_document(write("nan.json", '{"tool": "survey", "schema": 2, "results": [NaN]}'), "NaN")
    expect_no_document(write("digits.json", '{"tool": "survey", "schema": ' + "9" * 5000 + "}"), "not a document of gigabar")
    for tool in ("info", "matvec", "<b>\x1b[31m"):
        expect_no_document(written("other.json", {"tool": tool, "schema": 2}), "which a page does not show", "preflight")
    for schema in (0, 3, "2", None, True):
        expect_no_document(written("schema.json", {**json.loads(whole), "schema": schema}), f"has schema {schema}", "reads 1 and 2")
    huge = in_folder("huge.json")
    with open(huge, "wb") as file:
        file.truncate(MAX_BYTES + 1)
    expect_no_document(huge, "larger than 64 MiB")
    outcome = run("report", *[str(RESULTS / "h200-topology.json")] * 65, "-o", in_folder("x.html"))
    expect_refusal(outcome, 2, "65 files", "64 at most")
    expect_refusal(run("report", str(RESULTS / "h200-topology.json"), "-o", in_folder("x.html"), "--before", huge), 2, "larger than")
    expect_refusal(run("report", str(RESULTS / "h200-topology.json"), "-o", in_folder("x.html"), "--before", in_folder("no")), 2, "--before", "No such file")


def test_report_says_where_a_document_is_damaged():
    document = result("h200-ranks-write")
    document["results"][4]["p50_us"] = "fast"
    expect_no_document(written("damaged.json", document), "results[4].p50_us is not a number", "changed or is damaged")
    del document["results"][4]["p50_us"]
    document["results"][4].pop("bytes")
    expect_no_document(written("damaged.json", document), "results[4].bytes is missing")
    document = result("h200-topology")
    document["results"][0]["gpus"] = [5]
    expect_no_document(written("damaged.json", document), "results[0].gpus[0] is not an object")
    document = result("h200-survey")
    document["results"][0]["value"] = 1e300
    expect_no_document(written("damaged.json", document), "results[0].value is not a number of a possible size")


def test_report_survives_spoilt_documents():
    """Either a page, or one line that names the file; never something else. Curves are left out: matplotlib gets numbers only."""
    curves._draw = lambda chart, is_narrow: None  # pylint: disable=protected-access
    source = random.Random(1)
    values = (None, True, -1, 0, 7, 1e17, 1e300, "", "<b>", "\ud800", [], {}, [[]], [None], {"a": 1})

    def places(value, found):
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            found.append((value, key))
            if isinstance(member, (dict, list)):
                places(member, found)
        return found

    names = ("h200-survey", "h200-doctor", "h200-topology", "h200-streams-six", "h200-streams-sweep", "h200-ranks-bw", "h200-ranks-write", "many-gpus-topology",
             "h200-copylat-kernels", "matrix")
    pages = refused = 0
    for name in names:
        whole = matrix_document() if name == "matrix" else result(name)
        for _ in range(60):
            spoilt = copy.deepcopy(whole)
            for _ in range(source.randint(1, 3)):
                holder, key = source.choice(places(spoilt, []))
                holder[key] = copy.deepcopy(source.choice(values))
            try:
                before = [gigabar_report.parse("whole", json.dumps(whole))]
                text = gigabar_report.page([gigabar_report.parse("spoilt", json.dumps(spoilt))], before)
            except gigabar_report.ReportError as error:
                expect("spoilt: " in str(error) or "--before whole" in str(error), f"{name}: {error}")
                expect("\n" not in str(error), f"{name}: several lines: {error}")
                refused += 1
            else:
                text.encode("utf-8")
                problems = Page(text).problems
                expect(not problems, f"{name}: {problems[:3]}")
                pages += 1
    expect(pages > 100 and refused > 50, f"{pages} pages, {refused} refused")


def test_report_shows_hostile_text_as_text():
    document = result("h200-doctor")
    hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x00"
    document["machine"]["host"] = hostile
    for finding in document["results"]:
        finding.update(statement=hostile, title=hostile, subject=hostile, remedy=hostile, why=hostile, readings=[{"source": hostile, "value": hostile}])
    page = page_of(written("<i>hostile.json", document))
    expect("img" not in page.counts and "i" not in page.counts, f"elements: {page.counts}")
    expect("<script>alert(1)</script>" in page.text() and "\u202e" not in page.text() and "<i>hostile" in page.text(), "the text is not shown")


def wrapper(name, line):
    path = write(name, f"#!/bin/sh\n{line}\n")
    os.chmod(path, 0o755)
    return path


def test_report_needs_matplotlib_for_curves_only():
    bare = wrapper("bare", f'exec {sys.executable} -S "$@"')  # without packages
    outcome = run("report", str(RESULTS / "h200-ranks-write.json"), "-o", in_folder("x.html"), "--python", bare)
    expect_refusal(outcome, 1, "curves are drawn by matplotlib", "apt install python3-matplotlib", "pip install matplotlib")
    expect(not os.path.exists(in_folder("x.html")), "a page was written")
    outcome = run("report", str(RESULTS / "h200-survey.json"), str(RESULTS / "h200-topology.json"), "-o", in_folder("x.html"), "--python", bare)
    expect(outcome.status == 0, "a page without curves", outcome)
    read_page(in_folder("x.html"))
    # The first Python of PATH has none; that of the distribution has.
    os.mkdir(in_folder("path"))
    os.rename(wrapper("first", f'exec {sys.executable} -S "$@"'), in_folder("path/python3"))
    outcome = run("report", str(RESULTS / "h200-ranks-write.json"), "-o", in_folder("x.html"), PATH=f"{in_folder('path')}:{os.environ['PATH']}")
    expect(outcome.status == 0, "the distribution's Python", outcome)


def test_report_tells_how_python_failed():
    survey = str(RESULTS / "h200-survey.json")
    expect_refusal(run("report", survey, "-o", in_folder("x.html"), "--python", "/no/such/python"), 1, "/no/such/python", "No such file", "--python")
    failing = wrapper("failing", "echo first >&2; echo the last words >&2; exit 9")
    expect_refusal(run("report", survey, "-o", in_folder("x.html"), "--python", failing), 1, "exit status 9", "the last words")
    expect_refusal(run("report", survey, "-o", in_folder("x.html"), "--python", wrapper("killed", "kill -9 $$")), 1, "SIGKILL")
    began = time.monotonic()
    outcome = run("report", survey, "-o", in_folder("x.html"), "--timeout", "0.3", "--python", wrapper("slow", "exec sleep 100"))
    expect_refusal(outcome, 1, "was not done with the page after 0.3 s", "--timeout")
    expect(time.monotonic() - began < 20, "the deadline")
    expect_refusal(run("report", survey, "-o", in_folder("x.html"), "--python", wrapper("silent", "exit 0")), 1, "the page was not made")
    # A module of the folder that it is called in is none of its own.
    write("json.py", "raise SystemExit('a stranger')")
    page_of(survey)


def test_report_refuses_a_wrong_command_line():
    survey = str(RESULTS / "h200-survey.json")
    expect_refusal(run("report", "-o", "x.html"), 2, "DOCUMENT is missing")
    expect_refusal(run("report", survey), 2, "--output is missing")
    expect_refusal(run("report", survey, "-o", "-"), 2, "'-' is not a file's name")
    expect_refusal(run("report", survey, "-o", in_folder("no/folder/x.html")), 1, "--output", "No such file")
    expect_refusal(run("report", survey, "-o", "x.html", "--before"), 2, "--before has no value")
    expect_refusal(run("report", survey, "-o", "x.html", "--timeout", "0"), 2, "--timeout", "seconds above 0")


def test_report_is_a_module_of_python():
    output = in_folder("module.html")
    curves._draw = lambda chart, is_narrow: None  # pylint: disable=protected-access
    gigabar_report.write_page(output, [RESULTS / "h200-survey.json", RESULTS / "h200-ranks-write.json"], before=[RESULTS / "h200-nobody-survey.json"])
    expect("h200-nobody-survey" in read_page(output).text(), "the page of write_page()")
    try:
        gigabar_report.write_page(output, ["/no/such.json"])
        expect(False, "no error")
    except gigabar_report.ReportError as error:
        expect(str(error).startswith("/no/such.json: cannot be read"), str(error))
    expect(differences.settings_of(["gigabar", "bw", "--json", "a.json", "-m", "8", "--json=b", "--kind", "put"]) == "bw -m 8 --op put", "the settings of a command")
    expect(topology.link_text(None) == (None, None), "a link that is not told")


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
