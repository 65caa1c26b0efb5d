"""A job in a cluster of the harness, as its operator, the kubelets and the cluster's DNS would run it.

    with Simulation(make_job(load("pytorchjob-trireme")), folder, claims={"transformers-pvc": folder / "pvc"}, only=2, spares=1) as job:
        job.run_until(lambda: ..., timeout_s=60, what="training")
        job.delete("trireme-pytorchjob-worker-1")
        job.run_to_the_end(timeout_s=120)

Every pod is in a host of its own. A pod that is deleted gets SIGTERM, the manifest's grace period and SIGKILL; its operator makes another one of the
same name on another host, so with another address, and the name leads to that one. A container that fails is started again as its restart policy says.

What a test changes is declared: `arguments` replaces values of flags that the manifest has, `env` adds variables. Nothing else of a pod differs from what
the operator makes of the file that ships.
"""

import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Mapping

from tests.cluster.hosts import Cluster

from .kubelet import BACKOFF_S, Container, Image, wait_until
from .operators import Job, Pod, ssh_files


MANY_RESTARTS = 8  # Kubernetes would go on; a test has seen enough


def with_arguments(arguments: list[str], changes: Mapping[str, str]) -> list[str]:
    """The same command with other values for these flags; each must be there, once."""
    result = list(arguments)
    for flag, value in changes.items():
        assert result.count(flag) == 1, f"{flag} is in the manifest {result.count(flag)} times"
        place = result.index(flag) + 1
        assert not result[place].startswith("--"), f"{flag} has no value in the manifest"
        result[place] = value
    return result


class Simulation:
    """Owns the hosts and all that runs in them. For one thread; what waits says how long."""

    def __init__(
        self,
        job: Job,
        folder: pathlib.Path,
        *,
        claims: dict[str, pathlib.Path],
        only: int | None = None,  # so many pods of each role; the others have no node to run on
        spares: int = 0,  # hosts for pods that are made anew
        arguments: Mapping[str, str] = {},
        env: Mapping[str, str] = {},
        run_qa: pathlib.Path | None = None,
    ):
        self.job, self.folder, self._claims = job, folder, claims
        self.pods = {pod.name: pod for pod in job.pods if only is None or pod.index < only}
        for pod in self.pods.values():
            if any(flag in pod.container["args"] for flag in arguments):
                pod.container["args"] = with_arguments(pod.container["args"], arguments)
            pod.container["env"] = [*pod.container.get("env", []), *({"name": name, "value": value} for name, value in env.items())]
        if job.secrets_of:
            self._give_keys()
        self._published = ""
        self._image = Image(folder / "image", run_qa)
        for claim in claims.values():
            _give_to_group(claim, gid=1000)
        self.containers: dict[str, Container] = {}
        self.codes: dict[str, int | None] = {name: None for name in self.pods}
        self._start_at: dict[str, float] = {name: 0.0 for name in self.pods}
        self._kill_at: dict[str, float] = {}
        self.deleted: list[tuple[str, int]] = []  # the pods that are gone, with the exit codes of their containers
        self._cluster = Cluster(hosts=len(self.pods) + spares)
        self._free = list(self._cluster.hosts)

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(self, *exception) -> None:
        self._cluster.close()

    def _give_keys(self) -> None:
        """As mpi-operator: an ECDSA key on P-521 for the whole job."""
        key = self.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-C", "", "-f", key], check=True)
        for pod in self.pods.values():
            pod.files |= ssh_files(self.job.secrets_of, key.read_text(), key.with_suffix(".pub").read_text())

    # ---- What a user does ----

    def delete(self, name: str) -> None:
        """kubectl delete pod: the preStop hook, SIGTERM, and SIGKILL when the grace period is over; run_until sees to it."""
        self.containers[name].terminate()
        self._kill_at[name] = time.monotonic() + self.pods[name].grace_s

    def lose(self, name: str) -> None:
        """The pod's node loses power: nobody hears a word. The operator makes another pod at once. A cluster would take minutes to miss the node, and a pod with a
        fixed name would stay Terminating, and none take its place, until the node is back or somebody deletes the pod by force: that somebody is this function."""
        self._cluster.kill_host(self.containers.pop(name).host.index)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def run_until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Blocks, and does what operator, kubelets and DNS do, until it holds."""

        def step() -> bool:
            self._reconcile()
            return condition()

        wait_until(step, timeout_s, what, detail=self.tails)

    def run_to_the_end(self, timeout_s: float) -> None:
        """Until the job has succeeded by its operator's rule and every container has ended; workers of an MPIJob are ended, as its policy says."""
        self.run_until(lambda: self.job.succeeded(self._known_codes()), timeout_s, f"{self.job.name} has succeeded")
        if self.job.manifest["spec"].get("runPolicy", {}).get("cleanPodPolicy") == "Running":
            for name, code in self.codes.items():
                if code is None:
                    self.delete(name)
            self.run_until(lambda: not self._kill_at, timeout_s, "workers are gone")
            return
        self.run_until(lambda: all(code is not None for code in self.codes.values()), timeout_s, "every pod has ended")

    def _known_codes(self) -> dict[str, int | None]:
        return {pod.name: self.codes.get(pod.name) for pod in self.job.pods}

    def tails(self) -> str:
        states = "".join(f"{name}: {'not started' if name not in self.containers else self.containers[name].code()}\n" for name in self.pods)
        return states + "".join(f"---- {name}\n{self.log(name)[-3000:]}" for name in self.pods)

    # ---- What the cluster does ----

    def _reconcile(self) -> None:
        for name, pod in self.pods.items():
            container = self.containers.get(name)
            if name in self._kill_at:
                self._see_off(name, container)
            elif container is None:
                if not self._is_finished() and self._may_be_made(pod):
                    self._make(pod)
            elif container.process is None:
                if time.monotonic() >= self._start_at[name] and self._may_start(pod):
                    container.start()
            elif self.codes[name] is None and container.code() is not None:
                self._has_ended(name, container)
        self._publish()

    def _is_finished(self) -> bool:
        return self.job.succeeded(self._known_codes())

    def _may_be_made(self, pod: Pod) -> bool:
        """mpi-operator makes the launcher when the workers are ready, if it is told so."""
        if pod.role != "launcher" or self.job.manifest["spec"].get("launcherCreationPolicy") != "WaitForWorkersReady":
            return True
        workers = [name for name, each in self.pods.items() if each.role == "worker"]
        return all(name in self.containers and self.containers[name].is_ready() for name in workers)

    def _may_start(self, pod: Pod) -> bool:
        """training-operator's init container waits until the master's name can be found."""
        return pod.waits_for is None or pod.waits_for in self._published.split()

    def _make(self, pod: Pod) -> None:
        if not self._free:
            raise RuntimeError(f"no host is left for {pod.name}: give more spares")
        host = self._free.pop(0)
        names, log = self.folder / f"{pod.name}-{host.name}.hosts", self.folder / f"{pod.name}.log"
        self.containers[pod.name] = Container(pod, host, self._image, self._claims, names, log)

    def _has_ended(self, name: str, container: Container) -> None:
        code, policy = container.code(), self.pods[name].restart_policy
        if code == 0 and policy != "Always" or policy == "Never":
            self.codes[name] = code
            return
        container.process = None
        container.restarts += 1
        assert container.restarts <= MANY_RESTARTS, f"{name} has failed {container.restarts} times\n{self.tails()}"
        self._start_at[name] = time.monotonic() + BACKOFF_S

    def _see_off(self, name: str, container: Container) -> None:
        """A pod that is being deleted. Its operator makes another one, unless the job is over."""
        container.go_on_terminating()
        if container.code() is None and time.monotonic() < self._kill_at[name]:
            return
        container.kill()
        self.deleted.append((name, container.code()))
        del self.containers[name], self._kill_at[name]
        self.codes[name] = None

    def _publish(self) -> None:
        """Names lead to pods that are ready; JobSet's service alone leads to those that are not, too. A pod's /etc/hosts is DNS here, below its own names, so it
        is written in place."""
        lines = ""
        for name, container in self.containers.items():
            if container.is_ready() or self.job.kind == "TrainJob" and container.is_running():
                lines += f"{container.host.address} {' '.join(self.pods[name].names)}\n"
        self._published = lines
        for container in self.containers.values():
            text = container.own_names() + lines
            if text != container.names.read_text():
                _rewrite(container.names, text)


def _rewrite(path: pathlib.Path, text: str) -> None:
    """In one piece, and in place: nobody who reads meanwhile finds it empty."""
    with open(path, "r+b", buffering=0) as file:
        file.write(text.encode())
        file.truncate()


def _give_to_group(folder: pathlib.Path, gid: int) -> None:
    """What the kubelet does to a volume for fsGroup."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            os.chown(path, -1, gid)
            path.chmod(path.stat().st_mode | (0o2070 if path.is_dir() else 0o060))
