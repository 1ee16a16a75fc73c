#!/usr/bin/env python3
"""Runs a command as root in a throw-away guest (QEMU) whose kernel has what this one may lack.

    vm.py [--build DIR] [--pair] [--mem MB] [--cpus N] [--timeout S] [--accel kvm|tcg] [--verbose] -- COMMAND [ARG...]
    vm.py [--build DIR] --setup

The guest has this machine's files, read-only below an overlay in memory: nothing that the command writes stays. It has
the working directory and the environment of this call; TMPDIR is a tmpfs of the guest. Standard input is empty,
output and exit status are passed on. Exit status: the command's; 124 after the timeout; 125 when the guest failed;
77, which tests take for "skipped", when a program is missing (the last line names its packages).

The kernel is the Debian package of this release, in DIR/vm: downloaded once, not installed. All its modules can be
loaded: netem, tbf, Soft-RoCE, NFS among them. The network is a cable between two interfaces of the guest, each with an
RDMA device: rxe0 on v0, 10.9.0.1, and rxe1 on v1, 10.9.0.2 (vm_guest.sh). KVM is used where a guest comes up with
it; that is tried once per boot of this machine. Without it QEMU emulates the processor (TCG), 10 to 20 times slower.

--pair runs the command in two guests at once. SHEAF_GUEST is 0 in one and 1 in the other. A cable joins them: eth0 with
the device rxe0 in each, 10.9.0.1 in guest 0 and 10.9.0.2 in guest 1. Both may write files in /run/shared. When one fails
the other is ended.
"""
import argparse
import collections
import ctypes
import fcntl
import glob
import lzma
import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

TOOLS = os.path.dirname(os.path.abspath(__file__))
SKIP, TIMEOUT, FAILED = 77, 124, 125
PROBE_S = 30  # for a guest with KVM to come up: without command it needs about one second
BOOT_MODULES = ("virtio_pci", "virtio_console", "virtio_rng", "9pnet_virtio", "9p", "overlay")
GUEST_TMP = "/run/tmp"  # TMPDIR in the guest
TAIL = 25  # lines of the guest's console that are shown when it fails
CABLE_MTU = 9000  # between two guests

# `boot` is for the kernel: a busy host may run a guest too late for its check of the timer, which then panics.
Machine = collections.namedtuple("Machine", "qemu package kernel console boot kvm tcg")
MACHINES = {
    "x86_64": Machine("qemu-system-x86_64", "qemu-system-x86", "linux-image-amd64", "ttyS0", "no_timer_check",
                      ["-machine", "q35,accel=kvm", "-cpu", "host"],
                      ["-machine", "q35,accel=tcg", "-cpu", "max,la57=off"]),
    "aarch64": Machine("qemu-system-aarch64", "qemu-system-arm", "linux-image-arm64", "ttyAMA0", "",
                       ["-machine", "virt,accel=kvm,gic-version=host", "-cpu", "host"],
                       ["-machine", "virt,accel=tcg,gic-version=3", "-cpu", "max,pauth-impdef=on"]),
}
# Parts of the kernel's package that need most of its space and that no guest of this kind has.
LEFT_OUT = ("drivers/gpu", "drivers/media", "drivers/net/wireless", "drivers/scsi", "drivers/staging", "drivers/iio",
            "drivers/hid", "drivers/usb", "sound", "net/wireless", "net/mac80211")


class Missing(Exception):
    """Something is not installed."""


class Broken(Exception):
    """The guest failed, or what it needs."""


def machine():
    if platform.machine() not in MACHINES:
        raise Missing(f"no guest for processors of the kind {platform.machine()}")
    m = MACHINES[platform.machine()]
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    needed = {m.qemu: m.package, "depmod": "kmod", "ip": "iproute2", "rdma": "iproute2", "sysctl": "procps",
              "gcc": "gcc libc6-dev"}
    packages = [p for program, p in needed.items() if not shutil.which(program, path=path)]
    if not glob.glob("/etc/libibverbs.d/rxe.driver"):
        packages.append("ibverbs-providers")
    if packages:
        packages = " ".join(dict.fromkeys(packages))
        raise Missing(f"no guest: run apt-get install --no-install-recommends {packages}")
    if not shutil.which("apt-get"):
        raise Missing("no guest: its kernel comes from apt-get, which this system does not have")
    return m


# ---- the kernel ----

def output_of(*argv, cwd=None):
    p = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if p.returncode:
        raise Broken(f"{' '.join(argv)}: {p.stderr.strip() or p.returncode}")
    return p.stdout


def fetch_kernel(m, cache):
    """Downloads and unpacks the package that the name without a version stands for."""
    say(f"downloading {m.kernel}")
    wanted = re.search(r"Depends: (linux-image-\S+)", output_of("apt-cache", "depends", m.kernel))
    if not wanted:
        raise Broken(f"apt knows no package {m.kernel}: run apt-get update")
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        os.chmod(folder, 0o755)  # apt downloads as another user
        output_of("apt-get", "-q", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root",
                  "download", wanted.group(1), cwd=folder)
        package, = glob.glob(os.path.join(folder, "*.deb"))
        tree = os.path.join(folder, "tree")
        os.mkdir(tree)
        left_out = " ".join(f"--exclude='*/kernel/{part}/*'" for part in LEFT_OUT)
        output_of("sh", "-c", f'dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" {left_out}', "sh", package, tree)
        release, = [os.path.basename(p) for p in glob.glob(os.path.join(tree, "lib", "modules", "*"))]
        output_of(shutil.which("depmod", path="/usr/sbin:/sbin:/usr/bin"), "-b", tree, release)
        os.rename(tree, os.path.join(cache, release))
    return release


def kernel(m, cache):
    """(its image, its modules)"""
    found = sorted(glob.glob(os.path.join(cache, "*", "lib", "modules", "*")), key=os.path.getmtime)
    release = os.path.basename(found[-1]) if found else fetch_kernel(m, cache)
    top = os.path.join(cache, release)
    return os.path.join(top, "boot", f"vmlinuz-{release}"), os.path.join(top, "lib", "modules", release)


# ---- what the guest boots ----

def with_needed(modules, names):
    """Paths of these modules and of all that they need, in the order of loading; built-in ones have none."""
    needs = {}
    with open(os.path.join(modules, "modules.dep"), encoding="utf-8") as f:
        for line in f:
            path, _, others = line.partition(":")
            name = os.path.basename(path).split(".")[0].replace("-", "_")
            needs[name] = [*reversed(others.split()), path]
    return list(dict.fromkeys(path for name in names for path in needs.get(name, ())))


def init_program(cache):
    source, program = os.path.join(TOOLS, "vm_init.c"), os.path.join(cache, "init")
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
        output_of("gcc", "-static", "-O2", "-D_GNU_SOURCE", "-o", program + ".new", source)
        os.rename(program + ".new", program)
    return read(program)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def cpio(files):
    """An archive as the kernel unpacks it, of {name: (mode, bytes)}."""
    out = bytearray()
    for i, (name, (mode, data)) in enumerate({**files, "TRAILER!!!": (0, b"")}.items(), 1):
        raw = name.encode() + b"\0"
        fields = (i, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        out += b"070701" + b"".join(b"%08x" % f for f in fields) + raw
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def initramfs(cache, modules, job):
    files = {"dev": (0o040755, b""), "init": (0o100755, init_program(cache))}
    names = []
    for path in with_needed(modules, BOOT_MODULES):
        data = read(os.path.join(modules, path))
        names.append(os.path.basename(path).removesuffix(".xz"))
        files[names[-1]] = (0o100644, lzma.decompress(data) if path.endswith(".xz") else data)
    files["modules"] = (0o100644, "".join(f"/{n}\n" for n in names).encode())
    if job is not None:
        files["job"] = (0o100600, b"".join(os.fsencode(s) + b"\0" for s in job))
    return cpio(files)


def job_of(command, modules, number):
    """Working directory, number of arguments, arguments, environment. The number is that of a guest of a pair, or ""."""
    argv = ["/bin/sh", os.path.join(TOOLS, "vm_guest.sh"), modules, *command]
    env = dict(os.environ, TMPDIR=GUEST_TMP, SHEAF_GUEST=number)
    return [os.getcwd(), str(len(argv)), *argv, *(f"{k}={v}" for k, v in env.items())]


# ---- a guest ----

def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def memory_file(name, data=b""):
    fd = os.memfd_create(name)
    with open(fd, "wb", closefd=False) as f:
        f.write(data)
    return fd


def cable_end(fd, number, shared):
    """What a guest of a pair has: one end of the cable, and the folder of both."""
    return ["-netdev", f"socket,id=cable,fd={fd}",
            "-device", f"virtio-net-pci,netdev=cable,host_mtu={CABLE_MTU},mac=52:54:00:00:00:0{number}",
            "-fsdev", f"local,id=shared,path={shared},security_model=none",
            "-device", "virtio-9p-pci,fsdev=shared,mount_tag=shared"]


class Guest:
    """One run of QEMU. `job` is None for a guest that only comes up. Nothing of it is in the file system.
    `more` are arguments that use the descriptors `fds`."""

    def __init__(self, m, cache, accel, options, job, more=(), fds=()):
        image, modules = kernel(m, cache)
        self.status, self.why = None, "it ended without an exit status"
        self.end, port = os.pipe()
        self.console, self.said = memory_file("console"), memory_file("said")
        initrd = memory_file("initrd", initramfs(cache, modules, job))
        argv = [m.qemu, *(m.kvm if accel == "kvm" else m.tcg), "-m", str(options.mem), "-smp", str(options.cpus),
                "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                "-kernel", image, "-initrd", f"/proc/self/fd/{initrd}",
                "-append", f"console={m.console} {m.boot} panic=-1 {'' if options.verbose else 'quiet'}",
                "-chardev", f"file,id=console,path=/proc/self/fd/{self.console}", "-serial", "chardev:console",
                "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
                "-chardev", f"file,id=port,path=/proc/self/fd/{port}", "-device", "virtserialport,chardev=port,nr=1",
                "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
                "-device", "virtio-9p-pci,fsdev=root,mount_tag=root", *more]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said,
                                        pass_fds=[initrd, port, self.console, *fds], preexec_fn=die_with_parent)
        os.close(port)
        os.close(initrd)

    def take(self, n, until):
        """The next n bytes that the guest sends."""
        data = b""
        while len(data) < n:
            if not select.select([self.end], [], [], max(until - time.monotonic(), 0))[0]:
                raise TimeoutError
            part = os.read(self.end, n - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def serve(self, until):
        """Passes the output on until the guest has an exit status, or reports what failed in it."""
        while True:
            kind = self.take(1, until)
            data = self.take(int.from_bytes(self.take(4, until), "little"), until)
            if kind == b"x":
                self.status = int(data)
                return
            if kind == b"!":
                self.why = data.decode("utf-8", "replace")
                return
            while data:
                data = data[os.write(int(kind), data):]

    def run(self, timeout):
        """The exit status."""
        try:
            self.serve(time.monotonic() + timeout)
        except TimeoutError:
            self.why = f"still running after {timeout} s"
            return TIMEOUT
        except EOFError:
            pass
        finally:
            self.process.kill()
            self.process.wait()
        return FAILED if self.status is None else self.status

    def log(self):
        """What QEMU and the guest's kernel said."""
        return "".join(os.pread(fd, 1 << 24, 0).decode("utf-8", "replace") for fd in (self.said, self.console))


def working_accel(m, cache, options):
    """KVM if a guest comes up with it: a /dev/kvm may be there that does not work, or whose guests hang."""
    known = os.path.join(cache, "accel")
    boot = read("/proc/sys/kernel/random/boot_id").decode().strip()
    if not os.path.exists(known) or read(known).decode().split()[0] != boot:
        works = os.access("/dev/kvm", os.R_OK | os.W_OK) and Guest(m, cache, "kvm", options, None).run(PROBE_S) == 0
        with open(known, "w", encoding="utf-8") as f:
            f.write(f"{boot} {'kvm' if works else 'tcg'}\n")
    return read(known).decode().split()[1]


def say(text):
    print(f"vm: {text}", file=sys.stderr, flush=True)


def parse():
    ap = argparse.ArgumentParser(description="runs a command in a throw-away guest")
    ap.add_argument("--build", default=os.path.join(os.path.dirname(TOOLS), "build"), help="build directory")
    ap.add_argument("--pair", action="store_true", help="two guests that a cable joins, both with this command")
    ap.add_argument("--mem", type=int, default=2048, help="memory in MiB of a guest, also of all files that it writes (2048)")
    ap.add_argument("--cpus", type=int, default=2, help="processors (2)")
    ap.add_argument("--timeout", type=int, default=600, help="seconds for all, with the boot (600)")
    ap.add_argument("--accel", choices=("kvm", "tcg"), help="how the processor runs; default: what works")
    ap.add_argument("--verbose", action="store_true", help="the guest's kernel messages, on standard error")
    ap.add_argument("--setup", action="store_true", help="fetch the kernel, choose how to run, and exit")
    ap.add_argument("command", nargs="*", metavar="COMMAND")
    options = ap.parse_args()
    if not options.command and not options.setup:
        ap.error("no command")
    return options


def run(options):
    m, cache = machine(), os.path.join(os.path.abspath(options.build), "vm")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        image, modules = kernel(m, cache)
        init_program(cache)
        accel = options.accel or working_accel(m, cache, options)
    if options.setup:
        say(f"{os.path.basename(image)}, {accel}")
        return 0

    def start(number="", more=(), fds=()):
        return Guest(m, cache, accel, options, job_of(options.command, modules, number), more, fds)

    if options.pair:
        return run_pair(start, options, accel)
    guest = start()
    status = guest.run(options.timeout)
    report(guest, options, accel)
    return status


def report(guest, options, accel):
    lines = guest.log().splitlines() if options.verbose or guest.status is None else []
    for line in lines if options.verbose else lines[-TAIL:]:
        print(f"vm: | {line}", file=sys.stderr)
    if guest.status is None:
        say(f"{guest.why} ({accel})")


def run_pair(start, options, accel):
    """The exit status of the guest that failed first, or 0."""
    guests, failed = [], []

    def wait_for(guest):
        status = guest.run(options.timeout)
        if status and not failed:
            failed.append((status, guest))
            for other in guests:
                other.process.kill()

    with tempfile.TemporaryDirectory() as shared:
        ends = socket.socketpair()
        for i, end in enumerate(ends):
            guests.append(start(str(i), cable_end(end.fileno(), i, shared), [end.fileno()]))
        for end in ends:
            end.close()
        threads = [threading.Thread(target=wait_for, args=(g,)) for g in guests]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    for guest in guests if options.verbose else [g for _, g in failed]:
        report(guest, options, accel)
    return failed[0][0] if failed else 0


def main():
    options = parse()
    try:
        return run(options)
    except Missing as e:
        print(e)
        return SKIP
    except (Broken, OSError) as e:
        say(e)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
