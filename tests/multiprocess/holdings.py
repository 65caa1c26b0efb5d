"""What processes hold of the kernel's: shared memory and sockets. For tests that nothing is left of a job."""

import contextlib
import os
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

PROC = pathlib.Path("/proc")


class Holdings(NamedTuple):
    memory: set[str]  # the inodes of memfds, by descriptor or by mapping
    named_memory: set[str]  # files in /dev/shm, which would outlive a killed process
    sockets: set[str]  # their inodes


def held_by(pids: Iterable[int]) -> Holdings:
    held = Holdings(set(), set(), set())
    for pid in pids:
        # A process may end at any moment; then it holds nothing.
        with contextlib.suppress(OSError):
            for line in (PROC / str(pid) / "maps").read_text().splitlines():
                _take(held, line.split(maxsplit=5)[-1], inode=line.split()[4])
            for descriptor in (PROC / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    _take(held, os.readlink(descriptor), inode=str(descriptor.stat().st_ino))
    return held


def _take(held: Holdings, name: str, inode: str) -> None:
    if name.startswith("/memfd:"):
        held.memory.add(inode)
    elif name.startswith("/dev/shm/"):
        held.named_memory.add(name)
    elif name.startswith("socket:["):
        held.sockets.add(inode)


def still_held(held: Holdings) -> set[str]:
    """What of it the kernel still has: sockets that are open anywhere, memory that any process holds."""
    tables = (PROC / "net" / name for name in ("unix", "tcp", "tcp6", "udp"))
    column = {"unix": 6, "tcp": 9, "tcp6": 9, "udp": 9}
    open_sockets = {line.split()[column[table.name]] for table in tables for line in table.read_text().splitlines()[1:]}
    everybody = held_by(int(folder.name) for folder in PROC.glob("[0-9]*"))
    return (held.sockets & open_sockets) | (held.memory & everybody.memory)
