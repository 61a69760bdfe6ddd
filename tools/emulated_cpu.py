#!/usr/bin/env python3
"""Runs a command on an emulated processor, so that instructions this machine lacks (AVX-512, VNNI) are executed.

    tools/emulated_cpu.py --cpu MODEL [options] [--] COMMAND [ARG...]
    tools/emulated_cpu.py --cpu corei7_icelake_u build/release/tests_kernels --gtest_filter='DotBlocks*'

Bochs boots a Debian kernel with busybox, COMMAND's programs and their shared libraries in memory, in a folder of its
own; output comes over the serial port, as does the exit code. Words of the command that name a file or folder here are
carried along under the same name, as is what --carry names; nothing comes back but the output. Nothing that is timed
there means anything.

  --cpu MODEL      `bochs -help cpu` lists them: corei7_icelake_u has AVX-512 with VNNI
  --carry PATH     one more file or folder, again and again
  --env NAME=VALUE a variable of the command's environment, again and again
  --limit SECONDS  of the clock here, then the machine is ended and 124 returned (default 600)
  --memory MIB     of the machine (default 512)
  --system FOLDER  the root of another Debian, whose Bochs runs in a chroot: Debian 12's is 2.7, which rounds some f32 to
                   f16 wrongly; Debian 13's is 3.0 (debootstrap --variant=minbase --include=bochs,bochs-term trixie
                   FOLDER), which was not seen to, and has sapphire_rapids, too. But it multiplies bytes in AMX's tiles as
                   if none had a sign, and lacks the bit XFD, without which Linux lends no tiles
  --kernel FILE    a vmlinuz (default: the newest in build/emulated_cpu or /boot)
  --keep           does not remove the folder with disk and logs, and says where it is

`script/bootstrap --emulate` installs what it needs.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
BUSYBOX = pathlib.Path("/bin/busybox")
ISOLINUX = pathlib.Path("/usr/lib/ISOLINUX/isolinux.bin")
LDLINUX = pathlib.Path("/usr/lib/syslinux/modules/bios/ldlinux.c32")
DONE = "emulated_cpu: exit code "
# One processor without mitigations and without what takes a boot long: the speed of a loop is given, not measured.
# Linux is told not to use what Bochs 2.7 (the first three) and 3.0 (the others) describe wrongly or lack a part of, lest
# it die while it boots or give up AVX; programs still find their instructions by CPUID.
UNUSED = "pku,xsaves,xsavec,amx_tile,waitpkg,pcid,invpcid,fsrm,movdiri,movdir64b,serialize,ibt,smap"
KERNEL_LINE = ("console=ttyS0 quiet loglevel=1 rdinit=/init mitigations=off nokaslr lpj=4000000 no_timer_check "
               f"random.trust_cpu=on tsc=reliable pci=off nosmp clearcpuid={UNUSED} no5lvl idle=halt panic=-1")
INIT = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
busybox mkdir -p /proc /sys /tmp /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox stty -onlcr </dev/console
cd /work
. /environment
busybox sh /command
echo "{done}$?"
busybox sleep 100000
"""


def fail(message):
    sys.exit(f"tools/emulated_cpu.py: {message}")


def arguments():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip(), add_help=False)
    p.add_argument("-h", "--help", action="store_true")
    p.add_argument("--cpu")
    p.add_argument("--carry", action="append", default=[])
    p.add_argument("--env", action="append", default=[])
    p.add_argument("--limit", type=float, default=600)
    p.add_argument("--memory", type=int, default=512)
    p.add_argument("--system", type=pathlib.Path)
    p.add_argument("--kernel", type=pathlib.Path)
    p.add_argument("--keep", action="store_true")
    p.add_argument("command", nargs=argparse.REMAINDER)
    args = p.parse_args()
    if args.help:
        print(__doc__.strip())
        sys.exit(0)
    if args.command[:1] == ["--"]:
        args.command = args.command[1:]
    if not args.cpu or not args.command:
        fail("needs --cpu MODEL and a command; see --help")
    for setting in args.env:
        if not re.match(r"[A-Za-z_]\w*=", setting):
            fail(f"--env {setting}: wants NAME=VALUE")
    return args


def newest_kernel():
    found = [f for where in (HERE / "build/emulated_cpu", pathlib.Path("/boot")) for f in where.glob("vmlinuz-*")]
    return max(found, key=lambda f: f.stat().st_mtime, default=None)


def check_packages(args):
    """Names every package that is missing, before anything is made."""
    root = args.system or pathlib.Path("/")
    if args.system and os.geteuid() != 0:
        fail("--system needs root, for chroot")
    needed = {
        "bochs": (root / "usr/bin/bochs").exists(),
        "bochsbios": (root / "usr/share/bochs/BIOS-bochs-latest").exists(),
        "vgabios": (root / "usr/share/vgabios/vgabios.bin").exists(),
    }
    here = {"busybox-static": BUSYBOX.exists(), "isolinux": ISOLINUX.exists(), "syslinux-common": LDLINUX.exists(),
            "xorriso": shutil.which("xorriso") is not None,
            "linux-image-cloud-amd64": args.kernel is not None or newest_kernel() is not None}
    for packages, where in ((needed, f" in {args.system}" if args.system else ""), (here, "")):
        missing = [name for name, is_there in packages.items() if not is_there]
        if missing:
            hint = "" if where else ", or run script/bootstrap --emulate"
            fail(f"missing Debian packages{where}: {' '.join(missing)}: install them with apt-get{hint}")


def shared_libraries(program):
    """What the loader takes for a program, and the loader; nothing for what is not a dynamic program."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    if "not found" in done.stdout:
        fail(f"{program} lacks libraries here:\n{done.stdout}")
    return re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE) if done.returncode == 0 else []


class Archive:
    """An initial file system: a cpio archive of the kind "newc"."""
    def __init__(self, out):
        self.out, self.names = out, set()

    def add(self, name, mode, data=b""):
        name = str(name).strip("/")
        if name in self.names:
            return
        parent = os.path.dirname(name)
        if parent:
            self.add(parent, stat.S_IFDIR | 0o755)
        self.names.add(name)
        self._write(name, mode, data)

    def _write(self, name, mode, data):
        encoded = name.encode() + b"\0"
        fields = (len(self.names), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        head = b"070701" + b"".join(b"%08X" % f for f in fields) + encoded
        self.out.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))

    def add_file(self, path, name):
        self.add(name, stat.S_IFREG | (0o755 if os.access(path, os.X_OK) else 0o644), pathlib.Path(path).read_bytes())

    def carry(self, path):
        """A file or folder under the name that it has in a command, and the libraries of programs."""
        files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
        for file in files:
            self.add_file(file, file if file.is_absolute() else os.path.normpath(f"work/{file}"))
            with open(file, "rb") as opened:
                is_program = opened.read(4) == b"\x7fELF"
            for library in shared_libraries(file) if is_program else ():
                self.add_file(library, library)

    def close(self):
        self._write("TRAILER!!!", 0, b"")


def quoted(words):
    return " ".join("'" + w.replace("'", "'\\''") + "'" for w in words)


def make_disk(args, folder):
    """A bootable disk image: boot loader, kernel, and the initial file system with everything in it."""
    disk = folder / "disk"
    disk.mkdir()
    with open(disk / "initrd", "wb") as out:
        archive = Archive(out)
        archive.add_file(BUSYBOX, "bin/busybox")
        archive.add("init", stat.S_IFREG | 0o755, INIT.format(done=DONE).encode())
        archive.add("work", stat.S_IFDIR | 0o755)
        settings = "".join(f"export {s.split('=', 1)[0]}={quoted([s.split('=', 1)[1]])}\n" for s in args.env)
        archive.add("environment", stat.S_IFREG | 0o644, settings.encode())
        command = list(args.command)
        program = shutil.which(command[0])
        if not program:  # one of busybox's
            command.insert(0, "busybox")
        elif "/" not in command[0]:
            command[0] = program
        archive.add("command", stat.S_IFREG | 0o644, ("exec " + quoted(command) + "\n").encode())
        carried = [w for w in command if "/" in w or w in args.command[1:]]
        for word in [*carried, *args.carry]:
            path = pathlib.Path(word)
            if path.exists() and path != pathlib.Path("/") and not str(path).startswith(("/proc", "/sys", "/dev")):
                archive.carry(path)
            elif word in args.carry:
                fail(f"--carry {word}: no such file or folder")
        archive.close()
    shutil.copy(args.kernel or newest_kernel(), disk / "vmlinuz")
    shutil.copy(ISOLINUX, disk)
    shutil.copy(LDLINUX, disk)
    (disk / "isolinux.cfg").write_text(
        f"DEFAULT linux\nPROMPT 0\nLABEL linux\nKERNEL /vmlinuz\nINITRD /initrd\nAPPEND {KERNEL_LINE}\n")
    made = subprocess.run(["xorriso", "-as", "mkisofs", "-quiet", "-o", folder / "disk.iso", "-b", "isolinux.bin", "-c",
                           "boot.cat", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", disk],
                          capture_output=True, text=True, check=False)
    if made.returncode:
        fail(f"xorriso made no disk:\n{made.stderr}")
    shutil.rmtree(disk)


def configuration(args, folder, serial):
    return f"""\
cpu: model={args.cpu}, count=1, ips=40000000, reset_on_triple_fault=0, ignore_bad_msrs=1
memory: guest={args.memory}, host={args.memory}
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path={folder}/disk.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=socket-client, dev={serial}
display_library: rfb, options="timeout=0"
clock: sync=none
sound: driver=dummy
log: {folder}/bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
"""


class SerialPort:
    """Where Bochs connects its serial port, since a file it would buffer. Prints what is said, and keeps the exit code."""
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "%s:%d" % self.listener.getsockname()
        self.connection, self.rest, self.code = None, b"", None

    def follow(self, seconds):
        """Waits that long at most."""
        try:
            if not self.connection:
                self.listener.settimeout(seconds)
                self.connection = self.listener.accept()[0]
            self.connection.settimeout(seconds)
            new = self.connection.recv(65536)
        except TimeoutError:
            return
        except ConnectionError:
            new = b""
        if not new:
            time.sleep(seconds)
        *lines, self.rest = (self.rest + new).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            if text.startswith(DONE):
                self.code = int(text[len(DONE):])
            elif self.code is None:
                print(text, flush=True)


def emulate(args, folder):
    inside = pathlib.Path("/") / folder.relative_to(args.system) if args.system else folder
    serial = SerialPort()
    (folder / "bochsrc").write_text(configuration(args, inside, serial.address))
    (folder / "debugger").write_text("continue\n")  # Debian's Bochs begins in its debugger
    prefix = ["chroot", str(args.system)] if args.system else []
    said = folder / "said.txt"
    bochs = [*prefix, "/usr/bin/bochs", "-q", "-f", f"{inside}/bochsrc", "-rc", f"{inside}/debugger"]
    with open(said, "wb") as out:
        machine = subprocess.Popen(bochs, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    end = time.monotonic() + args.limit
    try:
        while machine.poll() is None and serial.code is None and time.monotonic() < end:
            serial.follow(0.5)
    finally:
        ended = machine.poll() is not None
        if not ended:
            os.killpg(machine.pid, signal.SIGKILL)
            machine.wait()
    if serial.code is not None:
        return serial.code
    if serial.rest:
        print(serial.rest.decode(errors="replace"))
    if not ended:
        print(f"tools/emulated_cpu.py: ended after {args.limit:g} s (--limit)", file=sys.stderr)
        return 124
    print("tools/emulated_cpu.py: the machine stopped before the command ended; Bochs says:\n"
          + said.read_text(errors="replace")[-2000:], file=sys.stderr)
    return 125


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the machine ends, too
    args = arguments()
    check_packages(args)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="emulated_cpu.", dir=args.system / "tmp" if args.system else None))
    try:
        make_disk(args, folder)
        return emulate(args, folder)
    finally:
        if args.keep:
            print(f"tools/emulated_cpu.py: kept {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
