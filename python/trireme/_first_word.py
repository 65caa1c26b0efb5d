"""Rank 0's word to all other ranks, before the program has made its process group.

Rank 0 listens; each of the others connects and says who it is. When all have come, rank 0 stops listening, sends its word and closes. A rank goes on when it
has read to the end: by then nobody listens there any more, so that the port is free for the program's own store and no rank takes the one for the other.

The place is MASTER_ADDR:MASTER_PORT. Where torchrun shares its agent's store (TORCHELASTIC_USE_AGENT_STORE) that port is the agent's: rank 0 takes a free
one and leaves its address in that store. The store outlives restarts, so the address may be that of an earlier start: a rank that finds nobody there, or
somebody else, reads it again.
"""

import datetime
import ipaddress
import json
import re
import selectors
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

MAGIC = b"trireme.resume"
KEY = "trireme.resume/rank0"
GREETING_S = 30.0  # rank 0 answers a rank's line at once; whoever does not is somebody else
TIMEOUT = "CCL_KVS_CONNECTION_TIMEOUT"


class NoWord(Exception):
    """Not every rank has come, or rank 0 could not be heard. The message says which, and what to do."""


def patience_s(env: Mapping[str, str]) -> float:
    """How long ranks wait for each other."""
    value = env.get(TIMEOUT) or "120"
    if not re.fullmatch(r"[1-9]\d{0,4}", value):
        raise NoWord(f"{TIMEOUT} is {value!r}; allowed is a number of seconds")
    return float(value)


def send(env: Mapping[str, str], word: str) -> None:
    """Rank 0's part. Blocks until every rank has come; raises NoWord with those that have not when the time is over."""
    size, seconds = int(env["WORLD_SIZE"]), patience_s(env)
    with ExitStack() as stack:
        listener = stack.enter_context(_listen(0 if _is_agents(env) else _master(env)[1]))
        if _is_agents(env):
            _agents_store(env, seconds).set(KEY, json.dumps([_own_address(env), listener.getsockname()[1]]))
        ranks = _gather(listener, size, seconds, stack)
        listener.close()
        for connection in ranks.values():
            connection.settimeout(GREETING_S)
            try:
                connection.sendall(word.encode() + b"\n")
            except OSError:
                pass  # it is gone, which its launcher sees
            connection.close()


def receive(env: Mapping[str, str]) -> str:
    """Another rank's part. Blocks until rank 0 has spoken; raises NoWord when it does not in time."""
    rank, seconds = int(env["RANK"]), patience_s(env)
    deadline, reason = time.monotonic() + seconds, "its address is not in the store"
    for address in _addresses(env, deadline):
        try:
            with socket.create_connection(address, timeout=5) as connection:
                return _converse(connection, rank, int(env["WORLD_SIZE"]), seconds)
        except OSError as error:
            reason = f"{address[0]} port {address[1]}: {error}"
    raise NoWord(
        f"rank {rank}: rank 0 was not found within {seconds:.0f} s ({reason}). It has ended, or MASTER_ADDR is not its host, or it needs longer than "
        f"{TIMEOUT} to start"
    )


def _converse(connection: socket.socket, rank: int, size: int, seconds: float) -> str:
    connection.settimeout(GREETING_S)
    connection.sendall(b"%s %d of %d\n" % (MAGIC, rank, size))
    with connection.makefile("rb") as stream:
        if stream.readline(len(MAGIC) + 1) != MAGIC + b"\n":
            raise OSError("somebody else listens there")
        connection.settimeout(seconds + 5)  # rank 0's time began earlier: it is the one that says who is missing
        try:
            word = stream.read()
        except OSError as error:
            raise NoWord(f"rank {rank}: rank 0 says nothing ({error}); its host is lost or cut off") from None
    if not word.endswith(b"\n"):
        raise NoWord(f"rank {rank}: rank 0 has ended without a choice; its own message says why")
    return word[:-1].decode()


def _listen(port: int) -> socket.socket:
    dual = socket.has_dualstack_ipv6()
    try:
        return socket.create_server(("", port), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual, backlog=1024)
    except OSError as error:
        raise NoWord(f"rank 0: cannot listen at MASTER_PORT {port}: {error}. Another job may use it; set MASTER_PORT to another one") from None


def _gather(listener: socket.socket, size: int, seconds: float, stack: ExitStack) -> dict[int, socket.socket]:
    """A connection to each other rank. One that says anything but a rank's line is closed, and one that says nothing keeps nobody waiting."""
    deadline = time.monotonic() + seconds
    here: dict[int, socket.socket] = {}
    listener.setblocking(False)
    selector = stack.enter_context(selectors.DefaultSelector())
    selector.register(listener, selectors.EVENT_READ)
    while len(here) < size - 1:
        left = deadline - time.monotonic()
        if left <= 0:
            missing = [rank for rank in range(1, size) if rank not in here]
            raise NoWord(
                f"rank 0: after {seconds:.0f} s {_named(missing)} of {size} ha{'s' if len(missing) == 1 else 've'} not come to hear which checkpoint to go on "
                f"from. Did they start? {TIMEOUT} sets how long they have"
            )
        for key, _ in selector.select(left):
            if key.fileobj is listener:
                _admit(listener, selector, stack)
            elif not _hear(key.fileobj, key.data, size, here):  # type: ignore[arg-type]
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
    return here


def _admit(listener: socket.socket, selector: selectors.BaseSelector, stack: ExitStack) -> None:
    try:
        connection = stack.enter_context(listener.accept()[0])
    except OSError:
        return  # it has left already
    connection.setblocking(False)
    selector.register(connection, selectors.EVENT_READ, bytearray())


def _hear(connection: Any, line: bytearray, size: int, here: dict[int, socket.socket]) -> bool:
    """Takes in what there is to read. False: it is of no use, or has left."""
    try:
        got = connection.recv(64)
        line += got
        found = re.fullmatch(rb"%s (\d{1,9}) of (\d{1,9})\n" % MAGIC, line)
        if got and found and 0 < int(found[1]) < size == int(found[2]):
            connection.sendall(MAGIC + b"\n")
            here[int(found[1])] = connection
            return True
    except OSError:
        got = b""
    if got and len(line) <= 64 and not line.endswith(b"\n"):
        return True  # the rest of its line is on the way
    for rank in [rank for rank, each in here.items() if each is connection]:
        del here[rank]
    return False


def _named(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


# ---- Where rank 0 is


def _is_agents(env: Mapping[str, str]) -> bool:
    return env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _master(env: Mapping[str, str]) -> tuple[str, int]:
    try:
        return env["MASTER_ADDR"], int(env["MASTER_PORT"])
    except (KeyError, ValueError):
        raise NoWord("WORLD_SIZE is above 1: MASTER_ADDR and MASTER_PORT must say where rank 0 is, as torchrun sets them") from None


def _agents_store(env: Mapping[str, str], seconds: float) -> Any:
    from torch.distributed import TCPStore

    host, port = _master(env)
    try:
        return TCPStore(host, port, is_master=False, timeout=datetime.timedelta(seconds=max(seconds, 1)), wait_for_workers=False)
    except RuntimeError as error:
        raise NoWord(f"rank {env['RANK']}: torchrun's store at {host} port {port} cannot be reached: {error}") from None


def _own_address(env: Mapping[str, str]) -> str:
    """By which the others reach this host: the one that leads to the agent's store. Where that store is here, its own name leads here."""
    host, port = _master(env)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        own = probe.getsockname()[0]
    return host if ipaddress.ip_address(own.partition("%")[0]).is_loopback else own


def _addresses(env: Mapping[str, str], deadline: float) -> Iterator[tuple[str, int]]:
    """Where rank 0 may be, again and again until the time is over."""
    store = _agents_store(env, deadline - time.monotonic()) if _is_agents(env) else None
    while time.monotonic() < deadline:
        if store is None:
            yield _master(env)
        elif store.check([KEY]):
            host, port = json.loads(store.get(KEY))
            yield host, port
        time.sleep(0.1)
