# SPDX-License-Identifier: Apache-2.0
"""One guest of tests/vm/guest as a QEMU process: its arguments, its saved state, its end. README.md says what a guest is."""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

SAVED_STATES = 8  # kept; each has about 100 MB
BOOT_DEADLINE_S = 120

# TCG runs `rep movsb` byte by byte and carry-less multiplication (CRC32 of each rxe packet) slowly; code in the guest does without.
DEFAULT_CPU = "max,-erms,-pclmulqdq,-avx,-avx2"

KERNEL_PARAMETERS = (
    "console=ttyS0 loglevel=6 panic=-1 oops=panic mitigations=off nokaslr tsc=reliable no_timer_check cryptomgr.notests "
    "random.trust_cpu=on audit=0 apparmor=0 nowatchdog rcupdate.rcu_cpu_stall_suppress=1 net.ifnames=0 rodata=off "
    # Programs lie where they lay before, so that TCG need not translate them anew: ranks start in a third of the time.
    "norandmaps"
)


class Failure(Exception):
    """The guest cannot be started; the text says why."""


@dataclasses.dataclass
class Machine:
    """What a guest is made of. Guests with equal machines wake from the same saved state."""

    folder: pathlib.Path  # what set_up.sh left
    guests: int
    memory_mib: int
    cpus: int
    mtu: int
    bar_mib: int
    cpu: str
    writable: list

    def state_file(self, rank):
        """Where the state of guest `rank` is kept. A state fits only the QEMU and the processor that it was saved with."""
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            processor = [line for line in file if line.startswith(("model name", "bogomips"))][:2]
        program = os.stat(program_path())
        parts = [KERNEL_PARAMETERS, rank, self.guests, self.memory_mib, self.cpus, self.mtu, self.bar_mib, self.cpu, len(self.writable)]
        parts += [program.st_size, program.st_mtime_ns, *processor]
        digest = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
        return self.folder / f"state-{digest[:16]}"


def program_path():
    path = shutil.which("qemu-system-x86_64")
    if path is None:
        raise Failure("qemu-system-x86_64 is not there; install qemu-system-x86")
    return path


def arguments(machine, job, rank, how, output, errors, cables):
    """QEMU's arguments. `how` is boot, save or wake; `output`, `errors` and `cables` are descriptors that QEMU inherits."""
    release = (machine.folder / "release").read_text().strip()
    kernel = (machine.folder / "kernel").resolve()
    parameters = f"{KERNEL_PARAMETERS} rank={rank} guests={machine.guests} mtu={machine.mtu} release={release} kernel={kernel}"
    words = ["-M", "q35", "-accel", "tcg,thread=multi,tb-size=256", "-cpu", machine.cpu]
    words += ["-m", str(machine.memory_mib), "-smp", str(machine.cpus), "-nodefaults", "-no-user-config", "-display", "none"]
    words += ["-no-reboot", "-monitor", "none", "-device", "isa-debug-exit,iobase=0xf4,iosize=1"]
    # A woken guest would announce itself to a peer that is not connected yet, which ends QEMU 7.2.
    words += ["-global", "migration.announce-rounds=0"]
    words += ["-kernel", str(kernel / "vmlinux"), "-initrd", str(machine.folder / "initrd")]
    words += ["-chardev", f"file,id=log,path={job}/kernel.{rank}.log", "-serial", "chardev:log", "-device", "virtio-serial-pci"]
    words += ["-chardev", f"file,id=output,path=/dev/fd/{output}", "-device", "virtserialport,chardev=output,name=output,nr=1"]
    words += ["-chardev", f"file,id=errors,path=/dev/fd/{errors}", "-device", "virtserialport,chardev=errors,name=errors,nr=2"]
    words += shared_folder("job", job) + shared_folder("root", "/", ",readonly=on,multidevs=remap")
    for index, path in enumerate(machine.writable):
        words += shared_folder(f"rw{index}", path)
    if machine.bar_mib > 0:
        words += ["-object", f"memory-backend-memfd,id=bar,share=on,size={machine.bar_mib}M"]
        words += ["-device", "ivshmem-plain,memdev=bar,master=on"]  # master: its content is part of a saved state
    for net in range(2 if machine.guests == 2 else 0):
        end = f"hubport,id=net{net},hubid={net}" if how == "save" else f"socket,id=net{net},fd={cables[net]}"
        card = f"virtio-net-pci,netdev=net{net},mac=52:54:00:77:0{net}:0{rank + 1},host_mtu={machine.mtu},romfile="
        words += ["-netdev", end, "-device", card]
    if how != "boot":
        parameters += " state=1"
        now = "0" if how == "save" else f"{time.time():.9f}"
        words += ["-fw_cfg", f"name=opt/gigabar/time,string={now}"]
        words += ["-chardev", f"file,id=ready,path={job}/ready.{rank}", "-device", "isa-debugcon,iobase=0xe9,chardev=ready"]
    return words + ["-append", parameters]


def shared_folder(tag, path, more=""):
    return ["-fsdev", f"local,id={tag},path={path},security_model=none{more}", "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


class Guest:
    """A running guest. What it prints comes out of the descriptors `output` and `errors`, which end when it ends."""

    def __init__(self, machine, job, rank, how, cables=()):
        self.rank = rank
        self.job = job
        self.output, output_end = os.pipe()
        self.errors, errors_end = os.pipe()
        words = arguments(machine, job, rank, how, output_end, errors_end, cables)
        inherited = [output_end, errors_end, *cables]
        if how == "save":
            # That the guest stood still is not saved, so that it runs when it wakes.
            words += ["-qmp", f"unix:{job}/monitor,server=on,wait=off", "-global", "migration.store-global-state=off"]
        if how == "wake":
            state = os.open(machine.state_file(rank), os.O_RDONLY)
            inherited.append(state)
            words += ["-incoming", f"fd:{state}"]
        with open(self.path("qemu"), "wb") as log:
            # Whatever ends this program ends the guest.
            command = ["setpriv", "--pdeathsig", "KILL", program_path(), *words]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=inherited)
        os.close(output_end)
        os.close(errors_end)
        if how == "wake":
            os.close(state)

    def path(self, name):
        return self.job / (f"{name}.{self.rank}" + (".log" if name in ("kernel", "qemu", "network") else ""))

    def text(self, name):
        try:
            return self.path(name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def is_running(self):
        return self.process.poll() is None

    def exit_code(self):
        """What the command returned; None when it did not end."""
        text = self.text("exit").strip()
        return int(text) if text else None

    def end(self):
        """A guest has nothing to save."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.end()
        os.close(self.output)
        os.close(self.errors)


class Monitor:
    """QEMU's control connection."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(BOOT_DEADLINE_S)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rw", encoding="utf-8")
        self.file.readline()  # the greeting
        self.ask("qmp_capabilities")

    def ask(self, command, **values):
        self.file.write(json.dumps({"execute": command, "arguments": values}) + "\n")
        self.file.flush()
        for line in self.file:
            answer = json.loads(line)
            if "error" in answer:
                raise Failure(f"{command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]
        raise Failure(f"{command}: QEMU ended")

    def close(self):
        self.file.close()
        self.socket.close()


def save_state(machine, job, rank):
    """Boots guest `rank` to where the host's files would come in and keeps its state. The caller holds the folder's lock."""
    guest = Guest(machine, job, rank, "save")
    handle, unfinished = tempfile.mkstemp(prefix="unfinished-", dir=machine.folder)
    os.close(handle)
    try:
        wait_until_ready(guest)
        write_state(job / "monitor", unfinished)
        os.replace(unfinished, machine.state_file(rank))
    except (Failure, OSError) as error:
        os.unlink(unfinished)
        raise Failure(f"guest {rank}: no state saved: {error}") from error
    finally:
        guest.close()
        for name in ("monitor", f"ready.{rank}", f"kernel.{rank}.log"):
            (job / name).unlink(missing_ok=True)
    states = sorted(machine.folder.glob("state-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in states[SAVED_STATES:]:
        old.unlink(missing_ok=True)


def wait_until_ready(guest):
    deadline = time.monotonic() + BOOT_DEADLINE_S
    while not guest.text("ready"):
        if not guest.is_running():
            raise Failure(f"QEMU ended: {guest.text('qemu').strip()}{last_lines(guest.text('kernel'), 5)}")
        if time.monotonic() > deadline:
            raise Failure(f"not booted after {BOOT_DEADLINE_S} s{last_lines(guest.text('kernel'), 5)}")
        time.sleep(0.02)


def write_state(monitor_path, path):
    monitor = Monitor(monitor_path)
    time.sleep(0.1)  # the guest reaches its waiting loop
    # Memory that changes while it is written was not always saved whole: woken kernels died of pointers that were null.
    monitor.ask("stop")
    monitor.ask("migrate-set-parameters", **{"max-bandwidth": 100 << 30})
    monitor.ask("migrate", uri=f"exec:cat > '{path}'")
    deadline = time.monotonic() + BOOT_DEADLINE_S
    while (status := monitor.ask("query-migrate").get("status")) != "completed":
        if status in ("failed", "cancelled") or time.monotonic() > deadline:
            raise Failure(f"QEMU's migration to a file: {status}")
        time.sleep(0.01)
    monitor.close()


def last_lines(text, count):
    """The end of a log, set off from the message before it."""
    return "".join(f"\n  | {line}" for line in text.splitlines()[-count:])
