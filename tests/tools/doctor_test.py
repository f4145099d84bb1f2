#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar doctor` and `gigabar explain` on constructed machines and on this one. Options and exit status as
command_line_test.py.
"""

import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import command_line_test as shared
from command_line_test import all_shown, expect, expect_header, expect_refusal, run, run_json
from machine_files import equal_nics, two_sockets, without_devices
from topology_test import HOSTILE, archive, expect_plain

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "doctor.md")
ORDER = ["FAIL", "WARN", "UNKNOWN", "PASS", "SKIP"]
HEAD = r"^(FAIL|WARN|UNKNOWN|PASS|SKIP) +([a-z0-9_.]+)(?:: |$)"


def doctor(machine, *arguments, **variables):
    return run("doctor", "--sysroot", archive(machine), *arguments, **variables)


def doctor_json(machine, *arguments):
    """The document, whatever the verdicts are."""
    path = os.path.join(shared.FOLDER, "doctor.json")
    outcome = doctor(machine, *arguments, "--json", path)
    expect(outcome.status in (0, 1), "doctor did not run", outcome)
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    expect_header(document, "doctor")
    return document, outcome


def with_port(state):
    machine = without_devices()
    machine.pci("0000:3a:00.0", buses=(0x3a, 0x3b, 0x3b))
    machine.nic("0000:3b:00.0", ("0000:3a:00.0",), state=state)
    return machine


def with_governor(name):
    machine = without_devices()
    for cpu in range(2):
        machine.file(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", name)
    return machine


def listed():
    """Id -> title, from --list."""
    outcome = run("doctor", "--list")
    expect(outcome.status == 0, "--list", outcome)
    rows = [line.split(None, 1) for line in outcome.out.splitlines()[1:]]
    checks = {name: title.removesuffix(" (a probe: does something, and only on this machine)") for name, title in rows}
    expect(len(checks) == len(rows) > 30, "few checks, or an id twice", outcome)
    return checks


def heads(outcome):
    return re.findall(HEAD, outcome.out, re.MULTILINE)


# ---- verdicts and exit status ----


def test_doctor_fail_is_status_1():
    outcome = doctor(with_port("1: DOWN"), "--only", "rdma.port")
    expect(outcome.status == 1 and heads(outcome) == [("FAIL", "rdma.port")], "a port that is down", outcome)
    block = outcome.out[outcome.out.index("FAIL "):]
    expect("mlx5_0" in block.splitlines()[0], "no subject", outcome)
    expect(re.search(r"^  read +/sys/\S+/ports/1/state = .*DOWN", block, re.MULTILINE), "no reading", outcome)
    for name in ("why", "remedy"):
        expect(re.search(rf"^  {name} +\S", block, re.MULTILINE), f"no {name}", outcome)
    expect(re.search(r"^1 check: 1 FAIL, 0 WARN, 0 UNKNOWN, 0 PASS, 0 SKIP$", outcome.out, re.MULTILINE), "no summary", outcome)


def test_doctor_pass_is_status_0():
    outcome = doctor(with_port("4: ACTIVE"), "--only", "rdma.port")
    expect(outcome.status == 0 and not heads(outcome), "a port that is up", outcome)
    expect("1 check: 0 FAIL, 0 WARN, 0 UNKNOWN, 1 PASS, 0 SKIP" in outcome.out, "no summary", outcome)
    outcome = doctor(with_port("4: ACTIVE"), "--only", "rdma.port", "--all")
    expect(outcome.status == 0 and heads(outcome) == [("PASS", "rdma.port")], "--all", outcome)
    expect("  read" not in outcome.out, "a block instead of a line", outcome)
    outcome = doctor(with_port("4: ACTIVE"), "--only", "rdma.port", "--verbose")
    expect(heads(outcome) == [("PASS", "rdma.port")] and re.search(r"/ports/1/state = .*ACTIVE", outcome.out), "--verbose", outcome)


def with_driver():
    """The driver is loaded; its nodes are there, with their right numbers, and open."""
    machine = two_sockets()
    machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build")
    machine.file("/proc/devices", "Character devices:\n 10 misc\n195 nvidia\n510 nvidia-uvm")
    for address in ("0000:3d:00.0", "0000:3e:00.0", "0000:bc:00.0"):
        machine.file(f"/proc/driver/nvidia/gpus/{address}/information", "Bus Type: \t PCIe")
    for name, major, minor in (("nvidiactl", 195, 255), ("nvidia0", 195, 0), ("nvidia-uvm", 510, 0)):
        machine.devices[f"/dev/{name}"] = {"mode": 0o666, "major": major, "minor": minor, "can_read": True, "can_write": True,
                                           "open_errno": 0}
    return machine


def test_doctor_nodes_that_are_there_and_do_not_work():
    outcome = doctor(with_driver(), "--only", "drv.loaded")
    expect(outcome.status == 0 and not heads(outcome), "nodes that work", outcome)
    for change, words in (({"major": 511}, "is stale"), ({"open_errno": errno.EPERM}, "cannot be opened (EPERM)")):
        machine = with_driver()
        machine.devices["/dev/nvidia-uvm"].update(change)
        outcome = doctor(machine, "--only", "drv.loaded")
        expect(outcome.status == 1 and heads(outcome) == [("FAIL", "drv.loaded")] and words in outcome.out, f"{change}", outcome)
    machine = with_driver()
    del machine.devices["/dev/nvidia0"]
    machine.folders.append("/dev/nvidia0")
    outcome = doctor(machine, "--only", "drv.loaded")
    expect(outcome.status == 1 and "/dev/nvidia0 is a folder, not a device" in outcome.out, "a folder", outcome)


def test_doctor_gpu_that_fell_off_the_bus():
    for line in ("NVRM: GPU at PCI:0000:3d:00: GPU has fallen off the bus", "NVRM: Xid (PCI:0000:3d:00): 79, pid=1"):
        machine = with_driver()
        machine.answers["kernel_log"] = [line]
        outcome = doctor(machine, "--only", "drv.gpus")
        expect(outcome.status == 1 and heads(outcome) == [("FAIL", "drv.gpus")], line, outcome)
        expect("GPU 0000:3d:00.0" in outcome.out, "it is not named", outcome)


def test_doctor_strict():
    machine = with_governor("powersave")
    outcome = doctor(machine, "--only", "cpu.governor")
    expect(outcome.status == 0 and heads(outcome) == [("WARN", "cpu.governor")], "a warning", outcome)
    expect(doctor(machine, "--only", "cpu.governor", "--strict").status == 1, "--strict does not count a warning")
    outcome = doctor(with_governor("performance"), "--only", "cpu.governor", "--strict")
    expect(outcome.status == 0, "--strict fails without reason", outcome)


def test_doctor_strict_counts_unknown():
    machine = two_sockets()
    document, _ = doctor_json(machine)
    unknown = [one["check"] for one in document["results"] if one["verdict"] == "UNKNOWN"]
    alone = [name for name in unknown
             if all(one["verdict"] in ("UNKNOWN", "PASS", "SKIP") for one in document["results"] if one["check"] == name)]
    expect(alone, f"nothing is unknown of a machine that tells little: {document['summary']}")
    expect(doctor(machine, "--only", alone[0]).status == 0, f"{alone[0]}: UNKNOWN is a failure")
    expect(doctor(machine, "--only", alone[0], "--strict").status == 1, f"{alone[0]}: --strict does not count UNKNOWN")


def test_doctor_whole():
    document, outcome = doctor_json(two_sockets(), "--all")
    verdicts = [verdict for verdict, _ in heads(outcome)]
    expect(verdicts == sorted(verdicts, key=ORDER.index), f"the order is {verdicts}", outcome)
    expect(len(verdicts) == len(document["results"]), "findings are missing", outcome)
    checks = listed()
    for one in document["results"]:
        expect(one["check"] in checks and one["title"] == checks[one["check"]], f"{one}")
        expect(one["verdict"] in ORDER and one["statement"], f"{one}")
        expect(one["verdict"] in ("PASS", "SKIP") or one["remedy"], f"no remedy: {one}")
        expect(isinstance(one["needs_reboot"], bool) and one["why"], f"{one}")
        expect(all(reading["source"] and isinstance(reading["value"], str) for reading in one["readings"]), f"{one}")
    summary = document["summary"]
    expect({one["check"] for one in document["results"]} == set(checks), "not every check has a finding")
    for verdict in ORDER:
        expect(summary[verdict] == verdicts.count(verdict), f"{verdict}: {summary}")
        expect(f"{summary[verdict]} {verdict}" in outcome.out.splitlines()[-1], "the summary", outcome)
    expect(outcome.status == (1 if summary["FAIL"] else 0), "the exit status", outcome)
    nics = {one["gpu_address"]: one["nic"] for one in document["best_nics"]}
    expect(nics["0000:3d:00.0"] == "mlx5_0" and nics["0000:bc:00.0"] == "mlx5_2", f"{nics}")
    expect(re.search(r"^GPU2 0000:bc:00\.0: best NIC mlx5_2 \(PHB, at most \d+\.\d GB/s, by PCIe 4\.0 x8 at ", outcome.out,
                     re.MULTILINE), "no best NIC", outcome)


def test_doctor_deals_equally_near_nics():
    document, outcome = doctor_json(equal_nics(), "--only", "pci.topo", "--all")
    expect([one["nic"] for one in document["best_nics"]] == [f"mlx5_{gpu}" for gpu in range(4)], f"{document['best_nics']}")
    reason = "one of 2 equally near NICs, dealt by order of the GPUs"
    expect({one["reason"] for one in document["best_nics"]} == {reason}, f"{document['best_nics']}")
    expect(re.search(rf"^GPU3 \S+: best NIC mlx5_3 \(PIX, at most .*; {reason}\)$", outcome.out, re.MULTILINE), "no reason", outcome)
    subjects = " ".join(one["subject"] for one in document["results"])
    for gpu, nic in zip(document["best_nics"], range(4)):
        expect(f"GPU {gpu['gpu_address']} and mlx5_{nic}" in subjects, f"pci.topo looks at another NIC: {subjects}")


def test_doctor_probes_of_a_captured_machine_are_skipped():
    document, _ = doctor_json(two_sockets(), "--only", "probe")
    expect(document["results"] and all(one["verdict"] == "SKIP" for one in document["results"]), f"{document['results']}")
    document, _ = doctor_json(two_sockets(), "--no-probes")
    expect(not [one for one in document["results"] if one["check"].startswith("probe.")], "--no-probes runs probes")


def test_doctor_of_this_machine():
    outcome = run("doctor", "--no-probes")
    expect(outcome.status in (0, 1) and re.search(r"^\d+ checks.*: \d+ FAIL", outcome.out, re.MULTILINE), "this machine", outcome)
    expect("captured" not in outcome.out.splitlines()[0], "it is called captured", outcome)
    expect("\x1b" not in outcome.out and outcome.err == "", "colours in a pipe", outcome)


def test_doctor_origin_is_told():
    outcome = doctor(two_sockets(remark="constructed: it never ran"), "--only", "pci")
    lines = outcome.out.splitlines()
    expect(lines[0].startswith("captured machine, read from ") and lines[1] == "remark: constructed: it never ran", "", outcome)


def test_doctor_of_a_capture_is_that_of_the_machine():
    path = os.path.join(shared.FOLDER, "captured.tar")
    expect(run("topology", "--capture", path).status == 0, "capture")
    live, _ = run_doctor_json("--only", "pci,iommu,numa,rdma,kern")
    again, _ = run_doctor_json("--sysroot", path, "--only", "pci,iommu,numa,rdma,kern")
    tell = [[(one["check"], one["subject"], one["verdict"]) for one in document["results"]] for document in (live, again)]
    expect(tell[0] == tell[1], f"verdicts differ:\n{tell[0]}\n{tell[1]}")


def run_doctor_json(*arguments):
    outcome = run("doctor", "--json", "-", *arguments)
    expect(outcome.status in (0, 1), "doctor did not run", outcome)
    return json.loads(outcome.out), outcome


# ---- choosing ----


def test_doctor_list_and_documentation():
    checks = listed()
    with open(DOCS, encoding="utf-8") as file:
        rows = re.findall(r"^\| `([a-z0-9_.]+)` \| (.*) \|$", file.read(), re.MULTILINE)
    expect(dict(rows) == checks and [row[0] for row in rows] == list(checks),
           f"docs/doctor.md differs from --list: {sorted(set(rows) ^ set(checks.items()))}; write these rows:\n"
           + "\n".join(f"| `{name}` | {title} |" for name, title in checks.items()))


def test_doctor_only():
    document, _ = doctor_json(two_sockets(), "--only", "pci.link,numa", "--only", "rdma.port")
    ids = {one["check"] for one in document["results"]}
    expect({"pci.link", "rdma.port"} <= ids and all(name.split(".")[0] in ("pci", "numa", "rdma") for name in ids), f"{ids}")
    expect(not {"pci.acs", "rdma.mtu"} & ids, f"{ids}")
    outcome = doctor(two_sockets(), "--only", "pci.lnk")
    expect_refusal(outcome, 2, "--only", "pci.lnk", "pci.link")
    expect_refusal(doctor(two_sockets(), "--only", "colour"), 2, "colour")
    expect_refusal(run("doctor", "--only"), 2, "--only")
    expect_refusal(run("doctor", "--only", "pci", "--list"), 2, "--list", "--only")


def test_doctor_wrong_usage():
    expect_refusal(run("doctor", "--timeout", "0"), 2, "--timeout", "above 0")
    expect_refusal(run("doctor", "pci.link"), 2, "pci.link")
    for text in ("slow", ""):
        expect_refusal(run("doctor", "--symptom", text, "--only", "pci"), 2, "--symptom", "--only")


def test_doctor_without_time():
    outcome = doctor(two_sockets(), "--timeout", "0.000001")
    expect(outcome.status == 0 and set(heads(outcome)) and {verdict for verdict, _ in heads(outcome)} == {"UNKNOWN"}, "", outcome)


def test_doctor_symptom():
    text = "ibv_reg_mr fails: Couldn't allocate MR, errno 14 Bad address"
    outcome = doctor(two_sockets(), "--symptom", text)
    expect(outcome.status in (0, 1), "a symptom", outcome)
    expect(re.search(r"^symptom: .*14", outcome.out, re.MULTILINE), "which one it took for it is not told", outcome)
    document, _ = doctor_json(two_sockets(), "--symptom", text)
    wanted, seen = document["symptom"]["checks"], []
    for one in document["results"]:
        if one["check"] not in seen:
            seen.append(one["check"])
    expect(sorted(seen) == sorted(wanted) and seen == wanted, f"order: {seen}, not {wanted}")
    expect([name for _, name in heads(outcome)] == [one["check"] for one in document["results"]], "findings are missing", outcome)


def test_doctor_unknown_symptom_lists_the_known():
    outcome = doctor(two_sockets(), "--symptom", "xyzzy plugh")
    expect_refusal(outcome, 2, "--symptom", "xyzzy plugh")
    expect(re.search(r"^  1  \S", outcome.out, re.MULTILINE) and re.search(r"^ 10  \S", outcome.out, re.MULTILINE), "", outcome)


def test_doctor_symptom_without_text_lists():
    document, outcome = run_json("doctor", "--symptom")
    count = len(re.findall(r"^ *\d+  \S", outcome.out, re.MULTILINE))
    expect(count == len(document["results"]) >= 10 and "which one" not in outcome.out, "no list", outcome)
    checks = listed()
    for one in document["results"]:
        expect(one["checks"] and set(one["checks"]) <= set(checks), f"{one}")


BAD_ADDRESS = "UCX  ERROR ibv_reg_mr(address=0x7f724fa00000, length=4096, access=0xf) failed: Bad address"
PORT_ERROR = "NET/IB : mlx5_0:1 Got async event : port error"


def write(name, content):
    path = os.path.join(shared.FOLDER, name)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def ask_log(machine, content, *arguments, by_input=False):
    """The answer to a log, given as a file or on standard input."""
    path = write("program.log", content)
    if not by_input:
        return doctor(machine, "--symptom", "@" + path, *arguments)
    with open(path, "rb") as file:
        return run("doctor", "--sysroot", archive(machine), "--symptom", "-", *arguments, how={"stdin": file})


def test_doctor_symptom_of_a_log():
    line = "host-3:88:157 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via P2P/IPC nRanks 08\n"
    count = (1 << 20) // len(line)
    log = line * count + BAD_ADDRESS + "\r\n"
    for by_input in (False, True):
        outcome = ask_log(two_sockets(), log, by_input=by_input)
        expect(outcome.status in (0, 1), "a log", outcome)
        expect(f"symptom: {BAD_ADDRESS}\n" in outcome.out, "the telling line is not quoted", outcome)
        expect(re.search(rf"^  from .*UCX.* line {count + 1}$", outcome.out, re.MULTILINE), "the line's number", outcome)
        for name in ("means", "remedy"):
            expect(re.search(rf"^  {name} +\S", outcome.out, re.MULTILINE), f"no {name}", outcome)
        expect(heads(outcome)[0][1] == "mod.peermem", f"{heads(outcome)}", outcome)
        expect("NCCL INFO" not in outcome.out, "the log is repeated", outcome)


def test_doctor_symptom_quotes_several_lines():
    path = os.path.join(shared.FOLDER, "doctor.json")
    log = f"ncclSystemError: System call failed\n{BAD_ADDRESS}\nNVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n" * 50
    outcome = ask_log(two_sockets(), log, "--json", path)
    with open(path, encoding="utf-8") as file:
        symptom = json.load(file)["symptom"]
    expect(len(symptom["lines"]) == 3 and symptom["lines"][-1]["text"].startswith("ncclSystemError"), f"{symptom}", outcome)
    expect([one["line"] for one in symptom["lines"]] in ([2, 3, 1], [3, 2, 1]), f"{symptom}", outcome)
    expect({"mod.peermem", "drv.gpus"} <= set(symptom["checks"]), f"{symptom}", outcome)
    expect(all(one["means"] and one["remedy"] and one["program"] for one in symptom["lines"]), f"{symptom}", outcome)
    expect([name for _, name in heads(outcome)][0] == symptom["checks"][0], "the order", outcome)


def test_doctor_symptom_that_no_check_sees():
    text = "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device"
    outcome = doctor(two_sockets(), "--symptom", text, "--json", "-")
    document = json.loads(outcome.out)
    expect(outcome.status == 0 and document["results"] == [] and document["symptom"]["checks"] == [], "something was run", outcome)
    expect("/dev/shm" in document["symptom"]["lines"][0]["means"], "no cause", outcome)
    outcome = doctor(two_sockets(), "--symptom", text)
    expect(outcome.status == 0 and not heads(outcome), "something was run", outcome)
    expect("No check can see this cause" in outcome.out and "--shm-size" in outcome.out, "no answer", outcome)


def test_doctor_symptom_that_is_not_explained():
    outcome = doctor(with_port("4: ACTIVE"), "--symptom", PORT_ERROR)
    expect(outcome.status == 0, "nothing fails", outcome)
    end = outcome.out[outcome.out.index("The symptom is not explained."):]
    expect(re.search(r"Found nothing: .*rdma\.port", end), "the checks are not named", outcome)
    expect("It still means: The port lost its link." in end and "Try next: Look at cable" in end, "no way on", outcome)
    expect("other machine" in end and "gigabar doctor" in end, "no way on", outcome)
    outcome = doctor(with_port("1: DOWN"), "--symptom", PORT_ERROR)
    expect(outcome.status == 1 and "not explained" not in outcome.out, "a port that is down explains it", outcome)
    outcome = doctor(with_governor("powersave"), "--symptom", "Conflicting CPU frequency values detected: 1200.0 != 3700.0.")
    expect(outcome.status == 0 and heads(outcome) == [("WARN", "cpu.governor")], "a warning", outcome)
    expect("Only warnings were found." in outcome.out and "Try next: sudo cpupower" in outcome.out, "no way on", outcome)
    for state, is_explained in (("4: ACTIVE", False), ("1: DOWN", True)):
        document, _ = doctor_json(with_port(state), "--symptom", PORT_ERROR)
        expect(document["symptom"]["is_explained"] is is_explained, f"{state}: {document['symptom']}")


def test_doctor_symptom_hostile_text():
    hostile = b"\xff\xfe\x00" + HOSTILE.encode() + b"\x1b[2J\x07 " + BAD_ADDRESS.encode() + b" \x9b31m\r\n\x00\x80\n"
    for arguments in ((), ("--json", "-"), ("--verbose",)):
        outcome = ask_log(two_sockets(), hostile * 1000, *arguments)
        expect(outcome.status in (0, 1), f"{arguments}", outcome)
        expect_plain(outcome)
    outcome = doctor(two_sockets(), "--symptom", HOSTILE + "\x1b[2J plugh")
    expect_refusal(outcome, 2, "--symptom", "evil")
    expect_plain(outcome)
    for content in (bytes(range(256)) * 4096, b"\0" * (1 << 20), b"a" * (1 << 20), b"failed " * 150000):
        outcome = ask_log(two_sockets(), content)
        expect(outcome.status == 2, "something was recognised", outcome)
        expect_plain(outcome)


def test_doctor_symptom_without_content():
    expect_refusal(doctor(two_sockets(), "--symptom", ""), 2, "--symptom", "empty")
    expect_refusal(doctor(two_sockets(), "--symptom="), 2, "--symptom", "empty")
    outcome = run("doctor", "--symptom", "", "--help")
    expect(outcome.status == 0 and "--sysroot" in outcome.out, "no help", outcome)
    expect_refusal(doctor(two_sockets(), "--symptom", " \n\t"), 2, "--symptom", "empty")
    for by_input in (False, True):
        expect_refusal(ask_log(two_sockets(), "\n \0 \n", by_input=by_input), 2, "--symptom", "empty")
        expect_refusal(ask_log(two_sockets(), "", by_input=by_input), 2, "--symptom", "empty")
        expect_refusal(ask_log(two_sockets(), "a" * ((8 << 20) + 1), by_input=by_input), 2, "--symptom", "8 MiB", "tail -c")
    expect_refusal(doctor(two_sockets(), "--symptom", "@/no/such/log"), 2, "--symptom", "/no/such/log", "No such file")
    expect_refusal(doctor(two_sockets(), "--symptom", "@" + shared.FOLDER), 2, "--symptom", "directory")


def on_terminal(*arguments, text=b"", close=False):
    """The program with a terminal for all three streams; returns the exit status and what it showed."""
    leader, follower = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIGABAR_", "NO_COLOR"))}
    environment.update(HOME=shared.FOLDER, TERM="xterm", GIGABAR_STAND_IN="1")
    process = subprocess.Popen([shared.OPTIONS.program, *arguments], env=environment, cwd=shared.FOLDER, stdin=follower,
                               stdout=follower, stderr=follower, start_new_session=True)
    os.close(follower)
    os.write(leader, text + (b"\x04" if close else b""))
    shown = all_shown(leader)
    return process.wait(timeout=100), shown.decode(errors="replace")


def test_doctor_symptom_is_chosen_on_a_terminal():
    path = archive(two_sockets())
    status, shown = on_terminal("doctor", "--sysroot", path, "--symptom", text=b"no\n1\n")
    expect(status in (0, 1) and shown.count("which one") == 2 and "symptom: " in shown, f"status {status}\n{shown}")
    status, shown = on_terminal("doctor", "--sysroot", path, "--symptom", text=b"0\nx\n999\n1\n")
    expect(status == 2 and shown.count("which one") == 3 and "no number" in shown, f"status {status}\n{shown}")
    status, shown = on_terminal("doctor", "--sysroot", path, "--symptom", close=True)
    expect(status == 2 and "no number" in shown, f"status {status}\n{shown}")


def test_doctor_colours_on_a_terminal_only():
    path = archive(with_port("1: DOWN"))
    status, shown = on_terminal("doctor", "--sysroot", path, "--only", "rdma.port")
    expect(status == 1 and re.search(r"\x1b\[[0-9;]*mFAIL *\x1b\[0m rdma\.port", shown), f"status {status}\n{shown!r}")
    os.environ["NO_COLOR"] = "1"
    leader, follower = pty.openpty()
    process = subprocess.run([shared.OPTIONS.program, "doctor", "--sysroot", path, "--only", "rdma.port"], stdout=follower,
                             stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm"}, check=False, timeout=100)
    os.close(follower)
    shown = all_shown(leader)
    expect(process.returncode == 1 and b"\x1b" not in shown and b"FAIL" in shown, f"NO_COLOR is not followed: {shown!r}")


# ---- output ----


def test_doctor_json_on_standard_output():
    outcome = doctor(two_sockets(), "--json", "-")
    expect_header(json.loads(outcome.out), "doctor")
    expect(re.search(r"^\d+ checks", outcome.err, re.MULTILINE), "the text has not gone to standard error", outcome)


def test_doctor_hostile_names():
    machine = two_sockets(remark=HOSTILE)
    machine.answers["gpus"][0]["name"] = HOSTILE
    machine.file("/proc/cmdline", "iommu=" + HOSTILE)
    machine.file("/proc/driver/nvidia/version", HOSTILE)
    for arguments in ((), ("--verbose",), ("--json", "-")):
        outcome = doctor(machine, *arguments)
        expect(outcome.status in (0, 1), f"{arguments}", outcome)
        expect_plain(outcome)
    machine.nic("0000:db:00.1", ("0000:da:00.0",), node=1, rdma="mlx5\x1b[2J", netdev="eth\u009b9\r", state="1: DO\x07WN")
    folder = machine.write_folder(os.path.join(shared.FOLDER, "machine"))
    for arguments in ((), ("--verbose",), ("--json", "-")):
        outcome = run("doctor", "--sysroot", folder, *arguments)
        expect(outcome.status == 1, f"{arguments}", outcome)
        expect_plain(outcome)
        expect("mlx5?[2J" in outcome.out, "the name is not shown", outcome)


def test_doctor_bad_sysroot():
    text = two_sockets().text()
    for name, content in {"truncated.json": text[:len(text) // 2], "words.json": "no JSON", "empty.json": ""}.items():
        path = os.path.join(shared.FOLDER, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        outcome = run("doctor", "--sysroot", path)
        expect_refusal(outcome, 2, "--sysroot", name)
        expect(outcome.out == "", "something was shown", outcome)
    expect_refusal(run("doctor", "--sysroot", "/no/such/machine"), 2, "/no/such/machine")


def test_doctor_interrupt_is_status_130():
    path = archive(two_sockets())
    for delay in (0.02, 0.1, 0.3):
        process = subprocess.Popen([shared.OPTIONS.program, "doctor", "--sysroot", path], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        time.sleep(delay)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        expect(time.monotonic() - begin < 10, f"not ended at once\n{out}\n{err}")
        # Before it listens the signal ends it; when it was already done, nothing does.
        expect(process.returncode in (130, 0, 1, -signal.SIGINT), f"status {process.returncode}\n{out}\n{err}")
        expect((process.returncode == 130) == ("interrupted" in err), f"status {process.returncode}, and it says\n{err}")


def fill(follower):
    """The terminal takes nothing more until its leader is read; what is on its way there makes room once more."""
    descriptor = os.open(os.ttyname(follower), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    idle_count = 0
    while idle_count < 5:
        try:
            os.write(descriptor, b"x" * 256)
            idle_count = 0
        except BlockingIOError:
            idle_count += 1
            time.sleep(0.02)
    os.close(descriptor)


def is_listening(process):
    """It has a handler for SIGINT."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        (caught,) = re.findall(r"^SigCgt:\s+([0-9a-f]+)$", file.read(), re.MULTILINE)
    return int(caught, 16) >> (signal.SIGINT - 1) & 1 == 1


def test_doctor_interrupt_between_checks_is_status_130():
    """The signal comes while the name of a check waits to be shown; the next check is not begun."""
    leader, follower = pty.openpty()
    fill(follower)
    process = subprocess.Popen([shared.OPTIONS.program, "doctor", "--sysroot", archive(two_sockets())], stdout=subprocess.DEVNULL,
                               stderr=follower, env={**os.environ, "TERM": "xterm"},
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    os.close(follower)
    end = time.monotonic() + 60
    while not is_listening(process) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    shown = all_shown(leader).decode(errors="replace").lstrip("x")
    status = process.wait(timeout=60)
    expect(status == 130 and "interrupted" in shown, f"status {status}\n{shown}")


def test_doctor_help():
    outcome = run("doctor", "--help")
    expect(outcome.status == 0, "--help", outcome)
    for name in ("--sysroot", "--only", "--list", "--symptom", "--strict", "--no-probes", "--json", "--verbose", "--all", "--timeout",
                 "UNKNOWN", "130 interrupted"):
        expect(name in outcome.out, f"--help lacks {name}", outcome)


# ---- explain ----


def test_explain_every_check():
    for name, title in listed().items():
        outcome = run("explain", name)
        expect(outcome.status == 0 and outcome.err == "", f"explain {name}", outcome)
        expect(outcome.out.startswith(f"{name}: {title}\n"), "the title", outcome)
        for heading in ("What it is", "Impact", "How to confirm", "Remedy", "Source"):
            expect(re.search(rf"^{heading}\n  \S", outcome.out, re.MULTILINE), f"{name} lacks '{heading}'", outcome)
        for line in outcome.out.splitlines():
            expect(len(line) <= 100 or " " not in line.strip(), f"{name}: a line of {len(line)} columns", outcome)


def test_explain_unknown_check():
    expect_refusal(run("explain", "pci.asc"), 2, "pci.asc", "pci.acs")
    expect_refusal(run("explain", "acs"), 2, "'acs'", "near")
    expect_refusal(run("explain", "\x1b[2Jx"), 2, "?[2Jx")


def test_explain_lists():
    outcome = run("explain")
    expect(outcome.status == 0, "the list", outcome)
    for name, title in listed().items():
        expect(re.search(rf"^{re.escape(name)} +{re.escape(title)}$", outcome.out, re.MULTILINE), f"{name} is missing", outcome)


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
