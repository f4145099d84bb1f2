#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar topology` on constructed machines and on this one. Options and exit status as command_line_test.py.
"""

import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree

import command_line_test as shared
from command_line_test import expect, expect_header, expect_refusal, run, run_json
from machine_files import equal_nics, MachineFiles, two_sockets, without_devices

HOSTILE = "evil\x1b[31m\r<b>&\"'\\N\u202e\u009b2J"


def archive(machine, name="machine.json"):
    path = os.path.join(shared.FOLDER, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(machine.text())
    return path


def topology(machine, *arguments, **variables):
    return run("topology", "--sysroot", archive(machine), *arguments, **variables)


def topology_json(machine):
    document, outcome = run_json("topology", "--sysroot", archive(machine))
    return document, document["results"][0], outcome


def matrix_of(text):
    """Row label -> column label -> cell; and row label -> the words behind the cells."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.rstrip().endswith("nearest NIC"))
    labels = re.findall(r"(?:GPU|NIC)\d+", lines[start])
    cells, tails = {}, {}
    for line in lines[start + 1:]:
        words = line.split()
        if not words:
            break
        cells[words[0]] = dict(zip(labels, words[1:]))
        tails[words[0]] = words[1 + len(labels):]
    expect(list(cells) == labels, f"rows are not the columns:\n{text}")
    return cells, tails


def expect_plain(outcome):
    for text in (outcome.out, outcome.err):
        found = [hex(ord(letter)) for letter in text if letter != "\n" and (ord(letter) < 32 or 127 <= ord(letter) < 160
                                                                             or 0x202a <= ord(letter) <= 0x202e)]
        expect(not found, f"control characters {found}", outcome)


def with_dot(script):
    """A PATH on which `dot` is this shell script."""
    folder = os.path.join(shared.FOLDER, "bin")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "dot")
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + script + "\n")
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return folder + ":/usr/bin:/bin"


# ---- matrix ----


def test_topology_matrix():
    outcome = topology(two_sockets())
    expect(outcome.status == 0 and outcome.err == "", "a constructed machine", outcome)
    cells, tails = matrix_of(outcome.out)
    expect(list(cells) == ["GPU0", "GPU1", "GPU2", "NIC0", "NIC1", "NIC2", "NIC3"], f"{list(cells)}", outcome)
    wanted = {("GPU0", "GPU0"): "X", ("GPU0", "GPU1"): "PIX", ("GPU0", "NIC0"): "PIX", ("GPU1", "NIC1"): "PXB",
              ("GPU0", "GPU2"): "SYS", ("GPU2", "NIC2"): "PHB", ("GPU2", "NIC3"): "NODE", ("NIC0", "NIC1"): "PXB",
              ("GPU2", "NIC0"): "SYS", ("NIC2", "NIC3"): "NODE"}
    for (first, second), symbol in wanted.items():
        expect(cells[first][second] == symbol and cells[second][first] == symbol, f"{first} {second}: {cells[first][second]}", outcome)
    expect(tails["GPU0"] == ["0-3", "0", "NIC0"] and tails["GPU2"] == ["4-7", "1", "NIC2"], f"{tails}", outcome)
    expect(tails["NIC3"] == ["4-7", "1"], f"{tails}", outcome)


def test_topology_names_and_symbols():
    text = topology(two_sockets()).out
    expect(re.search(r"^NIC0: mlx5_0, eth0 at 0000:3f:00\.0, mlx5_core, port 1 ACTIVE Ethernet 200 Gb/s$", text, re.MULTILINE), text)
    expect(re.search(r"^GPU2: NVIDIA Test at 0000:bc:00\.0", text, re.MULTILINE), text)
    symbols = [line.split()[0] for line in text.splitlines() if re.match(r"(X|NV#|PIX|PXB|PHB|NODE|SYS|\?) ", line)]
    expect(symbols == ["X", "PIX", "PXB", "PHB", "NODE", "SYS"], f"symbols {symbols}\n{text}")
    expect(re.search(r"^NUMA node 1: CPUs 4-7, 64\.0 GiB of host memory on this node$", text, re.MULTILINE), text)


def test_topology_rates_and_bottlenecks():
    machine = two_sockets()
    text = topology(machine).out
    expect(re.search(r"^GPU2 - NIC2 +PHB +\d+\.\d +PCIe 4\.0 x8 at 0000:", text, re.MULTILINE), text)
    document = topology_json(machine)[1]
    rate = {(one["first"]["index"], one["second"]["index"]): one["gb_per_s"] for one in document["routes"]
            if (one["first"]["kind"], one["second"]["kind"]) == ("gpu", "nic")}
    expect(abs(rate[2, 2] - 15.75) < 0.1, f"x8 at 16 GT/s: {rate}")
    expect(24 < rate[0, 0] <= 31.6, f"200 Gb/s or x16 at 16 GT/s: {rate}")


def test_topology_many_pairs_are_summed_up():
    machine = MachineFiles([(0, 3)])
    for number in range(8):
        root = f"0000:{0x10 + 2 * number:02x}:00.0"
        bus = 0x11 + 2 * number
        machine.pci(root, buses=(bus - 1, bus, bus))
        machine.gpu(f"0000:{bus:02x}:00.0", (root,))
    text = topology(machine).out
    row = re.search(r"^GPU0 - GPU1 +NODE .* (\d+)$", text, re.MULTILINE)
    expect(row and row.group(1) == "28", f"28 pairs are not one row\n{text}")
    text = topology(machine, "--routes").out
    rows = [line for line in text.splitlines() if re.match(r"GPU\d - GPU\d ", line)]
    expect(len(rows) == 28, f"{len(rows)} rows\n{text}")
    expect(re.search(r"^GPU0 - GPU1 .* 0000:11:00\.0.*0000:13:00\.0", text, re.MULTILINE), text)


def test_topology_without_devices():
    outcome = topology(without_devices())
    expect(outcome.status == 0 and "no NVIDIA GPU" in outcome.out and "no NIC" in outcome.out, "nothing there", outcome)
    expect("NUMA node 0: CPUs 0-1" in outcome.out, "no NUMA node", outcome)
    outcome = topology(without_devices(), "--tree")
    expect(outcome.status == 0 and "no NVIDIA GPU" in outcome.out, "the tree of nothing", outcome)


def test_topology_of_this_machine():
    outcome = run("topology")
    expect(outcome.status == 0 and "NUMA node" in outcome.out, "this machine", outcome)
    parts = [line for line in outcome.out.splitlines() if not line.startswith("note: stand-in: GIGABAR_STAND_IN=1 ")]
    expect(len(parts) == len(outcome.out.splitlines()) - 1, "that there is a stand-in is not told once", outcome)
    expect("stand-in" not in "\n".join(parts) and "captured" not in outcome.out, "a stand-in is shown", outcome)
    document, _ = run_json("topology")
    expect(document["origin"]["is_live"] is True and document["results"][0]["what"] == "topology", "origin")


def test_topology_origin_is_told():
    outcome = topology(two_sockets(remark="constructed: it never ran"))
    lines = outcome.out.splitlines()
    expect(lines[0].startswith("captured machine, read from ") and "machine.json" in lines[0], "no origin", outcome)
    expect(lines[1] == "remark: constructed: it never ran", "no remark", outcome)


def with_nvswitches():
    """Two GPUs joined by 18 links each through NVSwitches, at two host bridges."""
    machine = MachineFiles([(0, 3)])
    link = {"is_active": True, "is_switch": True, "remote_pci": "", "mb_per_s": 26562}
    for number, root in enumerate(("0000:10:00.0", "0000:20:00.0")):
        bus = 0x11 + 0x10 * number
        machine.pci(root, buses=(bus - 1, bus, bus))
        machine.gpu(f"0000:{bus:02x}:00.0", (root,))
        machine.answers["gpus"][-1].update(nvlinks=[link] * 18, cuda_index=number)
    return machine


def test_topology_nvlinks():
    document, result, outcome = topology_json(with_nvswitches())
    cells, _ = matrix_of(outcome.out)
    expect(cells["GPU0"]["GPU1"] == cells["GPU1"]["GPU0"] == "NV18" and re.search(r"^NV# ", outcome.out, re.MULTILINE), "NV18", outcome)
    expect("GPU0: NVIDIA Test at 0000:11:00.0, CUDA 0, 18 of 18 NVLinks active" in outcome.out, "the name", outcome)
    bond = result["nvlinks"][0]
    expect(bond["count"] == 18 and bond["is_switched"] is True and abs(bond["gb_per_s"] - 18 * 26.562) < 0.1, f"{bond}")
    route = next(one for one in result["routes"] if one["relation"] == "nvlink")
    expect(route["symbol"] == "NV18" and route["nvlink_count"] == 18 and route["hops"] == [], f"{route}")
    expect(document["results"][0]["gpus"][1]["cuda_index"] == 1, f"{result['gpus']}")
    tree = topology(with_nvswitches(), "--tree").out
    expect("GPU0 - GPU1: 18 NVLinks through NVSwitches, 478.1 GB/s each way" in tree, tree)
    path = os.path.join(shared.FOLDER, "machine.svg")
    outcome = topology(with_nvswitches(), "--svg", path)
    expect(outcome.status == 0, "no drawing", outcome)
    text = "\n".join(xml.etree.ElementTree.parse(path).getroot().itertext())
    expect("NVSwitch" in text and text.count("NV18") == 2, text)
    # As a daemon starts it, with standard input closed: one of the files for 'dot' gets its number.
    os.remove(path)
    outcome = topology(with_nvswitches(), "--svg", path, how={"preexec_fn": lambda: os.close(0)})
    expect(outcome.status == 0 and "NVSwitch" in "".join(xml.etree.ElementTree.parse(path).getroot().itertext()), "the drawing", outcome)


# ---- tree ----


def test_topology_tree():
    outcome = topology(two_sockets(), "--tree")
    expect(outcome.status == 0, "the tree", outcome)
    lines = outcome.out.splitlines()

    def depth(word):
        found = [line for line in lines if word in line]
        expect(len(found) == 1, f"{len(found)} lines with '{word}'", outcome)
        return len(found[0]) - len(found[0].lstrip())

    chain = ["NUMA node 0", "root complex pci0000:3a", "0000:3a:01.0", "0000:3b:00.0", "0000:3c:00.0", "[GPU0] 0000:3d:00.0"]
    depths = [depth(word) for word in chain]
    expect(depths == sorted(set(depths)), f"depths {depths}", outcome)
    expect(depth("[GPU0]") == depth("[GPU1]") == depth("[NIC0]") < depth("[NIC1]"), "devices of one switch", outcome)
    expect(lines.index(next(line for line in lines if "NUMA node 1" in line))
           < lines.index(next(line for line in lines if "[GPU2]" in line)), "GPU2 is not below node 1", outcome)
    expect(re.search(r"\[NIC2\] 0000:bb:00\.0 .*PCIe 4\.0 x8 of PCIe 4\.0 x16, mlx5_2, eth2$", outcome.out, re.MULTILINE),
           "link and names", outcome)


def test_topology_tree_excludes_routes():
    expect_refusal(topology(two_sockets(), "--tree", "--routes"), 2, "--routes", "--tree")


# ---- equally near NICs ----


def test_topology_deals_equally_near_nics():
    for machine, wanted in ((equal_nics(), [0, 1, 2, 3]), (equal_nics(1, 2, 1), [0, 0]), (equal_nics(1, 2, 3), [0, 1]),
                            (equal_nics(1, 8, 4), [0, 1, 2, 3, 0, 1, 2, 3])):
        _, result, outcome = topology_json(machine)
        orders = result["nearest_nics"]
        expect([one["nics"][0] for one in orders] == wanted, f"{orders}")
        lines = re.findall(r"^GPU(\d+) should use NIC(\d+): (.*)$", outcome.out, re.MULTILINE)
        nics = len(result["nics"]) // (2 if len(wanted) == 4 else 1)
        reason = f"one of {nics} equally near NICs, dealt by order of the GPUs"
        expect(lines == ([(str(gpu), str(nic), reason) for gpu, nic in enumerate(wanted)] if nics > 1 else []), "reasons", outcome)
        for gpu, nic in enumerate(wanted):
            expect(re.search(rf"^GPU{gpu} .* NIC{nic} *$", outcome.out, re.MULTILINE), f"GPU{gpu} in the matrix", outcome)


# ---- JSON ----


def test_topology_json():
    document, result, _ = topology_json(two_sockets())
    expect(document["origin"]["is_live"] is False and document["origin"]["remark"], f"{document['origin']}")
    for node in result["pci"]:
        for key in ("vendor", "device", "class_code"):
            expect(isinstance(node[key], int), f"{key}: {node}")
        for key in ("gt_per_s", "width", "most_gt_per_s", "most_width"):
            expect(isinstance(node["link"][key], (int, float)), f"{key}: {node}")
        expect(isinstance(node["is_bridge"], bool), f"{node}")
        expect(node["parent"] is None or 0 <= node["parent"] < len(result["pci"]), f"{node}")
    expect(len(result["gpus"]) == 3 and len(result["nics"]) == 4 and len(result["numa_nodes"]) == 2, "counts")
    expect(result["numa_nodes"][1]["cpus"] == [4, 5, 6, 7], f"{result['numa_nodes']}")
    expect(result["numa_nodes"][0]["memory_bytes"] == 64 << 30, f"{result['numa_nodes']}")
    gpu, nic = result["gpus"][2], result["nics"][2]
    expect(result["pci"][gpu["pci"]]["address"] == gpu["address"] == "0000:bc:00.0" and gpu["numa_node"] == 1, f"{gpu}")
    expect(nic["rdma_device"] == "mlx5_2" and nic["rate_gbit_per_s"] == 200 and nic["ports"][0]["state"] == "ACTIVE", f"{nic}")
    expect(len(result["routes"]) == 7 * 6 // 2 + 3, f"{len(result['routes'])} routes")
    for route in result["routes"]:
        expect(route["gb_per_s"] is None or isinstance(route["gb_per_s"], float), f"{route}")
        expect(all(re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d", hop) for hop in route["hops"]), f"{route}")
    expect(result["nearest_nics"][2]["nics"][:2] == [2, 3], f"{result['nearest_nics']}")


def test_topology_json_on_standard_output():
    outcome = topology(two_sockets(), "--json", "-")
    expect_header(json.loads(outcome.out), "topology")
    expect("nearest NIC" in outcome.err, "the text has not gone to standard error", outcome)
    expect_refusal(topology(two_sockets(), "--json", "/no/such/folder/x.json"), 1, "--json", "No such file")


# ---- SVG ----


def test_topology_svg():
    machine = two_sockets()
    machine.answers["gpus"][0]["name"] = "NVIDIA " + HOSTILE
    path = os.path.join(shared.FOLDER, "machine.svg")
    outcome = topology(machine, "--svg", path)
    expect(outcome.status == 0 and f"drawn: {path}" in outcome.out, "no drawing", outcome)
    expect_plain(outcome)
    root = xml.etree.ElementTree.parse(path).getroot()
    expect(root.tag.endswith("}svg"), f"the root is {root.tag}")
    text = "\n".join(root.itertext())
    for name in ("GPU0", "GPU2", "NIC3", "mlx5_1", "NUMA node 1", "CPUs 4-7", "pci0000:3a", "PCIe 4.0 x8 of PCIe 4.0 x16",
                 "NVIDIA evil?[31m?<b>&\"'\\N?"):
        expect(name in text, f"the drawing lacks '{name}'\n{text}")
    expect(os.listdir(shared.FOLDER).count("machine.svg") == 1, "files are left")
    expect(not [name for name in os.listdir(shared.FOLDER) if name.endswith(".new")], "a temporary file is left")


def test_topology_svg_errors():
    machine = two_sockets()
    path = os.path.join(shared.FOLDER, "machine.svg")
    empty = os.path.join(shared.FOLDER, "empty")
    os.mkdir(empty)
    expect_refusal(topology(machine, "--svg", path, PATH=empty), 1, "dot", "apt install graphviz")
    expect_refusal(topology(machine, "--svg", path, PATH=with_dot("echo 'no fonts here' >&2; exit 3")), 1, path, "exit status 3",
                   "no fonts here")
    expect_refusal(topology(machine, "--svg", path, PATH=with_dot("exit 0")), 1, path, "wrote nothing")
    expect_refusal(topology(machine, "--svg", "/no/such/folder/x.svg"), 1, "--svg /no/such/folder/x.svg", "No such file")
    expect_refusal(topology(machine, "--svg", empty, PATH=with_dot("echo '<svg/>'")), 1, empty, "directory")
    expect_refusal(topology(machine, "--svg", "-"), 2, "--svg")
    left = [name for name in os.listdir(shared.FOLDER) if "svg" in name or name.endswith(".new")]
    expect(not left, f"left behind: {left}")


def test_topology_svg_where_ends_of_children_are_ignored():
    path, source = os.path.join(shared.FOLDER, "machine.svg"), archive(two_sockets())
    for script, status, word in (("echo '<svg/>'", 0, f"drawn: {path}"),
                                 ("echo 'no fonts here' >&2; exit 3", 1, "(exit status 3): no fonts here")):
        outcome = run("topology", "--sysroot", source, "--svg", path, how=shared.IGNORING_CHILDREN, PATH=with_dot(script))
        expect(outcome.status == status and word in outcome.out + outcome.err, f"{script}: not {word}", outcome)


def test_topology_svg_has_a_deadline():
    path = os.path.join(shared.FOLDER, "machine.svg")
    begin = time.monotonic()
    outcome = topology(two_sockets(), "--svg", path, "--svg-timeout", "0.5", PATH=with_dot("exec sleep 60"))
    expect_refusal(outcome, 1, "dot", "0.5 s")
    expect(time.monotonic() - begin < 20 and not os.path.exists(path), "it was waited for", outcome)


def test_topology_svg_of_a_machine_without_devices():
    path = os.path.join(shared.FOLDER, "machine.svg")
    outcome = topology(without_devices(), "--svg", path)
    expect(outcome.status == 0 and "NUMA node 0" in "\n".join(xml.etree.ElementTree.parse(path).getroot().itertext()), "", outcome)


# ---- capture ----


def test_topology_capture_is_read_again():
    path = os.path.join(shared.FOLDER, "captured.tar")
    outcome = run("topology", "--capture", path)
    expect(outcome.status == 0, "capture", outcome)
    size = os.path.getsize(path)
    expect(f"captured: {size} bytes in {path}" in outcome.out and re.search(r"\d+ files of /sys", outcome.out), "not told", outcome)
    expect("NUMA node" not in outcome.out, "more than the capture is shown", outcome)
    live = run("topology").out
    again = run("topology", "--sysroot", path)
    expect(again.status == 0, "the capture is not read", again)
    lines = [line for line in again.out.splitlines() if line and not line.startswith(("captured machine", "remark:", "note:"))]
    wanted = [line for line in live.splitlines() if line and not line.startswith("note:")]
    expect(lines == wanted, f"it is another machine\n{live}\n---\n{again}")


def test_topology_capture_is_a_tar_file():
    path = os.path.join(shared.FOLDER, "captured.tar")
    expect(run("topology", "--capture", path).status == 0, "capture")
    folder = os.path.join(shared.FOLDER, "unpacked")
    os.makedirs(folder)
    subprocess.run(["tar", "-C", folder, "-xf", path], check=True)
    with open("/proc/version", encoding="utf-8") as here, open(f"{folder}/proc/version", encoding="utf-8") as there:
        expect(here.read() == there.read(), "/proc/version is another")
    with open(f"{folder}/gigabar-machine.json", encoding="utf-8") as file:
        expect(json.load(file)["format"] == "gigabar-machine", "no document")
    with tarfile.open(path) as archive:
        names = archive.getnames()
    expect(names[-1] == "gigabar-machine.json" and "gigabar-answers.json" in names, f"{names[-3:]}")
    # As a folder, and packed anew by another program: the same machine.
    again = os.path.join(shared.FOLDER, "again.tar")
    subprocess.run(["tar", "-C", folder, "-cf", again, "."], check=True)
    shown = [[line for line in run("topology", "--sysroot", each).out.splitlines() if not line.startswith("captured machine")]
             for each in (path, folder, again)]
    expect(shown[0] == shown[1] == shown[2], "\n---\n".join("\n".join(lines) for lines in shown))


def test_topology_capture_errors():
    expect_refusal(run("topology", "--capture", "/no/such/folder/x.tar"), 1, "/no/such/folder/x.tar")
    expect_refusal(topology(two_sockets(), "--capture", "x.tar"), 2, "--capture", "--sysroot")


def test_topology_does_not_write_over_its_capture():
    path = os.path.join(shared.FOLDER, "kept.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(two_sockets().text())
    for option in ("--json", "--svg"):
        expect_refusal(run("topology", "--sysroot", path, option, path), 2, f"--sysroot and {option} name the same file")
    expect(run("topology", "--sysroot", path).status == 0, "the capture is gone")


# ---- what is not to be trusted ----


def test_topology_bad_sysroot():
    text = two_sockets().text()
    cases = {"truncated.json": text[:len(text) // 2], "words.json": "this is no JSON", "empty.json": "",
             "other.json": '{"format": "other", "version": 1}', "list.json": "[1, 2]"}
    for name, content in cases.items():
        path = os.path.join(shared.FOLDER, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        outcome = run("topology", "--sysroot", path)
        expect_refusal(outcome, 2, "--sysroot", name)
        expect(outcome.out == "", "something was shown", outcome)
    expect_refusal(run("topology", "--sysroot", "/no/such/machine"), 2, "--sysroot", "/no/such/machine")
    expect_refusal(run("topology", "--sysroot", ""), 2, "--sysroot", "empty")


def test_topology_hostile_names():
    machine = two_sockets(remark="remark " + HOSTILE)
    machine.answers["gpus"][0]["name"] = HOSTILE
    machine.nic("0000:db:00.1", ("0000:da:00.0",), node=1, rdma="mlx5_9", netdev="eth9", state="4: ACT\x07IVE\x9b2J")
    for arguments in ((), ("--tree",), ("--routes",)):
        outcome = topology(machine, *arguments)
        expect(outcome.status == 0, f"{arguments}", outcome)
        expect_plain(outcome)
        expect("evil?[31m" in outcome.out, "the name is not shown", outcome)
    outcome = topology(machine, "--json", "-")
    result = json.loads(outcome.out)["results"][0]
    expect_plain(outcome)
    expect(any(gpu["name"].startswith("evil?[31m") for gpu in result["gpus"]), f"{result['gpus']}")


def test_topology_hostile_names_in_a_folder():
    machine = two_sockets()
    machine.nic("0000:db:00.1", ("0000:da:00.0",), node=1, rdma="mlx5\x1b[2J", netdev="eth\u009b9\r")
    folder = machine.write_folder(os.path.join(shared.FOLDER, "machine"))
    for arguments in ((), ("--tree",), ("--routes",), ("--json", "-")):
        outcome = run("topology", "--sysroot", folder, *arguments)
        expect(outcome.status == 0, f"{arguments}", outcome)
        expect_plain(outcome)
        expect("mlx5?[2J" in outcome.out and "0000:db:00.1" in outcome.out, f"{arguments}: the name is not shown", outcome)


def test_topology_of_a_folder_is_that_of_the_archive():
    machine = two_sockets(remark="")
    folder = machine.write_folder(os.path.join(shared.FOLDER, "machine"))
    cells = [matrix_of(outcome.out) for outcome in (topology(machine), run("topology", "--sysroot", folder))]
    expect(cells[0] == cells[1], f"{cells[0]}\n{cells[1]}")


def test_topology_help():
    outcome = run("topology", "--help")
    expect(outcome.status == 0, "--help", outcome)
    for name in ("--sysroot", "--capture", "--tree", "--routes", "--json", "--svg", "Exit status"):
        expect(name in outcome.out, f"--help lacks {name}", outcome)


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
