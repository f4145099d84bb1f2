#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts ranks under the launchers that people use and checks that they find each other.

--rank FILE is the program fabric_print_job, --program FILE the program gigabar (or nothing), --case NAME runs one case, --list
prints them. Exit status: 0 passed, 1 failed, 77 the launcher is not installed.
"""

import argparse
import os
import random
import re
import shutil
import socket
import subprocess
import sys

OPTIONS = None
SKIPPED = 77


class Skip(Exception):
    pass


def environment(**variables):
    """The caller's, without anything that a launcher leaves."""
    left = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: value for name, value in os.environ.items()
            if name not in left and not name.startswith(("GIGABAR_", "PMIX_", "PMI_", "PALS_", "OMPI_", "MV2_", "MVP_", "FLUX_", "JSM_",
                                                         "SLURM_", "TORCHELASTIC_"))}
    return kept | variables


def lines_of(command, count, **variables):
    """What `count` ranks that succeed say of themselves: (launcher, rank, rank count, local rank, id, key)."""
    completed = subprocess.run(command, env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               timeout=100, check=False)
    assert completed.returncode == 0, f"{command}: status {completed.returncode}\n{completed.stdout}\n{completed.stderr}"
    return parse(completed.stdout, count)


def parse(text, count):
    found = re.findall(r"^launcher (\S+) rank (\d+) of (\d+) local (\S+) id (\S+) key (\S+)$", text, re.MULTILINE)
    assert len(found) == count, f"{count} ranks wanted:\n{text}"
    found.sort(key=lambda words: int(words[1]))
    assert [int(words[1]) for words in found] == list(range(count)), f"ranks:\n{text}"
    assert all(int(words[2]) == count for words in found), f"rank counts:\n{text}"
    assert len({words[4] for words in found}) == 1, f"the ids differ:\n{text}"
    assert len({words[5] for words in found}) == 1, f"the keys differ:\n{text}"
    return found


def mpirun(*arguments):
    program = shutil.which("mpirun")
    if program is None:
        raise Skip("mpirun is not installed (package openmpi-bin)")
    return [program, "--oversubscribe", "--allow-run-as-root", *arguments]


def test_mpirun_is_found_through_pmix():
    found = lines_of(mpirun("-n", "2", OPTIONS.rank), 2)
    assert all(words[0] == "pmix" and words[3] == words[1] and words[5] != "none" for words in found), f"{found}"
    assert lines_of(mpirun("-n", "2", OPTIONS.rank), 2)[0][5] != found[0][5], "two jobs have the same key"


def test_mpirun_ranks_come_in_any_order():
    late = ["sh", "-c", f"sleep 1; exec {OPTIONS.rank}"]
    lines_of(mpirun("-n", "1", *late, ":", "-n", "2", OPTIONS.rank), 3)
    lines_of(mpirun("-n", "2", OPTIONS.rank, ":", "-n", "1", *late), 3)


def test_mpirun_takes_a_key_of_the_environment():
    key = "0123456789abcdef" * 4
    found = lines_of(mpirun("-n", "2", "-x", "GIGABAR_JOB_KEY", "-x", "GIGABAR_JOB_ID", OPTIONS.rank), 2, GIGABAR_JOB_KEY=key,
                     GIGABAR_JOB_ID="mine")
    again = lines_of(mpirun("-n", "2", "-x", "GIGABAR_JOB_KEY", OPTIONS.rank), 2, GIGABAR_JOB_KEY=key)
    assert found[0][4] == "mine" and found[0][5] == again[0][5], f"{found} {again}"


def test_two_launchers_that_disagree_are_refused():
    completed = subprocess.run(mpirun("-n", "2", "-x", "RANK=1", "-x", "WORLD_SIZE=4", OPTIONS.rank), env=environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100, check=False)
    assert completed.returncode != 0 and "GIGABAR_LAUNCHER" in completed.stderr, completed.stderr


def test_a_pmix_server_that_is_gone_is_an_error():
    completed = subprocess.run([OPTIONS.rank], stderr=subprocess.PIPE, text=True, timeout=100, check=False,
                               env=environment(PMIX_RANK="0", PMIX_NAMESPACE="1", PMIX_SERVER_URI4="1.0;tcp4://127.0.0.1:9"))
    assert completed.returncode == 1 and "print_job:" in completed.stderr, completed.stderr


def bind_apart(agent):
    """To a port that is free like the one above it, below those that connections take by themselves (32768 and more)."""
    for _ in range(100):
        port = random.randrange(20000, 32000)
        try:
            with socket.socket() as above:
                above.bind(("127.0.0.1", port + 1))
                agent.bind(("127.0.0.1", port))
            return
        except OSError:
            pass
    raise AssertionError("no two free ports in 100 tries")


def test_torchruns_environment():
    with socket.socket() as agent:  # torchrun's own store keeps the port
        bind_apart(agent)
        agent.listen()
        port = agent.getsockname()[1]
        assert port < 65535
        common = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True",
                  "TORCHELASTIC_RUN_ID": "some-run"}
        started = [subprocess.Popen([OPTIONS.rank], env=environment(RANK=str(rank), LOCAL_RANK=str(rank), **common),
                                    stdout=subprocess.PIPE, text=True) for rank in range(2)]
        text = "".join(process.communicate(timeout=100)[0] for process in started)
    found = parse(text, 2)
    assert all(words[0] == "environment" and words[3] == words[1] and words[4:] == ("some-run", "none") for words in found), f"{found}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def srun(count, command, **variables):
    """`count` tasks as srun without PMIx starts them, with what each writes."""
    common = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2", "SLURM_NTASKS": str(count), "SLURM_STEP_NUM_TASKS": str(count),
              "SLURM_STEP_NODELIST": "localhost", "GIGABAR_MASTER_PORT": str(free_port())}
    started = [subprocess.Popen(command, env=environment(**(common | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} | variables)),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(count)]
    return [(*process.communicate(timeout=100), process.returncode) for process in started]


def test_srun_without_pmix():
    key = "0123456789abcdef" * 4
    for count, variables in ((4, {}), (3, {"GIGABAR_JOB_KEY": key}), (2, {"MASTER_ADDR": "[::1]"}), (2, {"PMI_SIZE": "2"})):
        tasks = srun(count, [OPTIONS.rank], **variables)
        assert all(status == 0 for _, _, status in tasks), f"{tasks}"
        found = parse("".join(out for out, _, _ in tasks), count)
        assert all(words[0] == "slurm" and words[3] == words[1] for words in found), f"{found}"
        assert (found[0][5] == "none") != ("GIGABAR_JOB_KEY" in variables), f"{found}"


def test_srun_by_the_port_of_its_step():
    for _ in range(20):
        job = random.randrange(1, 1000000)
        port = 21000 + (97 * job + 2) % 8191
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                continue  # taken by another program
        tasks = [subprocess.Popen([OPTIONS.rank], stdout=subprocess.PIPE, text=True,
                                  env=environment(SLURM_JOB_ID=str(job), SLURM_STEP_ID="2", SLURM_NTASKS="2", SLURM_PROCID=str(rank),
                                                  SLURM_STEP_NODELIST="localhost")) for rank in range(2)]
        parse("".join(task.communicate(timeout=100)[0] for task in tasks), 2)
        return
    raise AssertionError("no free port in 20 tries")


def test_every_rank_names_an_address_that_is_unknown():
    tasks = srun(2, [OPTIONS.rank], SLURM_STEP_NODELIST="no-such-host[1-2].invalid")
    for _, error, status in tasks:
        assert status == 1 and "no-such-host1.invalid" in error and "MASTER_ADDR" in error, f"{tasks}"


def test_gigabar_bw_between_tasks_of_srun():
    if not OPTIONS.program:
        raise Skip("this build has no command line")
    tasks = srun(2, [OPTIONS.program, "bw", "-d", "host", "-m", "1:8", "-i", "5", "-x", "1", "--transport", "local"])
    assert all(status == 0 for _, _, status in tasks), f"{tasks}"
    assert tasks[0][0] and not tasks[1][0], f"one table for both: {tasks}"


def test_gigabar_bw_is_refused_where_ranks_cannot_meet():
    if not OPTIONS.program:
        raise Skip("this build has no command line")
    command = [OPTIONS.program, "bw", "-d", "host", "-m", "1:8", "-i", "5", "-x", "1", "--transport", "local"]
    for name, variables in (("PMI_RANK", {"PMI_SIZE": "4"}), ("OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE": "4"}),
                            ("SLURM_STEP_ID", {"SLURM_PROCID": "3"}), ("SLURM_NTASKS", {"SLURM_PROCID": "3", "SLURM_STEP_ID": "0"})):
        own = variables | ({name: "3"} if name.endswith("_RANK") else {})
        for more, is_refused in (({}, True), ({"GIGABAR_LAUNCHER": "none"}, False)):
            done = subprocess.run(command, env=environment(**own, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=100, check=False)
            assert (done.returncode == 1 and name in done.stderr and not done.stdout) if is_refused else done.returncode == 0, f"{own} {more}: {done}"


def test_gigabar_bw_in_shells_of_slurm():
    if not OPTIONS.program:
        raise Skip("this build has no command line")
    command = [OPTIONS.program, "bw", "-d", "host", "-m", "1:8", "-i", "5", "-x", "1", "--transport", "local"]
    batch = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "n[1-4]"}
    pty = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "n1"}
    for variables in (batch, pty):
        done = subprocess.run(command, env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100,
                              check=False)
        assert done.returncode == 0 and done.stdout, f"it starts its own two ranks: {done}"


def test_gigabar_run():
    if not OPTIONS.program:
        raise Skip("this build has no command line")
    found = lines_of([OPTIONS.program, "run", "-n", "5", "--", OPTIONS.rank], 5)
    assert all(words[0] == "environment" and words[3] == words[1] and words[5] != "none" for words in found), f"{found}"


def test_gigabar_run_under_mpirun():
    if not OPTIONS.program:
        raise Skip("this build has no command line")
    completed = subprocess.run(mpirun("-n", "2", OPTIONS.program, "run", "-n", "2", "--", OPTIONS.rank), env=environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100, check=False)
    assert completed.returncode == 0, completed.stderr
    jobs = {}
    for line in completed.stdout.splitlines():
        jobs.setdefault(re.search(r" id (\S+) ", line)[1], []).append(line)
    assert len(jobs) == 2, completed.stdout
    for lines in jobs.values():
        parse("\n".join(lines), 2)


CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--rank")
    parser.add_argument("--program")
    parser.add_argument("--case", choices=sorted(CASES))
    OPTIONS = parser.parse_args()
    if OPTIONS.list:
        print("\n".join(CASES))
        return 0
    try:
        CASES[OPTIONS.case]()
    except Skip as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED
    except AssertionError as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
