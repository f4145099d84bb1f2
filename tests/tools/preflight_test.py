#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar preflight` on stand-in devices and on constructed machines with planted faults. Options and exit status as
command_line_test.py.
"""

import concurrent.futures
import json
import multiprocessing
import os
import re
import shlex
import sys

import command_line_test as shared
from command_line_test import expect, expect_header, expect_refusal, run

SYSROOTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sysroots")
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "operations.md")
sys.path.insert(0, SYSROOTS)
import machines as constructed  # noqa: E402  (needs the path above)
from blocks import config_space, gpu, host, nic, pci  # noqa: E402
from machines.small_server import SmallServer  # noqa: E402

TWO = {"GIGABAR_STAND_IN": "2"}
GPU, NEAR, FAR = "0000:19:00.0", "mlx5_0", "mlx5_1"  # of the small server
EXIT = {"fit": 0, "unfit": 1, "unknown": 3}


def document_of(*arguments, **variables):
    """The document and what was printed beside it, whatever the answer is."""
    outcome = run("preflight", "--json", os.path.join(shared.FOLDER, "preflight.json"), *arguments, **variables)
    expect(outcome.status in EXIT.values(), "preflight did not run", outcome)
    with open(os.path.join(shared.FOLDER, "preflight.json"), encoding="utf-8") as file:
        document = json.load(file)
    expect_header(document, "preflight")
    expect(outcome.status == EXIT[document["verdict"]], f"status of {document['verdict']}", outcome)
    expect(document["line"].startswith(document["verdict"] + ": ") and "\n" not in document["line"], f"line: {document['line']}")
    return document, outcome


def captured(machine, *arguments):
    path = os.path.join(shared.FOLDER, "machine.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(machine.to_json())
    return document_of("--sysroot", path, *arguments)


def items(document, **wanted):
    return [item for item in document["results"] if all(item[key] == value for key, value in wanted.items())]


# ---- on stand-ins ----


def test_preflight_every_path_is_verified():
    document, outcome = document_of("--budget", "60", GIGABAR_STAND_IN="4")
    expect(document["verdict"] == "fit" and document["device"]["is_stand_in"], "stand-ins are not fit", outcome)
    ends = ["host->gpu{}", "gpu{}->host"]
    names = {form.format(device) for form in ends for device in range(4)}
    names |= {f"gpu{one}->gpu{other}" for one in range(4) for other in range(4) if one != other}
    paths = items(document, kind="path")
    expect({path["name"] for path in paths} == names and len(paths) == len(names), f"paths: {[path['name'] for path in paths]}")
    expect(all(path["is_verified"] and path["gb_per_s"] > 0 for path in paths), f"paths: {paths}")
    expect("[stand-in]" in outcome.out and "verified bytes on 20 paths" in outcome.out, "the line", outcome)


def test_preflight_without_a_gpu_is_unknown():
    document, outcome = document_of("--budget", "10", GIGABAR_STAND_IN="")
    expect(document["verdict"] == "unknown" and "no GPU can be used here" in document["line"], "no GPU", outcome)
    document, outcome = document_of("--budget", "10", "--require", "gpus>=1", GIGABAR_STAND_IN="")
    expect(document["verdict"] == "unfit" and "gpus>=1: 0 GPUs where 1 are required" in document["line"], "gpus>=1", outcome)


def test_preflight_that_sees_no_device_is_unknown():
    document, outcome = document_of("--budget", "60", GIGABAR_HWLOC_LIBRARY="/nonexistent/libhwloc.so.15", **TWO)
    expect(document["verdict"] == "unknown" and "could not be listed" in document["line"] and "hwloc" in document["line"], "no hwloc", outcome)
    expect("libhwloc15" in document["line"], "the package is not named", outcome)


def test_preflight_budget_leaves_paths_unknown():
    document, outcome = document_of("--budget", "0.01", **TWO)
    expect(document["verdict"] == "unknown" and "--budget" in document["line"], "no time at all", outcome)
    expect(all(item["state"] == "unknown" for item in items(document, kind="path")), "paths without time", outcome)
    expect(document["elapsed_s"] < 20, f"it took {document['elapsed_s']} s")


def test_preflight_formats():
    for name, first in (("npd", "fit: "), ("nhc", "fit: "), ("prometheus", "# TYPE "), ("json", "{"), ("table", "")):
        outcome = run("preflight", "--format", name, "--budget", "60", **TWO)
        expect(outcome.status == 0 and outcome.out.startswith(first), f"--format {name}", outcome)
        expect(outcome.err == "", f"--format {name}: standard error", outcome)
        if name in ("npd", "nhc"):
            expect(outcome.out.count("\n") == 1 and "[stand-in]" in outcome.out, f"--format {name}: one line", outcome)
        if name == "json":
            shared.expect_as_documented(json.loads(outcome.out))
    statuses = {name: run("preflight", "--format", name, "--budget", "10", GIGABAR_STAND_IN="").status for name in ("npd", "nhc", "table")}
    expect(statuses == {"npd": 2, "nhc": 0, "table": 3}, f"status of unknown: {statuses}")
    expect(run("preflight", "--format", "nhc", "--strict", "--budget", "10", GIGABAR_STAND_IN="").status == 1, "nhc --strict")
    statuses = {name: run("preflight", "--format", name, "--require", "gpus>=9", **TWO).status for name in ("npd", "nhc", "table")}
    expect(set(statuses.values()) == {1}, f"status of unfit: {statuses}")


def test_preflight_metrics_that_cannot_be_written():
    """Where the status acts on the node it stays that of the answer."""
    unknown = {"GIGABAR_HWLOC_LIBRARY": "/nonexistent/libhwloc.so.15"}
    for option in ("--textfile", "--json"):
        for name, fit_status, unknown_status in (("npd", 0, 2), ("nhc", 0, 0), ("table", 1, 3)):
            for variables, first, status in (({}, "fit: ", fit_status), (unknown, "unknown: ", unknown_status)):
                outcome = run("preflight", "--format", name, option, "/dev/full", "--budget", "60", **variables, **TWO)
                expect(outcome.status == status, f"--format {name}, {first}: expected status {status}", outcome)
                expect(first in outcome.out and f"{option} /dev/full: cannot be written" in outcome.err, f"--format {name}, {first}", outcome)


def test_preflight_that_hangs():
    """A library is a pipe that nobody writes to: who opens it waits for ever."""
    library, path = (os.path.join(shared.FOLDER, name) for name in ("libhwloc.so.15", "preflight.json"))
    os.mkfifo(library)

    def start(*arguments):
        return pool.submit(run, "preflight", "--budget", "0.01", *arguments, GIGABAR_HWLOC_LIBRARY=library)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = start("--format", "nhc", "--json", path), start("--format", "json")
    told, printed = (one.result() for one in runs)
    expect(told.status == 0 and printed.status == EXIT["unknown"], f"status {told.status}", printed)
    expect(re.fullmatch(r"unknown: preflight: .+ did not end within 10 s; .+\n", told.out) and printed.err == told.out, "the line", told)
    with open(path, encoding="utf-8") as file:
        written = json.load(file)
    for document in (written, json.loads(printed.out)):
        expect_header(document, "preflight")
        expect(document["verdict"] == "unknown" and document["line"] + "\n" == told.out, f"{document}")
        (item,) = document["results"]
        expect(item["state"] == "unknown" and item["is_decisive"] and item["statement"] in document["line"], f"{item}")
        expect(document["origin"]["is_live"] and document["summary"]["checks"] == 0 and document["elapsed_s"] >= 10, f"{document}")


METRIC = r'gigabar_preflight_([a-z_]+)(?:\{([a-z]+="(?:[^"\\]|\\.)*"(?:,[a-z]+="(?:[^"\\]|\\.)*")*)\})? (-?[0-9.e+]+)'


def metrics_of(text):
    """(name, labels) -> value, from a text that has to be OpenMetrics: families are not mixed, no row comes twice."""
    lines = text.splitlines()
    expect(lines[-1] == "# EOF" and text.endswith("\n"), "no end")
    found, families = {}, []
    for line in lines[:-1]:
        head = re.fullmatch(r"# (TYPE|UNIT|HELP) gigabar_preflight_([a-z_]+) (.+)", line)
        if head:
            if head[1] == "TYPE":
                expect(head[3] == "gauge" and head[2] not in families, f"family {line}")
                families.append(head[2])
            expect(families[-1] == head[2], f"mixed: {line}")
            expect(head[1] != "UNIT" or head[2].endswith("_" + head[3]), f"the name lacks its unit: {line}")
            continue
        row = re.fullmatch(METRIC, line)
        expect(row and row[1] == families[-1], f"no row of {families[-1]}: {line}")
        key = (row[1], frozenset(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', row[2] or "")))
        expect(key not in found, f"twice: {line}")
        found[key] = float(row[3])
    return found


def test_preflight_textfile():
    path = os.path.join(shared.FOLDER, "gigabar.prom")
    outcome = run("preflight", "--textfile", path, "--format", "npd", "--budget", "60", **TWO)
    expect(outcome.status == 0, "two stand-ins", outcome)
    with open(path, encoding="utf-8") as file:
        found = metrics_of(file.read())
    expect(found["verdict", frozenset({("verdict", "fit")})] == 1 and found["verdict", frozenset({("verdict", "unfit")})] == 0, "verdict")
    rate = found["path_bytes_per_second", frozenset({("path", "gpu0->gpu1"), ("gpu", "0 1")})]
    expect(rate > 1e6 and found["stand_in", frozenset()] == 1 and found["duration_seconds", frozenset()] > 0, f"{rate}")
    expect(found["time_seconds", frozenset()] > 1.7e9, "the time of the run")
    expect(not [key for key in found if key[0] == "problem"], "problems of fit devices")
    outcome = run("preflight", "--textfile", path, "--require", "host->gpu>=99999GB/s, nics>=77", "--budget", "60", **TWO)
    expect(outcome.status in (1, 3), "more than there is", outcome)
    with open(path, encoding="utf-8") as file:
        found = metrics_of(file.read())
    labels = frozenset({("check", ""), ("gpu", "0"), ("nic", ""), ("path", "host->gpu0")})
    expect(found["problem", labels] in (1, 2), f"problem: {sorted(map(str, found))}")
    expect(found["check_state", frozenset({("check", "nics>=77")})] == 1, "a requirement")


def test_preflight_page_is_true():
    """The commands of docs/operations.md run, its metrics are all there are, its terms are taken."""
    with open(PAGE, encoding="utf-8") as file:
        page = file.read().split("\n## The slow part of a job\n")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    expect(len(blocks) == 1, "a block that nobody runs")
    surveyed(lambda figure: figure.update(passes=1))  # whose noise is not known, so that no load of this machine matters
    for line, status in zip(blocks[0].splitlines(), (0, 1, 0), strict=True):
        words = shlex.split(line)
        expect(words[0] == "gigabar", line)
        outcome = run(*words[1:], "--budget", "60", **TWO)
        expect(outcome.status == status, line, outcome)
    with open(os.path.join(shared.FOLDER, "gigabar.prom"), encoding="utf-8") as file:
        families = set(re.findall(r"^# TYPE (\S+) gauge$", file.read(), re.MULTILINE))
    named = set(re.findall(r"`(gigabar_preflight_[a-z_]+)`", page.split("## Metrics")[1].split("Alert on")[0]))
    expect(families == named, f"metrics: {families ^ named}")
    terms = page.split("## What a job needs")[1].split("##")[0]
    for row in re.findall(r"^\| (`.*?) \|", terms, re.MULTILINE):
        for term in re.findall(r"`([^`]+)`", row):
            outcome = run("preflight", "--sysroot", healthy(), "--require", term)
            expect(outcome.status in EXIT.values(), f"term {term}", outcome)


def healthy():
    path = os.path.join(shared.FOLDER, "healthy.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(constructed.build("hgx_h200").to_json())
    return path


def burn(_):
    while True:
        pass


def test_preflight_tells_a_loaded_path_from_a_broken_one():
    """The CPUs carry a stand-in's bytes; others that keep them busy are the reason why a rate is missed."""
    burners = [multiprocessing.Process(target=burn, args=(None,), daemon=True) for _ in range(os.cpu_count())]
    for burner in burners:
        burner.start()
    try:
        document, outcome = document_of("--require", "host->gpu>=99999GB/s", "--budget", "60", **TWO)
    finally:
        for burner in burners:
            burner.kill()
            burner.join()
    expect(document["verdict"] == "unknown", "a loaded path is called broken", outcome)
    for path in items(document, kind="path", state="unknown"):
        expect(path["name"].startswith("host->gpu") and "other processes keep the CPUs" in path["load"], f"{path}")
    expect("other work uses the path" in document["line"] and "99999" in document["line"], "the reason", outcome)


def surveyed(change):
    """A survey of two stand-ins, each rate changed, and where it is."""
    path = os.path.join(shared.FOLDER, "survey.json")
    outcome = run("survey", "--json", path, "--no-probes", "--budget", "2", **TWO)
    expect(outcome.status == 0, "survey", outcome)
    with open(path, encoding="utf-8") as file:
        survey = json.load(file)
    for figure in survey["results"]:
        if figure["unit"] == "GB/s" and "value" in figure:
            change(figure)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(survey, file)
    return path, survey


def test_preflight_holds_rates_against_a_baseline():
    path, survey = surveyed(lambda figure: figure.update(min=0.0, passes=3))  # wide enough for a machine that does other work beside
    document, outcome = document_of("--baseline", path, "--budget", "60", **TWO)
    expect(document["verdict"] == "fit", "its own baseline", outcome)
    survey["results"] = [{"key": "gpu1->host alone", "unit": "GB/s", "value": 1e6, "min": 0.99e6, "max": 1e6, "samples": [1e6], "passes": 3}]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(survey, file)
    document, outcome = document_of("--baseline", path, "--budget", "60", **TWO)
    bad = [path["name"] for path in items(document, kind="path") if path["state"] != "fit"]
    expect(bad == ["gpu1->host"] and "the baseline has 1000000.0 GB/s" in document["line"], "another baseline", outcome)


def test_preflight_refuses_what_it_cannot_follow():
    for wrong, column, words in (("nvlnik>=18", 1, "nvlink"), ("gdr, host->gpu>=1.5", 5, "GB/s"), ("gdr,,p2p", 5, "empty"),
                                 ("pci.acs>=2", 1, "no number"), ("host->gpu", 1, "needs a number"), ("gpus>=many", 1, "many"),
                                 ("gpus>=1.5", 1, "whole number"), ("pci.acx", 1, "pci.acs"), (" ", 1, "empty")):
        expect_refusal(run("preflight", "--require", wrong), 2, f"--require:{column}", words)
    expect_refusal(run("preflight", "--ignore", "lim,drv.loadedx"), 2, "--ignore", "'drv.loadedx'", "near ones are drv.loaded, ")
    expect_refusal(run("preflight", "--budget", "0"), 2, "--budget", "seconds")
    expect_refusal(run("preflight", "--baseline", "/nonexistent.json"), 2, "/nonexistent.json", "cannot be opened")
    expect_refusal(run("preflight", "--format", "xml"), 2, "--format", "xml", "npd")
    expect_refusal(run("preflight", "--sysroot", "/nonexistent"), 2, "--sysroot", "/nonexistent")
    expect_refusal(run("preflight", "--format", "json", "--json", os.path.join(shared.FOLDER, "x")), 2, "--json", "--format json")


def test_preflight_stays_fit():
    """No alarm without a fault."""
    for _ in range(8):
        outcome = run("preflight", "--format", "npd", "--budget", "60", **TWO)
        expect(outcome.status == 0 and outcome.out.startswith("fit: 2 GPUs, verified bytes on 6 paths"), "a healthy node", outcome)


# ---- planted faults, each on a machine that has no other ----


def with_server(change=lambda server: None, then=lambda machine: None, **options):
    """The small server; `change` is made to its parts, `then` to its files and answers."""
    server = SmallServer("planted", "A server with a planted fault.", **options)
    change(server)
    machine = server.machine.finish()
    then(machine)
    return machine


def answer(index=0, **values):
    return lambda machine: machine.answers["gpus"][index].update(values)


def port_of(machine, name=NEAR):
    return next(path[:-len("/state")] for path in machine.files if path.endswith(f"/infiniband/{name}/ports/1/state"))


def in_port(name=NEAR, **files):
    def then(machine):
        for key, value in files.items():
            machine.file(f"{port_of(machine, name)}/{key.replace('__', '/')}", value)
    return then


def on_hgx(index, change):
    machine = constructed.build("hgx_h200")
    change(machine, machine.answers["gpus"][index])
    return machine


def one_link_down(machine, of_gpu):
    of_gpu["nvlinks"][7] = {"is_active": False, "is_switch": False, "remote_pci": "", "mb_per_s": 0}


def parameter(name, value):
    def then(machine):
        path = "/proc/driver/nvidia/params"
        machine.file(path, re.sub(rf"^{name}: .*$", f"{name}: {value}", machine.files[path], flags=re.MULTILINE))
    return then


def slow_governor(machine):
    governors = [path for path in machine.files if path.endswith("/scaling_governor")]
    machine.file(governors[5], "powersave")


def log(*lines):
    return lambda machine: host.kernel_log(machine, *machine.answers["kernel_log"], *lines)


def roce(**options):
    """A far adapter of RoCE in place of the one of InfiniBand."""
    server = SmallServer("planted", "A server with a planted fault.")
    machine = server.machine
    bridge = pci.HostBridge(machine, "0000:b7", 1)
    root = bridge.root_port("0000:b7:02.0", pci.INTEL_ICE_LAKE_PORT, driver="pcieport", acs=0)
    nic.ConnectX(root, "0000:b8:00.0", nic.CONNECTX_6, 200, is_roce=True, **options)
    pci.give_iommu(machine, "identity")
    return machine.finish()


def half_width(server):
    server.gpu.width = server.above_gpu.width = 8
    server.machine.answers["gpus"][0]["pcie_width"] = 8


def half_speed(server):
    server.far_nic.pci.speed = server.far_root.speed = 8.0


def redirect(server):
    server.above_gpu.acs = config_space.ACS_SOURCE_VALIDATION | config_space.ACS_REQUEST_REDIRECT | config_space.ACS_COMPLETION_REDIRECT


def no_registration(machine):
    """Neither peermem nor dma-buf."""
    for path in ("/sys/module/nvidia_peermem", "/sys/kernel/mm/memory_peers"):
        machine.remove(path)
    machine.answers["verbs_has_dmabuf"] = False


# Name -> the machine, the check that sees it, the device that the answer has to name, and what has to be asked for it to be unfit:
# nothing where data or a path is lost, --strict where the path is only slower or less than it could be.
FAULTS = {
    "GPU off the bus": (lambda: constructed.build("fallen_gpu"), "drv.gpus", GPU, ""),
    "stale node of nvidia-uvm": (lambda: constructed.build("stale_uvm"), "drv.loaded", "/dev/nvidia-uvm", ""),
    "nodes that the container may not open": (lambda: constructed.build("refused_nodes"), "drv.loaded", "/dev/nvidia", ""),
    "node of gdrdrv with another number": (lambda: constructed.build("stale_gdrdrv"), "mod.gdrdrv", "/dev/gdrdrv", "--strict"),
    "folder in the place of gdrdrv": (lambda: constructed.build("gdrdrv_folder"), "mod.gdrdrv", "/dev/gdrdrv", "--strict"),
    "container without InfiniBand": (lambda: constructed.build("container_no_infiniband"), "rdma.dev", NEAR, ""),
    "ACS redirection": (lambda: with_server(redirect), "pci.acs", "0000:18:00.0", ""),
    "IOMMU that translates": (lambda: constructed.build("iommu_translating"), "iommu.mode", "DMA-FQ", ""),
    "GPU on half its lanes": (lambda: with_server(half_width), "pci.link", GPU, ""),
    "adapter at half its speed": (lambda: with_server(half_speed), "pci.link", FAR, "--strict"),
    "memory row to be remapped": (lambda: with_server(then=answer(is_row_remap_pending=True)), "gpu.ecc", GPU, ""),
    "memory row that could not be remapped": (lambda: with_server(then=answer(has_row_remap_failed=True)), "gpu.ecc", GPU, ""),
    "page to be retired": (lambda: with_server(then=answer(is_page_retirement_pending=True)), "gpu.ecc", GPU, ""),
    "heat": (lambda: with_server(then=answer(clocks_event_reasons=0x60)), "gpu.throttle", GPU, "--strict"),
    "power brake": (lambda: with_server(then=answer(clocks_event_reasons=0x80)), "gpu.throttle", GPU, "--strict"),
    "BAR1 nearly full": (lambda: with_server(then=answer(bar1_used_bytes=128 * pci.GIB - 96 * pci.MIB)), "bar1.used", GPU, "--strict"),
    "MIG left on": (lambda: with_server(then=answer(is_mig_enabled=True)), "gpu.mig", GPU, "--strict"),
    "no persistence": (lambda: with_server(then=answer(is_persistence_enabled=False)), "gpu.persist", GPU, "--strict"),
    "GPU without GPUDirect RDMA": (lambda: with_server(then=lambda machine: machine.answers["gpus"][0]["cuda_attributes"].update(
        gpu_direct_rdma=0)), "gpu.rdma", GPU, ""),
    "NIC down": (lambda: with_server(then=in_port(state="1: DOWN", phys_state="3: Disabled")), "rdma.port", NEAR, "--strict"),
    "port without a subnet manager": (lambda: with_server(then=in_port(state="2: INIT")), "rdma.port", NEAR, ""),
    "limited member of the partition": (lambda: constructed.build("limited_member"), "rdma.port", NEAR, "--strict"),
    "MTU too small": (lambda: roce(mtu=1500, active_mtu=1024), "rdma.mtu", "mlx5_2", "--strict"),
    "link-local addresses only": (lambda: roce(has_address=False), "rdma.gid", "mlx5_2", "--strict"),
    "no congestion control": (lambda: roce(has_ecn=False), "rdma.qos", "mlx5_2", "--strict"),
    "small read requests": (lambda: roce(mrrs_bytes=512), "pci.mps", "mlx5_2", "--strict"),
    "memlock": (lambda: with_server(can_lock_memory=False, memlock_bytes=64 << 10), "lim.memlock", "64 KiB", ""),
    "one slow CPU": (lambda: with_server(then=slow_governor), "cpu.governor", "powersave", "--strict"),
    "automatic NUMA balancing": (lambda: with_server(then=lambda machine: machine.file("/proc/sys/kernel/numa_balancing", "1")),
                                 "numa.balance", "numa_balancing", "--strict"),
    "no way to register GPU memory": (lambda: with_server(then=no_registration), "mod.peermem", "nvidia-peermem", ""),
    "module of another OFED": (lambda: with_server(then=log("nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client")),
                               "mod.peermem.dmesg", "nvidia_peermem", ""),
    "driver told to deny": (lambda: with_server(then=parameter("GrdmaPciTopoCheckOverride", "2")), "mod.params", "GrdmaPciTopoCheckOverride", ""),
    "NVLinks switched off": (lambda: with_server(then=parameter("NvLinkDisable", "1")), "mod.params", "NvLinkDisable", "--strict"),
    "fabric that is not set up": (lambda: on_hgx(3, lambda _, of_gpu: of_gpu.update(fabric_state="in_progress")), "nvlink", "0000:5b:00.0", ""),
    "one NVLink down": (lambda: on_hgx(5, one_link_down), "nvlink", "0000:ba:00.0", ""),
    "GPU without peer access": (lambda: on_hgx(0, lambda machine, _: machine.answers["peers"][0].update(
        can_access=False, read="topology_not_supported", write="topology_not_supported")), "gpu.p2p", "0000:18:00.0", "--strict"),
    "closed driver": (lambda: with_server(then=lambda machine: machine.file(
        "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025")),
        "drv.flavour", "580.95.05", "--strict"),
    "kernel without dma-bufs that move": (lambda: with_server(then=lambda machine: machine.file(
        "/boot/config-6.8.0-79-generic", machine.files["/boot/config-6.8.0-79-generic"].replace(
            "CONFIG_DMABUF_MOVE_NOTIFY=y", "# CONFIG_DMABUF_MOVE_NOTIFY is not set"))), "kern.dmabuf", "CONFIG_DMABUF_MOVE_NOTIFY", ""),
    "symbol errors on the cable": (lambda: with_server(then=in_port(counters__symbol_error="4711")), "rdma.counters", NEAR, "--strict"),
    "adapter without its library": (lambda: with_server(then=lambda machine: machine.answers.update(rdma_devices=[])), "libs", "mlx5", ""),
}


def test_preflight_faults_are_many():
    expect(len(FAULTS) >= 40, f"{len(FAULTS)} faults")


def planted(half):
    """Half of the faults: each is unfit by its check, and the answer or its item names the device."""
    failed = []
    for name, (build, check, device, option) in list(FAULTS.items())[half::2]:
        document, outcome = captured(build(), *option.split())
        found = [item for item in items(document, kind="check", state="unfit") if item["name"] == check]
        text = json.dumps(found)
        if document["verdict"] != "unfit" or not found or device not in text:
            failed.append(f"{name}: {document['line']}; {check}: {text[:600]}")
        elif not all(item["remedy"] for item in found):
            failed.append(f"{name}: no remedy: {text[:300]}")
        if option:  # by itself it is no reason to keep a job away
            document, outcome = captured(build())
            if any(item["name"] == check and item["state"] != "fit" for item in document["results"]):
                failed.append(f"{name}: unfit without {option}: {document['line']}")
    expect(not failed, "\n".join(failed))


def test_preflight_sees_planted_faults():
    planted(0)


def test_preflight_sees_the_other_planted_faults():
    planted(1)


def test_preflight_sees_no_fault_where_none_is():
    for machine in (constructed.build("hgx_h200"), with_server(), roce(), constructed.build("no_gpu")):
        document, outcome = captured(machine)
        expect(document["verdict"] == "fit", machine.remark, outcome)


def test_preflight_requirements_of_a_captured_machine():
    hgx = constructed.build("hgx_h200")
    document, outcome = captured(hgx, "--require", "nvlink>=18, gdr, gpus>=8, nics>=8, pci.acs, p2p, rdma")
    expect(document["verdict"] == "fit" and len(items(document, kind="requirement", state="fit")) == 7, "what it has", outcome)
    document, outcome = captured(hgx, "--require", "host->gpu>=0.8")
    expect(document["verdict"] == "unknown" and "no such path was measured" in document["line"], "a rate", outcome)
    document, outcome = captured(on_hgx(5, one_link_down), "--require", "nvlink>=18", "--ignore", "nvlink")
    expect(document["verdict"] == "unfit" and "GPU 0000:ba:00.0: nvlink>=18: 17 of 18" in document["line"], "one link less", outcome)
    document, outcome = captured(on_hgx(5, one_link_down), "--ignore", "nvlink")
    expect(document["verdict"] == "fit", "--ignore", outcome)
    document, outcome = captured(with_server(), "--require", "gpus>=2,nvlink>=4,imex")
    states = {item["name"]: item["state"] for item in items(document, kind="requirement")}
    expect(states == {"gpus>=2": "unfit", "nvlink>=4": "unfit", "imex": "unfit"}, f"{states}", outcome)
    document, outcome = captured(constructed.build("unprivileged"), "--ignore", "lim.memlock")
    expect(document["verdict"] == "unknown" and document["summary"]["UNKNOWN"] > 0, "what an ordinary user cannot read", outcome)


CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    shared.CASES = CASES
    sys.exit(shared.main())
