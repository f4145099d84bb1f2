#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the output of every subcommand of `gigabar` to what a user may name: devices, pipes, links, full and forbidden places.

The subcommands and their output options are read from the program's help, so that a new one is covered; each needs a line in QUICK.
Options and exit status as command_line_test.py. Cases that mount run in a mount namespace of their own, of a user namespace where the
user is not root; they touch nothing outside the folder of the test.
"""

import io
import json
import os
import pty
import re
import resource
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import command_line_test as shared
from command_line_test import NOBODY, Outcome, expect
from machine_files import two_sockets, without_devices


# The shortest run of each subcommand; {machine}, {survey}: input files; {page}: of an output.
QUICK = {
    "info": [],
    "copylat": ["-s", "64", "-w", "20", "-r", "20", "--budget", "1"],
    "copybw": ["-s", "64K", "-w", "20", "-r", "20"],
    "apiperf": ["-s", "64K", "-n", "3", "-w", "1"],
    "pplat": ["-t", "20"],
    "sanity": ["--list"],
    "calibrate": ["--budget", "2", "--no-store"],
    "streams": ["-t", "gpu0->host ce bytes=1M", "-i", "2"],
    "topology": ["--sysroot", "{machine}"],
    "doctor": ["--sysroot", "{healthy}"],
    "preflight": ["--sysroot", "{healthy}", "--ignore", "lim,cpu,huge"],  # which the files do not tell
    "explain": [],
    "survey": ["--budget", "1", "--no-probes"],
    "compare": ["{survey}", "{survey}"],
    "report": ["{survey}", "-o", "{page}"],
    "latency": ["-m", "8", "-i", "10", "-x", "1"],
    "bw": ["-m", "8", "-i", "10", "-x", "1"],
    "bibw": ["-m", "8", "-i", "10", "-x", "1"],
    "multi-lat": ["-m", "8", "-i", "10", "-x", "1"],
    "mbw-mr": ["-m", "8", "-i", "10", "-x", "1"],
    "matrix": ["--measure", "latency", "-i", "2", "-x", "1", "-n", "2"],
    "tune": ["-m", "128K:128K", "-i", "2", "-x", "1", "--no-store"],
    "device-latency": ["-i", "10", "-x", "1"],
    "device-bw": ["-m", "4K:4K", "-W", "1", "--blocks", "1", "--threads", "1", "-i", "2", "-x", "1"],
    "device-rate": ["-i", "10"],
    "pingpong": ["-m", "4K", "-i", "10", "-x", "1"],
    "matvec": ["--vector-size", "32", "-b", "1", "-i", "10"],
    "softhca": ["-m", "8", "-i", "10", "-x", "1"],
    "run": ["-n", "2", "--", "/bin/echo", "a line of a rank"],
}
# Runs of a minute or more, of commands that can take one.
LONG = {
    "copylat": ["-w", "10000000", "-r", "10000000", "--budget", "100"],
    "copybw": ["-s", "64M", "-w", "100000000", "-r", "100000000", "--budget", "100"],
    "apiperf": ["-n", "1000000", "--budget", "100"],
    "pplat": ["-t", "10000000", "-u", "100"],
    "sanity": ["-e"],
    "calibrate": ["--budget", "100"],
    "streams": ["-t", "gpu0->host ce bytes=1M", "--seconds", "100"],
    "preflight": ["--budget", "100"],
    "survey": ["--budget", "100"],
    **{name: ["-m", "8", "-i", "100000000"] for name in ("latency", "bw", "bibw", "multi-lat", "mbw-mr")},
    "matrix": ["-i", "1000000"],
    "tune": ["-m", "1M:4M", "-i", "100000"],
    "pingpong": ["-m", "4K", "-i", "1000000", "--timeout", "100"],
    "softhca": ["-m", "8", "-i", "1000000", "--timeout", "100"],
}
# Commands that have done all their work before anybody could look.
SILENT = ("info", "explain", "compare", "run")
# Of the options that take a FILE, those that read it; what tune stores is added to what the file holds.
INPUTS = {"streams": ["--file"], "tune": ["--store"], "preflight": ["--baseline"], "report": ["--before"], "matrix": ["--switches"]}
MOUNT = ["unshare", "--mount", "--propagation", "private"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]


def temporary():
    """The folder for temporary files, of every user."""
    folder = os.path.join(os.path.dirname(shared.FOLDER), "tmp")
    if not os.path.isdir(folder):
        os.mkdir(folder)
        os.chmod(folder, 0o1777)
        os.chmod(shared.FOLDER, 0o755)
    return folder


def environment():
    return shared.environment(TMPDIR=temporary())


def run(*arguments, **how):
    return shared.run(*arguments, how=how, TMPDIR=temporary())


def run_as(command, *arguments):
    """The program as the last words of another command."""
    return Outcome(subprocess.run([*command, shared.OPTIONS.program, *arguments], env=environment(), cwd=shared.FOLDER, capture_output=True,
                                  text=True, timeout=100, check=False))


def inputs():
    """Paths of the files that some subcommands read."""
    machine, healthy, survey = (os.path.join(shared.FOLDER, f"{name}.json") for name in ("machine", "healthy", "survey"))
    if not os.path.exists(machine):
        for path, content in ((machine, two_sockets()), (healthy, without_devices())):
            with open(path, "w", encoding="utf-8") as file:
                file.write(content.text())
        completed = run("survey", "--budget", "1", "--no-probes", "--json", survey)
        expect(completed.status == 0, "survey", completed)
    return {"machine": machine, "healthy": healthy, "survey": survey, "page": os.path.join(shared.FOLDER, "page.html")}


def subcommands(runs=None):
    """Each with the arguments of its shortest run, or of that in `runs`, and its output options."""
    for name in shared.subcommands():
        expect(name in QUICK, f"'{name}' is new: give it a line in QUICK")
        told = run(name, "--help").out
        options = [option for option in re.findall(r"^  (?:-\w,)?(--[a-z-]+) \[?FILE\b", told, re.MULTILINE)]
        known = inputs()
        arguments = [part.format(**known) for part in (runs or QUICK).get(name, QUICK[name])]
        yield name, arguments, [option for option in options if option not in INPUTS.get(name, [])]


def rows(runs=None):
    """Each output option of each subcommand: both names, and the command line for a path."""
    count = 0
    for name, arguments, options in subcommands(runs):
        for option in options:
            count += 1
            contrary = {"--capture": ("--sysroot", inputs()["machine"]), "--store": ("--no-store",), "--output": ("-o", inputs()["page"])}.get(option, ())
            plain = [part for part in arguments if part not in contrary]
            yield name, option, lambda path, name=name, plain=plain, option=option: [name, f"{option}={path}", *plain]
    expect(count > 24, f"{count} output options")


def expect_whole(option, content):
    if option == "--svg":
        expect(content.lstrip().startswith(b"<?xml") and content.rstrip().endswith(b"</svg>"), f"no SVG: {content[:80]}")
    elif option == "--output":
        expect(content.startswith(b"<!DOCTYPE html>\n") and content.endswith(b"</html>\n"), f"no page: {content[:80]}")
    elif option == "--csv":
        expect(content.startswith(b"from,to,") and content.endswith(b"\n"), f"no CSV: {content[:80]}")
    elif option == "--textfile":
        expect(content.startswith(b"# TYPE ") and content.endswith(b"\n# EOF\n"), f"no metrics: {content[:80]}")
    elif option == "--capture":
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            last = archive.getmembers()[-1]
            expect(last.name == "gigabar-machine.json", f"the capture ends with {last.name}")
            json.load(archive.extractfile(last))
    else:
        document = json.loads(content)
        if option == "--json":
            shared.expect_as_documented(document)


def expect_nothing_left(folder, names):
    left = sorted(set(os.listdir(folder)) - set(names))
    expect(not left, f"left behind in {folder}: {left}")
    copies = os.listdir(temporary())
    expect(not copies, f"left behind: {copies}")


def outputs_folder():
    folder = tempfile.mkdtemp(dir=shared.FOLDER, prefix="outputs-")
    os.chmod(folder, 0o755)
    return folder


def test_outputs_to_a_new_file_and_over_an_old_one():
    for name, option, arguments in rows():
        folder = outputs_folder()
        path = os.path.join(folder, "out")
        completed = run(*arguments(path), umask=0o027)
        expect(completed.status == 0, f"{name} {option}: a new file", completed)
        expect(stat.S_IMODE(os.stat(path).st_mode) == 0o640, f"{name} {option}: mode {os.stat(path).st_mode:o}")
        with open(path, "rb") as file:
            expect_whole(option, file.read())
        with open(path, "w", encoding="utf-8") as file:
            file.write("old")
        os.chmod(path, 0o604)
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        completed = run(*arguments(path))
        expect(completed.status == 0, f"{name} {option}: an old file", completed)
        found = os.stat(path)
        expect(stat.S_IMODE(found.st_mode) == 0o604, f"{name} {option}: mode {found.st_mode:o}")
        expect(os.geteuid() != 0 or found.st_uid == NOBODY, f"{name} {option}: owner {found.st_uid}")
        with open(path, "rb") as file:
            expect_whole(option, file.read())
        expect_nothing_left(folder, ["out"])


def test_outputs_to_a_symbolic_link():
    for name, option, arguments in rows():
        folder = outputs_folder()
        target, link, chain = (os.path.join(folder, part) for part in ("target", "link", "chain"))
        os.symlink("target", link)
        os.symlink(link, chain)
        for state in ("missing", "there"):
            completed = run(*arguments(chain))
            expect(completed.status == 0, f"{name} {option}: a link whose target is {state}", completed)
            expect(os.path.islink(chain) and os.path.islink(link), f"{name} {option}: the link was replaced")
            with open(target, "rb") as file:
                expect_whole(option, file.read())
        expect_nothing_left(folder, ["target", "link", "chain"])


def test_outputs_to_a_fifo():
    for name, option, arguments in rows():
        folder = outputs_folder()
        path = os.path.join(folder, "fifo")
        os.mkfifo(path)
        content = []

        def read(path=path, content=content):
            with open(path, "rb") as file:
                content.append(file.read())

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        completed = run(*arguments(path))
        expect(completed.status == 0, f"{name} {option}: a FIFO", completed)
        reader.join(10)
        expect(content, f"{name} {option}: nothing came")
        expect_whole(option, content[0])
        expect(stat.S_ISFIFO(os.stat(path).st_mode), f"{name} {option}: the FIFO was replaced")
        expect_nothing_left(folder, ["fifo"])


def test_outputs_to_a_process_substitution():
    for name, option, arguments in rows():
        folder = outputs_folder()
        path = os.path.join(folder, "copied")
        words = arguments("PIPE")
        line = 'copy=$1; shift; exec {pipe}> >(cat > "$copy"); "${@/PIPE//dev/fd/$pipe}"'
        completed = run_as(["bash", "-c", line, "bash", path], *words)
        expect(completed.status == 0, f"{name} {option}: a process substitution", completed)
        for _ in range(200):
            if os.path.exists(path) and os.path.getsize(path):
                break
            time.sleep(0.01)
        time.sleep(0.02)
        with open(path, "rb") as file:
            expect_whole(option, file.read())


def test_outputs_to_a_pipe_whose_reader_has_gone():
    for name, option, arguments in rows():
        read_end, write_end = os.pipe()
        os.close(read_end)
        completed = run(*arguments(f"/dev/fd/{write_end}"), pass_fds=[write_end])
        os.close(write_end)
        expect(completed.status == 1, f"{name} {option}: a pipe without a reader", completed)
        expect(option in completed.err and completed.err.count("\n") < 8, f"{name} {option}: the message", completed)
        expect_nothing_left(temporary(), [])


# Of a document, or a part of it.
BEGINNINGS = {"--csv": "from,to,", "--svg": "<?xml", "--output": "<!DOCTYPE html>", "--textfile": "# TYPE", "--capture": "gigabar-machine.json"}


def test_outputs_to_standard_output_by_name():
    """Text and document go to one file; neither is lost. The link is as /dev/stdout, which no test may touch."""
    link = os.path.join(shared.FOLDER, "stdout")
    os.symlink("/proc/self/fd/1", link)
    for name, option, arguments in rows():
        path = os.path.join(outputs_folder(), "out")
        with open(path, "w", encoding="utf-8") as file:
            completed = run(*arguments(link), stdout=file)
        expect(completed.status == 0, f"{name} {option}: standard output", completed)
        expect(os.path.islink(link), f"{name} {option}: the link was replaced")
        with open(path, "rb") as file:
            content = file.read()
        mark = BEGINNINGS.get(option, "{")
        begin = content.find(mark.encode())
        has_text = begin > 0 or content.rstrip()[-1:] not in (b"}", b">")
        expect(begin >= 0 and (has_text or name == "compare"), f"{name} {option}: text and document: {content[:200]}")
        completed = run(*arguments(link), errors="replace")
        expect(completed.status == 0 and mark in completed.out, f"{name} {option}: a pipe", completed)


def test_outputs_to_devices():
    for name, option, arguments in rows():
        for device, status in (("/dev/null", 0), ("/dev/full", 1)):
            node = device if os.geteuid() != 0 else os.path.join(outputs_folder(), os.path.basename(device))
            if node != device:
                os.mknod(node, 0o666 | stat.S_IFCHR, os.stat(device).st_rdev)
            completed = run(*arguments(node))
            expect(completed.status == status, f"{name} {option}: a node like {device}", completed)
            expect(stat.S_ISCHR(os.stat(node).st_mode), f"{name} {option}: {node} was replaced")
            expect(status == 0 or (option in completed.err and re.search("No space|ENOSPC", completed.err)), f"{name} {option}: {device}", completed)
            if node != device:
                expect_nothing_left(os.path.dirname(node), [os.path.basename(node)])


def test_outputs_to_a_mounted_file_and_a_full_file_system():
    for name, option, arguments in rows():
        folder = outputs_folder()
        full, mounted, source = (os.path.join(folder, part) for part in ("full", "mounted", "source"))
        os.mkdir(full)
        for path in (mounted, source):
            with open(path, "w", encoding="utf-8") as file:
                file.write("old " * 1000)
        script = f"""
            mount --bind {source} {mounted}; mount -t tmpfs -o size=16k tmpfs {full}
            printf old > {full}/out; dd if=/dev/zero of={full}/filled bs=4k count=3 status=none; dd if=/dev/zero of={full}/rest bs=4k count=3 status=none
            "$@"; echo "mounted: $?"
        """
        completed = run_as([*MOUNT, "bash", "-c", script, "bash"], *arguments(mounted))
        expect("mounted: 0" in completed.out, f"{name} {option}: a mounted file", completed)
        with open(source, "rb") as file:
            expect_whole(option, file.read())
        script += f"ls -A {full}; cat {full}/out"
        completed = run_as([*MOUNT, "bash", "-c", script, "bash"], *arguments(full + "/out"))
        expect("mounted: 1" in completed.out, f"{name} {option}: a full file system", completed)
        left = completed.out.split("mounted: 1\n")[1]
        expect(left == "filled\nout\nrest\nold", f"{name} {option}: on the full file system is {left!r}", completed)


def test_outputs_to_forbidden_places():
    lockable_bytes = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    for name, option, arguments in rows():
        # It locks 16 MiB, which a user who is not root may not everywhere.
        if name == "calibrate" and os.geteuid() == 0 and 0 <= lockable_bytes < 32 << 20:
            continue
        folder = outputs_folder()
        closed, own = os.path.join(folder, "closed"), os.path.join(folder, "closed", "own")
        os.mkdir(closed)
        for path, mode in ((own, 0o666), (os.path.join(closed, "read-only"), 0o444)):
            with open(path, "w", encoding="utf-8") as file:
                file.write("old")
            os.chmod(path, mode)
        os.chmod(closed, 0o555)
        # Root without its capabilities may do what any owner may, also where nobody else gets to the program.
        bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else ["env"]
        for path in (os.path.join(closed, "new"), os.path.join(closed, "read-only"), os.path.join(folder, "absent", "out"), closed):
            completed = run_as(bare, *arguments(path))
            made = option == "--store" and "absent" in path  # it makes its folder
            expect(completed.status == (0 if made else 1), f"{name} {option} {path}", completed)
            expect(made or path in completed.err, f"{name} {option} {path}: the message names it not", completed)
        completed = run_as(bare, *arguments(own))
        expect(completed.status == 0, f"{name} {option}: a file of one's own in a folder that is closed", completed)
        with open(own, "rb") as file:
            expect_whole(option, file.read())
        os.chmod(closed, 0o755)
        expect_nothing_left(closed, ["own", "read-only"])


def test_outputs_are_looked_at_before_the_work():
    """Work of a minute is not done for a file that cannot be written."""
    for name, option, arguments in rows(LONG):
        for path in ("/dev/null/folder/out", outputs_folder()):
            began = time.monotonic()
            completed = run(*arguments(path))
            expect(completed.status == 1, f"{name} {option} {path}", completed)
            expect(time.monotonic() - began < 10, f"{name} {option} {path}: after {time.monotonic() - began} s", completed)
            lines = [line for line in completed.err.splitlines() if line.startswith("gigabar")]
            expect(len(lines) == 1 and f"{option} {path}: " in lines[0], f"{name} {option} {path}: the message", completed)


def test_outputs_beyond_the_limit_of_file_sizes():
    """The kernel's signal ends nobody (ulimit -f)."""
    path = os.path.join(outputs_folder(), "out")
    completed = run("doctor", "--no-probes", "--json", path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
    expect(completed.status == 1 and f"--json {path}: cannot be written: File too large" in completed.err, "a file", completed)
    expect_nothing_left(os.path.dirname(path), [])


def on_a_terminal(*arguments):
    """The run with standard error on a terminal, and what that shows."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([shared.OPTIONS.program, *arguments], env={**environment(), "TERM": "xterm"}, cwd=shared.FOLDER,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=follower, text=True)
    os.close(follower)
    shown = shared.all_shown(leader).decode()
    out, _ = process.communicate(timeout=100)
    return Outcome(subprocess.CompletedProcess(arguments, process.returncode, out, shown))


def test_outputs_progress_is_shown_on_a_terminal_only():
    for name, arguments, _ in subcommands({"sanity": ["-t", "attributes"]}):
        if name in SILENT:
            continue
        completed = on_a_terminal(name, *arguments)
        expect(completed.status == 0, f"{name} on a terminal", completed)
        expect(re.search(r"\r\x1b\[[KJ]\S", completed.err), f"{name}: no progress", completed)
        expect(completed.err.rstrip().endswith(("\x1b[K", "\x1b[J")), f"{name}: the last line is left", completed)
        expect("\x1b[K" not in completed.out, f"{name}: progress in the text", completed)
        completed = run(name, *arguments)
        expect(completed.status == 0 and completed.err == "", f"{name}: progress in a pipe", completed)


def test_outputs_standard_output_that_is_full():
    for name, arguments, _ in subcommands():
        for command in ([name, *arguments], [name, "--help"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                completed = run(*command, stdout=full)
            expect(completed.status == 1, f"{command} > /dev/full", completed)
            expect("No space" in completed.err, f"{command} > /dev/full: the message", completed)
            expect(completed.err.count("cannot be written") <= 1, f"{command} > /dev/full: it is told twice", completed)


def test_outputs_standard_output_whose_reader_has_gone():
    for name, arguments, _ in subcommands():
        read_end, write_end = os.pipe()
        os.close(read_end)
        completed = run(name, *arguments, stdout=write_end)
        os.close(write_end)
        # The ranks of 'run' write themselves.
        expect(completed.status == (128 + signal.SIGPIPE if name == "run" else 1), f"{name} | (gone)", completed)
        expect("roken pipe" in completed.err, f"{name} | (gone): the message", completed)
    expect_nothing_left(temporary(), [])


def test_outputs_signals_leave_nothing_behind():
    """At moments all over a run, most of which falls into making and reading the copy of the machine."""
    command = [shared.OPTIONS.program, "topology", "--sysroot", inputs()["machine"], "--json", os.path.join(shared.FOLDER, "out.json")]
    parts = 20
    began = time.monotonic()
    subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True, timeout=100)
    whole_s = time.monotonic() - began
    ended = 0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for part in range(parts):
            process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(whole_s * part / parts)
            process.send_signal(number)
            ended += process.wait(20) == -number
            expect(not os.listdir(temporary()), f"{number.name} after {part}/{parts} of a run left {os.listdir(environment()['TMPDIR'])}")
            new = [name for name in os.listdir(shared.FOLDER) if name.endswith(".new")]
            expect(not new, f"{number.name} left {new}")
    expect(ended > 15, f"only {ended} of {3 * parts} runs were ended by their signal")


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
