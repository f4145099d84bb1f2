#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ready files in examples/preflight: their syntax, by the programs that read them, and what they do when a node is fit, unfit or
unknown, with `gigabar` on stand-in devices. Options and exit status as command_line_test.py.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import yaml

import command_line_test as shared
from command_line_test import Outcome, expect

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "preflight"
UNKNOWN = {"GIGABAR_HWLOC_LIBRARY": "/nonexistent/libhwloc.so.15"}  # makes a node unknown
PROLOG, NHC, DETECTOR, POD = (FOLDER / name for name in ("slurm-prolog.sh", "gigabar.nhc", "node-problem-detector.json", "init-container.yaml"))


def programs():
    """A folder with `gigabar`, and a `logger` that writes where the test can read it."""
    folder = os.path.join(shared.FOLDER, "programs")
    if not os.path.isdir(folder):
        os.mkdir(folder)
        os.symlink(os.path.abspath(shared.OPTIONS.program), os.path.join(folder, "gigabar"))
        with open(os.path.join(folder, "logger"), "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$@" >> {shared.FOLDER}/log\n')
        os.chmod(os.path.join(folder, "logger"), 0o755)
    return folder


def run(*command, **variables):
    environment = shared.environment(GIGABAR_STAND_IN="2", **variables)
    environment["PATH"] = programs() + ":" + environment["PATH"]
    return Outcome(subprocess.run(command, env=environment, cwd=shared.FOLDER, capture_output=True, text=True, timeout=170, check=False))


def test_preflight_shell_files_are_correct():
    for path, shell in ((PROLOG, "sh"), (NHC, "bash")):
        outcome = run(shell, "-n", str(path))
        expect(outcome.status == 0, f"{path.name}", outcome)
        if shutil.which("shellcheck"):  # says more than the shell itself, which is there everywhere
            outcome = run("shellcheck", "-s", shell, str(path))
            expect(outcome.status == 0, f"{path.name}: shellcheck", outcome)
    expect(os.access(PROLOG, os.X_OK), "the prolog cannot be executed")


def test_preflight_slurm_prolog():
    textfile = os.path.join(shared.FOLDER, "gigabar.prom")
    outcome = run(str(PROLOG), GIGABAR_TEXTFILE=textfile)
    expect(outcome.status == 0 and not os.path.exists(os.path.join(shared.FOLDER, "log")), "a fit node", outcome)
    with open(textfile, encoding="utf-8") as file:
        expect('gigabar_preflight_verdict{verdict="fit"} 1' in file.read(), "the metrics")
    outcome = run(str(PROLOG), GIGABAR_TEXTFILE=textfile, GIGABAR_REQUIRE="gpus>=8", SLURM_JOB_ID="4711", CUDA_VISIBLE_DEVICES="3")
    expect(outcome.status == 1, "an unfit node", outcome)
    with open(os.path.join(shared.FOLDER, "log"), encoding="utf-8") as file:
        logged = file.read()
    expect("job 4711: unfit: gpus>=8: 2 GPUs where 8 are required" in logged, f"logged: {logged}")
    for wrong in ({"GIGABAR_REQUIRE": "gpus>>8"}, {"GIGABAR_TEXTFILE": "/nonexistent/gigabar.prom"}):
        outcome = run(str(PROLOG), SLURM_JOB_ID="4712", **wrong)
        with open(os.path.join(shared.FOLDER, "log"), encoding="utf-8") as file:
            logged = file.read()
        expect(outcome.status == 0 and "job 4712: gigabar" in logged, f"{wrong} drains every node: {logged}", outcome)
        os.remove(os.path.join(shared.FOLDER, "log"))
    for written in ({}, {"GIGABAR_TEXTFILE": "/dev/full"}):
        outcome = run(str(PROLOG), **UNKNOWN, **written)
        expect(outcome.status == 0, f"an unknown node, {written}", outcome)


def test_preflight_node_health_check():
    # What NHC has: die() notes status and message. A check that returns is over.
    def script_of(before=""):
        return f'die() {{ echo "died $1: $2"; }}; {before} . {NHC}; check_gigabar_preflight "$@"; echo "returned $?"'

    script = script_of()
    outcome = run("bash", "-c", script, "nhc")
    expect(outcome.out == "returned 0\n" and outcome.err == "", "a fit node", outcome)
    outcome = run("bash", "-c", script, "nhc", "gpus>=8, nvlink>=18")
    expect("died 1: check_gigabar_preflight:  unfit: gpus>=8: " in outcome.out and outcome.out.endswith("returned 1\n"), "an unfit node", outcome)
    outcome = run("bash", "-c", script, "nhc", "gpus>>8")
    expect(outcome.out == "returned 0\n" and "--require" in outcome.err, "a term that nobody understands takes no node away", outcome)
    for before in ("", 'gigabar() { command gigabar "$@" --textfile /dev/full; };'):
        outcome = run("bash", "-c", script_of(before), "nhc", **UNKNOWN)
        expect(outcome.out == "returned 0\n", f"an unknown node, {before}", outcome)


def test_preflight_node_problem_detector():
    document = json.loads(DETECTOR.read_text(encoding="utf-8"))
    expect(document["plugin"] == "custom" and document["source"], "not of the custom plugin monitor")
    conditions = {condition["type"] for condition in document["conditions"]}
    config = document["pluginConfig"]
    for rule in document["rules"]:
        expect(rule["type"] == "permanent" and rule["condition"] in conditions and rule["reason"], f"rule: {rule}")
        expect(os.path.isabs(rule["path"]) and os.path.basename(rule["path"]) == "gigabar", f"path: {rule['path']}")
        budget = float(rule["args"][rule["args"].index("--budget") + 1])
        expect(2 * budget + 10 < float(rule["timeout"].rstrip("s")) <= float(config["timeout"].rstrip("s")), "it is ended before it answers")
        outcome = run("gigabar", *rule["args"])
        expect(outcome.status == 0 and outcome.out.startswith("fit: "), "a fit node", outcome)
        outcome = run("gigabar", *[arg.replace("gpus>=1", "gpus>=8") for arg in rule["args"]])
        expect(outcome.status == 1 and outcome.out.count("\n") == 1, "an unfit node", outcome)
        expect(len(outcome.out) <= config["max_output_length"], f"the line has {len(outcome.out)} bytes", outcome)


def test_preflight_init_container():
    pod = yaml.safe_load(POD.read_text(encoding="utf-8"))
    expect((pod["apiVersion"], pod["kind"]) == ("v1", "Pod") and pod["metadata"]["name"], "no Pod")
    (container,) = pod["spec"]["initContainers"]
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    expect(all(each["resources"]["limits"]["nvidia.com/gpu"] == gpus for each in pod["spec"]["containers"]), "other GPUs than the job's")
    if shutil.which("kubectl"):  # reads it as the cluster would, without a cluster
        outcome = run("kubectl", "label", "--local", "--dry-run=client", "-o", "name", "-f", str(POD), "checked=yes")
        expect(outcome.status == 0 and outcome.out == f"pod/{pod['metadata']['name']}\n", "kubectl", outcome)
    outcome = run(*container["command"], *container["args"])
    expect(outcome.status == 1 and "gpus>=8: 2 GPUs where 8 are required" in outcome.out, "stand-ins are no node of eight GPUs", outcome)
    words = [arg.split("gpus>=8")[0] + "gpus>=2" if arg.startswith("gpus>=8") else arg for arg in container["args"]]
    outcome = run(*container["command"], *words)
    expect(outcome.status == 0, "a fit node", outcome)


CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    shared.CASES = CASES
    sys.exit(shared.main())
