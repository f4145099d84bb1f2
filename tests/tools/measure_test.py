#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that measure copies and mappings, and `gigabar sanity`, on stand-in devices and checks what they say. Options and
exit status as command_line_test.py.
"""

import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

import command_line_test as shared
from command_line_test import NOBODY, REGIMES, SHORT, cells_of, expect, expect_label, expect_refusal, expect_summary, is_near, run, run_json

# ---- copylat ----


def test_copylat_measures_every_size_both_ways():
    document, outcome = run_json("copylat", "-s", "64K", *SHORT)
    expect_label(outcome)
    sizes = [2**i for i in range(17)]
    for direction, path in (("to_device", "copy_to"), ("from_device", "copy_from")):
        for regime in REGIMES:
            cells = cells_of(document, direction, regime)
            expect([cell["bytes"] for cell in cells] == sizes, f"{regime}, sizes: {[cell['bytes'] for cell in cells]}")
        for cell in cells_of(document, direction, *REGIMES):
            expect([method["name"] for method in cell["methods"]] == [path, "memcpy"], f"methods: {cell['methods']}")
            expect(cell["baseline"] == "memcpy" and cell["data_checked"] is True, "the baseline of a stand-in is memcpy")
            for method in cell["methods"]:
                expect_summary(method, least_samples=11)
            ratio = cell["methods"][1]["p50_us"] / cell["methods"][0]["p50_us"]
            expect(is_near(cell["baseline_over_path"], ratio), "the ratio does not follow from the medians")
    overhead = [result for result in document["results"] if result["measure"] == "call_overhead"]
    expect(len(overhead) == 1 and overhead[0]["bytes"] == 8 and overhead[0]["call_ns"] > 0, f"call overhead: {overhead}")
    expect(document["clock"]["cost_ns"] > 0 and document["clock"]["cost_is_subtracted"] is False, "the clock's cost is not told")
    expect(document["mapping"]["backend"] == "host" and document["mapping"]["type"] == "cached", f"mapping: {document['mapping']}")
    expect(document["mapping"]["passed_over"], "nothing is said about the other backends")


def test_copylat_takes_the_samples_that_were_asked_for():
    document, _ = run_json("copylat", "-s", "8", "-w", "700", "-r", "300", "--rounds", "7", "--pause", "1", "--budget", "5")
    for direction, expected in (("to_device", 700), ("from_device", 300)):
        for cell in cells_of(document, direction, *REGIMES):
            expect(all(method["samples"] == expected for method in cell["methods"]), f"samples: {cell}")


def test_copylat_compares_kernels_and_methods():
    document, outcome = run_json("copylat", "-s", "4K", "--kernels", "--methods", *SHORT)
    kernels = run_json("info")[0]["results"][2]["kernels"]
    supported = {"kernel " + kernel["name"] for kernel in kernels if kernel["is_supported"]}
    for cell in cells_of(document, "to_device", REGIMES[1]) + cells_of(document, "from_device", REGIMES[1]):
        median = {method["name"]: method["p50_us"] for method in cell["methods"]}
        expect(supported <= set(median), f"kernels are missing: {supported - set(median)}")
        expect({"copy()", "cpu", "cpu_parallel", "copy_engine"} <= set(median), f"methods are missing: {set(median)}")
        path = cell["methods"][0]["name"]
        ratio = min(median[kernel] for kernel in supported) / median[path]
        expect(is_near(cell["best_kernel_over_path"], ratio), f"kernel ratio: {cell}")
        ratio = median["copy()"] / min(median[name] for name in set(median) - supported - {"copy()"})
        expect(is_near(cell["copy_over_best_method"], ratio), f"method ratio: {cell}")
    for title in ("raw kernels with fences (to_device)", "copy() and each single method (from_device)"):
        expect(title in outcome.out, f"no table '{title}'", outcome)


def test_copylat_cold():
    cold, _ = run_json("copylat", "-s", "64K", "-C", "-c", *SHORT)
    warm, _ = run_json("copylat", "-s", "64K", *SHORT)

    def read_us(document):
        largest = cells_of(document, "from_device", REGIMES[1])[-1]
        # The quickest sample: what else the machine does makes samples slower, never a read of evicted lines as quick as a cached one.
        return largest["methods"][0]["min_us"]

    expect(read_us(cold) > read_us(warm), "cold reads are not slower than warm ones")


def test_copylat_finds_a_planted_fault():
    outcome = run("copylat", "-s", "1K", "--plant-fault", "256", *SHORT)
    expect(outcome.status == 1, "a wrong byte was not found", outcome)
    said = re.search(r"wrong data at size 256 .*offset 128: expected 0x[0-9a-f]{2}, found 0x[0-9a-f]{2}", outcome.err)
    expect(said, "the message lacks size, offset, expected or found", outcome)


def test_copylat_keeps_to_its_budget():
    start = time.monotonic()
    run_json("copylat", "-s", "1M", "-w", "1000000", "-r", "1000000", "--budget", "2")
    elapsed = time.monotonic() - start
    expect(elapsed < 60, f"a budget of 2 s took {elapsed:.0f} s")


def test_copylat_runs_on_one_cpu():
    own = min(os.sched_getaffinity(0))
    run_json("copylat", "-s", "64", "--cpu", str(own), *SHORT)
    expect_refusal(run("copylat", "-s", "64", "--cpu", "8000"), 2, "--cpu 8000")


def test_copylat_with_little_lockable_memory():
    def lock_nothing():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        if os.geteuid() == 0:  # whom no limit binds
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)

    program = shared.OPTIONS.program
    if os.geteuid() == 0:
        # Where that user can reach it.
        program = shutil.copy(shared.OPTIONS.program, os.path.join(os.path.dirname(shared.FOLDER), "gigabar"))
        os.chown(shared.FOLDER, NOBODY, NOBODY)
    path = os.path.join(shared.FOLDER, "report.json")
    outcome = run("copylat", "-s", "64K", *SHORT, "--json", path, program=program, how={"preexec_fn": lock_nothing})
    expect(outcome.status == 0, "copylat without lockable memory", outcome)
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    expect(document["host_memory"]["is_pinned"] is False, "the memory calls itself pinned")
    expect(any("pageable" in note and "mlock" in note for note in document["notes"]), f"notes: {document['notes']}")
    expect("pinned host memory" not in outcome.out, "a heading calls the memory pinned", outcome)


# ---- copybw, apiperf, pplat ----


def test_copybw_counts_threads_and_directions():
    document, outcome = run_json("copybw", "-s", "1M", "-T", "1,2", "--budget", "2", "--repeats", "5")
    expect_label(outcome)
    rows = [(row["direction"], row["threads"]) for row in document["results"]]
    expect(rows == [("to_device", 1), ("to_device", 2), ("from_device", 1), ("from_device", 2)], f"rows: {rows}")
    for row in document["results"]:
        expect(row["bytes"] == 1 << 20 and row["repeats"] == 5 and row["data_checked"] is True, f"row: {row}")
        expect(0 < row["min_gb_per_s"] <= row["median_gb_per_s"] <= row["max_gb_per_s"], f"row: {row}")


def test_copybw_all_sizes_with_offset():
    document, _ = run_json("copybw", "-s", "8K", "-o", "13", "-c", "4K", "-l", "--budget", "1")
    sizes = [row["bytes"] for row in document["results"] if row["direction"] == "to_device"]
    expect(sizes == [2**i for i in range(13)], f"sizes: {sizes}")  # the top size too


def test_apiperf_times_both_interfaces():
    document, outcome = run_json("apiperf", "-s", "256K", "-n", "20", "-w", "2")
    expect_label(outcome)
    expect([row["bytes"] for row in document["results"]] == [65536, 131072, 262144], "sizes")
    for row in document["results"]:
        names = {operation["name"] for operation in row["operations"]}
        expect({"map, first", "map, block is mapped", "map, idle window", "unmap, last"} <= names, f"operations: {names}")
        for call in ("pin_buffer", "map", "get_info", "unmap", "unpin_buffer"):
            expect(f"gdr_{call}" in names, f"operations: {names}")
        for operation in row["operations"]:
            expect_summary(operation)
            expect(operation["samples"] == 20, f"samples: {operation}")
        expect(row["first_maps_from_cache"] == 0, "a first map came from the cache")


def test_pplat_flag_only():
    document, outcome = run_json("pplat", "-t", "200", "--warmup", "10")
    expect_label(outcome)
    expect("a CPU thread plays the kernel" in outcome.out, "the thread is not owned up to", outcome)
    result = document["results"][0]
    expect_summary(result)
    expect(result["samples"] == 200 and result["blocks"] == 1 and result["data_checked"] is False, f"result: {result}")


def test_pplat_data_in_every_place_and_mode():
    for mode in ("0", "1"):
        for places in (("gpumem", "hostmem", "gpumem"), ("hostmem", "gpumem", "hostmem")):
            shape = ("-t", "50", "--warmup", "5", "-s", "4096", "-B", "4", "-T", "64")
            document, _ = run_json("pplat", *shape, "-m", mode, "-G", places[0], "-C", places[1], "-D", places[2])
            result = document["results"][0]
            expect_summary(result)
            expect(result["samples"] == 50 and result["data_checked"] is True and result["blocks"] == 4, f"result: {result}")
            expect((result["gpu_flag"], result["cpu_flag"], result["data"]) == places, f"places: {result}")


def test_pplat_by_messages_of_every_size():
    for size, threads in (("0", 32), ("8", 32), ("504", 64), ("768", 128), ("2048", 288), ("131072", 512)):
        document, outcome = run_json("pplat", "--by", "message", "-t", "20", "--warmup", "5", "-s", size)
        result = document["results"][0]
        expect_summary(result)
        expect(result["by"] == "message" and result["samples"] == 20 and result["threads"] == threads, f"result: {result}")
        expect(result["data_checked"] is (size != "0"), f"result: {result}")
    expect("a CPU thread plays the kernel" in outcome.out, "the thread is not owned up to", outcome)


def test_pplat_gives_up():
    expect_refusal(run("pplat", "-t", "10000000", "-u", "0.3"), 1, "0.3 s", "-u")
    expect_refusal(run("pplat", "-t", "10000000", "-u", "0.3", "--by", "message"), 1, "0.3 s", "-u")


# ---- sanity ----


def test_sanity_passes():
    document, outcome = run_json("sanity")
    expect_label(outcome)
    wrong = [result for result in document["results"] if result["verdict"] == "fail"]
    expect(not wrong, f"failed: {wrong}")
    expect(document["summary"]["passed"] >= 35, f"summary: {document['summary']}")
    for result in document["results"]:
        expect(result["verdict"] == "pass" or result["reason"], f"waived without a reason: {result}")
    expect(re.search(r"Total: \d+, Passed: \d+, Failed: 0, Waived: \d+", outcome.out), "no summary", outcome)


def test_sanity_covers_every_test_of_gdrcopy():
    document, _ = run_json("sanity", "-l")
    covered = {name for result in document["results"] for name in result["covers"].split()}
    plain = {"attributes_sanity"}
    plain |= {f"basic_{name}" for name in ("with_tokens", "unaligned_mapping", "small_buffers_mapping")}
    invalidations = ("access_after_free", "access_after_gdr_close", "two_mappings", "fork_access_after_free", "fork_after_gdr_map",
                     "fork_child_gdr_map_parent", "fork_map_and_free", "unix_sock_shared_fd_gdr_map",
                     "unix_sock_shared_fd_gdr_pin_buffer")
    for kind in ("cumemalloc", "vmmalloc"):
        plain |= {f"basic_{name}{kind}" for name in ("", "v2_", "v2_forcepci_", "child_thread_pins_buffer_")}
        plain |= {f"data_validation_{kind}"} | {f"invalidation_{name}_{kind}" for name in invalidations}
    plain |= {f"data_validation_{name}_cumemalloc" for name in ("v2", "v2_forcepci", "mix_mappings")}
    plain.add("invalidation_fork_child_gdr_pin_parent_with_tokens")
    expect(len(plain) == 36, f"{len(plain)} names")
    expect(plain <= covered, f"not covered: {sorted(plain - covered)}")
    expect("leakage_pin_pages_fork_cumemalloc" in covered, "the extended test is not covered")


def test_sanity_runs_what_is_named():
    document, outcome = run_json("sanity", "-t", "attributes", "-t", "basic_unaligned_mapping", "-v", "-s")
    expect([result["name"] for result in document["results"]] == ["attributes", "unaligned_addresses"], "other scenarios ran")
    expect("Total:" not in outcome.out and "run     attributes" in outcome.out, "-s or -v is not followed", outcome)
    expect_refusal(run("sanity", "-t", "nonsense"), 2, "-t nonsense", "-l")


def test_sanity_extended_leaks_nothing():
    document, _ = run_json("sanity", "-e", "-t", "leaks")
    expect(document["results"][0]["verdict"] == "pass", f"{document['results']}")


def test_sanity_two_stand_ins():
    document, _ = run_json("sanity", "-t", "two_devices", GIGABAR_STAND_IN="2")
    expect(document["results"][0]["verdict"] == "pass", f"{document['results']}")


def test_sanity_reports_a_failure():
    # A backend that is not there makes every session impossible, which the scenarios must call a failure, with the reason.
    outcome = run("sanity", "-t", "pin_map_unmap", "-t", "data_large", "-t", "publish_data_then_flag", GIGABAR_MAPPING="gdrdrv")
    expect(outcome.status == 1, "a scenario without a session passed", outcome)
    expect(re.search(r"^fail +pin_map_unmap \[stand-in\]: gdr_open: \S+", outcome.out, re.MULTILINE), "no reason is given", outcome)
    expect("Total: 3, Passed: 0, Failed: 3" in outcome.out and "failed: data_large" in outcome.out, "the count is wrong", outcome)


def test_sanity_ends_what_takes_too_long():
    outcome = run("sanity", "-t", "leaks", "--timeout", "0.01")
    expect(outcome.status == 1 and "not done after 0.01 s" in outcome.out, "the deadline did not end it", outcome)


def test_sanity_takes_its_scenario_with_it():
    # A scenario, in a group of its own, is not what the terminal's signal ends. This one cannot tell its verdict: the pipe is full.
    unread, full = os.pipe()
    os.set_blocking(full, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(full, bytes(4096))
    os.set_blocking(full, True)
    start = (
        "import os, subprocess, sys; os.dup2(int(sys.argv[1]), 3); child = subprocess.Popen(sys.argv[2:], pass_fds=(3,)); "
        "print(child.pid, flush=True); child.wait()"
    )
    command = [sys.executable, "-c", start, str(full), shared.OPTIONS.program, "sanity", "--scenario", "attributes", "-d", "0"]
    with subprocess.Popen(command, env=shared.environment(), cwd=shared.FOLDER, pass_fds=(full,), stdout=subprocess.PIPE, text=True) as parent:
        scenario = f"/proc/{parent.stdout.readline().strip()}"
        # It waits for who reads its verdict; some kernels do not tell.
        end = time.monotonic() + 2
        while "pipe" not in pathlib.Path(f"{scenario}/wchan").read_text(encoding="ascii") and time.monotonic() < end:
            time.sleep(0.01)
        parent.kill()
    end = time.monotonic() + 20
    while os.path.exists(scenario) and pathlib.Path(f"{scenario}/cmdline").read_bytes() and time.monotonic() < end:
        time.sleep(0.01)
    os.close(unread)
    os.close(full)
    expect(time.monotonic() < end, "the scenario is still there")


def test_sanity_where_ends_of_children_are_ignored():
    outcome = run("sanity", "-t", "attributes", how=shared.IGNORING_CHILDREN)
    expect(outcome.status == 0 and "Passed: 1, Failed: 0" in outcome.out, "", outcome)
    outcome = run("sanity", "-t", "leaks", "--timeout", "0.01", how=shared.IGNORING_CHILDREN)
    expect(outcome.status == 1 and "not done after 0.01 s" in outcome.out, "the deadline did not end it", outcome)


CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    shared.CASES = CASES
    sys.exit(shared.main())
