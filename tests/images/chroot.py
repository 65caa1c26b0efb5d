"""Runs a program in a folder as its root, with namespaces in place of a container engine.

`build_command` is what a RUN line gets: root, a writable file system, this machine's network. `container_command` is what a container gets that is
run the strict way (docker run --read-only --user 1000 --cap-drop ALL --security-opt no-new-privileges --network none --tmpfs /tmp): one
network of its own with nothing but a loopback interface, a /dev/shm of 64 MB, no capabilities.
"""

import functools
import os
import pathlib
import shlex
import shutil
import subprocess
from collections.abc import Sequence

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
SHM = "64m"  # what container engines give


@functools.cache
def why_not() -> str | None:
    """Why no image can be built and run here, or None."""
    if os.geteuid() != 0:
        return "building an image's file system needs root"
    if missing := [tool for tool in ("setpriv", "unshare", "chroot", "mount", "ip", "debootstrap", "ssh-keygen") if shutil.which(tool) is None]:
        return f"an image's file system needs {', '.join(missing)} (Debian: util-linux, iproute2, debootstrap, openssh-client)"
    probe = subprocess.run([*UNSHARE, "--net", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    return f"this kernel or container does not permit mounts: {probe.stderr.strip()}" if probe.returncode else None


# When the test ends, in whatever way, unshare does; --kill-child: then all that runs in there.
UNSHARE = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--ipc"]


def _mounts(root: pathlib.Path) -> list[str]:
    """/proc, /sys and a /dev with the devices that a container has."""
    at = shlex.quote(str(root))
    lines = [f"mount -t proc proc {at}/proc", f"mount -t sysfs -o ro sysfs {at}/sys", f"mount -t tmpfs -o mode=755,size=1m tmpfs {at}/dev"]
    for device in DEVICES:
        lines += [f"touch {at}/dev/{device}", f"mount --bind /dev/{device} {at}/dev/{device}"]
    lines += [f"ln -s /proc/self/fd {at}/dev/fd", f"mkdir {at}/dev/shm", f"mount -t tmpfs -o mode=1777,size={SHM} tmpfs {at}/dev/shm"]
    return lines


def _bind(source: pathlib.Path, target: pathlib.Path, read_only: bool) -> list[str]:
    words = [shlex.quote(str(source)), shlex.quote(str(target))]
    return [f"mount --bind {' '.join(words)}", *([f"mount -o remount,bind,ro {words[1]}"] if read_only else [])]


def _environment(environment: dict[str, str]) -> str:
    return " ".join(shlex.quote(f"{name}={value}") for name, value in environment.items())


def build_command(
    root: pathlib.Path, command: str, *, environment: dict[str, str], workdir: str, mounts: dict[str, pathlib.Path], caches: dict[str, pathlib.Path]
) -> list[str]:
    """`mounts` appear read-only below /mnt, by name; `caches` are writable folders by their path inside. Neither stays in the image."""
    at = shlex.quote(str(root))
    lines = ["set -e", *_mounts(root), f"touch {at}/etc/resolv.conf", *_bind(pathlib.Path("/etc/resolv.conf"), root / "etc/resolv.conf", True)]
    lines.append(f"mount -t tmpfs -o mode=755,size=1m tmpfs {at}/mnt")
    for name, source in mounts.items():
        target = root / "mnt" / name
        lines += [f"mkdir {target}" if source.is_dir() else f"touch {target}", *_bind(source, target, True)]
    for path, source in caches.items():
        lines += [f"mkdir -p {at}{path}", *_bind(source, root / path.lstrip("/"), False)]
    inside = f"cd {shlex.quote(workdir)} && {command}"
    lines.append(f"exec chroot {at} /usr/bin/env -i {_environment({'PATH': PATH, 'HOME': '/nonexistent', **environment})} /bin/sh -c {shlex.quote(inside)}")
    return [*UNSHARE, "sh", "-c", "\n".join(lines)]


def container_command(
    root: pathlib.Path, argv: Sequence[str], *, environment: dict[str, str], workdir: str, volumes: dict[str, pathlib.Path], own_network: bool = True
) -> list[str]:
    """`volumes` are folders by their path inside. Without own_network the container is on the network of the caller, whose host name it has."""
    at = shlex.quote(str(root))
    for path in volumes:  # as an engine does, before the root becomes read-only
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    (root / "etc/hosts").touch()
    lines = ["set -e", *(["ip link set lo up"] if own_network else []), *_bind(root, root, True), *_mounts(root)]
    # A copy: what a host of tests/cluster has there is a file without a name.
    lines += [f"cat /etc/hosts >{at}/dev/hosts", *_bind(root / "dev/hosts", root / "etc/hosts", True), f"mount -t tmpfs -o mode=1777,size=512m tmpfs {at}/tmp"]
    for path, source in volumes.items():
        lines += _bind(source, root / path.lstrip("/"), False)
    drop = "/usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"
    enter = f"/usr/bin/env -i --chdir={shlex.quote(workdir)} {_environment({'PATH': PATH, **environment})}"
    lines.append(f"exec chroot {at} {drop} {enter} {shlex.join(argv)}")
    return [*UNSHARE, *(["--net"] if own_network else []), "sh", "-c", "\n".join(lines)]
