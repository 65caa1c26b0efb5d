"""The sshd in each host: from every host to every other without a question, and nothing of it outside or afterwards."""

import pathlib
import signal
import subprocess

import pytest

from . import ssh


@pytest.fixture(autouse=True)
def needs_sshd():
    if reason := ssh.why_not():
        pytest.skip(reason)


def listening_ports() -> list[str]:
    lines = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(line.split()[3] for line in lines)  # not how many wait to be let in


@pytest.mark.parametrize("port", [22, 2222])
def test_every_host_reaches_every_host(make_cluster, tmp_path, port):
    cluster = make_cluster(hosts=2)
    ssh.start(cluster, tmp_path, port)
    for host in cluster:
        for name in ("node0", "node1", cluster[1].address):
            assert host.run(["ssh", name, "hostname"]).stdout == ("node0\n" if name == "node0" else "node1\n")


def test_exit_codes_signals_and_streams_pass(make_cluster, tmp_path):
    cluster = make_cluster(hosts=2)
    ssh.start(cluster, tmp_path)
    assert cluster[0].run(["ssh", "node1", "exit 7"], check=False).returncode == 7
    assert cluster[0].run(["ssh", "node1", "kill -KILL $$"], check=False).returncode == 255
    assert cluster[0].run(["ssh", "node1", "echo words >&2"]).stderr == "words\n"


def test_a_host_that_is_not_the_one_it_was_is_refused(make_cluster, tmp_path):
    """The keys are really checked: a server with another host key is no known host."""
    cluster = make_cluster(hosts=2)
    servers = ssh.start(cluster, tmp_path)
    servers[1].terminate()
    assert servers[1].wait(10) in (0, 255, -signal.SIGTERM)
    cluster[1].run(["sh", "-c", "cd /etc/ssh && rm host_key* && ssh-keygen -q -t ed25519 -N '' -f host_key"])
    cluster[1].run([ssh.SSHD])
    refused = cluster[0].run(["ssh", "node1", "true"], check=False)
    assert refused.returncode == 255 and "Host key verification failed" in refused.stderr


def test_this_machine_is_left_alone(make_cluster, tmp_path):
    def view() -> list:
        folders = [pathlib.Path("/etc/ssh"), pathlib.Path.home() / ".ssh", pathlib.Path("/run/sshd")]
        return [sorted((str(path), path.stat().st_mtime_ns) for folder in folders for path in folder.glob("*")), listening_ports()]

    before = view()
    cluster = make_cluster(hosts=2)
    ssh.start(cluster, tmp_path)
    assert view() == before
    cluster.close()
    assert view() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sshd-node0.log", "sshd-node1.log"]


def test_why_not_names_the_package(monkeypatch):
    monkeypatch.setattr(ssh, "SSHD", "/no/such/sshd")
    assert "openssh-server" in ssh.why_not()
