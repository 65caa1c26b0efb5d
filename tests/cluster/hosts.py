"""Hosts on a private network inside this machine, for tests of what happens between hosts.

    with Cluster(hosts=2, delay_ms=20, loss_percent=1) as cluster:
        server = cluster[0].popen(["./server"])
        cluster[1].run(["./client", "node0"])
        cluster.cut(0, 1)

Each host is a Machine (its own network, processes, /dev/shm, /etc/hosts and name) with one cable, eth0, to a switch,
which is a machine too. Nothing of it can be seen from outside, and all of it goes when the test does, SIGKILL included.

The switch is the kernel's bridge, so that plain speed is the kernel's. As soon as delay or loss is asked for, it is
cluster_link_relay instead: the same on every kernel (netem is not in all), with a seeded generator. Bandwidth is tbf at
both ends of a cable. A cut is a filter at the switch that drops by sender: both ends keep their carrier and hear
nothing, neither FIN nor RST nor ICMP. Neighbour entries are permanent, so that not even a failing ARP tells.
"""

import ctypes
import fcntl
import functools
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence

from .machine import Machine, execute

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BRIDGE = "switch0"
ISLAND_ADDRESS = "172.17.0.1"
QUEUE_MS = 50  # what a full link holds back before it drops

_PROBE = """set -e
ip link add bridge0 type bridge
ip link add port0 type veth peer name eth0
tc qdisc add dev port0 clsact
tc filter add dev port0 egress bpf da bytecode '1,6 0 0 2'
tc qdisc add dev port0 root tbf rate 1mbit burst 64kb latency 50ms
mount -t sysfs sysfs /sys
"""


@functools.cache
def why_not() -> str | None:
    """Why no cluster can be made here, or None. Asks the kernel, not this harness: a bug in it must not look like a skip."""
    if os.geteuid() != 0:
        return "a cluster of network namespaces needs root"
    needed = ["unshare", "nsenter", "env", "mount", "ip", "tc"]
    if missing := [tool for tool in needed if shutil.which(tool) is None]:
        return f"a cluster needs {', '.join(missing)} (Debian: util-linux, iproute2)"
    unshare = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"]
    probe = subprocess.run([*unshare, "sh", "-c", _PROBE], capture_output=True, text=True)
    if probe.returncode != 0:
        return f"this kernel or container does not permit a private network: {probe.stderr.strip()}"
    return None


def relay_program() -> pathlib.Path:
    build = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", REPOSITORY / "build" / "release"))
    program = build / "tests" / "cluster" / "cluster_link_relay"
    if not program.exists():
        raise RuntimeError(
            f"{program} is missing. Build the target cluster_link_relay, or name the build folder in TRIREME_BUILD_DIR."
        )
    return program


def _ip(commands: Sequence[str]) -> None:
    execute(["ip", "-batch", "-"], stdin="\n".join(commands) + "\n")


def _set_checksum_offload(interface: str, on: bool) -> None:
    """Off, every frame leaves whole: checksummed, and no longer than the MTU, since segmentation offload needs it on.

    The relay reads what leaves the host, where an offload is a debt that no hardware will pay.
    """
    SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17
    value = ctypes.create_string_buffer(struct.pack("=II", ETHTOOL_STXCSUM, on))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCETHTOOL, request)


def _wait_until_running(interface: str, running: bool = True, timeout_s: float = 20) -> None:
    """The kernel takes its time to say so of a cable that was just plugged in, and programs pass over what does not run. It also takes
    its time to say that one without carrier does not."""
    SIOCGIFFLAGS, IFF_RUNNING = 0x8913, 0x40
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", interface.encode(), 0)
        while bool(struct.unpack("16sH14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1] & IFF_RUNNING) != running:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{interface} {'has no' if running else 'still has'} carrier after {timeout_s} s")
            time.sleep(0.002)


def _drop_from(senders: Sequence["Host"]) -> str:
    """Classic BPF for tc: drop a frame whose source address is one of these, leave others to the next filter.

    The last four bytes of a MAC address here are the IPv4 address, so one load at offset 8 names the sender.
    """
    load, jump_if_equal, ret = 0x20, 0x15, 0x06
    unspecified, drop = 0xFFFFFFFF, 2
    program = [f"{load} 0 0 8"]
    for index, sender in enumerate(senders):
        program.append(f"{jump_if_equal} {len(senders) - index} 0 {int.from_bytes(socket.inet_aton(sender.address))}")
    program += [f"{ret} 0 0 {unspecified}", f"{ret} 0 0 {drop}"]
    return f"{len(program)}," + ",".join(program)


class Host(Machine):
    """One host of a cluster: node<index>, 10.77.0.<index + 1> on eth0, in /etc/hosts of all of them."""

    def __init__(self, index: int, hosts_file: str, private_dirs: Sequence[str]):
        super().__init__(self.name_of(index), hosts_file, private_dirs)
        self.index = index
        self.address = self.address_of(index)
        self.mac = "02:00:" + ":".join(f"{byte:02x}" for byte in socket.inet_aton(self.address))
        self.port = f"port{index}"  # the other end of the cable, in the switch

    @staticmethod
    def name_of(index: int) -> str:
        return f"node{index}"

    @staticmethod
    def address_of(index: int) -> str:
        return f"10.77.0.{index + 1}"

    @property
    def dead_address(self) -> str:
        """The address of eth1 in a cluster with dead_interface: configured, without carrier."""
        return f"10.78.0.{self.index + 1}"

    @property
    def second_address(self) -> str:
        """The address of eth2 in a cluster with second_interface."""
        return f"10.79.0.{self.index + 1}"


class Cluster:
    """Owns its hosts, the switch and the processes in them; `with` ends them all.

    Not for several threads at once, though each may use its own Host. No call waits for traffic. A constructor that
    fails leaves nothing behind; a call that fails leaves the cluster fit for nothing but its end.

    delay_ms is one way: a round trip takes twice as long. loss_percent is per frame and direction, mbit per host and
    direction. The folders in private_dirs ("/tmp", "/run") are empty and each host's own; all others are those of this machine.

    Hosts may have more than eth0. dead_interface: an eth1 with an address but no carrier. second_interface: an eth2 on the
    same switch, for plain use, without cuts and limits. island: a docker0 as container engines leave it, before eth0 in
    every list, with carrier and an address that is the same on every host, so that who connects to it reaches itself.
    """

    def __init__(
        self,
        hosts: int = 2,
        *,
        delay_ms: float = 0,
        loss_percent: float = 0,
        mbit: float | None = None,
        seed: int = 1,
        dead_interface: bool = False,
        second_interface: bool = False,
        island: bool = False,
        private_dirs: Sequence[str] = (),
    ):
        if not 1 <= hosts <= 250:
            raise ValueError(f"hosts must be 1 to 250, not {hosts}")
        self._seed = seed
        self._delay_ms = self._loss_percent = 0.0
        self._mbit: float | None = None
        self._cuts: set[frozenset[int]] = set()
        self._dead: set[int] = set()
        self._relay: subprocess.Popen | None = None
        self._machines: list[Machine] = []
        try:
            self._start_machines(hosts, private_dirs)
            self._extras = [name for name, wanted in (("docker0", island), ("eth1", dead_interface), ("eth2", second_interface)) if wanted]
            self._connect()
            if delay_ms or loss_percent:
                self.delay(delay_ms, loss_percent)
            if mbit is not None:
                self.bandwidth(mbit)
        except BaseException:
            self._kill_machines()
            raise

    def _start_machines(self, hosts: int, private_dirs: Sequence[str]) -> None:
        names = [f"{Host.address_of(i)} {Host.name_of(i)}\n" for i in range(hosts)]
        hosts_file = "127.0.0.1 localhost\n" + "".join(names)
        self._switch = Machine("switch")
        self._machines.append(self._switch)
        self.hosts: list[Host] = []
        for index in range(hosts):
            self.hosts.append(Host(index, hosts_file, private_dirs))
            self._machines.append(self.hosts[-1])
        for machine in self._machines:
            machine.wait_ready()

    def _connect(self) -> None:
        with self._switch.network():
            # A switch has no address of its own, and must not announce one.
            for which in ("all", "default"):
                path = pathlib.Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
                if path.exists():
                    path.write_text("1")
            _ip([f"link add {BRIDGE} type bridge mcast_snooping 0", f"link set {BRIDGE} up"])
            for host in self.hosts:
                self._plug_in(host)
        for host in self.hosts:
            with host.network():
                self._configure(host)
        for host in self.hosts:
            with host.network():
                for interface in ["eth0", *self._extras]:
                    _wait_until_running(interface, interface != "eth1")

    def _plug_in(self, host: Host) -> None:
        commands = [
            f"link add {host.port} type veth peer name eth0 address {host.mac} netns {host.pid}",
            f"link set {host.port} master {BRIDGE} up",
        ]
        if "docker0" in self._extras:  # first, for the lowest number
            commands = [f"link add island{host.index} type veth peer name docker0 netns {host.pid}", f"link set island{host.index} up", *commands]
        if "eth1" in self._extras:  # no carrier, because the switch's end stays down
            commands.append(f"link add dead{host.index} type veth peer name eth1 netns {host.pid}")
        if "eth2" in self._extras:
            commands += [f"link add second{host.index} type veth peer name eth2 netns {host.pid}", f"link set second{host.index} master {BRIDGE} up"]
        _ip(commands)
        execute(["tc", "qdisc", "add", "dev", host.port, "clsact"])

    def _configure(self, host: Host) -> None:
        others = [other for other in self.hosts if other is not host]
        commands = [f"addr add {host.address}/24 dev eth0", "link set eth0 up"]
        commands += [f"neigh add {other.address} lladdr {other.mac} dev eth0 nud permanent" for other in others]
        addresses = {"docker0": f"{ISLAND_ADDRESS}/16", "eth1": f"{host.dead_address}/24", "eth2": f"{host.second_address}/24"}
        for interface in self._extras:
            commands += [f"addr add {addresses[interface]} dev {interface}", f"link set {interface} up"]
        _ip(commands)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def __getitem__(self, index: int) -> Host:
        return self.hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)

    def __len__(self) -> int:
        return len(self.hosts)

    def close(self) -> None:
        """Ends everything. An error, if the relay died before: what the test then measured was not the link it asked for."""
        relay_ended = self._relay.poll() if self._relay else None
        self._kill_machines()
        if relay_ended is not None:
            raise RuntimeError(f"cluster_link_relay ended during the test, with {relay_ended}")

    def _kill_machines(self) -> None:
        for machine in self._machines:
            machine.kill()

    def _alive(self) -> list[Host]:
        return [host for host in self.hosts if host.index not in self._dead]

    def delay(self, delay_ms: float, loss_percent: float = 0) -> None:
        """From now on each frame takes that long and that share is lost; delay(0) gives the kernel's bridge back.

        Frames under way at the change are lost.
        """
        if self._relay:
            self._relay.kill()
            self._relay.wait()
            self._relay = None
        relayed = delay_ms > 0 or loss_percent > 0
        for host in self._alive():
            with host.network():
                _set_checksum_offload("eth0", not relayed)
        with self._switch.network():
            master = "nomaster" if relayed else f"master {BRIDGE}"
            _ip([f"link set {host.port} {master}" for host in self._alive()])
        if relayed:
            self._start_relay(delay_ms, loss_percent)
        self._delay_ms, self._loss_percent = delay_ms, loss_percent

    def _start_relay(self, delay_ms: float, loss_percent: float) -> None:
        numbers = [str(delay_ms), str(loss_percent), str(self._seed)]
        ports = [host.port for host in self._alive()]
        self._relay = self._switch.popen([str(relay_program()), *numbers, *ports], stdout=subprocess.PIPE, text=True)
        with self._relay.stdout as output:
            if output.readline() != "ready\n":
                raise RuntimeError(f"cluster_link_relay did not start; it ended with {self._relay.wait()}")

    def bandwidth(self, mbit: float | None) -> None:
        """Limits what each host sends and what it receives to that many Mbit/s; None takes the limit away."""
        for host in self._alive():
            with host.network():
                self._limit("eth0", mbit)
            with self._switch.network():
                self._limit(host.port, mbit)
        self._mbit = mbit

    def _limit(self, interface: str, mbit: float | None) -> None:
        if mbit is None:
            if self._mbit is not None:
                execute(["tc", "qdisc", "del", "dev", interface, "root"])
            return
        # A millisecond's worth, and at least one full segmentation offload: the timer need not be finer than that.
        burst_bytes = max(65536, int(mbit * 1e6 / 8 / 1000))
        shape = ["tbf", "rate", f"{int(mbit * 1e6)}bit", "burst", str(burst_bytes), "latency", f"{QUEUE_MS}ms"]
        execute(["tc", "qdisc", "replace", "dev", interface, "root", *shape])

    def cut(self, a: int, b: int | None = None) -> None:
        """From now on nothing passes between hosts a and b, or between a and all others, and nobody is told."""
        self._cuts |= self._pairs(a, b)
        self._apply_cuts()

    def heal(self, a: int, b: int | None = None) -> None:
        """Undoes cut(a, b)."""
        self._cuts -= self._pairs(a, b)
        self._apply_cuts()

    def _pairs(self, a: int, b: int | None) -> set[frozenset[int]]:
        others = [host.index for host in self.hosts] if b is None else [b]
        return {frozenset((a, other)) for other in others if other != a}

    def _unheard_by(self, host: Host) -> list[Host]:
        cut = [other for pair in self._cuts if host.index in pair for other in pair - {host.index}]
        return [self.hosts[index] for index in sorted({*cut, *self._dead})]

    def _apply_cuts(self) -> None:
        """At each port, on the way to the host: there it also stops what the relay still holds."""
        with self._switch.network():
            for host in self._alive():
                if unheard := self._unheard_by(host):
                    bpf = ["bpf", "da", "bytecode", _drop_from(unheard)]
                    execute(["tc", "filter", "replace", "dev", host.port, "egress", "pref", "1", "handle", "1", *bpf])
                else:
                    execute(["tc", "filter", "del", "dev", host.port, "egress"])

    def kill_host(self, index: int) -> None:
        """The host loses power: its processes end at once, and no FIN or RST of theirs is heard by anybody."""
        self._dead.add(index)
        self._apply_cuts()  # first, and for good: what a dying process sends, or its kernel later, must not arrive
        self.hosts[index].kill()

    def describe(self) -> str:
        """What the hosts are connected by, in one line for logs and benchmark results."""
        if self._relay:
            loss = f"{self._loss_percent:g} % loss (seed {self._seed})"
            link = f"userspace relay, {self._delay_ms:g} ms one way, {loss}"
        else:
            link = "kernel bridge, no delay, no loss"
        limit = "unlimited" if self._mbit is None else f"{self._mbit:g} Mbit/s per host and direction (tbf)"
        parts = [f"{len(self)} hosts in network namespaces", link, limit]
        if cuts := sorted(sorted(pair) for pair in self._cuts):
            parts.append("cut " + ", ".join(f"node{a}-node{b}" for a, b in cuts))
        if self._dead:
            parts.append("dead " + ", ".join(Host.name_of(index) for index in sorted(self._dead)))
        return "; ".join(parts)
