"""The harness itself: hosts see each other and nothing else, links behave as asked, and no end leaves anything behind."""

import hashlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from . import hosts as harness
from .hosts import Cluster, Host

SO_RCVBUFFORCE = 33  # of <asm/socket.h>, for root: no limit of the machine's applies
RELAYED = {"delay_ms": 1}
BRIDGED: dict = {}
both_switches = pytest.mark.parametrize("switch", [BRIDGED, RELAYED], ids=["bridge", "relay"])


def connect(client: Host, server: Host) -> tuple[socket.socket, socket.socket]:
    """A TCP connection between two hosts, both ends ours, with a timeout so that no test can hang."""
    with server.network():
        listener = socket.create_server((server.address, 0))
    with client.network(), listener:
        near = socket.create_connection(listener.getsockname(), timeout=10)
        far, _ = listener.accept()
    far.settimeout(10)
    return near, far


def receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := sock.recv(min(size - len(data), 1 << 16))):
        data += part
    return bytes(data)


def transfer_seconds(near: socket.socket, far: socket.socket, payload: bytes) -> float:
    """The time from the first byte sent to the last received, after a check that they are the same bytes."""
    start = time.monotonic()
    sender = threading.Thread(target=near.sendall, args=[payload])
    sender.start()
    received = receive(far, len(payload))
    seconds = time.monotonic() - start
    sender.join()
    assert hashlib.sha256(received).digest() == hashlib.sha256(payload).digest()
    return seconds


def round_trip_seconds(near: socket.socket, far: socket.socket) -> float:
    start = time.monotonic()
    near.sendall(b"ping")
    far.sendall(receive(far, 4))
    assert receive(near, 4) == b"ping"
    return time.monotonic() - start


def fastest_round_trip(near: socket.socket, far: socket.socket, trips: int = 3) -> float:
    """A busy machine can make any of them slow, and none fast."""
    return min(round_trip_seconds(near, far) for _ in range(trips))


def assert_silent(sock: socket.socket, seconds: float) -> None:
    """Neither data nor the end of the connection nor an error arrives."""
    sock.settimeout(seconds)
    with pytest.raises(TimeoutError):
        sock.recv(1)
    sock.settimeout(10)


def count_datagrams(sock: socket.socket) -> int:
    """How many arrive until none does for the socket's timeout."""
    count = 0
    while True:
        try:
            sock.recv(1)
        except TimeoutError:
            return count
        count += 1


def connect_error(client: Host, address: str, port: int, timeout_s: float = 0.5) -> type[Exception] | None:
    """The kind of error that a connect meets, or None."""
    with client.network():
        try:
            socket.create_connection((address, port), timeout=timeout_s).close()
        except OSError as error:
            return type(error)
    return None


@both_switches
def test_programs_reach_other_hosts_by_name(make_cluster, switch):
    cluster = make_cluster(hosts=3, **switch)
    serve = "import socket; s = socket.create_server(('0.0.0.0', 7000)); print('up', flush=True); s.accept()[0].send(b'hi')"
    server = cluster[2].popen([sys.executable, "-c", serve], stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == "up\n"

    ask = "import socket; print(socket.create_connection(('node2', 7000)).recv(2))"
    assert cluster[0].run([sys.executable, "-c", ask]).stdout == "b'hi'\n"
    assert server.wait(10) == 0


def test_each_host_has_its_name_and_private_folders(make_cluster, tmp_path):
    cluster = make_cluster(hosts=2, private_dirs=["/run"])
    for host in cluster:
        assert host.run(["hostname"]).stdout == f"{host.name}\n"
        host.run(["sh", "-c", "echo $(hostname) > /dev/shm/mine && echo $(hostname) > /run/mine"])
    for host in cluster:
        assert host.run(["cat", "/dev/shm/mine", "/run/mine"]).stdout == f"{host.name}\n" * 2
    assert not pathlib.Path("/dev/shm/mine").exists() and not pathlib.Path("/run/mine").exists()
    assert cluster[0].run(["pwd"], cwd=str(tmp_path)).stdout == f"{tmp_path}\n"


def test_a_host_sees_nothing_of_the_machine(make_cluster):
    cluster = make_cluster(hosts=2)
    ours = {path.read_text() for path in pathlib.Path("/sys/class/net").glob("*/address")} - {"00:00:00:00:00:00\n"}
    theirs = cluster[0].run(["sh", "-c", "cat /sys/class/net/*/address"]).stdout.splitlines(keepends=True)
    assert cluster[0].mac + "\n" in theirs
    assert not ours & set(theirs)

    pids = cluster[0].run(["sh", "-c", "cd /proc && echo [0-9]*"]).stdout.split()
    assert pids[0] == "1" and len(pids) == 2, "the init and the shell that asks"

    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        assert connect_error(cluster[0], "127.0.0.1", port) is ConnectionRefusedError
    assert "default" not in cluster[0].run(["ip", "route"]).stdout


def test_the_machine_sees_nothing_of_the_cluster(make_cluster):
    def view() -> list[str]:
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
        names = [line.split()[1] for line in links.splitlines()]
        return [*names, socket.gethostname(), pathlib.Path("/proc/self/mounts").read_text()]

    before = view()
    make_cluster(hosts=2, delay_ms=1)
    assert view() == before


def test_exit_codes_and_signals_are_those_of_the_program(make_cluster):
    cluster = make_cluster(hosts=1)
    assert cluster[0].run(["sh", "-c", "exit 7"], check=False).returncode == 7
    with pytest.raises(AssertionError, match="ended with 7"):
        cluster[0].run(["sh", "-c", "exit 7"])
    with pytest.raises(AssertionError, match="still ran after 0.2 s"):
        cluster[0].run(["sleep", "60"], timeout_s=0.2)
    sleeper = cluster[0].popen(["sleep", "60"])
    sleeper.terminate()
    assert sleeper.wait(10) == -signal.SIGTERM


def test_delay_is_added_each_way(make_cluster):
    cluster = make_cluster(hosts=2, delay_ms=50)
    near, far = connect(cluster[0], cluster[1])
    assert 0.100 <= fastest_round_trip(near, far) < 0.150
    assert "50 ms one way" in cluster.describe()


def test_delay_can_change_under_a_connection(make_cluster):
    cluster = make_cluster(hosts=2)
    near, far = connect(cluster[0], cluster[1])
    assert fastest_round_trip(near, far, trips=5) < 0.010
    cluster.delay(20)
    assert fastest_round_trip(near, far) >= 0.040
    cluster.delay(0)
    assert fastest_round_trip(near, far, trips=5) < 0.010
    assert "kernel bridge" in cluster.describe()


def test_loss_is_the_share_asked_for(make_cluster):
    cluster = make_cluster(hosts=2, loss_percent=10)
    count, batch = 3000, 100  # a batch fits any queue on the way
    with cluster[1].network():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    receiver.bind((cluster[1].address, 0))
    receiver.settimeout(0.05)
    with cluster[0].network():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    arrived = 0
    for _ in range(count // batch):
        for _ in range(batch):
            sender.sendto(b"x", receiver.getsockname())
        arrived += count_datagrams(receiver)
    receiver.settimeout(2)  # a relay that waits for its turn has the last of them still
    arrived += count_datagrams(receiver)
    # The standard deviation is sqrt(0.1 x 0.9 / 3000) = 0.55 %; five of them.
    assert 0.0726 < 1 - arrived / count < 0.1274


def test_tcp_arrives_whole_over_a_lossy_link(make_cluster):
    cluster = make_cluster(hosts=2, delay_ms=1, loss_percent=1)
    near, far = connect(cluster[0], cluster[1])
    transfer_seconds(near, far, os.urandom(1 << 20))


@both_switches
def test_bandwidth_is_limited_in_both_directions(make_cluster, switch):
    cluster = make_cluster(hosts=2, mbit=100, **switch)
    near, far = connect(cluster[0], cluster[1])
    payload = os.urandom(3 << 20)

    def best_mbit(sender: socket.socket, receiver: socket.socket) -> float:
        # A busy machine can make one of them slow, and none faster.
        return max(len(payload) * 8 / 1e6 / transfer_seconds(sender, receiver, payload) for _ in range(3))

    for sender, receiver in [(near, far), (far, near)]:
        # Headers take 5 % of the wire; the bucket gives 64 kB, 2 %, for nothing.
        assert 50 < best_mbit(sender, receiver) < 103

    cluster.bandwidth(None)
    assert best_mbit(near, far) > 150
    assert "unlimited" in cluster.describe()


def test_bandwidth_is_the_receivers_too(make_cluster):
    cluster = make_cluster(hosts=3, mbit=100)
    payload = os.urandom(1 << 20)
    pairs = [connect(cluster[sender], cluster[2]) for sender in (0, 1)]
    start = time.monotonic()
    threads = [threading.Thread(target=transfer_seconds, args=[*pair, payload]) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 2 * len(payload) * 8 / 1e6 / (time.monotonic() - start) < 107


@both_switches
def test_a_cut_is_silent_and_heals(make_cluster, switch):
    cluster = make_cluster(hosts=3, **switch)
    near, far = connect(cluster[0], cluster[1])
    bystander = connect(cluster[0], cluster[2])
    with cluster[1].network():
        listener = socket.create_server((cluster[1].address, 0))

    cluster.cut(0, 1)
    assert "cut node0-node1" in cluster.describe()
    near.sendall(b"lost")
    assert_silent(far, 1.0)
    assert_silent(near, 0.1)
    assert connect_error(cluster[0], *listener.getsockname()) is TimeoutError
    for host in (cluster[0], cluster[1]):
        assert host.run(["cat", "/sys/class/net/eth0/carrier"]).stdout == "1\n"
    assert fastest_round_trip(*bystander) < 1

    cluster.heal(0, 1)
    assert receive(far, 4) == b"lost", "TCP sends again what vanished"
    assert connect_error(cluster[0], *listener.getsockname(), timeout_s=10) is None


def test_a_cut_outlasts_arp(make_cluster):
    """A neighbour that does not answer would give EHOSTUNREACH after three seconds."""
    cluster = make_cluster(hosts=2)
    cluster.cut(0)
    assert connect_error(cluster[0], cluster[1].address, 7000, timeout_s=4) is TimeoutError


def test_cuts_are_between_pairs(make_cluster):
    cluster = make_cluster(hosts=4)
    links = {(a, b): connect(cluster[a], cluster[b]) for a in range(4) for b in range(a)}
    cluster.cut(0, 1)
    cluster.cut(2, 3)
    for pair, (near, far) in links.items():
        if pair in [(1, 0), (3, 2)]:
            near.sendall(b"x")
            assert_silent(far, 0.1)
        else:
            assert fastest_round_trip(near, far) < 1


@both_switches
def test_a_killed_host_goes_without_a_word(make_cluster, switch):
    cluster = make_cluster(hosts=3, **switch)
    with cluster[0].network():
        listener = socket.create_server((cluster[0].address, 7000))
    listener.settimeout(10)
    code = "import socket, time; s = socket.create_connection(('node0', 7000)); time.sleep(60)"
    victim = cluster[1].popen([sys.executable, "-c", code])
    connection, _ = listener.accept()
    bystander = connect(cluster[0], cluster[2])

    cluster.kill_host(1)
    assert victim.returncode == -signal.SIGKILL
    assert_silent(connection, 1.0)
    connection.sendall(b"anyone?")
    assert fastest_round_trip(*bystander) < 1
    with pytest.raises(RuntimeError, match="node1 is dead"):
        cluster[1].popen(["true"])
    assert "dead node1" in cluster.describe()
    cluster.cut(0, 2)
    cluster.heal(0, 2)
    cluster.delay(2)
    assert fastest_round_trip(*bystander) < 2


def test_dead_interface_has_an_address_but_no_carrier(make_cluster):
    cluster = make_cluster(hosts=2, dead_interface=True)
    assert cluster[0].dead_address in cluster[0].run(["ip", "addr", "show", "eth1"]).stdout
    assert cluster[0].run(["cat", "/sys/class/net/eth1/carrier"]).stdout == "0\n"
    assert connect_error(cluster[0], cluster[1].dead_address, 7000) is TimeoutError


def test_second_interfaces_reach_each_other(make_cluster):
    cluster = make_cluster(hosts=2, second_interface=True)
    with cluster[1].network():
        listener = socket.create_server((cluster[1].second_address, 7000))
    assert connect_error(cluster[0], cluster[1].second_address, 7000, timeout_s=10) is None
    listener.close()


def test_an_island_comes_first_and_leads_to_oneself(make_cluster):
    cluster = make_cluster(hosts=2, island=True)
    links = [line.split()[1].rstrip(":").partition("@")[0] for line in cluster[0].run(["ip", "-o", "link"]).stdout.splitlines()]
    assert links == ["lo", "docker0", "eth0"]
    assert cluster[0].run(["cat", "/sys/class/net/docker0/carrier"]).stdout == "1\n"
    with cluster[1].network():
        listener = socket.create_server((harness.ISLAND_ADDRESS, 7000))
    assert connect_error(cluster[0], harness.ISLAND_ADDRESS, 7000) is ConnectionRefusedError
    listener.close()


def test_a_relay_that_dies_fails_the_test():
    if reason := harness.why_not():
        pytest.skip(reason)
    with pytest.raises(RuntimeError, match="relay ended during the test, with -9"):
        with Cluster(hosts=2, delay_ms=1) as cluster:
            cluster._relay.kill()
            cluster._relay.wait()


def namespaces_in_use() -> set[str]:
    """Every namespace that some process is in, or that a mount keeps (ip netns does so)."""
    used = set()
    for link in pathlib.Path("/proc").glob("[0-9]*/ns/*"):
        try:
            used.add(os.readlink(link))
        except OSError:
            continue  # the process has ended meanwhile
    return used | {word for word in pathlib.Path("/proc/self/mountinfo").read_text().split() if ":[" in word}


def test_an_error_while_starting_leaves_nothing(monkeypatch):
    if reason := harness.why_not():
        pytest.skip(reason)
    before = namespaces_in_use()
    with pytest.raises(RuntimeError, match="did not start"):
        Cluster(hosts=2, private_dirs=["/no/such/folder"])
    monkeypatch.setenv("TRIREME_BUILD_DIR", "/no/such/folder")
    with pytest.raises(RuntimeError, match="Build the target cluster_link_relay"):
        Cluster(hosts=2, delay_ms=1)
    assert namespaces_in_use() <= before


# A test that ends in each possible way while its hosts are busy: daemons, a relay, open connections, a stopped process.
ENDING_TEST = """
import os, signal, socket, sys, time
from tests.cluster.hosts import Cluster
with Cluster(hosts=2, delay_ms=1) as cluster:
    for host in cluster:
        host.run(["sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & "])
        host.popen(["sleep", "1000"]).send_signal(signal.SIGSTOP)
    for machine in cluster._machines:
        print(*[os.readlink(f"/proc/{machine.pid}/ns/{kind}") for kind in ("net", "mnt", "pid", "uts", "ipc")])
    print("up", flush=True)
"""


# Runs it and returns only when every process that it left is gone: orphans come to a subreaper.
GUARDIAN = """
import ctypes, os, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
code = subprocess.run([sys.executable, "-c", sys.argv[1]]).returncode
try:
    while True:
        os.wait()
except ChildProcessError:
    print(code)
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("pass", 0),
        ("raise ValueError('a failing test')", 1),
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_nothing_is_left_after(end, code):
    if reason := harness.why_not():
        pytest.skip(reason)
    guardian = [sys.executable, "-c", GUARDIAN, ENDING_TEST + "    " + end]
    result = subprocess.run(guardian, cwd=harness.REPOSITORY, capture_output=True, text=True, timeout=120)
    *namespaces, up, ended_with = result.stdout.split()
    assert (up, int(ended_with)) == ("up", code), result.stderr
    assert len(set(namespaces)) == 15, "five namespaces for each of two hosts and the switch"
    assert not namespaces_in_use() & set(namespaces)


def test_why_not_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert harness.why_not.__wrapped__() == "a cluster of network namespaces needs root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/no/such/folder")
    assert "Debian: util-linux, iproute2" in harness.why_not.__wrapped__()
