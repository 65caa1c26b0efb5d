"""A real sshd in every host of a Cluster, for launchers that start their processes over ssh: mpirun, the launcher of an MPIJob.

    with Cluster(hosts=2) as cluster:
        ssh.start(cluster, tmp_path)
        cluster[0].run(["ssh", "node1", "hostname"])

Each host gets an /etc/ssh of its own, in memory: a host key, a user key that every host accepts, known_hosts with the keys of all,
and the settings of client and server. So `ssh` needs no option and asks nothing, as on hosts that an administrator has prepared;
what is in this machine's /etc/ssh and ~/.ssh is covered and neither read nor changed. No key is ever on a disk: they go with the hosts.
Nothing listens but inside the hosts.

What a session leaves in TMPDIR stays in its host too, in /run: Open MPI's agents name their folders by pid, which hosts that share this machine's
/tmp would have in common.
"""

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence

from .hosts import Cluster, Host

SSHD = "/usr/sbin/sshd"  # sshd starts itself again for every connection and insists on an absolute path

# sshd wants an empty /run/sshd; a tmpfs on /run is what every boot begins with.
_PREPARE = """set -e
umask 077
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -m 755 /run/sshd
mount -t tmpfs -o mode=755 tmpfs /etc/ssh
[ ! -d "$1/.ssh" ] || mount -t tmpfs -o mode=700 tmpfs "$1/.ssh"
cd /etc/ssh
ssh-keygen -q -t ed25519 -N '' -C '' -f host_key
ssh-keygen -q -t ed25519 -N '' -C '' -f user_key
cat host_key.pub user_key.pub
"""

_SERVER = """Port {port}
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PidFile none
SetEnv TMPDIR=/run
"""

_CLIENT = """Port {port}
IdentityFile /etc/ssh/user_key
IdentitiesOnly yes
PreferredAuthentications publickey
StrictHostKeyChecking yes
UserKnownHostsFile none
GlobalKnownHostsFile /etc/ssh/known_hosts
BatchMode yes
ServerAliveInterval {alive_s}
ServerAliveCountMax 2
"""


def why_not() -> str | None:
    """Why no sshd can be started here, or None."""
    if not os.access(SSHD, os.X_OK) or not shutil.which("ssh-keygen"):
        return f"{SSHD} is missing (Debian: openssh-server)"
    return None


def start(cluster: Cluster, log_folder: pathlib.Path, port: int = 22, alive_s: int = 15) -> list[subprocess.Popen]:
    """Blocks until an sshd answers in every host; they end with the hosts. Their logs are <log_folder>/sshd-<host>.log.

    A client whose server has been silent for three times alive_s gives up.
    """
    home = pwd.getpwuid(os.geteuid()).pw_dir
    public_keys = [host.run(["sh", "-c", _PREPARE, "sh", home]).stdout.splitlines() for host in cluster]
    known_hosts = [_known(host, keys[0], port) for host, keys in zip(cluster, public_keys)]
    users = [keys[1] for keys in public_keys]
    servers = []
    for host in cluster:
        _write(host, "sshd_config", _SERVER.format(port=port).splitlines())
        _write(host, "ssh_config", _CLIENT.format(port=port, alive_s=alive_s).splitlines())
        _write(host, "known_hosts", known_hosts)
        _write(host, "authorized_keys", users)
        with open(log_folder / f"sshd-{host.name}.log", "w") as log:
            servers.append(host.popen([SSHD, "-D", "-e"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))
    for host, server in zip(cluster, servers):
        _wait_until_it_answers(host, server, port, log_folder)
    return servers


def _known(host: Host, key: str, port: int) -> str:
    names = [host.name, host.address]
    return ",".join(names if port == 22 else [f"[{name}]:{port}" for name in names]) + " " + key


def _write(host: Host, name: str, lines: Sequence[str]) -> None:
    text = "\n".join(lines) + "\n"
    host.run(["sh", "-c", 'umask 022; printf %s "$1" >/etc/ssh/$2', "sh", text, name])


def _wait_until_it_answers(host: Host, server: subprocess.Popen, port: int, log_folder: pathlib.Path, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with host.network(), socket.create_connection((host.address, port), timeout=timeout_s) as connection:
                if connection.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        if server.poll() is not None or time.monotonic() > deadline:
            log = (log_folder / f"sshd-{host.name}.log").read_text()
            raise RuntimeError(f"no sshd answers on {host.name}, port {port}, after {timeout_s} s at most:\n{log}")
        time.sleep(0.02)
