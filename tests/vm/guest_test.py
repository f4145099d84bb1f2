#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/vm/guest promises: devices that carry data, outputs and exit codes, deadlines, errors. --list names the cases."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

GUEST = pathlib.Path(__file__).resolve().parent / "guest"
SKIPPED = 77


def guest(*words, limit_s=150, prepared=True, **more):
    """Runs the guest; ends this test as skipped where guests cannot run."""
    command = [str(GUEST), *(["--prepared"] if prepared else []), *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, **more)
    if result.returncode == SKIPPED and prepared:
        print(result.stderr.strip() or "guests cannot run here")
        sys.exit(SKIPPED)
    return result


def shell(script, *options, expected=0, **more):
    """The output of a bash script that ran in the guest; any failing command in it fails the test."""
    result = guest(*options, "--", "bash", "-euo", "pipefail", "-c", script, **more)
    check(result.returncode == expected, f"exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def check(is_right, text):
    if not is_right:
        raise AssertionError(text)


def check_equal(got, wanted):
    check(got == wanted, f"{got!r}, not {wanted!r}")


CLIENT_AND_SERVER = """
until_listening() {  # PORT: servers do not say that they are ready
  local tries
  for ((tries = 0; tries < 600; ++tries)); do
    if { rdma resource show cm_id; ss -Hltn; } | grep LISTEN | grep -q ":$1 "; then return; fi
    sleep 0.1
  done
  echo "nobody listens on port $1"
  return 1
}

with_server() {  # PORT SERVER CLIENT: each command one word for bash
  bash -c "$2" >/tmp/server.log 2>&1 & server=$!
  until_listening $1 || { cat /tmp/server.log; return 1; }
  local status=0
  bash -c "$3" >/tmp/client.log 2>&1 || status=$?
  if [ $status != 0 ]; then kill $server 2>/dev/null; wait $server; tail -c 2000 /tmp/server.log; else wait $server || status=$?; fi
  cat /tmp/client.log
  return $status
}

ping_pairs() {  # OPTION...: rping over both networks
  local peer
  for peer in $GIGABAR_VM_RXE_PEER $GIGABAR_VM_SIW_PEER; do
    with_server 7174 "rping -s -a $peer -V $*" "rping -c -a $peer -V -v $*"
  done
}

ping_with_losses() {  # OPTION...: as ping_pairs; where frames are lost the kernel's own connections stand still for minutes once in a while
  local peer try status  # that may be at their end, after all the pings: only what the last try printed is told
  for peer in $GIGABAR_VM_RXE_PEER $GIGABAR_VM_SIW_PEER; do
    for try in 1 2 3; do
      status=0
      with_server 7174 "exec timeout -k 1 80 rping -s -a $peer -V $*" "exec timeout -k 1 60 rping -c -a $peer -V -v $*" >/tmp/pings || status=$?
      if [ $status != 124 ] && [ $status != 137 ]; then break; fi
      echo "over $peer: not over in time"
    done
    cat /tmp/pings
    [ $status = 0 ]
  done
}
"""


def case_devices():
    """Both kinds of devices are there and active, with the kernel's drivers behind them."""
    out = shell("rdma link; ibv_devinfo; cat /proc/version; lsmod | cut -d ' ' -f 1")
    for name in ("rxe0", "rxe1", "siw0", "siw1"):
        check(re.search(rf"link {name}/1 state ACTIVE", out), f"no active {name}:\n{out}")
        check(re.search(rf"hca_id:\s*{name}", out), f"{name} not seen by libibverbs:\n{out}")
    check("InfiniBand (0)" in out and "iWARP (1)" in out, out)
    for module in ("rdma_rxe", "siw", "fakegpu", "rdma_ucm"):
        check(re.search(rf"^{module}$", out, re.M), f"no module {module}:\n{out}")


def case_rping():
    """Data that rping checks itself goes both ways over both networks."""
    out = shell(CLIENT_AND_SERVER + "ping_pairs -C 10")
    check_equal(out.count("rdma-ping-9"), 2)


def case_write_bandwidth():
    """perftest's ib_write_bw writes over both; the bytes have really left the interface."""
    script = CLIENT_AND_SERVER + """
    sent() { cat /sys/class/net/$1/statistics/tx_bytes; }
    for pair in "eth0 rxe1 rxe0 $GIGABAR_VM_RXE_PEER -x1" "iw0 siw1 siw0 $GIGABAR_VM_SIW_PEER -R"; do
      read -r interface owner writer peer how <<<"$pair"
      before=$(sent $interface)
      with_server 18515 "ib_write_bw -d $owner $how -s 65536 -n 64" "ib_write_bw -d $writer $how -s 65536 -n 64 $peer"
      echo "sent $(($(sent $interface) - before))"
    done"""
    out = shell(script)
    check_equal(len(re.findall(r"^ *65536 +64 +[\d.]+ +[\d.]+", out, re.M)), 2)
    for count in re.findall(r"^sent (\d+)$", out, re.M):
        check(int(count) > 64 * 65536, f"only {count} bytes crossed the interface")


def case_lost_frames():
    """netem drops frames, and what rxe and siw carry is still right."""
    script = CLIENT_AND_SERVER + """
    for interface in eth0 eth1 iw0 iw1; do tc qdisc add dev $interface root netem loss 3%; done
    ping_with_losses -C 15 -S 20000
    echo
    for pair in "eth0 eth1" "iw0 iw1"; do for each in $pair; do tc -s qdisc show dev $each; done | grep -o 'dropped [0-9]*' |
      awk '{ sum += $2 } END { print "lost", sum }'; done"""
    out = shell(script, "--timeout", 400, limit_s=420)
    check_equal(out.count("rdma-ping-14: "), 2)
    lost = [int(count) for count in re.findall(r"^lost (\d+)$", out, re.M)]
    check(len(lost) == 2 and min(lost) > 0, f"lost frames: {lost}")


def case_two_guests():
    """Two guests reach each other on both networks, know who they are and wait for each other."""
    script = CLIENT_AND_SERVER + """
    echo "rank $GIGABAR_VM_RANK of $GIGABAR_VM_GUESTS on $(hostname)"
    touch "$GIGABAR_VM_JOB/from-$GIGABAR_VM_RANK"
    guest-barrier started
    [ -e "$GIGABAR_VM_JOB/from-$((1 - GIGABAR_VM_RANK))" ]
    for net in RXE SIW; do
      address=GIGABAR_VM_${net}_ADDRESS peer=GIGABAR_VM_${net}_PEER
      if [ $GIGABAR_VM_RANK = 0 ]; then
        rping -s -a ${!address} -C 10 -V & server=$!
        until_listening 7174
        guest-barrier listening-$net
        wait $server
      else
        guest-barrier listening-$net
        rping -c -a ${!peer} -C 10 -V -v
      fi
      guest-barrier $net
    done"""
    out = shell(script, "--guests", 2)
    check("rank 0 of 2 on guest0" in out and "rank 1 of 2 on guest1" in out, out)
    check_equal(out.count("rdma-ping-9"), 2)


def case_outputs_and_exit_code():
    """stdout, stderr and exit code come back whole and apart; of two guests the first code that is not 0."""
    result = guest("--", "bash", "-c", "echo out; echo err >&2; exit 7")
    check_equal((result.returncode, result.stdout, result.stderr), (7, "out\n", "err\n"))
    result = guest("--", "bash", "-c", "kill -9 $$")
    check_equal(result.returncode, 128 + 9)
    result = guest("--", "nonexistent-program")
    check_equal(result.returncode, 127)
    check("nonexistent-program" in result.stderr, result.stderr)
    result = guest("--", "seq", 1000000)
    check_equal(result.stdout.split(), [str(i) for i in range(1, 1000001)])
    result = guest("--guests", 2, "--", "bash", "-c", "exit $((GIGABAR_VM_RANK * 5))")
    check_equal(result.returncode, 5)


def case_command_finds_its_place():
    """Arguments, environment and folder of the caller; the time of day; numbers that nobody else draws."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["", "two words", "$HOME", "line\nend", "'\""]
        environment = dict(os.environ, MARK="some text\nof two lines")
        script = 'pwd; echo "$MARK"; date +%s; cat /proc/sys/kernel/random/uuid; printf "<%s>" "$@"'
        outs = [guest("--", "bash", "-c", script, "bash", *words, cwd=folder, env=environment).stdout for _ in range(2)]
        lines = outs[0].split("\n", 5)
        check_equal(lines[:3], [os.path.realpath(folder), "some text", "of two lines"])
        check(abs(int(lines[3]) - time.time()) < 60, f"it is {time.time()}, not {lines[3]}")
        check(outs[1].split("\n", 5)[4] != lines[4], f"{lines[4]} was drawn twice")
        check_equal(lines[5], "".join(f"<{word}>" for word in words))


def case_writable_folders():
    """What is written stays in the guest, except in --rw folders."""
    with tempfile.TemporaryDirectory() as root:
        kept, lost = pathlib.Path(root, "kept"), pathlib.Path(root, "lost")
        kept.mkdir()
        lost.mkdir()
        (lost / "here").write_text("before")
        shell(f"echo 1 >{kept}/file; echo 2 >{lost}/file; echo 3 >{lost}/here; cat {lost}/here", "--rw", kept)
        check_equal((kept / "file").read_text(), "1\n")
        check_equal([path.name for path in lost.iterdir()], ["here"])
        check_equal((lost / "here").read_text(), "before")


def case_time_is_over():
    """A command that hangs ends with its guests, close to its deadline, with everything that it printed."""
    for guests in (1, 2):
        began = time.monotonic()
        result = guest("--guests", guests, "--timeout", 12, "--", "bash", "-c", "echo before; sleep 1000")
        check_equal(result.returncode, 124)
        check(result.stdout == "before\n" * guests, f"{result.stdout!r} and {result.stderr}")
        check("no result after 12 s" in result.stderr, result.stderr)
        check(12 <= time.monotonic() - began < 120, f"{time.monotonic() - began} s")


def case_kernel_dies():
    """A guest whose kernel panics is reported with the kernel's words; the other guest does not wait for it."""
    for guests in (1, 2):
        script = "if [ $GIGABAR_VM_RANK = 0 ]; then echo c >/proc/sysrq-trigger; else sleep 1000; fi"
        result = guest("--guests", guests, "--", "bash", "-c", script)
        check_equal(result.returncode, 125)
        check("sysrq triggered crash" in result.stderr, result.stderr)


def case_killed_run_leaves_nothing():
    """After kill -9 no QEMU stays, and the next run removes the folder."""
    with tempfile.TemporaryDirectory() as folder:
        mark = pathlib.Path(folder, "qemu")
        words = [GUEST, "--prepared", "--rw", folder, "--", "bash", "-c", f"echo >{mark}; sleep 1000"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 100
        while not mark.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if process.poll() == SKIPPED:
            print(process.communicate()[1].strip())
            sys.exit(SKIPPED)
        check(mark.exists(), "the command did not start")
        children = processes_with(f"path={folder}")
        check_equal(len(children), 1)
        process.kill()
        process.communicate()
        while processes_with(f"path={folder}") and time.monotonic() < deadline:
            time.sleep(0.05)
        check_equal(processes_with(f"path={folder}"), [])


def processes_with(text):
    """Numbers of the QEMU processes with `text` in their arguments."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "qemu-system" in line and text in line:
            found.append(int(path.parent.name))
    return found


def case_side_by_side():
    """Runs started at once do not disturb each other, also when they need a state that nobody saved yet."""
    words = [GUEST, "--prepared", "--memory", "384", "--", "bash", "-c", "rdma link | grep -c ACTIVE"]
    runs = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    results = [(*run.communicate(timeout=160), run.returncode) for run in runs]
    if results[0][2] == SKIPPED:
        print(results[0][1].strip())
        sys.exit(SKIPPED)
    for out, errors, code in results:
        check((out, code) == ("4\n", 0), f"exit code {code}: {out}{errors}")


def case_spoilt_state():
    """A saved state that does not wake is thrown away; the kernel is booted and the command runs all the same."""
    options = ("--memory", 320)
    shell("true", *options)
    cache = pathlib.Path(os.environ.get("GIGABAR_VM_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gigabar/vm")
    newest = max(cache.glob("guest-*/state-*"), key=lambda path: path.stat().st_mtime)
    newest.write_bytes(newest.read_bytes()[:100000])
    result = guest(*options, "--", "echo", "there")
    check_equal((result.returncode, result.stdout), (0, "there\n"))
    check("did not wake up" in result.stderr, result.stderr)
    check(not newest.exists(), "the spoilt state is still there")


def case_without_set_up():
    """--prepared in an empty cache is a skip with a reason and writes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        result = guest("--prepared", "--", "true", prepared=False, env=dict(os.environ, GIGABAR_VM_CACHE=folder))
        check_equal(result.returncode, SKIPPED)
        check("guest --set-up" in result.stderr, result.stderr)
        check_equal(list(pathlib.Path(folder).iterdir()), [])
        pathlib.Path(folder, "why-not").write_text("no network\n")
        result = guest("--prepared", "--", "true", prepared=False, env=dict(os.environ, GIGABAR_VM_CACHE=folder))
        check_equal((result.returncode, result.stderr), (SKIPPED, "guest: no network\n"))


def case_wrong_options():
    """Each wrong option is refused with exit code 2 and named."""
    for words, named in (
        (["--guests", "3", "--", "true"], "--guests"),
        (["--timeout", "0", "--", "true"], "--timeout"),
        (["--timeout", "soon", "--", "true"], "--timeout"),
        (["--bar", "3", "--", "true"], "--bar"),
        (["--rw", "/nonexistent/folder", "--", "true"], "/nonexistent/folder"),
        (["--module", "/nonexistent.ko", "--", "true"], "/nonexistent.ko"),
        (["--nonsense", "--", "true"], "--nonsense"),
        ([], "no command"),
        (["--set-up", "--", "true"], "--set-up"),
    ):
        result = guest(*words, prepared=False)
        check_equal(result.returncode, 2)
        check(named in result.stderr, f"{words}: {result.stderr}")


CASES = {name.removeprefix("case_"): function for name, function in list(globals().items()) if name.startswith("case_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--case", choices=CASES)
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return
    for name in [arguments.case] if arguments.case else CASES:
        began = time.monotonic()
        CASES[name]()
        print(f"{name}: passed in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
