#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar run` with small scripts as ranks. Options and exit status as command_line_test.py.
"""

import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time

import command_line_test as shared
from command_line_test import expect, expect_refusal, run


def ranks(count, script, *options, **variables):
    """`script` for /bin/sh, as every rank."""
    return run("run", "-n", str(count), *options, "--", "/bin/sh", "-c", script, **variables)


def start(count, script, *options, preexec=None):
    """The same in the background, with what it writes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIGABAR_")}
    return subprocess.Popen([shared.OPTIONS.program, "run", "-n", str(count), *options, "--", "/bin/sh", "-c", script],
                            env=environment, cwd=shared.FOLDER, preexec_fn=preexec, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_lines(process, count):
    return [process.stdout.readline().strip() for _ in range(count)]


def is_running(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def expect_gone(processes):
    end = time.monotonic() + 20
    while time.monotonic() < end and any(is_running(process) for process in processes):
        time.sleep(0.02)
    left = [process for process in processes if is_running(process)]
    expect(not left, f"still running: {left}")


# ---- what a rank gets ----


def test_run_gives_every_rank_its_environment():
    outcome = ranks(3, 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $GIGABAR_JOB_ID $(cat $GIGABAR_JOB_KEY_FILE)"')
    expect(outcome.status == 0 and outcome.err == "", "three ranks", outcome)
    lines = sorted(line.split() for line in outcome.out.splitlines())
    expect([line[:5] for line in lines] == [[str(rank), "3", str(rank), "3", "127.0.0.1"] for rank in range(3)], f"{lines}")
    shared_words = {tuple(line[5:]) for line in lines}
    expect(len(shared_words) == 1, f"the ranks do not agree: {shared_words}")
    port, job, key = shared_words.pop()
    expect(1024 <= int(port) <= 65535 and job.startswith("run-"), f"{port} {job}")
    expect(re.fullmatch(r"[0-9a-f]{64}", key), "the key is not 32 bytes")
    again = ranks(1, 'echo "$MASTER_PORT $GIGABAR_JOB_ID $(cat $GIGABAR_JOB_KEY_FILE)"').out.split()
    expect(again[1] != job and again[2] != key, "two jobs have the same words")


def test_run_takes_away_what_another_launcher_left():
    outcome = ranks(1, "env", PMIX_RANK="7", PMIX_SERVER_URI2="x", OMPI_COMM_WORLD_RANK="7", TORCHELASTIC_RUN_ID="x", RANK="9",
                    GIGABAR_JOB_KEY="00" * 32, GIGABAR_JOB_KEY_FILE="/x", GIGABAR_MASTER_PORT="1", GIGABAR_LAUNCHER="none", KEPT="yes")
    expect(outcome.status == 0, "env", outcome)
    names = [line.partition("=")[0] for line in outcome.out.splitlines()]
    for name in ("PMIX_RANK", "PMIX_SERVER_URI2", "OMPI_COMM_WORLD_RANK", "TORCHELASTIC_RUN_ID", "GIGABAR_JOB_KEY",
                 "GIGABAR_MASTER_PORT", "GIGABAR_LAUNCHER"):
        expect(name not in names, f"{name} is still there")
    expect(names.count("RANK") == 1 and names.count("GIGABAR_JOB_KEY_FILE") == 1 and "KEPT" in names, f"{names}")
    expect("GIGABAR_JOB_KEY_FILE=/x" not in outcome.out.splitlines() and "RANK=0" in outcome.out.splitlines(), "the old words are still there")


def test_run_passes_arguments_as_they_are():
    outcome = run("run", "-n", "1", "--", "/bin/sh", "-c", 'for word; do echo "<$word>"; done', "sh", "a b", "", "--", "-n", "*", "--label")
    expect(outcome.out.splitlines() == ["<a b>", "<>", "<-->", "<-n>", "<*>", "<--label>"], "arguments", outcome)


def test_run_stand_ins():
    outcome = ranks(1, "echo $GIGABAR_STAND_IN", "--stand-in", "3")
    expect(outcome.out == "3\n", "--stand-in 3", outcome)
    expect(ranks(1, "echo $GIGABAR_STAND_IN").out == "1\n", "without --stand-in the variable stays")


def test_run_key_is_in_no_command_line_and_no_environment():
    script = ('tr "\\0" " " < /proc/$PPID/cmdline; tr "\\0" " " < /proc/$PPID/environ; tr "\\0" " " < /proc/$$/cmdline; echo; env; '
              'stat -L -c "mode %a" $GIGABAR_JOB_KEY_FILE; cat $GIGABAR_JOB_KEY_FILE; echo')
    lines = ranks(1, script, GIGABAR_LOG="debug")
    key = lines.out.splitlines()[-1]
    expect(len(key) == 64, "no key", lines)
    expect(lines.out.count(key) == 1 and key not in lines.err, "the key is shown", lines)
    expect("mode 600" in lines.out.splitlines(), "others may read it", lines)


def test_run_only_rank_zero_reads_standard_input():
    completed = subprocess.run([shared.OPTIONS.program, "run", "-n", "2", "--label", "--", "/bin/sh", "-c", "cat"], input="hello\n",
                               stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    expect(completed.stdout == "[0] hello\n", f"{completed.stdout!r}")


# ---- labels ----


def test_run_labels_every_line():
    outcome = ranks(2, 'echo "one $RANK"; printf "two"; echo "bad $RANK" >&2', "--label")
    expect(outcome.status == 0, "--label", outcome)
    expect(sorted(outcome.out.splitlines()) == ["[0] one 0", "[0] two", "[1] one 1", "[1] two"], "standard output", outcome)
    expect(sorted(outcome.err.splitlines()) == ["[0] bad 0", "[1] bad 1"], "standard error", outcome)


def test_run_labelled_lines_do_not_mix():
    outcome = ranks(4, 'i=0; while [ $i -lt 300 ]; do echo "$RANK $i aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; i=$((i+1)); done', "--label")
    lines = outcome.out.splitlines()
    expect(len(lines) == 1200, f"{len(lines)} lines")
    for line in lines:
        expect(re.fullmatch(r"\[(\d)\] \1 \d+ a{46}", line), f"mixed: {line!r}")


def test_run_labelled_lines_of_two_jobs_that_append_to_a_file_do_not_mix():
    path = os.path.join(shared.FOLDER, "log")
    ranks_of_a_job, lines_of_a_rank, line = 24, 15000, "x" * 50  # more is there at once than may wait
    words = [shared.OPTIONS.program, "run", "-n", str(ranks_of_a_job), "--label", "--", "sh", "-c", f"yes {line} | head -n {lines_of_a_rank}"]
    for _ in range(3):
        with open(path, "wb"):
            pass
        with open(path, "ab") as log:
            jobs = [subprocess.Popen(words, env=shared.environment(), stdin=subprocess.DEVNULL, stdout=log) for _ in range(2)]
            expect([job.wait(60) for job in jobs] == [0, 0], "two jobs")
        with open(path, encoding="utf-8") as log:
            lines = log.read().splitlines()
        expect(len(lines) == 2 * ranks_of_a_job * lines_of_a_rank, f"{len(lines)} lines")
        whole = {f"[{rank}] {line}" for rank in range(ranks_of_a_job)}
        expect(whole.issuperset(lines), f"mixed: {next((found for found in lines if found not in whole), '')!r}")


def test_run_a_long_line_is_cut_and_not_lost():
    outcome = ranks(1, "head -c 300000 /dev/zero | tr '\\0' x", "--label")
    lines = outcome.out.splitlines()
    expect(len(lines) > 1 and all(line.startswith("[0] x") for line in lines), f"{len(lines)} lines")
    expect(outcome.out.count("x") == 300000, f"{outcome.out.count('x')} of 300000 came")


def test_run_labels_do_not_wait_for_what_outlives_its_rank():
    start_s = time.monotonic()
    outcome = ranks(1, "sleep 30 & echo $!; exit 0", "--label")
    os.kill(int(outcome.out.split()[1]), signal.SIGKILL)
    expect(time.monotonic() - start_s < 15, "it waited for the sleep", outcome)


# ---- readers that are slow or gone, and full disks ----


def status_of(process, seconds=15):
    """The exit status of one whose output is not read; None: it did not end in this time."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.kill()
        process.communicate()


def test_run_labels_end_at_the_timeout_when_nobody_reads():
    status = status_of(start(1, "exec yes", "--label", "--timeout", "2"))
    expect(status == 124, f"{status}")


def test_run_labels_hear_signals_when_nobody_reads():
    process = start(1, "exec yes", "--label")
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    status = status_of(process)
    expect(status == 128 + signal.SIGTERM, f"{status}")


def test_run_labels_hear_the_timeout_on_a_terminal_that_nobody_reads():
    leader, follower = os.openpty()
    process = subprocess.Popen([shared.OPTIONS.program, "run", "-n", "1", "--label", "--timeout", "2", "--", "yes"], env=shared.environment(),
                               stdin=subprocess.DEVNULL, stdout=follower, stderr=subprocess.DEVNULL)
    status = status_of(process)
    os.close(follower)
    os.close(leader)
    expect(status == 124, f"{status}")


def test_run_labels_wait_for_a_slow_reader():
    process = start(1, "head -c 300000 /dev/zero | tr '\\0' x", "--label")
    time.sleep(2.5)
    out, err = process.communicate(timeout=60)
    expect(process.returncode == 0 and out.count("x") == 300000, f"{process.returncode}, {out.count('x')} of 300000 came\n{err}")


def test_run_labelled_lines_of_both_streams_do_not_mix():
    script = f'i=0; while [ $i -lt 2000 ]; do echo {"a" * 46}; echo {"b" * 46} >&2; i=$((i+1)); done'
    process = subprocess.Popen([shared.OPTIONS.program, "run", "-n", "2", "--label", "--", "/bin/sh", "-c", script], env=shared.environment(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(1)  # much is pending
    lines = process.communicate(timeout=60)[0].splitlines()
    expect(len(lines) == 8000, f"{len(lines)} lines")
    for line in lines:
        expect(re.fullmatch(r"\[[01]\] (a{46}|b{46})", line), f"mixed: {line!r}")


def test_run_labels_tell_the_ranks_that_the_reader_is_gone():
    process = start(1, "exec yes", "--label")
    expect(read_lines(process, 1) == ["[0] y"], "the first line")
    process.stdout.close()
    status = status_of(process)
    expect(status == 128 + signal.SIGPIPE, f"{status}")


def test_run_labels_on_a_full_disk():
    with open("/dev/full", "w", encoding="utf-8") as full:
        for script in ("echo x", "exec yes"):
            outcome = ranks(1, script, "--label", how={"stdout": full, "timeout": 15})
            expect(outcome.status == 1 and outcome.err.count("standard output: cannot be written: No space") == 1, script, outcome)


def test_run_labels_beyond_the_limit_of_file_sizes():
    how = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)), "timeout": 15}
    with open(os.path.join(shared.FOLDER, "labelled"), "w", encoding="utf-8") as file:
        outcome = ranks(1, "exec yes", "--label", how={"stdout": file, **how})
    expect(outcome.status == 1 and outcome.err.count("standard output: cannot be written: File too large") == 1, "ulimit -f", outcome)


def test_run_messages_that_cannot_be_written_change_nothing():
    with open("/dev/full", "w", encoding="utf-8") as full:
        for name, how in (("full", {"stderr": full}), ("closed", {"stderr": None, "preexec_fn": lambda: os.close(2)})):
            outcome = ranks(2, f'[ "$RANK" = 1 ] && exit 3; sleep 2; touch {name}', "--keep-going", how={**how, "timeout": 15})
            expect(outcome.status == 3 and os.path.exists(os.path.join(shared.FOLDER, name)), f"{name}: rank 0 did not go on", outcome)


def test_run_labels_where_standard_output_is_closed():
    outcome = ranks(1, "echo x; exec sleep 60", "--label", how={"stdout": None, "preexec_fn": lambda: os.close(1), "timeout": 15})
    expect(outcome.status == 1 and "standard output: cannot be written: Bad file descriptor" in outcome.err, "it is not said", outcome)


# ---- how it ends ----


def test_run_answers_the_status_of_the_rank_that_failed():
    for status in (1, 7, 255):
        outcome = ranks(3, f'[ "$RANK" = 1 ] && exit {status}; exec sleep 60')
        expect(outcome.status == status, f"rank 1 exits with {status}", outcome)
        expect(f"rank 1 ended with exit status {status}" in outcome.err, "it is not said", outcome)
    outcome = ranks(3, '[ "$RANK" = 2 ] && kill -SEGV $$; exec sleep 60')
    expect(outcome.status == 128 + signal.SIGSEGV and "rank 2 ended with signal 11" in outcome.err, "rank 2 crashes", outcome)


def test_run_ends_the_others_when_one_fails():
    script = 'echo $$; if [ "$RANK" = 0 ]; then sleep 0.3; exit 3; fi; sleep 100 & echo $!; wait'
    outcome = ranks(3, script)
    expect(outcome.status == 3, "rank 0 fails", outcome)
    expect_gone([int(word) for word in outcome.out.split()])


def many_ranks():
    return os.path.join(os.path.dirname(shared.OPTIONS.program), "many_ranks")


def test_run_keep_going_lets_the_others_end_by_themselves():
    outcome = run("run", "--keep-going", "-n", "3", "--timeout", "150", "--label", "--", many_ranks(), "--kill", "2", GIGABAR_TRANSPORTS="local")
    expect(outcome.status == 128 + signal.SIGKILL, "the status of the rank that failed first", outcome)
    expect(sorted(outcome.out.splitlines()) == [f"[{rank}] rank {rank}: peer_lost, and went on" for rank in (0, 1)],
           "the others did not go on", outcome)
    expect("rank 2 ended with signal 9" in outcome.err and "the 2 others that run go on" in outcome.err, "not told", outcome)


def test_run_keep_going_counts_the_others_when_it_is_late():
    stop = 'if [ "$RANK" = 2 ]; then kill -STOP "$PPID"; echo $$; fi'  # the launcher, until long after the loss
    process = start(3, f"{stop}; GIGABAR_TRANSPORTS=local exec {shlex.quote(many_ranks())} --kill 2", "--keep-going", "--stand-in", "1")
    try:
        expect_gone([int(process.stdout.readline())])
        time.sleep(2)
    finally:
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=100)
    expect(process.returncode == 128 + signal.SIGKILL and "the 2 others that run go on" in err, f"{process.returncode}\n{out}\n{err}")


def test_run_keep_going_answers_the_first_failure():
    script = 'case "$RANK" in 0) exit 3;; 1) while kill -0 "$PPID" && [ ! -e ended ]; do sleep 0.05; done; exit 4;; esac; sleep 1; touch ended'
    outcome = ranks(3, script, "--keep-going")
    os.remove(os.path.join(shared.FOLDER, "ended"))
    expect(outcome.status == 3, "the first that failed", outcome)
    expect("rank 0 ended with exit status 3; the 2 others that run go on" in outcome.err, "the first", outcome)
    expect("rank 1 ended with exit status 4" in outcome.err, "the second", outcome)


def test_run_keep_going_still_ends_at_the_timeout():
    outcome = ranks(2, '[ "$RANK" = 1 ] && exit 5; exec sleep 60', "--keep-going", "--timeout", "2")
    expect(outcome.status == 5 and "1 of 2 ranks had not ended after 2 s" in outcome.err, "a rank had failed before", outcome)
    outcome = ranks(2, "exec sleep 60", "--keep-going", "--timeout", "1")
    expect(outcome.status == 124, "none had failed", outcome)


def test_run_kills_who_does_not_end():
    start_s = time.monotonic()
    outcome = ranks(2, 'trap "" TERM; if [ "$RANK" = 0 ]; then sleep 0.3; exit 4; fi; echo $$; while :; do sleep 0.1; done', "--grace", "0.5")
    expect(outcome.status == 4, "rank 0 fails", outcome)
    expect(0.7 < time.monotonic() - start_s < 30, "the grace period")
    expect_gone([int(outcome.out)])


def test_run_lets_a_rank_clean_up():
    outcome = ranks(2, 'trap "echo cleaned; exit 0" TERM; if [ "$RANK" = 0 ]; then sleep 0.5; exit 5; fi; while :; do sleep 0.05; done')
    expect(outcome.status == 5 and outcome.out == "cleaned\n", "SIGTERM comes first", outcome)


def test_run_timeout():
    outcome = ranks(2, '[ "$RANK" = 0 ] && exit 0; echo $$; exec sleep 100', "--timeout", "0.7")
    expect(outcome.status == 124 and "1 of 2 ranks had not ended after 0.7 s" in outcome.err, "--timeout", outcome)
    expect_gone([int(outcome.out)])


def test_run_forwards_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = start(2, "echo $$; exec sleep 100")
        processes = [int(line) for line in read_lines(process, 2)]
        process.send_signal(number)
        expect(process.wait(60) == 128 + number, f"{number}: {process.returncode}")
        process.communicate()
        expect_gone(processes)


def test_run_a_second_signal_kills():
    process = start(1, 'trap "" TERM; echo $$; while :; do sleep 0.1; done', "--grace", "1000")
    processes = [int(line) for line in read_lines(process, 1)]
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    expect(process.poll() is None, "it did not wait")
    process.send_signal(signal.SIGTERM)
    expect(process.wait(60) == 128 + signal.SIGKILL, f"{process.returncode}")
    process.communicate()
    expect_gone(processes)


def test_run_an_ignored_signal_stays_ignored():
    process = start(1, "echo $$; exec sleep 0.7", preexec=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    read_lines(process, 1)
    process.send_signal(signal.SIGHUP)
    expect(process.wait(60) == 0, f"{process.returncode}")
    process.communicate()


def test_run_where_ends_of_children_are_ignored():
    outcome = run("run", "-n", "2", "--", "/bin/sh", "-c", "exit $RANK", how={**shared.IGNORING_CHILDREN, "timeout": 60})
    expect(outcome.status == 1, "the end of the ranks", outcome)


def test_run_ranks_die_with_the_launcher():
    process = start(3, "echo $$; exec sleep 100")
    processes = [int(line) for line in read_lines(process, 3)]
    process.kill()
    process.communicate()
    expect_gone(processes)


def test_run_many_ranks():
    outcome = ranks(150, "echo $RANK", "--label")
    expect(outcome.status == 0, "150 ranks", outcome)
    expect(sorted(outcome.out.splitlines()) == sorted(f"[{rank}] {rank}" for rank in range(150)), "not every rank spoke", outcome)


def test_run_without_descriptors_names_what_was_given():
    """Under each limit where a pipe is the first thing that is missing."""
    for options, remedy in (((), "; raise 'ulimit -n'\n"), (("--label",), "; raise 'ulimit -n' or leave --label out\n")):
        told = []
        for limit in range(5, 20):
            how = {"preexec_fn": lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)), "timeout": 15}
            told.append(ranks(2, "true", *options, how=how).err)
        told = [text for text in told if "cannot make a pipe" in text]
        expect(told and all(text.endswith(remedy) for text in told), f"{options}: {told}")


# ---- what it refuses ----


def test_run_counts_in_words():
    outcome = ranks(2, 'if [ $RANK = 0 ]; then kill -9 $$; fi; sleep 0.1', "--keep-going")
    expect("the other one that runs goes on" in outcome.err, "one other", outcome)
    outcome = ranks(1, "sleep 20", "--timeout", "0.2")
    expect(outcome.status == 124 and "1 of 1 rank had not ended" in outcome.err, "one rank", outcome)


def test_run_refuses_wrong_usage():
    expect_refusal(run("run"), 2, "--ranks", "--help")
    expect_refusal(run("run", "-n", "2"), 2, "program")
    for count in ("0", "4097", "-1", "two"):
        expect_refusal(run("run", "-n", count, "--", "true"), 2, "--ranks", count)
    expect_refusal(run("run", "-n", "1", "--stand-in", "65", "--", "true"), 2, "--stand-in", "65")
    expect_refusal(run("run", "-n", "1", "--timeout", "0", "--", "true"), 2, "--timeout")


def test_run_refuses_what_is_no_program():
    """With the statuses of a shell and of env: 127 where it is not found, 126 where it cannot be executed."""
    expect_refusal(run("run", "-n", "2", "--", "no-such-program"), 127, "no-such-program", "PATH")
    expect_refusal(run("run", "-n", "2", "--", "./no-such-program"), 127, "./no-such-program", "No such file")
    expect_refusal(run("run", "-n", "2", "--", "/nonexist"), 127, "/nonexist", "No such file")
    expect_refusal(run("run", "-n", "2", "--", ""), 2, "empty")
    expect_refusal(run("run", "-n", "2", "--", shared.FOLDER), 126, "directory")
    expect_refusal(run("run", "-n", "2", "--", "/dev/null/program"), 126, "Not a directory")
    path = os.path.join(shared.FOLDER, "plain")
    with open(path, "w", encoding="utf-8") as file:
        file.write("no program")
    os.chmod(path, 0o644)
    expect_refusal(run("run", "-n", "2", "--", path), 126, "Permission denied")
    expect_refusal(run("run", "-n", "2", "--", "plain", PATH=f"{shared.FOLDER}:/usr/bin"), 126, "plain", "Permission denied")
    os.chmod(path, 0o755)
    expect_refusal(run("run", "-n", "2", "--", path), 126, "Exec format error")
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/no/such/interpreter\n")
    expect_refusal(run("run", "-n", "2", "--", path), 127, path, "No such file")


def test_run_finds_programs_as_a_shell_does():
    folder = os.path.join(shared.FOLDER, "programs")
    os.makedirs(os.path.join(folder, "decoy", "greet"))
    with open(os.path.join(folder, "greet"), "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\necho hello $1\n")
    os.chmod(os.path.join(folder, "greet"), 0o755)
    outcome = run("run", "-n", "1", "--", "greet", "you", PATH=f"{folder}/decoy:{folder}:/usr/bin:/bin")
    expect(outcome.status == 0 and outcome.out == "hello you\n", "in PATH", outcome)


def test_run_help():
    outcome = run("run", "--help")
    expect(outcome.status == 0, "--help", outcome)
    for word in ("--ranks", "--timeout", "--grace", "--stand-in", "--label", "MASTER_PORT", "Exit status"):
        expect(word in outcome.out, f"--help lacks {word}", outcome)


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
