#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gaspi_run_test.py SCRIPT: what gaspi_run gives its ranks, here and on other hosts, and how it ends. Other hosts are played by launchers
of this test, which write down how they were called.

exit code: 0 all as it should be; 1 otherwise.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(sys.argv.pop(1)).resolve()
SHOW = 'echo "$GASPI_RANK of $GASPI_NRANKS, socket $GASPI_SOCKET, master $GASPI_MASTER, key ${#GIGABAR_JOB_KEY}, ${RANK:-none}, $*"'


class GaspiRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("GASPI_", "GIGABAR_", "SLURM_"))}
        self.environment["PATH"] = f"{self.folder}:{self.environment['PATH']}"
        self.environment["RANK"] = "7"  # of another launcher

    def play(self, launcher):
        """A launcher that starts the command here, as this other host would, with none of the variables that it does not pass."""
        calls = self.folder / "calls"
        start = {"ssh": 'shift 3; exec env -u GASPI_RANK -u GIGABAR_JOB_KEY bash -c "$1"',
                 "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
                 "mpirun": 'while [[ $1 != env ]]; do shift; done; exec "$@"'}[launcher]
        file = self.folder / launcher
        file.write_text(f'#!/usr/bin/env bash\necho "$@" >>{calls}\n{start}\n')
        file.chmod(0o755)
        self.environment["GASPI_RUN_LAUNCHER"] = launcher
        return calls

    def run_it(self, *arguments, code=0):
        done = subprocess.run([SCRIPT, *arguments], env=self.environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_ranks_of_this_host(self):
        lines = sorted(self.run_it("-n", "3", "bash", "-c", SHOW, "x", "a b").stdout.splitlines())
        self.assertEqual(lines, [f"{rank} of 3, socket {rank}, master 127.0.0.1, key 64, none, a b" for rank in range(3)])

    def test_first_lines_of_the_machine_file(self):
        file = self.folder / "machines"
        file.write_text("localhost\n\nlocalhost slots=2\nlocalhost\n")
        self.assertEqual(len(self.run_it("-m", file, "-n", "2", "bash", "-c", SHOW).stdout.splitlines()), 2)
        self.assertEqual(len(self.run_it("-m", file, "bash", "-c", SHOW).stdout.splitlines()), 3)
        file.write_bytes(b"localhost\r\n\r\n \n  localhost\r\nlocalhost")  # the last line has no end
        self.assertEqual(len(self.run_it("-m", file, "bash", "-c", SHOW).stdout.splitlines()), 3)
        self.assertIn("has 3 hosts", self.run_it("-m", file, "-n", "4", "true", code=2).stderr)

    def test_other_hosts(self):
        file = self.folder / "machines"
        file.write_text("localhost\nfar\nfar\n")
        for launcher in ("ssh", "srun", "mpirun"):
            with self.subTest(launcher):
                calls = self.play(launcher)
                lines = sorted(self.run_it("-m", file, "bash", "-c", SHOW, "x", "a  b").stdout.splitlines())
                here = os.uname().nodename
                self.assertEqual(lines, [f"{rank} of 3, socket {socket}, master {here}, key 64, none, a  b" for rank, socket in
                                         ((0, 0), (1, 0), (2, 1))])
                self.assertEqual(calls.read_text().count("far"), 2)
                self.assertNotRegex(calls.read_text(), "[0-9a-f]{64}", "the key is on a command line")
                calls.unlink()

    def test_another_program_for_rank_0(self):
        file = self.folder / "first"
        file.write_text("#!/bin/sh\necho first $GASPI_RANK $1\n")
        file.chmod(0o755)
        lines = sorted(self.run_it("-n", "2", "-b", file, "echo", "rest").stdout.splitlines())
        self.assertEqual(lines, ["first 0 rest", "rest"])

    def test_debugger_for_rank_0(self):
        file = self.folder / "gdb"
        file.write_text('#!/bin/sh\necho "gdb $*"\n')
        file.chmod(0o755)
        self.assertEqual(sorted(self.run_it("-d", "-n", "2", "echo", "x").stdout.splitlines()), ["gdb --args echo x", "x"])

    def test_exit_codes(self):
        self.run_it("-n", "3", "bash", "-c", "exit $((GASPI_RANK * 3))", code=3)
        for wrong in (["-n", "0", "true"], ["-n", "x", "true"], ["-z", "true"], [], ["-n"], ["-m", "/nonexistent", "true"]):
            self.assertIn("gaspi_run:", self.run_it(*wrong, code=2).stderr)
        self.assertIn("-m FILE", self.run_it("-h").stdout)

    def test_values_that_cannot_be_followed(self):
        empty, pipe = self.folder / "empty", self.folder / "pipe"
        empty.write_text("\n \n")
        os.mkfifo(pipe)
        for words, reason in ((("-m", self.folder), "no regular file"), (("-m", pipe), "no regular file"), (("-m", empty), "names no host"),
                              (("-m", ""), "empty"), (("-n", ""), "empty"), (("-n", "4097"), "from 1 to 4096"), (("-n", "9" * 20), "from 1 to 4096")):
            lines = self.run_it(*words, "true", code=2).stderr.splitlines()
            self.assertEqual(len(lines), 1, lines)
            self.assertRegex(lines[0], f"^gaspi_run: {words[0]}.*{reason}")

    def test_signals_leave_no_rank(self):
        for number, before in ((signal.SIGINT, ""), (signal.SIGTERM, ""), (signal.SIGHUP, ""), (signal.SIGHUP, 'trap "" TERM; ')):
            with self.subTest(number.name, before=before):
                # Whoever runs this may ignore them, as nohup does, and a script can catch no such signal.
                process = subprocess.Popen([SCRIPT, "-n", "2", "bash", "-c", before + "echo $$; exec sleep 600"], env=self.environment, text=True,
                                           preexec_fn=lambda number=number: signal.signal(number, signal.SIG_DFL), stdout=subprocess.PIPE)
                ranks = [int(process.stdout.readline()) for _ in range(2)]
                process.send_signal(number)
                self.assertEqual(process.wait(60), 130)
                process.stdout.close()
                for rank in ranks:
                    self.assertRaises(ProcessLookupError, os.kill, rank, signal.SIGKILL)

    def test_a_second_signal_of_a_terminal_kills(self):
        """It goes to the whole group, also to what the script itself has started to wait."""
        process = subprocess.Popen([SCRIPT, "-n", "2", "bash", "-c", 'trap "" INT TERM; echo $$; exec sleep 600'], env=self.environment, text=True,
                                   start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), stdout=subprocess.PIPE)
        ranks = [int(process.stdout.readline()) for _ in range(2)]
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(60), 130)
        process.stdout.close()
        for rank in ranks:
            self.assertRaises(ProcessLookupError, os.kill, rank, signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
