"""Runs a pod in a host of the harness as a kubelet would: its volumes mounted where the manifest says, its environment, its user, its signals.

A host has a name, processes, a network and mounts of its own already. What a container runtime adds is made here:

- The image. There is no engine to run one, so its files are laid over this machine's (Image): what it has at /usr/local/bin/trireme or
  /opt/venv/bin/torchrun is at those paths, and is this build's. /usr and the C library are this machine's.
- Volumes. A claim is a folder that all pods share, with the group that fsGroup gives it; an emptyDir is memory; a Secret's files are root's.
- The user, no capability, no new privileges, and a root that is read-only, as the manifest says.

Not simulated: CPU and memory limits (all pods share this machine's cores), seccomp, the entry point tini (a host's first process reaps orphans, and signals
are sent to the container's program itself), pulling images, and libraries that a manifest preloads (LD_PRELOAD names files that are the image's own; here the
loader says that they are missing, and goes on: tests/images preloads them). The back-off before a restart is BACKOFF_S instead of 10 s, doubled up to 5 minutes.
"""

import os
import pathlib
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

from tests.cluster.hosts import REPOSITORY, Host
from tests.trainer.runs import BUILD, TRIREME

from .operators import Pod

BACKOFF_S = 1.0
READY_S = 2.5  # from a container's start until others know that it is ready: kubelet, API server, endpoints, DNS
SHM_BYTES = 64 << 20  # of a container that mounts nothing there
STAGE = "/dev/shm/stage"  # a host's own memory, which the pod's /dev/shm covers at the end
SSH = REPOSITORY / "deploy" / "docker" / "ssh"


class Image:
    """What the pods' image has, as folders that are laid over this machine's. Owns `folder`."""

    ENV = {
        "PATH": "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/home/trireme",
        "TMPDIR": "/tmp",
        "XDG_CACHE_HOME": "/tmp/cache",
        "HF_HOME": "/tmp/cache/huggingface",
    }
    LAID_OVER = ("/etc", "/home", "/opt", "/usr/local")

    def __init__(self, folder: pathlib.Path, run_qa: pathlib.Path | None = None):
        """`run_qa` takes the place of transformers' program, which is not ours to keep in the tree."""
        self.folder = folder
        # What the image's links lead to, at its own place: torchrun's first line and the program's run path are absolute.
        prefixes = [pathlib.Path(path) for path in (sys.prefix, os.path.realpath(sys.prefix), sys.base_prefix)]
        self.needs = list(dict.fromkeys([*prefixes, BUILD, *([REPOSITORY] if run_qa else [])]))
        self._link("/opt/venv/bin/python", pathlib.Path(sys.prefix) / "bin" / "python")
        self._link("/opt/venv/bin/torchrun", pathlib.Path(sys.prefix) / "bin" / "torchrun")
        self._link("/usr/local/bin/trireme", TRIREME)
        if run_qa:
            self._link("/opt/transformers/examples/pytorch/question-answering/run_qa.py", run_qa)
        for name, line in (("passwd", "trireme:x:1000:1000::/home/trireme:/bin/sh\n"), ("group", "trireme:x:1000:\n")):
            others = [each for each in (pathlib.Path("/etc") / name).read_text().splitlines(keepends=True) if each.split(":")[2] != "1000"]
            self._write(f"/etc/{name}", "".join(others) + line)
        self._write("/etc/shadow", "trireme:*:20000:0:99999:7:::\n")
        for path in ("/home/trireme/.ssh", "/etc/mpi"):  # where volumes are mounted
            self._place(path).mkdir(parents=True)
        if SSH.exists():
            self._copy("/etc/ssh/ssh_config.d/trireme.conf", SSH / "ssh_config")
            self._copy("/etc/trireme/sshd_config", SSH / "sshd_config")
            for name in ("trireme-sshd", "trireme-mpirun"):
                self._copy(f"/usr/local/bin/{name}", SSH / name)

    def _place(self, path: str) -> pathlib.Path:
        place = self.folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _link(self, path: str, target: pathlib.Path) -> None:
        self._place(path).symlink_to(target)

    def _write(self, path: str, text: str) -> None:
        self._place(path).write_text(text)

    def _copy(self, path: str, source: pathlib.Path) -> None:
        shutil.copy(source, self._place(path))


def _closed_to_others(path: pathlib.Path) -> pathlib.Path | None:
    """The first folder above it that only its owner may pass."""
    above = [folder for folder in reversed(path.parents) if not folder.stat().st_mode & stat.S_IXOTH]
    return above[0] if above else None


class Container:
    """A pod in its host: owns the host's mounts and the container's process. Nothing here blocks for longer than a process takes to start.

    Signals and exit codes are those of the container's program.
    """

    def __init__(self, pod: Pod, host: Host, image: Image, claims: dict[str, pathlib.Path], names: pathlib.Path, log: pathlib.Path):
        self.pod, self.host, self.log = pod, host, log
        self.process: subprocess.Popen | None = None
        self.restarts = 0
        self.names = names  # its /etc/hosts
        self._started_at = 0.0
        self._was_ready = False
        self._hook: subprocess.Popen | None = None
        self._files = log.parent / f"{pod.name}-{host.name}"
        pod.address = host.address
        names.write_text(self.own_names())
        host.run(["hostname", pod.hostname])
        host.run(["sh", "-ec", "\n".join(self._mounts(image, claims, names))])

    def own_names(self) -> str:
        """What the kubelet writes into a pod's /etc/hosts: itself, and nobody else. The first name is what its address leads back to."""
        return f"127.0.0.1 localhost\n{self.host.address} {' '.join(self.pod.own_names)}\n"

    def start(self) -> None:
        self.process = None
        self._started_at, self._was_ready = time.monotonic(), False
        with open(self.log, "a") as log:
            self.process = self.host.popen(self.command(), cwd="/home/trireme", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def command(self) -> list[str]:
        """What the manifest has. The image's entry point, which args alone would keep, is tini."""
        return self._as_its_user(self.pod.command)

    def _as_its_user(self, command: list[str]) -> list[str]:
        """With its environment."""
        pod = self.pod.spec["securityContext"]
        drop = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        user = ["setpriv", f"--reuid={pod['runAsUser']}", f"--regid={pod['runAsGroup']}", f"--groups={pod['fsGroup']}", *drop]
        env = {**Image.ENV, "HOSTNAME": self.pod.hostname, **self.pod.env}
        return [*user, "env", "-i", *(f"{key}={value}" for key, value in env.items()), *command]

    def code(self) -> int | None:
        """As Kubernetes shows it: 128 + signal for a program that a signal ended; None while it runs."""
        code = self.process.poll() if self.process else None
        return 128 - code if code is not None and code < 0 else code

    def is_running(self) -> bool:
        return self.process is not None and self.code() is None

    def is_ready(self) -> bool:
        """As others see it: operators, and DNS. A probe that has succeeded is not repeated."""
        if not self.is_running() or time.monotonic() < self._started_at + READY_S:
            return False
        self._was_ready = self._was_ready or self._probe()
        return self._was_ready

    def _probe(self) -> bool:
        probe = self.pod.container.get("readinessProbe")
        if probe is None:
            return True
        (port,) = [each["containerPort"] for each in self.pod.container["ports"] if each["name"] == probe["tcpSocket"]["port"]]
        try:
            with self.host.network():
                socket.create_connection((self.host.address, port), timeout=1).close()
        except OSError:
            return False
        return True

    def terminate(self) -> None:
        """The first half of a deletion: the preStop hook is started, or where there is none SIGTERM is sent."""
        hook = self.pod.container.get("lifecycle", {}).get("preStop")
        if hook is None:
            self.process.send_signal(signal.SIGTERM)
            return
        with open(self.log, "a") as log:
            command = self._as_its_user(hook["exec"]["command"])
            self._hook = self.host.popen(command, cwd="/home/trireme", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def go_on_terminating(self) -> None:
        """SIGTERM, once the hook has ended."""
        if self._hook is not None and self._hook.poll() is not None:
            self._hook = None
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Every process of the pod, while its network is still there: others hear that their connections end. Then the pod itself."""
        self.host.run(["sh", "-c", "kill -KILL -1"], check=False)
        if self.process:
            self.process.wait()
        self.host.kill()

    # ---- Mounts ----

    def _mounts(self, image: Image, claims: dict[str, pathlib.Path], names: pathlib.Path) -> list[str]:
        """Commands for sh. First everything that will be covered is held fast below STAGE, then the pod's view is built from there."""
        volumes = {volume["name"]: volume for volume in self.pod.spec["volumes"]}
        mounts = sorted(self.pod.container["volumeMounts"], key=lambda mount: mount["mountPath"].count("/"))
        last = [mount for mount in mounts if mount["mountPath"] == "/dev/shm"]
        covered = {mount["mountPath"] for mount in mounts} | set(image.LAID_OVER)
        staged: dict[pathlib.Path, str] = {}

        def stage(path: pathlib.Path) -> str:
            return staged.setdefault(path, f"{STAGE}/{len(staged)}")

        view = [f"mount -t overlay overlay -o lowerdir={stage(image.folder / top[1:])}:{top} {top}" for top in image.LAID_OVER]
        for mount in mounts:
            if mount not in last:
                view += self._volume(mount["mountPath"], volumes[mount["name"]], claims, stage)
        view += self._given_files(stage)
        view.append(f"mount --bind {stage(names)} /etc/hosts")
        for path in image.needs:
            view += self._kept(path, covered, stage)
        if self.pod.container["securityContext"]["readOnlyRootFilesystem"]:
            view.append("mount -o remount,bind,ro /")
        for mount in last:
            view += self._volume(mount["mountPath"], volumes[mount["name"]], claims, stage)
        if not last:
            view.append(f"mount -t tmpfs -o mode=1777,size={SHM_BYTES} tmpfs /dev/shm")

        prepare = []
        for path, place in staged.items():
            make = f"mkdir -p {place}" if path.is_dir() else f"mkdir -p {STAGE} && touch {place}"
            prepare += [make, f"mount --bind {shlex.quote(str(path))} {place}"]
        return prepare + view

    def _volume(self, where: str, volume: dict, claims: dict[str, pathlib.Path], stage) -> list[str]:
        if "emptyDir" in volume:
            limit = f",size={volume['emptyDir']['sizeLimit'].removesuffix('i')}" if "sizeLimit" in volume["emptyDir"] else ""
            return [f"mount -t tmpfs -o mode=1777{limit} tmpfs {where}"]
        folder = claims[volume["persistentVolumeClaim"]["claimName"]]
        return [f"mkdir -p {where}", f"mount --bind {stage(folder)} {where}"]

    def _given_files(self, stage) -> list[str]:
        """What Secrets and ConfigMaps put there: root's, read-only."""
        commands = []
        for folder in sorted({os.path.dirname(path) for path in self.pod.files}):
            source = self._files / folder.lstrip("/")
            source.mkdir(parents=True)
            for path, (text, mode) in self.pod.files.items():
                if os.path.dirname(path) == folder:
                    (source / os.path.basename(path)).write_text(text)
                    (source / os.path.basename(path)).chmod(mode)
            commands += [f"mount --bind {stage(source)} {folder}", f"mount -o remount,bind,ro {folder}"]
        return commands

    def _kept(self, path: pathlib.Path, covered: set[str], stage) -> list[str]:
        """A folder that the pod's own mounts would hide, or that a folder of root's hides from its user, is brought back to its place."""
        closed = _closed_to_others(path)
        hidden = any(path.is_relative_to(folder) for folder in covered)
        if not hidden and closed is None:
            return []
        cover = [] if hidden else [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(closed))}"]
        covered |= set() if hidden else {str(closed)}
        place = shlex.quote(str(path))
        return [*cover, f"mkdir -p {place}", f"mount --bind {stage(path)} {place}"]


def wait_until(condition, timeout_s: float, what: str, detail=lambda: "") -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout_s} s still not: {what}\n{detail()}")
        time.sleep(0.05)
