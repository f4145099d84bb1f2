#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar streams` between stand-in devices and checks what it says. Options and exit status as command_line_test.py.
"""

import csv
import io
import json
import math
import os
import pty
import re
import signal
import subprocess
import sys
import time

import command_line_test as shared
from command_line_test import all_shown, expect, expect_header, expect_refusal, is_near, run, run_json

TWO = {"GIGABAR_STAND_IN": "2"}
SHORT = ("--size", "1M", "--iter", "20", "--repeats", "2")


def streams(*arguments, **variables):
    return run("streams", *arguments, **{**TWO, **variables})


def streams_json(*arguments, **variables):
    document, outcome = run_json("streams", *arguments, **{**TWO, **variables})
    expect(document["is_stand_in"] is True and document["devices"][0]["is_stand_in"] is True, "the document is not labelled")
    return document, outcome


def plan(*arguments, devices="4"):
    """The lines of a dry run, without their numbers."""
    outcome = streams("--dry-run", "--devices", devices, *arguments)
    expect(outcome.status == 0, f"dry run of {arguments}", outcome)
    lines = [line for line in outcome.out.splitlines() if not line.startswith("#")]
    for index, line in enumerate(lines):
        expect(re.search(r"  # \d+$", line), f"line {index} has no number", outcome)
    return [re.sub(r"  # \d+$", "", line) for line in lines]


def start(*arguments, error=subprocess.PIPE):
    """The program, running. SIGINT reaches it even where the tests run in the background."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIGABAR_", "XDG_"))}
    environment.update(TWO, HOME=shared.FOLDER, TERM="xterm")
    return subprocess.Popen([shared.OPTIONS.program, "streams", *arguments], env=environment, cwd=shared.FOLDER, text=True,
                            stdout=subprocess.PIPE, stderr=error, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def write(name, text):
    path = os.path.join(shared.FOLDER, name)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return path


def expect_figure(figure, count):
    expect(len(figure["samples"]) == count, f"samples: {figure}")
    for value in (figure["median"], figure["min"], figure["max"], *figure["samples"]):
        expect(isinstance(value, float) and math.isfinite(value) and value > 0, f"figure: {figure}")
    expect(figure["min"] <= figure["median"] <= figure["max"], f"figure: {figure}")
    expect(figure["min"] == min(figure["samples"]) and figure["max"] == max(figure["samples"]), f"figure: {figure}")


# ---- help and usage ----


def test_streams_help():
    for option in ("--help", "-?"):
        outcome = streams(option)
        expect(outcome.status == 0, f"{option} failed", outcome)
        for name in ("-d,--dtoh", "-h,--htod", "-p,--dtod", "-i,--iter", "-s,--size", "-n,--no-numa-affinity", "-t,--transfer",
                     "-f,--file", "--seconds", "--pages", "--repeats", "--no-verify", "--stage", "--timeout", "--dry-run",
                     "--preset", "--sweep", "--expect", "--format", "--json"):
            expect(name in outcome.out, f"{option} lacks {name}", outcome)
        for status in ("2 the command line", "3 a transfer", "130 interrupted"):
            expect(status in outcome.out, f"{option} lacks the exit status '{status}'", outcome)


def test_streams_wrong_usage():
    expect_refusal(streams(), 2, "-t")
    expect_refusal(streams("-h"), 2, "--htod")
    expect_refusal(streams("-d", "x"), 2, "--dtoh", "x")
    expect_refusal(streams("--dtoh=-1"), 2, "--dtoh", "-1")
    for pair in ("1", "1,", ",", "1,0,1", "a,b"):
        expect_refusal(streams("-p", pair), 2, "-p " + pair, "-p 1,0")
    expect_refusal(streams("-d", "0", "-s", "0"), 2, "--size", "outside")
    expect_refusal(streams("-d", "0", "-s", "64T"), 2, "--size", "64T", "K, M or G")
    expect_refusal(streams("-d", "0", "-i", "0"), 2, "--iter", "outside")
    expect_refusal(streams("-d", "0", "-i", "5", "--seconds", "1"), 2, "--seconds", "--iter")
    expect_refusal(streams("-d", "0", "--seconds", "0"), 2, "--seconds", "above 0")
    expect_refusal(streams("-d", "0", "--pages", "soft"), 2, "--pages", "soft", "pageable")
    expect_refusal(streams("-d", "0", "--format", "xml"), 2, "--format", "xml", "csv")
    expect_refusal(streams("-d", "0", "--repeats", "0"), 2, "--repeats", "outside")
    expect_refusal(streams("-d", "0", "--devices", "3"), 2, "--devices", "--dry-run")
    for ratio in ("0", "-1", "1.6", "nan", "fast"):
        expect_refusal(streams("-d", "0", "--expect=" + ratio), 2, "--expect", ratio)
    for text in ("1M", "2M:1M", "0:1M", "1M:2M:1", "1M:2M:x", "1M:many"):
        expect_refusal(streams("-d", "0", "--sweep", text), 2, "--sweep", text)
    expect_refusal(streams("-d", "0", "--executor", "hand"), 2, "--executor hand", "sm-push")
    expect_refusal(streams("-d", "0", "--executor", "background"), 2, "--executor background")
    expect_refusal(streams("-d", "0", "--executor", "ce bytes=1"), 2, "--executor", "give one word")
    expect_refusal(streams("--preset", "device_local_copy", "-d", "0"), 2, "--preset", "alone")
    expect_refusal(streams("--preset", "device_local_copy", "--format", "cuts"), 2, "--format cuts")
    expect_refusal(streams("-d", "0", "--plain"), 2, "--plain", "a stand-in has none")


def test_streams_unknown_devices_and_nodes():
    expect_refusal(streams("-d", "7", *SHORT), 2, "transfer 0", "gpu7")
    expect_refusal(streams("-d", "0", "-p", "0,7", *SHORT), 2, "transfer 1", "gpu7")
    expect_refusal(streams("-t", "gpu0->host:4000", *SHORT), 2, "host:4000")
    expect_refusal(streams("-t", "gpu0->gpu7", *SHORT), 2, "7")


def test_streams_malformed_text_has_a_column():
    expect_refusal(streams("-t", "gpu0->disk ce"), 2, "gpu0->disk ce", "1:7", "disk")
    expect_refusal(streams("-t", "gpu0->host ce; gpu0->host colour=red"), 2, "1:27", "colour")
    expect_refusal(streams("-t", "gpu0->host bytes=0"), 2, "bytes")


def test_streams_malformed_file_has_file_line_and_column():
    path = write("plan.txt", "# two good lines\r\ngpu0->host\r\n\r\ngpu0->host ce; gpu0->disk\r\n")
    expect_refusal(streams("-f", path), 2, f"{path}:4:22", "disk")
    expect_refusal(streams("-f", "/no/such/plan"), 2, "-f /no/such/plan", "No such file")
    expect_refusal(streams("-f", shared.FOLDER), 2, "-f", "directory")
    expect_refusal(streams("-f", write("empty.txt", "# nothing\n\n")), 2, "nothing to transfer")


def test_streams_more_memory_than_there_is():
    outcome = streams("-d", "0", "-s", "65536G", "--repeats", "1")
    expect(outcome.status in (1, 2), "64 TiB were found", outcome)
    expect_refusal(outcome, outcome.status, "transfer 0")


# ---- plans ----


def test_streams_order_is_that_of_the_command_line():
    lines = plan("-t", "host->gpu3", "-d", "0", "-h1", "-p", "1,0", "--dtoh=2", "-d", "0", "--dtod=0,1",
                 "-t", "gpu0->gpu2;gpu2->host", "--htod", "3")
    ends = [line.split()[0] for line in lines]
    expect(ends == ["host->gpu3", "gpu0->host", "host->gpu1", "gpu0->gpu1", "gpu2->host", "gpu0->host", "gpu1->gpu0", "gpu0->gpu2",
                    "gpu2->host", "host->gpu3"], f"order: {ends}")


def test_streams_dtod_pulls():
    lines = plan("-p", "1,0", "-p", "1,0", "-t", "gpu0->gpu1 ce-push")
    expect("ce-pull" in lines[0] and lines[0] == lines[1] and "ce-push" in lines[2], f"lines: {lines}")


def test_streams_short_options_reach_every_transfer():
    lines = plan("-d", "0", "-h", "0", "-s", "64K", "-i", "7", "-t", "gpu1->host iterations=9")
    expect(all("bytes=64K" in line for line in lines), f"lines: {lines}")
    expect(["iterations=7" in line for line in lines] == [True, True, False] and "iterations=9" in lines[2], f"lines: {lines}")
    expect(all("host:any" in line for line in plan("-d", "0", "-h", "0", "-n")), "-n is not followed")
    expect(all("pages=pageable" in line for line in plan("-d", "0", "--pages", "pageable")), "--pages is not followed")
    expect("seconds=2" in plan("-d", "0", "--seconds", "2")[0], "--seconds is not followed")
    expect("sm:8" in plan("-d", "0", "--executor", "sm:8")[0], "--executor is not followed")
    expect("stage" in plan("-p", "1,0", "--stage")[0], "--stage is not followed")


def test_streams_dry_run_is_a_plan_again():
    lines = plan("-t", "gpu*->gpu* sm-push:4 bytes=3M; host->gpu[0..1] background", "-p", "3,2", "-d", "1", devices="4")
    expect(len(lines) == 12 + 2 + 2, f"{len(lines)} lines: {lines}")
    path = write("again.txt", "\n".join(lines))
    expect(plan("-f", path) == lines, "the lines do not mean what they meant")
    outcome = streams("--dry-run", "--sweep", "1K:16K:4", "-d", "0")
    expect(outcome.out.count("gpu0->host") == 3 and "# 16K per copy" in outcome.out, "the sweep is not shown", outcome)
    expect_refusal(streams("--dry-run", "--devices", "2", "-d", "3"), 2, "gpu3")


def test_streams_plan_from_standard_input():
    outcome = start_with_input("gpu0->host bytes=64K iterations=3\n\ngpu1->host bytes=64K iterations=3 # second\n", "-f", "-",
                               "--format", "csv", "--repeats", "1")
    expect(outcome.returncode == 0 and outcome.stdout.count("\r\n") == 3, f"{outcome.stdout}{outcome.stderr}")


def start_with_input(text, *arguments):
    process = subprocess.run([shared.OPTIONS.program, "streams", *arguments], env={**os.environ, **TWO}, input=text.encode(),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)
    process.stdout = process.stdout.decode()
    process.stderr = process.stderr.decode()
    return process


# ---- what is measured ----


def test_streams_table():
    outcome = streams("-d", "0", "-h", "0", "-p", "1,0", "-t", "gpu1->host cpu:2 group=mine", *SHORT)
    expect(outcome.status == 0, "a run", outcome)
    lines = outcome.out.splitlines()
    for name in ("window GB/s", "life GB/s", "link", "ratio", "verified", "aggregate GB/s", "overlap"):
        expect(any(name in line for line in lines), f"no column '{name}'", outcome)
    rows = [line for line in lines if re.match(r"\d  (gpu|host)", line)]
    expect(len(rows) == 4 and all(row.endswith("yes") and " 1M " in row and " 40 " in row for row in rows), "rows", outcome)
    for total in ("all ", "group mine"):
        expect(any(line.startswith(total) for line in lines), f"no total '{total}'", outcome)
    expect("[stand-in]" in outcome.out and "device 1: " in outcome.out, "not labelled", outcome)
    expect(outcome.err == "", "something was said in a pipe", outcome)


def test_streams_json():
    document, _ = streams_json("-d", "0", "-t", "host->gpu1 background group=noise; gpu0->gpu1 sm group=one", *SHORT)
    expect(document["parameters"]["bytes"] == 1 << 20 and document["parameters"]["repeats"] == 2, "parameters")
    expect(document["gigabar_version"] and document["drivers"], "version or drivers")
    result = document["results"][0]
    expect(result["was_stopped"] is False and result["error"] is None, f"{result}")
    expect([one["executor"] for one in result["transfers"]] == ["ce", "ce", "sm"], "executors")
    for transfer in result["transfers"]:
        expect_figure(transfer["life_gb_per_s"], 2)
        expect(transfer["error"] is None and transfer["bytes"] == 1 << 20, f"{transfer}")
        expect(transfer["is_background"] or transfer["copies_done"] == 40, f"copies: {transfer}")
        expect(transfer["is_background"] or transfer["is_verified"], f"verified: {transfer}")
        expect(transfer["link"]["gb_per_s"] is not None or transfer["link"]["reason"], f"link: {transfer}")
        is_host = "host" in (transfer["source"]["kind"], transfer["destination"]["kind"])
        expect(bool(transfer["host_placement"]) == is_host, f"placement: {transfer}")
    groups = [total["group"] for total in result["totals"]]
    expect(groups[0] == "" and "one" in groups, f"totals: {groups}")
    expect_figure(result["totals"][0]["aggregate_gb_per_s"], 2)


def test_streams_json_on_standard_output():
    outcome = streams("-d", "0", "--format", "json", *SHORT)
    expect(outcome.status == 0 and outcome.err == "", "--format json", outcome)
    expect_header(json.loads(outcome.out), "streams")
    outcome = streams("-d", "0", "--format", "csv", "--json", "-", *SHORT)
    expect_header(json.loads(outcome.out), "streams")
    expect(outcome.err.startswith("preset,"), "the text has not gone to standard error", outcome)
    document, outcome = streams_json("-d", "0", "--format", "json", *SHORT)
    expect(json.loads(outcome.out) == document, "two documents differ")
    expect_refusal(streams("-d", "0", *SHORT, "--json", "/no/such/folder/x.json"), 1, "--json", "No such file")


def test_streams_csv():
    outcome = streams("-d", "0", "-t", "gpu1->host group=b", "--format", "csv", *SHORT)
    expect(outcome.status == 0, "--format csv", outcome)
    rows = list(csv.reader(io.StringIO(outcome.out, newline="")))
    expect(len({len(row) for row in rows}) == 1 and len(rows) == 1 + 2 * 2, "rows", outcome)
    rows = [dict(zip(rows[0], row)) for row in rows[1:]]
    expect([(row["transfer"], row["repeat"]) for row in rows] == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")], f"{rows}")
    for row in rows:
        expect(float(row["life_gb_per_s"]) > 0 and row["bytes"] == "1048576" and row["is_stand_in"] == "true", f"{row}")
        expect(row["is_verified"] == "true" and row["error"] == "", f"{row}")


def test_streams_cuts():
    outcome = streams("-d", "0", "-h", "1", "-p", "1,0", "--format", "cuts", *SHORT)
    expect(outcome.status == 0, "--format cuts", outcome)
    figure = r"\d+\.\d{3} GB/s  \(\d+\.\d\d seconds\)"
    node = r"( - Host buffer allocated on NUMA node \d+)?"
    patterns = [r"Launching Device to Host transfers with Device 0 \(stand-in\)" + node,
                r"Launching Host to Device transfers with Device 1 \(stand-in\)" + node,
                r"Launching P2P PCIe transfers from Device 0 \(stand-in\) to Device 1 \(stand-in\)",
                r"\.*",
                r"Completed\.",
                r"Transfer 0 - Direct transfers \(Device to Host\) with Device 0 \(stand-in\): " + figure,
                r"Transfer 1 - Direct transfers \(Host to Device\) with Device 1 \(stand-in\): " + figure,
                r"Transfer 2 - P2P transfers from Device 0 \(stand-in\) to Device 1 \(stand-in\): " + figure]
    lines = outcome.out.splitlines()
    expect(len(lines) == len(patterns), f"{len(lines)} lines", outcome)
    for line, pattern in zip(lines, patterns):
        expect(re.fullmatch(pattern, line), f"'{line}' is not as CUts prints it", outcome)


def test_streams_cuts_has_a_heartbeat():
    outcome = streams("-d", "0", "--format", "cuts", "-s", "64K", "--seconds", "2.5", "--repeats", "1")
    expect(re.search(r"^\.{2,4}$", outcome.out, re.MULTILINE), "no dot a second", outcome)


def test_streams_latencies():
    document, outcome = streams_json("-t", "host->gpu0 flag iterations=50; gpu1->gpu0 chase bytes=1M iterations=5; "
                                     "gpu0->host latency bytes=4K iterations=30", "--repeats", "2")
    for transfer in document["results"][0]["transfers"]:
        latency = transfer["latency"]
        expect(latency and latency["samples"] > 0, f"{transfer}")
        expect(0 <= latency["min_us"] <= latency["p50_us"] <= latency["p99_us"] <= latency["max_us"], f"{latency}")
    expect("latency, us" in outcome.out and "p99" in outcome.out, "no table", outcome)


def test_streams_without_verification():
    document, outcome = streams_json("-d", "0", "--no-verify", *SHORT)
    expect(document["results"][0]["transfers"][0]["is_verified"] is False, "verified")
    expect("data not verified" in outcome.out and " off" in outcome.out, "not said", outcome)


def test_streams_host_memory_of_every_kind():
    for pages in ("pinned", "pageable", "wc"):
        document, _ = streams_json("-d", "0", "-h", "0", "--pages", pages, *SHORT)
        places = [document["results"][0]["transfers"][0]["destination"], document["results"][0]["transfers"][1]["source"]]
        expect([place["pages"] for place in places] == [pages, pages], f"{places}")


def test_streams_sweep():
    document, outcome = streams_json("-d", "0", "-p", "1,0", "--sweep", "4K:1M:4", "--iter", "5", "--repeats", "1")
    sizes = [result["swept_bytes"] for result in document["results"]]
    expect(sizes == [4096, 16384, 65536, 262144, 1048576], f"sizes: {sizes}")
    for result in document["results"]:
        expect(all(transfer["bytes"] == result["swept_bytes"] for transfer in result["transfers"]), f"{result}")
    for size in ("4K", "16K", "64K", "256K", "1M"):
        expect(f"{size} per copy [stand-in]" in outcome.out, f"no group for {size}", outcome)


def test_streams_seconds():
    begin = time.monotonic()
    document, _ = streams_json("-d", "0", "-s", "64K", "--seconds", "0.3", "--repeats", "2")
    expect(0.6 <= time.monotonic() - begin < 30, "the time was not kept")
    transfer = document["results"][0]["transfers"][0]
    expect(transfer["iterations"] is None and transfer["copies_done"] > 2, f"{transfer}")


# ---- presets ----


def test_streams_lists_presets():
    document, outcome = streams_json("--list-presets")
    names = [result["name"] for result in document["results"]]
    expect(len(names) == 35 and names[0] == "host_to_device_memcpy_ce" and names[-1] == "device_local_copy", f"{names}")
    expect(all(result["description"] for result in document["results"]), "a description is missing")
    expect(streams("--preset", "list").out == outcome.out, "two ways to list differ")
    expect_refusal(streams("--preset", "device_to_device_memcpy_read"), 2, "--preset", "device_to_device_memcpy_read_ce")


def test_streams_preset_matrix():
    small = ("-s", "64K", "-i", "4", "--repeats", "1")
    document, outcome = streams_json("--preset", "device_to_device_memcpy_read_ce", "--preset", "host_to_device_memcpy_ce", *small)
    first, second = document["results"]
    rows = first["matrices"][0]["rows"]
    expect(len(rows) == 2 and rows[0][0] is None and rows[0][1] > 0 and rows[1][0] > 0 and rows[1][1] is None, f"{rows}")
    expect(is_near(first["matrices"][0]["sum"], rows[0][1] + rows[1][0]), f"{first['matrices']}")
    expect(first["unit"] == "GB/s" and len(first["cells"]) == 2 and len(second["matrices"][0]["rows"][0]) == 2, "cells")
    expect("N/A" in outcome.out, "no N/A", outcome)
    for word in ("SUM", "MIN", "MAX"):
        expect(re.search(rf"^{word} device_to_device_memcpy_read_ce \d+\.\d\d \[stand-in\]$", outcome.out, re.MULTILINE),
               f"no {word}", outcome)


def test_streams_preset_with_several_matrices_and_with_none():
    small = ("-s", "64K", "-i", "4", "--repeats", "1")
    name = "device_to_device_bidirectional_memcpy_read_ce"
    document, outcome = streams_json("--preset", name, *small)
    names = [matrix["name"] for matrix in document["results"][0]["matrices"]]
    expect(names == ["read1", "read2", "total"], f"{names}")
    expect(f"SUM {name}_total" in outcome.out, "no sum of the total", outcome)
    document, outcome = streams_json("--preset", name, *small, GIGABAR_STAND_IN="1")
    expect(document["results"][0]["waived"] and "waived: " in outcome.out, "one device is enough for two", outcome)


def test_streams_latency_preset():
    document, outcome = streams_json("--preset", "host_device_latency_sm", "-i", "2", "--repeats", "1")
    result = document["results"][0]
    expect(result["unit"] == "ns" and result["matrices"][0]["sum"] > 0 and "latency, ns" in outcome.out, "latency", outcome)


def test_streams_every_preset_runs():
    names = [result["name"] for result in streams_json("--list-presets")[0]["results"]]
    arguments = [word for name in names for word in ("--preset", name)]
    document, _ = streams_json(*arguments, "-s", "16K", "-i", "2", "--repeats", "1")
    for result in document["results"]:
        expect(result["waived"] or all(matrix["sum"] for matrix in result["matrices"]), f"no figure: {result['name']}")


# ---- how it ends ----


def test_streams_expectations():
    link = ("--link", "1000000")
    expect(streams("-d", "0", "--expect", "0.000001", *link, *SHORT).status == 0, "above is below")
    outcome = streams("-d", "0", "-h", "1", "--expect", "1", *link, *SHORT)
    expect_refusal(outcome, 3, "transfer 0", "--expect 1", "and 1 more")
    document, outcome = streams_json("-d", "0", "--expect", "1.5", *SHORT)
    expect(any("--expect does not judge" in note for note in document["notes"]), f"notes: {document['notes']}")
    expect("unknown" in outcome.out, "the unknown link is not told", outcome)
    outcome = streams("-t", "gpu0->host; host->gpu0 background; gpu0->host latency bytes=4K", "--expect", "0.000001", *link, *SHORT)
    expect(outcome.status == 0, "a background or latency transfer was judged", outcome)


def test_streams_that_take_too_long_have_failed():
    outcome = streams("-d", "0", "-s", "1M", "--seconds", "20", "--timeout", "0.3", "--repeats", "1")
    expect_refusal(outcome, 1, "transfer 0", "gpu0->host ce")
    expect("failed: " in outcome.out, "the table does not tell", outcome)
    outcome = streams("--preset", "host_to_device_memcpy_ce", "-s", "1M", "--seconds", "20", "--timeout", "0.3", "--repeats", "1",
                      "--format", "json")
    document = json.loads(outcome.out)
    expect(outcome.status == 1 and document["results"][0]["matrices"][0]["rows"] == [[None, None]], "a cell", outcome)
    outcome = streams("-d", "0", "-s", "1M", "--seconds", "20", "--timeout", "0.3", "--repeats", "1", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(outcome.out, newline="")))
    expect(outcome.status == 1 and len(rows) == 1 and "gpu0->host" in rows[0]["error"] and None not in rows[0], "csv", outcome)
    outcome = streams("-d", "0", "-s", "65536G", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(outcome.out, newline="")))
    expect(len(rows) == 1 and rows[0]["error"] and rows[0]["is_stand_in"] == "true" and None not in rows[0], "csv", outcome)
    expect("," in rows[0]["error"], "the error has no comma, so its quotes were not tested", outcome)


def interrupt(process, *numbers):
    """Sends the signals once transfers run; returns what was printed."""
    first = process.stdout.readline()  # from here on it listens
    time.sleep(1.5)
    for number in numbers:
        process.send_signal(number)
    begin = time.monotonic()
    out, err = process.communicate(timeout=100)
    expect(time.monotonic() - begin < 15, f"not ended quickly: {out}\n{err}")
    return first + out, err


def test_streams_interrupt_prints_what_was_measured():
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start("-d", "0", "-h", "1", "-s", "1M", "--seconds", "30", "--repeats", "3")
        out, err = interrupt(process, number)
        text = f"status {process.returncode}\n{out}\n{err}"
        rows = [line for line in out.splitlines() if re.match(r"\d  (gpu|host)", line)]
        expect(process.returncode == 130, f"status: {text}")
        expect(len(rows) == 2 and all(re.search(r"\d+\.\d{3}", row) for row in rows), f"no figures: {text}")
        expect("interrupted" in out and "interrupted" in err, f"not said: {text}")


def test_streams_interrupt_ends_a_sweep():
    path = os.path.join(shared.FOLDER, "report.json")
    process = start("-d", "0", "--sweep", "64K:1M", "--seconds", "30", "--repeats", "1", "--format", "csv", "--json", path)
    _, err = interrupt(process, signal.SIGINT)
    with open(path, encoding="utf-8") as file:
        results = json.load(file)["results"]
    expect(process.returncode == 130 and len(results) == 1, f"{process.returncode} {err}")
    expect(results[0]["was_stopped"] is True and results[0]["transfers"][0]["copies_done"] > 0, f"{results}")


def test_streams_interrupt_ends_a_preset():
    process = start("--preset", "host_to_device_memcpy_ce", "-s", "1M", "--seconds", "30", "--repeats", "1")
    out, err = interrupt(process, signal.SIGINT)
    expect(process.returncode == 130 and re.search(r"^0 +\d+\.\d\d +-$", out, re.MULTILINE), f"{out}\n{err}")


def test_streams_second_interrupt_is_not_caught():
    process = start("-d", "0", "-s", "1M", "--seconds", "30")
    interrupt(process, signal.SIGINT, signal.SIGINT)
    expect(process.returncode in (130, -signal.SIGINT), f"status {process.returncode}")


def test_streams_redraws_on_a_terminal_only():
    arguments = ("-d", "0", "-h", "1", "-s", "1M", "--seconds", "1", "--repeats", "1")
    leader, follower = pty.openpty()
    process = start(*arguments, error=follower)
    os.close(follower)
    shown = all_shown(leader)
    out, _ = process.communicate(timeout=60)
    shown = shown.decode()
    expect(process.returncode == 0 and "\x1b[" not in out, f"{out}")
    expect("GB/s" in shown and "gpu0->host ce" in shown and re.search(r"\x1b\[3A", shown), f"not redrawn: {shown!r}")
    expect(shown.endswith("\x1b[J"), f"left behind: {shown!r}")
    process = start(*arguments)
    _, err = process.communicate(timeout=60)
    expect(err == "", f"drawn in a pipe: {err!r}")


def test_streams_tells_the_time_that_is_left():
    leader, follower = pty.openpty()
    process = start("-d", "0", "-s", "16M", "-i", "1000000", "--repeats", "3", error=follower)
    os.close(follower)
    shown = b""
    while not re.search(rb"repeat 1 of 3, about [1-9]\d* s left", shown):
        shown += os.read(leader, 4096)  # ends with an error when the process has ended without it
    process.send_signal(signal.SIGINT)
    all_shown(leader)
    process.communicate(timeout=60)


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
