#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the program `gigabar` on stand-in devices and checks what it says. Each function named test_... is one case.

--list prints the cases; --program FILE --case NAME runs one.
Exit status: 0 passed, 1 failed.
"""

import argparse
import concurrent.futures
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import json_documents

OPTIONS = None
FOLDER = None
NOBODY = 65534
SHORT = ("--budget", "1")
REGIMES = ("copy", "copy_back_to_back")
IGNORING_CHILDREN = {"preexec_fn": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)}  # for run(how=...)


class Outcome:
    """What one run of the program left behind."""

    def __init__(self, completed):
        self.status = completed.returncode
        self.out = completed.stdout
        self.err = completed.stderr

    def __str__(self):
        return f"status {self.status}\n--- standard output\n{self.out}\n--- standard error\n{self.err}"


def expect(condition, text, outcome=None):
    if not condition:
        raise AssertionError(text if outcome is None else f"{text}\n{outcome}")


def environment(**variables):
    """One stand-in device, its own home, and nothing of the caller's Gigabar settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIGABAR_", "GDRCOPY_", "XDG_"))}
    return {**kept, "GIGABAR_STAND_IN": "1", "HOME": FOLDER, **variables}


def run(*arguments, program=None, how=None, **variables):
    """The program with these arguments and variables; `how`: further arguments of subprocess.run."""
    usual = {"env": environment(**variables), "cwd": FOLDER, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
             "text": True, "timeout": 170, "check": False}
    return Outcome(subprocess.run([program or OPTIONS.program, *arguments], **{**usual, **(how or {})}))


def subcommands():
    """Their names, from the program's help."""
    outcome = run("--help")
    names = re.findall(r"^  ([a-z][a-z-]*)  ", outcome.out.split("Subcommands:")[1], re.MULTILINE)
    expect(len(names) > 20, f"subcommands: {names}", outcome)
    return names


def run_json(*arguments, **variables):
    """A run that must succeed; returns its JSON document and its text."""
    path = os.path.join(FOLDER, "report.json")
    outcome = run(*arguments, "--json", path, **variables)
    expect(outcome.status == 0, f"{' '.join(arguments)} failed", outcome)
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    expect_header(document, arguments[0])
    return document, outcome


def expect_as_documented(document):
    problems = json_documents.problems(document)
    expect(not problems, "not as its schema says:\n" + "\n".join(problems))


def expect_header(document, tool):
    """What every document has, what its schema says, and the label of a stand-in."""
    expect_as_documented(document)
    expect(document["schema"] == 2 and document["tool"] == tool, f"schema or tool: {document['schema']} {document['tool']}")
    expect(document["command"][1] == tool, f"command: {document['command']}")
    expect(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["date"]), f"date: {document['date']}")
    for key in ("host", "cpu", "kernel", "cores", "user"):
        expect(document["machine"][key], f"machine.{key} is missing")
    expect(isinstance(document["units"], dict), "units are missing")
    expect(isinstance(document["results"], list) and document["results"], "results are missing")
    if document["device"] is not None:
        expect(document["device"]["is_stand_in"] is True, "the device is not labelled a stand-in")


def is_near(found, computed):
    """As near as the six digits of a few numbers of a document allow."""
    return math.isclose(found, computed, rel_tol=5e-5)


def expect_summary(summary, least_samples=1):
    """Numbers that can be percentiles of single samples."""
    for key in ("min_us", "p50_us", "p99_us", "max_us", "mean_us"):
        expect(isinstance(summary[key], float) and math.isfinite(summary[key]) and summary[key] >= 0, f"{key} is {summary[key]!r}")
    expect(summary["min_us"] <= summary["p50_us"] <= summary["p99_us"] <= summary["max_us"], f"not ascending: {summary}")
    expect(summary["samples"] >= least_samples, f"only {summary['samples']} samples")


def all_shown(leader):
    """What comes until the terminal's other end is closed, piece by piece as the kernel hands it on; closes this one."""
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(leader)
    return shown


def expect_refusal(outcome, status, *words):
    """The exit status, one line on standard error, and every word in it."""
    expect(outcome.status == status, f"expected exit status {status}", outcome)
    lines = [line for line in outcome.err.splitlines() if line.startswith("gigabar")]
    expect(len(lines) == 1, "expected one line of explanation", outcome)
    for word in words:
        expect(word in lines[0], f"the explanation lacks '{word}'", outcome)


def expect_label(outcome):
    expect("[stand-in]" in outcome.out, "the text is not labelled", outcome)


def cells_of(document, direction, *measures):
    """The rows of sizes, ascending as they were measured."""
    return [row for row in document["results"] if row["measure"] in measures and row["direction"] == direction]


# ---- help and usage ----


def test_help_explains_every_subcommand():
    outcome = run("--help")
    expect(outcome.status == 0, "--help failed", outcome)
    for name in ("info", "copylat", "copybw", "apiperf", "pplat", "sanity", "calibrate"):
        expect(name in outcome.out, f"--help lacks {name}", outcome)
        detail = run(name, "--help")
        expect(detail.status == 0 and "--json" in detail.out and "-d,--device" in detail.out, f"{name} --help", detail)


def test_help_names_gdrcopys_options():
    letters_of = {"copylat": "sdwrcCaM", "copybw": "scoldwraM", "apiperf": "sdnwaM", "pplat": "dtuasBTmGCDM", "sanity": "hvsltde"}
    for name, letters in letters_of.items():
        text = run(name, "--help").out
        for letter in letters:
            expect(re.search(rf"^\s+-{letter}\b", text, re.MULTILINE), f"{name} --help lacks -{letter}\n{text}")


def test_hidden_options_stay_hidden():
    for name, option in (("sanity", "--scenario"), ("sanity", "--peer"), ("copylat", "--plant-fault")):
        expect(option not in run(name, "--help").out, f"{name} --help shows {option}")


def test_wrong_usage_is_status_2():
    expect_refusal(run(), 2, "subcommand")
    expect_refusal(run("copylat", "--no-such-option"), 2, "--no-such-option", "--help")
    expect_refusal(run("copylat", "-s", "12q"), 2, "-s", "12q", "K, M or G")
    expect_refusal(run("copylat", "-s", "0"), 2, "-s", "outside")
    expect_refusal(run("copylat", "-r", "-3"), 2, "-r")
    expect_refusal(run("copybw", "-T", "1,x"), 2, "--threads", "x", "digits")
    expect_refusal(run("copylat", "-M", "fast"), 2, "--mapping-type", "fast", "cache")
    expect_refusal(run("copylat", "-a", "malloc"), 2, "-a", "cuMemAlloc")
    expect_refusal(run("copylat", "--budget", "0"), 2, "--budget", "seconds")
    expect_refusal(run("pplat", "-G", "disk"), 2, "--gpu-flag", "disk", "hostmem")


def test_unknown_device_is_refused():
    for tool in ("info", "copylat", "copybw", "apiperf", "pplat", "sanity", "calibrate"):
        expect_refusal(run(tool, "-d", "7"), 2, "-d 7", "no such device")


def test_copybw_ranges_are_refused():
    expect_refusal(run("copybw", "-s", "4096", "-o", "4096"), 2, "-o 4096", "4096")
    expect_refusal(run("copybw", "-s", "4096", "-o", "100", "-c", "4000"), 2, "-c 4000", "3996")


def test_pplat_data_must_be_words():
    expect_refusal(run("pplat", "-s", "12"), 2, "-s 12", "multiple of 8")
    expect_refusal(run("pplat", "-s", "256M", "--by", "message"), 2, "-s 268435456", "134217728 bytes")


def test_pplat_messages_are_calls_of_the_cpu():
    expect_refusal(run("pplat", "--by", "message", "-m", "1"), 2, "-m 1", "--by message", "leave -m out")


def test_wrong_settings_are_named():
    for command in ("info", "topology", "doctor", "survey", "sanity"):
        expect_refusal(run(command, GIGABAR_STAND_IN="many"), 1, "GIGABAR_STAND_IN", "'many' is not a number from 1 to 64", "unset it")
    expect_refusal(run("copylat", "-s", "64", GIGABAR_MAPPING="teleport"), 1, "GIGABAR_MAPPING", "teleport")


def test_stand_ins_are_told_where_they_are_not_shown():
    for command in (("topology",), ("topology", "--tree"), ("doctor", "--no-probes")):
        path = os.path.join(FOLDER, "told.json")
        outcome = run(*command, "--json", path, GIGABAR_STAND_IN="2")
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        expect_as_documented(document)
        line = "stand-in: GIGABAR_STAND_IN=2 has the other commands use 2 stand-in devices"
        expect(f"note: {line}" in outcome.out, "the text does not say it", outcome)
        expect(any(note.startswith(line) for note in document["notes"]), f"the document does not say it: {document['notes']}")
    expect("use 1 stand-in device," in run("topology").out, "one of them")
    plain = run("topology", GIGABAR_STAND_IN="")
    expect(plain.status == 0 and "GIGABAR_STAND_IN" not in plain.out, "without stand-ins", plain)


def test_memory_is_told_with_whose_it_is():
    outcome = run("info")
    expect(re.search(r"^  memory +\d+\.\d GiB of host memory, which is all of this machine's, ", outcome.out, re.MULTILINE), "info", outcome)
    for form in ((), ("--tree",)):
        outcome = run("topology", *form)
        expect(re.search(r"^NUMA node \d+: .* GiB of host memory on this node$", outcome.out, re.MULTILINE), "topology", outcome)


def test_required_backend_that_is_not_there_says_why():
    expect_refusal(run("copylat", "-s", "64", "--backend", "gdrdrv"), 1, "gdrdrv")


def test_required_mapping_type_that_is_not_there():
    expect_refusal(run("copylat", "-s", "64", "-M", "wc"), 1, "-M", "write_combined", "stand-in")


def test_json_that_cannot_be_written():
    expect_refusal(run("info", "--json", "/no/such/folder/x.json"), 1, "--json", "/no/such/folder", "No such file")
    expect_refusal(run("info", "--json", FOLDER), 1, "--json", "directory")  # a folder has that name
    expect(not [name for name in os.listdir(os.path.dirname(FOLDER)) if name.endswith(".new")], "a half-written file is left")


def test_json_on_standard_output():
    outcome = run("info", "--json", "-")
    expect(outcome.status == 0, "info --json -", outcome)
    expect_header(json.loads(outcome.out), "info")
    expect("device 0" in outcome.err, "the text has not gone to standard error", outcome)


# ---- files that are read ----


def test_inputs_are_not_waited_for_without_end():
    """A FIFO that nobody writes to stands for every file that cannot be read to its end, on a file server that is gone, say."""
    fifo = os.path.join(FOLDER, "nobody-writes")
    os.mkfifo(fifo)

    def timed(command):
        began = time.monotonic()
        return run(*command), time.monotonic() - began

    commands = [("compare", fifo, "/dev/null"), ("doctor", "--symptom", "@" + fifo), ("streams", "-f", fifo),
                ("preflight", "--budget", "1", "--baseline", fifo)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        *refused, (hung, _) = pool.map(timed, commands)
    for outcome, seconds in refused:
        expect_refusal(outcome, 2, fifo, "had no writer for 30 s")
        expect(29 < seconds < 60, f"after {seconds} s", outcome)
    expect(hung.status == 3 and "reading --baseline did not end within 12 s" in hung.out, "preflight", hung)


def test_inputs_that_are_folders_are_refused():
    for command in (("compare", FOLDER, "/dev/null"), ("preflight", "--baseline", FOLDER), ("doctor", "--symptom", "@" + FOLDER),
                    ("streams", "-f", FOLDER)):
        expect_refusal(run(*command), 2, FOLDER, "cannot be read: Is a directory")


def test_files_that_are_written_have_one_name():
    def written(name, text="what was there"):
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
            file.write(text)
        return os.path.join(FOLDER, name)

    def content_of(path):
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return file.read()

    def expect_one_name(path, first, second, *command):
        before = content_of(path)
        expect_refusal(run(*command), 2, f"{first} and {second} name the same file; name two")
        expect(content_of(path) == before, f"{path} was {before!r} and is {content_of(path)!r}")

    old, new, log = written("old"), os.path.join(FOLDER, "new"), written("log", "CUDA error: no kernel image is available\n")
    link, dangling = (os.path.join(FOLDER, name) for name in ("link", "dangling"))
    os.symlink(old, link)
    os.symlink("new", dangling)
    expect_one_name(old, "--json", "--capture", "topology", "--capture", old, "--json", link)
    expect_one_name(new, "--json", "--capture", "topology", "--capture", "new", "--json", dangling)
    expect_one_name(new, "--json", "--store", "calibrate", f"--store={new}", "--json", "./new")
    again = os.path.join(FOLDER, "..", os.path.basename(FOLDER), "new")
    expect_one_name(new, "--textfile", "--json", "preflight", "--textfile", new, "--json", again)
    expect_one_name(old, "--json", "--baseline", "preflight", "--baseline", old, "--json", old)
    expect_one_name(log, "--json", "--symptom", "doctor", "--symptom", "@" + log, "--json", log)
    expect_one_name(old, "--output", "DOCUMENT", "report", old, "-o", link)
    expect_one_name(old, "--output", "--before", "report", log, "-o", old, "--before", old)


def test_standard_output_may_have_several_names():
    path, link = os.path.join(FOLDER, "out"), "/proc/self/fd/1"
    with open(path, "wb") as file:
        outcome = run("topology", "--json", link, "--capture", link, how={"stdout": file})
    expect(outcome.status == 0, "topology", outcome)
    with open(path, "rb") as file:
        content = file.read()
    expect(b"gigabar-machine.json" in content and b'"tool": "topology"' in content, f"not both: {content[:200]}")


# ---- info and calibrate ----


def test_info_tells_why():
    document, outcome = run_json("info")
    expect_label(outcome)
    drivers = document["results"][0]["drivers"]
    expect({driver["name"] for driver in drivers} >= {"libcuda", "nvml", "resource manager", "gdrdrv"}, f"drivers: {drivers}")
    device = document["results"][1]
    codes = {backend["backend"]: backend["code"] for backend in device["backends"]}
    expect(list(codes) == ["dmabuf", "gdrdrv", "rm", "host"], f"backends: {codes}")
    for entry in drivers + device["backends"]:
        expect(entry["code"] == "ok" or entry["reason"], f"no reason: {entry}")
    expect(codes["host"] == "ok", "host is not available on a stand-in")
    expect(device["calibration"]["is_measured"] is False and device["calibration"]["values"], "the calibration in use is not told")
    expect(document["results"][2]["kernels"], "no kernels")


def test_info_tells_a_reason_once():
    outcome = run("info", GIGABAR_STAND_IN="2", GIGABAR_CUDA_LIBRARY="/no/such/libcuda.so.1")
    expect(outcome.out.count("/no/such/libcuda.so.1: ") == 1, "a reason is said more than once", outcome)
    expect(len(re.findall(r"mapping by \w+ +library_missing: as libcuda", outcome.out)) >= 4, "the backends do not say why", outcome)


def test_json_is_null_where_nothing_is_known():
    document, _ = run_json("copylat", "-s", "8", *SHORT, GIGABAR_CUDA_LIBRARY="/no/such/libcuda.so.1")
    device = document["device"]
    expect(device["uuid"] is None and device["compute_capability"] is None and device["pci"] is None, f"device: {device}")
    expect(device["driver"] is None or re.match(r"(CUDA \d|driver \d)", device["driver"]), f"no driver: {device['driver']}")


def test_json_schemas_find_what_is_not_documented():
    document, _ = run_json("copylat", "-s", "8", *SHORT)

    def copies_of(document):
        return cells_of(document, "to_device", *REGIMES)

    for spoil in (lambda copy: copy.update(extra=1), lambda copy: copy["machine"].update(extra=1), lambda copy: copy["device"].update(extra=1),
                  lambda copy: copy["results"][0].update(extra=1), lambda copy: copies_of(copy)[0]["methods"][0].update(extra=1),
                  lambda copy: copy["mapping"]["passed_over"][0].update(extra=1), lambda copy: copy["clock"].pop("cost_ns"),
                  lambda copy: copy["device"].update(driver=5), lambda copy: copy.update(tool="other")):
        spoiled = json.loads(json.dumps(document))
        spoil(spoiled)
        expect(len(json_documents.problems(spoiled)) == 1, f"not found: {json_documents.problems(spoiled)}")


def test_json_schemas_are_of_every_command():
    page = (json_documents.FOLDER.parent / "json.md").read_text(encoding="utf-8")
    writing = {name for name in subcommands() if "--json FILE" in run(name, "--help").out}
    expect(writing == set(json_documents.validators()), f"without a schema, or without a command: {writing ^ set(json_documents.validators())}")
    for name in writing:
        row = next((line for line in page.splitlines() if line.startswith("| `") and f"`{name}`" in line), "")
        paths = re.findall(r"\(schema/(.*?)\)", row)
        expect(len(paths) == 1, f"docs/json.md does not name the schema of {name}")
        tool = json_documents.read(json_documents.FOLDER / paths[0])["properties"]["tool"]
        expect(name in tool.get("enum", [tool.get("const")]), f"docs/json.md: {paths[0]} is not of {name}")


def test_json_numbers_have_no_more_digits_than_were_measured():
    streams = ("streams", "-t", "gpu0->host ce bytes=1M", "-i", "5", "--repeats", "2")
    for arguments in (("copylat", "-s", "64", *SHORT, "--json", "-"), (*streams, "--json", "-"), (*streams, "--format", "json")):
        outcome = run(*arguments)
        numbers = re.findall(r"[ \[]-?(\d+\.\d+)(?:e-?\d+)?[,\n\]]", outcome.out)
        expect(len(numbers) > 10, f"{arguments}: {numbers}", outcome)
        long = [number for number in numbers if len(number.replace(".", "").strip("0")) > 6]
        expect(not long, f"{arguments}: {long}")


def test_info_lists_every_stand_in():
    document, _ = run_json("info", GIGABAR_STAND_IN="3")
    devices = [result["device"]["index"] for result in document["results"] if result["what"] == "device"]
    expect(devices == [0, 1, 2], f"devices: {devices}")
    document, _ = run_json("info", "-d", "2", GIGABAR_STAND_IN="3")
    devices = [result["device"]["index"] for result in document["results"] if result["what"] == "device"]
    expect(devices == [2], f"devices: {devices}")


def test_calibration_is_stored_and_used():
    path = os.path.join(FOLDER, "deep", "calibration.json")
    document, outcome = run_json("calibrate", "--budget", "2", "--store", path)
    expect_label(outcome)
    expect(document["results"][0]["stored"] == path and os.path.exists(path), "not stored")
    expect(document["results"][0]["calibration"], "no values")
    document, _ = run_json("info", GIGABAR_CALIBRATION=path)
    expect(document["results"][1]["calibration"]["path"] == path, "another path is used")


def test_calibration_goes_where_copy_looks():
    document, outcome = run_json("calibrate", "--budget", "1", "--no-store")
    expect(document["results"][0]["stored"] is None and "not stored: --no-store" in outcome.out, "--no-store", outcome)
    expect(not os.path.exists(os.path.join(FOLDER, ".cache")), "something was stored")
    for option in ((), ("--store",)):
        document, _ = run_json("calibrate", "--budget", "1", *option)
        stored = document["results"][0]["stored"]
        expect(stored.startswith(FOLDER) and os.path.exists(stored), f"stored in {stored}")
        os.remove(stored)
    expect_refusal(run("calibrate", "--store", "--no-store"), 2, "--store", "--no-store")


def test_calibration_that_cannot_be_stored():
    # Storing comes behind measuring, for which a busy machine may need more time than was given.
    for budget in ("1", "30"):
        outcome = run("calibrate", "--budget", budget, "--store", "/proc/no/calibration.json")
        if "budget" not in outcome.err:
            break
    expect_refusal(outcome, 1, "--store", "/proc/no")


# ---- the file itself ----


def test_program_is_one_file():
    text = subprocess.run(["readelf", "-d", OPTIONS.program], stdout=subprocess.PIPE, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", text))
    allowed = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
    allowed |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libgcc_s.so.1"}
    expect(needed and needed <= allowed, f"needs more than the C library and the compiler's: {needed - allowed}")


CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}


def main():
    global OPTIONS, FOLDER
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--program")
    parser.add_argument("--case", choices=sorted(CASES))
    OPTIONS = parser.parse_args()
    if OPTIONS.list:
        print("\n".join(CASES))
        return 0
    OPTIONS.program = os.path.abspath(OPTIONS.program)
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)  # some cases run as another user
        FOLDER = os.path.join(parent, "home")
        os.mkdir(FOLDER)
        try:
            CASES[OPTIONS.case]()
        except AssertionError as failure:
            print(f"failed: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
