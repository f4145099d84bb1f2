#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar survey` on stand-in devices and `gigabar compare` on what it wrote. Options and exit status as command_line_test.py.
"""

import copy
import json
import os
import re
import sys
import threading
import time

import command_line_test as shared
from command_line_test import expect, expect_as_documented, expect_header, expect_refusal, run

TWO = {"GIGABAR_STAND_IN": "2"}


def path_of(name):
    return os.path.join(shared.FOLDER, name)


def survey(name="survey.json", *arguments):
    """A survey of two stand-ins; its document and what it printed."""
    outcome = run("survey", "--json", path_of(name), "--no-probes", *arguments, **TWO)
    expect(outcome.status == 0, "survey failed", outcome)
    with open(path_of(name), encoding="utf-8") as file:
        return json.load(file), outcome


def figures_of(document):
    return {figure["key"]: figure for figure in document["results"]}


def made(figures, **more):
    """A small survey document with these (key, unit, value, min, max)."""
    results = [{"key": key, "unit": unit, "value": value, "min": least, "max": most, "samples": [least, value, most], "passes": 3}
               for key, unit, value, least, most in figures]
    return {"schema": 1, "tool": "survey", "date": "2026-01-01T00:00:00Z", "machine": {"host": "a", "cpu": "c"},
            "results": results, "findings": [], "passes": {"count": 3, "seconds": 12.3}, **more}


def write(name, document):
    with open(path_of(name), "w", encoding="utf-8") as file:
        json.dump(document, file)
    return path_of(name)


def compare(first, second, *arguments):
    return run("compare", write("first.json", first), write("second.json", second), *arguments)


def test_survey_is_one_page_and_one_file():
    document, outcome = survey()
    expect_header(document, "survey")
    for part in ("topology", "doctor:", "single copies", "each path alone", "worst pattern", "[stand-in]"):
        expect(part in outcome.out, f"the page lacks '{part}'", outcome)
    expect(len(outcome.out.splitlines()) < 130, "the page is too long to be read", outcome)
    expect(document["findings"] and {"check", "verdict", "statement"} <= set(document["findings"][0]), "no findings")
    expect(document["topology"]["numa_nodes"] is not None, "no topology")
    expect(0 < document["elapsed_s"] < 60, f"it took {document['elapsed_s']} s")


def test_survey_measures_every_path():
    document, _ = survey()
    figures = figures_of(document)
    for device in (0, 1):
        for what in ("copy_to 8 B", "copy_from 8 B", "copy_to 64 KiB", "copy_from 64 KiB"):
            figure = figures[f"gpu{device} {what}"]
            expect(figure["unit"] == "us" and 0 < figure["min"] <= figure["value"] <= figure["max"], f"{figure}")
            expect(len(figure["samples"]) == 9 and figure["passes"] == 3, f"noise cannot be told from {figure}")
    for ends in ("host->gpu0", "gpu0->host", "host->gpu1", "gpu1->host", "gpu0->gpu1", "gpu1->gpu0"):
        figure = figures[f"{ends} alone"]
        expect(figure["unit"] == "GB/s" and figure["value"] > 0 and (len(figure["samples"]), figure["passes"]) == (6, 3), f"{figure}")
    for pattern in ("all devices from the host", "all devices to the host", "all devices both ways", "everything at once"):
        expect(f"host->gpu0 {pattern}" in figures or f"gpu0->host {pattern}" in figures, f"no '{pattern}'")
    expect(document["passes"]["count"] == 3 and document["passes"]["seconds"] > 0, f"passes: {document['passes']}")
    worst = document["worst"]
    expect(worst["key"] in figures and 0 < worst["share_of_own_rate"] < 10, f"worst: {worst}")


def test_survey_keeps_to_its_budget():
    document, outcome = survey("short.json", "--budget", "1")
    expect(document["elapsed_s"] < 30, f"a budget of 1 s took {document['elapsed_s']} s")
    expect("left out" in outcome.out and "does not judge" in outcome.out, "it does not say what was left out", outcome)
    outcome = compare(document, document)
    expect(outcome.status == 0 and " 0 within the noise" in outcome.out and "not judged: measured in one pass" in outcome.out, "one pass", outcome)


def test_survey_names_units_and_what_is_unknown():
    _, outcome = survey("short.json", "--budget", "3")
    rows = re.findall(r"^  \S+->\S+ alone +(.*)$", outcome.out, re.MULTILINE)
    expect(rows and all(re.fullmatch(r"\d+\.\d GB/s   its link is unknown", row) for row in rows), f"rows: {rows}", outcome)


def test_survey_names_figures_that_failed():
    """Stand-ins with too little memory for a transfer."""
    memory = path_of("small.memory")
    with open(memory, "wb") as file:
        file.truncate(2 << 20)
    outcome = run("survey", "--json", path_of("failed.json"), "--no-probes", "--budget", "20", GIGABAR_STAND_IN="1",
                  GIGABAR_STAND_IN_MEMORY=memory)
    expect(outcome.status == 0, "what cannot be measured is no fault", outcome)
    with open(path_of("failed.json"), encoding="utf-8") as file:
        document = json.load(file)
    expect_as_documented(document)
    failed = [figure["key"] for figure in document["results"] if "failure" in figure]
    expect(len(failed) == 4 and any("both ways" in key for key in failed), f"failed: {failed}", outcome)
    for key in failed:
        expect(re.search(rf"^  {re.escape(key)} +\S.*no free range", outcome.out, re.MULTILINE), f"the page lacks '{key}'", outcome)
    healthy = made([(key, "GB/s", 50, 49, 51) for key in failed])
    outcome = compare(healthy, document)
    expect(outcome.status == 1 and "0 better, 4 worse; 4 failed in" in outcome.out, "compare of it", outcome)


def test_survey_json_on_standard_output():
    outcome = run("survey", "--json", "-", "--no-probes", "--budget", "1", **TWO)
    expect(outcome.status == 0, "survey failed", outcome)
    expect(json.loads(outcome.out)["tool"] == "survey", "standard output is not the document", outcome)


def test_survey_refuses_what_it_cannot_follow():
    expect_refusal(run("survey", "--budget", "0"), 2, "--budget", "seconds")
    expect_refusal(run("survey", "--no-such-option"), 2, "--no-such-option", "--help")
    expect_refusal(run("survey", "--json", "/nonexistent/folder/x.json", "--no-probes", "--budget", "1", **TWO), 1,
                   "/nonexistent/folder/x.json", "No such file")


def test_compare_of_a_survey_with_itself():
    document, _ = survey()
    outcome = compare(document, document)
    expect(outcome.status == 0 and " 0 better, 0 worse" in outcome.out, "it differs from itself", outcome)
    expect("machine and verdicts are the same" in outcome.out, "its machine differs", outcome)


def test_compare_knows_the_old_names_of_checks():
    document, _ = survey()
    finding = {"check": "probe.copy", "subject": "GPU 0", "verdict": "PASS"}
    old = {**document, "schema": 1, "findings": [*document["findings"], {**finding, "check": "trial.copy"}]}
    new = {**document, "findings": [*document["findings"], finding]}
    outcome = compare(old, new)
    expect(outcome.status == 0 and "machine and verdicts are the same" in outcome.out, "trial.copy is another check", outcome)
    new["findings"][-1] = {**finding, "verdict": "FAIL"}
    outcome = compare(old, new)
    expect(re.search(r"probe\.copy GPU 0.*PASS.*FAIL", outcome.out), "the change of a verdict", outcome)


def test_compare_tells_change_from_noise():
    before = made([("quiet", "us", 1.0, 0.99, 1.01), ("noisy", "us", 1.0, 0.8, 1.2), ("rate", "GB/s", 50, 49.9, 50.1),
                   ("faster", "GB/s", 50, 49.9, 50.1), ("small", "GB/s", 50, 50, 50)])
    after = made([("quiet", "us", 1.5, 1.49, 1.51), ("noisy", "us", 1.15, 1.0, 1.3), ("rate", "GB/s", 25, 24.9, 25.1),
                  ("faster", "GB/s", 60, 59.9, 60.1), ("small", "GB/s", 46, 46, 46)])
    outcome = run("compare", write("a.json", before), write("b.json", after), "--json", path_of("c.json"))
    expect(outcome.status == 1, "something got worse, and the status does not say so", outcome)
    with open(path_of("c.json"), encoding="utf-8") as file:
        document = json.load(file)
    expect_as_documented(document)
    expect("3 passes over 12 s" in outcome.out and "at least 10 %" in outcome.out, "it does not say what the noise is", outcome)
    changes = {result["key"]: result["change"] for result in document["results"]}
    wanted = {"quiet": "WORSE", "noisy": "same", "rate": "WORSE", "faster": "better", "small": "same"}
    expect(changes == wanted, f"changes: {changes}", outcome)
    expect(document["counts"] == {"same": 2, "better": 1, "worse": 2, "unjudged": 0, "failed": 0, "unmatched": 0}, f"counts: {document['counts']}")
    expect("noisy" not in outcome.out.split("figures")[1].split("within")[0], "noise is shown as a change", outcome)
    better = compare(after, before)
    expect("quiet" in better.out and " 2 better, 1 worse" in better.out, "the other way round", better)


def test_compare_takes_the_noise_of_both_surveys():
    """Two surveys of a loaded machine: each by itself was quieter than they are to each other."""
    before = made([("gpu0->host alone", "GB/s", 20.0, 18.6, 21.9)])
    after = made([("gpu0->host alone", "GB/s", 14.7, 13.5, 17.0)])
    outcome = compare(before, after)
    expect(outcome.status == 0 and " 1 within the noise, 0 better, 0 worse" in outcome.out, "noise is called a change", outcome)
    after = made([("gpu0->host alone", "GB/s", 12.0, 11.0, 13.0)])
    outcome = compare(before, after)
    expect(outcome.status == 1 and "-40.0 % (noise 26.5 %)  WORSE" in outcome.out, "a change is called noise", outcome)


def test_compare_has_a_floor_under_the_noise():
    """Samples that were all alike: without a floor every difference would be a change."""
    before, after = made([("a", "us", 10, 10, 10)]), made([("a", "us", 11, 11, 11)])
    for floor, status, counts in (("0", 1, " 0 within the noise, 0 better, 1 worse"), ("0.09", 1, " 0 within the noise, 0 better, 1 worse"),
                                  ("0.11", 0, " 1 within the noise, 0 better, 0 worse"), ("1", 0, " 1 within the noise, 0 better, 0 worse")):
        outcome = compare(before, after, "--floor", floor)
        expect(outcome.status == status and counts in outcome.out, f"--floor {floor}", outcome)
        expect(f"and at least {float(floor) * 100:g} %" in outcome.out, f"--floor {floor} is not told", outcome)
    better = compare(after, before, "--floor", "0.05")
    expect(better.status == 0 and "1 better" in better.out, "the other way round", better)
    for wrong in ("-0.1", "1.5", "much"):
        expect_refusal(compare(before, after, "--floor", wrong), 2, "--floor", wrong)


def test_compare_does_not_judge_one_pass():
    before, after = made([("a", "us", 1, 1, 1)]), made([("a", "us", 9, 9, 9)])
    for document in (before, after):
        document["results"][0]["passes"] = 1
    expect(compare(before, after).status == 0, "what has no noise is judged")
    del before["results"][0]["passes"], before["passes"]
    outcome = compare(before, after)
    expect(outcome.status == 0 and "1 not judged" in outcome.out and "older Gigabar" in outcome.out, "an older survey", outcome)


def test_compare_shows_what_came_and_went():
    before = made([("kept", "us", 1, 1, 1), ("gone", "us", 1, 1, 1), ("lost", "GB/s", 9.5, 9, 10)],
                  findings=[{"check": "pci.acs", "subject": "GPU a", "verdict": "PASS"}])
    after = copy.deepcopy(before)
    after["results"][1]["key"] = "new"
    after["findings"][0]["verdict"] = "FAIL"
    after["machine"]["cpu"] = "another \x1b[31mCPU"
    lost = after["results"].pop()
    outcome = compare(before, after)
    expect(outcome.status == 0, "what was left out is called worse", outcome)
    after["results"].append({"key": "lost", "unit": "GB/s", "failure": "wrong \x1b[31mbytes"})
    outcome = compare(before, after, "--json", path_of("c.json"))
    for part in ("gone", "new", "pci.acs GPU a: PASS -> FAIL", "cpu: c -> another", "lost", "9.500 GB/s -> failed: wrong ?[31mbytes  WORSE",
                 "1 within the noise, 0 better, 1 worse; 1 failed in"):
        expect(part in outcome.out, f"it lacks '{part}'", outcome)
    expect(outcome.status == 1, "a figure that failed is not worse", outcome)
    expect("\x1b" not in outcome.out, "a control character reached the terminal", outcome)
    with open(path_of("c.json"), encoding="utf-8") as file:
        document = json.load(file)
    expect_as_documented(document)
    expect({each["key"]: each["why"] for each in document["unmatched"]} == {"gone": "only first", "new": "only second", "lost": "fails"},
           f"unmatched: {document['unmatched']}")
    expect(document["counts"] == {"same": 1, "better": 0, "worse": 1, "unjudged": 0, "failed": 1, "unmatched": 3}, f"{document['counts']}")
    outcome = compare(after, before)
    expect(outcome.status == 0 and "works again" in outcome.out and "1 better, 0 worse" in outcome.out, "the other way round", outcome)
    before["results"][-1] = after["results"][-1]
    outcome = compare(before, after)
    expect(outcome.status == 0 and "fails in both" in outcome.out and "; 1 failed in" in outcome.out, "it fails in both", outcome)
    before["results"][-1] = {**lost, "unit": "us"}
    after["results"][-1] = lost
    outcome = compare(before, after)
    expect(outcome.status == 0 and "units differ: 9.500 us -> 9.500 GB/s" in outcome.out, "other units", outcome)


def test_compare_refuses_what_is_no_survey():
    good = write("good.json", made([("a", "us", 1, 1, 1)]))
    expect_refusal(run("compare", good, "/nonexistent.json"), 2, "/nonexistent.json", "cannot be opened")
    for name, content in (("noise.json", "{{{{"), ("list.json", "[]"), ("other.json", '{"tool": "copylat"}'),
                          ("empty.json", '{"tool": "survey", "results": []}'), ("types.json", '{"tool": "survey", "results": 5}'),
                          ("nested.json", '{"tool":' + "[" * 100000 + "]" * 100000 + "}")):
        with open(path_of(name), "w", encoding="utf-8") as file:
            file.write(content)
        expect_refusal(run("compare", good, path_of(name)), 2, name)
    expect_refusal(run("compare", good), 2, "SECOND")
    expect_refusal(run("compare", good, good, "--json", good), 2, "FIRST and --json name the same file")
    expect(run("compare", good, good).status == 0, "the survey is gone")
    for schema in (0, 999, "2", None, True):
        other = write("schema.json", made([("a", "us", 1, 1, 1)]) | {"schema": schema})
        expect_refusal(run("compare", good, other), 2, "schema.json", f"has schema {json.dumps(schema)}", "reads 1 and 2")


def test_compare_reads_what_is_being_written():
    """The other end of a FIFO comes late, and writes piece by piece."""
    document = made([("a", "us", 1, 1, 1)])
    good, fifo = write("good.json", document), path_of("fifo")
    os.mkfifo(fifo)

    def write_slowly():
        time.sleep(0.5)
        text = json.dumps(document)
        with open(fifo, "w", encoding="utf-8") as file:
            for part in (text[:20], text[20:]):
                time.sleep(0.5)
                file.write(part)
                file.flush()

    writer = threading.Thread(target=write_slowly, daemon=True)  # which may hang where nobody reads
    writer.start()
    outcome = run("compare", fifo, good)
    expect(outcome.status == 0 and "1 within the noise" in outcome.out, "a FIFO", outcome)
    writer.join()


CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    shared.CASES = CASES
    sys.exit(shared.main())
