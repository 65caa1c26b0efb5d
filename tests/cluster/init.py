"""The first process of a machine: makes its view of the system, then holds its namespaces until the owner is gone.

It runs inside fresh net, mount, uts, ipc and pid namespaces. As pid 1 its end is the end of every process of the
machine, and with the last of them go the mounts and the network: there is nothing to clean up, and nothing to forget.
Started by machine.py with one JSON argument: name, hosts_file, private_dirs and owner_fd, a pidfd of the owner.
"""

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def mount_tmpfs(path: str) -> None:
    mode = stat.S_IMODE(os.stat(path).st_mode)
    run("mount", "-t", "tmpfs", "-o", f"mode={mode:o}", "tmpfs", path)


def mount_sysfs(scratch: str) -> None:
    """sysfs shows the interfaces of the network it was mounted in. The cgroups stay: programs count their cores there."""
    fresh = os.path.join(scratch, "sys")
    os.mkdir(fresh)
    run("mount", "-t", "sysfs", "sysfs", fresh)
    if os.path.ismount("/sys/fs/cgroup"):
        run("mount", "--rbind", "/sys/fs/cgroup", os.path.join(fresh, "fs/cgroup"))
    run("mount", "--move", fresh, "/sys")
    os.rmdir(fresh)


def mount_hosts_file(scratch: str, text: str) -> None:
    path = os.path.join(scratch, "hosts")
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    run("mount", "--bind", path, "/etc/hosts")
    os.unlink(path)  # the mount keeps it


def main() -> None:
    config = json.loads(sys.argv[1])
    run("mount", "-t", "proc", "proc", "/proc")
    mount_tmpfs("/dev/shm")
    mount_sysfs("/dev/shm")
    mount_hosts_file("/dev/shm", config["hosts_file"])
    for path in config["private_dirs"]:
        mount_tmpfs(path)
    socket.sethostname(config["name"])
    run("ip", "link", "set", "lo", "up")

    # Orphans come to pid 1; the kernel reaps them by itself where SIGCHLD is ignored.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)

    # A pidfd becomes readable when its process ends, also by SIGKILL, and whichever of its threads started us.
    owner = select.poll()
    owner.register(config["owner_fd"], select.POLLIN)
    owner.poll()


if __name__ == "__main__":
    main()
