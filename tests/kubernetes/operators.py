"""What each operator makes of a manifest: its pods, with their names, environment and files, and when the job has succeeded.

Written after the operators' own code, in our words: training-operator 1.9 (PyTorchJob), mpi-operator 0.8 (MPIJob), Kubeflow Trainer 2.3 on JobSet
(TrainJob). What depends on a cluster's installation is its default: the domain is cluster.local, no gang scheduler, no autoscaler.
"""

import copy
import dataclasses
import os
import re
from collections.abc import Mapping

from .rules import quantity

ROOT_SSH = os.path.join(os.sep, "root", ".ssh")  # in the image
SECRET_MODE = 0o644  # what a Secret's files have where nothing else is said
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
POD_IP = "status.podIP"


@dataclasses.dataclass
class Pod:
    """One pod, as the API server would hold it. `own_names` are those in its own /etc/hosts, the one first that it takes for its full name; `names` are what
    other pods find it by; `files` is what Secrets and ConfigMaps put into it."""

    name: str
    role: str
    index: int
    hostname: str
    own_names: list[str]
    names: list[str]
    spec: dict
    container: dict
    restart_policy: str
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    files: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    waits_for: str | None = None  # what its init container waits for: that this name can be found
    address: str = ""  # when it is on a node

    @property
    def env(self) -> dict[str, str]:
        """As the kubelet gives it to the process: what comes later in the list outranks what came before."""
        return {variable["name"]: self._value(variable) for variable in self.container.get("env", [])}

    def _value(self, variable: dict) -> str:
        if "valueFrom" not in variable:
            value = variable.get("value", "")
            assert "$(" not in value, f"{variable['name']}: references to other variables are not simulated"
            return value
        field = variable["valueFrom"]["fieldRef"]["fieldPath"]
        if field == POD_IP:
            return self.address
        assert field == COMPLETION_INDEX, variable
        return self.annotations["batch.kubernetes.io/job-completion-index"]

    @property
    def command(self) -> list[str]:
        """What the manifest has, with $(NAME) replaced by that variable's value; $$ is a dollar, and a name that is no variable's stays as it is."""
        env = self.env

        def value(reference: re.Match) -> str:
            return "$" if reference[0] == "$$" else env.get(reference[1], reference[0])

        words = [*self.container.get("command", []), *self.container.get("args", [])]
        return [re.sub(r"\$\$|\$\(([^)]*)\)", value, word) for word in words]

    @property
    def qos(self) -> str:
        """The class that Kubernetes puts it into, for what this manifest may say: all that is asked for has a limit."""
        resources = [each["resources"] for each in (*self.spec.get("initContainers", []), *self.spec["containers"])]
        equal = all(quantity(each["requests"][what]) == quantity(each["limits"][what]) for each in resources for what in ("cpu", "memory"))
        return "Guaranteed" if equal else "Burstable"

    @property
    def grace_s(self) -> int:
        return self.spec.get("terminationGracePeriodSeconds", 30)


@dataclasses.dataclass
class Job:
    """A job's pods, and what its operator makes of their ends."""

    name: str
    kind: str
    pods: list[Pod]
    manifest: dict
    secrets_of: str | None = None  # the folder in which pods find the ssh key that the operator makes for the job

    def succeeded(self, codes: Mapping[str, int | None]) -> bool:
        """`codes`: pods' exit codes by name; None where a pod still runs."""
        if self.kind == "MPIJob":
            return all(codes[pod.name] == 0 for pod in self.pods if pod.role == "launcher")
        if any(pod.role == "master" for pod in self.pods):
            return all(codes[pod.name] == 0 for pod in self.pods if pod.role == "master")
        ended = [codes[pod.name] == 0 for pod in self.pods]
        return any(ended) if "elasticPolicy" in self.manifest["spec"] else all(ended)


def make_job(manifest: dict, runtimes: Mapping[str, dict] = {}) -> Job:
    kind = manifest["kind"]
    if kind == "PyTorchJob":
        return _pytorchjob(manifest)
    if kind == "MPIJob":
        return _mpijob(manifest)
    assert kind == "TrainJob", kind
    return _trainjob(manifest, runtimes[manifest["spec"]["runtimeRef"]["name"]])


def _service_names(host: str, namespace: str) -> list[str]:
    """What finds a service, or a pod below one, from a pod of the same namespace; the full name last."""
    return [host, f"{host}.{namespace}", f"{host}.{namespace}.svc", f"{host}.{namespace}.svc.cluster.local"]


def _add_env(container: dict, **variables: object) -> None:
    container.setdefault("env", []).extend({"name": name, "value": str(value)} for name, value in variables.items())


def _upsert_env(container: dict, variables: list[dict]) -> None:
    """In the place of the one with its name, else at the end."""
    for variable in variables:
        names = [each["name"] for each in container.setdefault("env", [])]
        if variable["name"] in names:
            container["env"][names.index(variable["name"])] = variable
        else:
            container["env"].append(variable)


# ---- PyTorchJob ----

PORT_NAME, PORT = "pytorchjob-port", 23456
# It looks the master's name up until it is found, 100 times; here that is Pod.waits_for. An operator's administrator can have another one.
INIT_CONTAINER = {
    "name": "init-pytorch",
    "image": "alpine:3.10",
    "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
}


def _port(replica: dict) -> int:
    (container,) = [each for each in replica["template"]["spec"]["containers"] if each["name"] == "pytorch"]
    return next((port["containerPort"] for port in container.get("ports", []) if port.get("name") == PORT_NAME), PORT)


def _pytorchjob(job: dict) -> Job:
    spec, name = job["spec"], job["metadata"]["name"]
    counts = {role: replica.get("replicas", 1) for role, replica in spec["pytorchReplicaSpecs"].items()}
    pods = []
    for role, replica in spec["pytorchReplicaSpecs"].items():
        for index in range(counts[role]):
            pods.append(_pytorch_pod(job, role, index, replica, sum(counts.values())))
    return Job(name, "PyTorchJob", pods, job)


def _pytorch_pod(job: dict, role: str, index: int, replica: dict, total: int) -> Pod:
    spec, name = job["spec"], job["metadata"]["name"]
    template = copy.deepcopy(replica["template"])
    pod_name = f"{name}-{role.lower()}-{index}"
    processes = spec.get("nprocPerNode", "auto")
    for container in template["spec"]["containers"]:
        _add_env(container, PYTHONUNBUFFERED=1)
        if "Master" in spec["pytorchReplicaSpecs"]:
            address, port = f"{name}-master-0", _port(spec["pytorchReplicaSpecs"]["Master"])
            _add_env(container, MASTER_PORT=port, PET_MASTER_PORT=port, MASTER_ADDR=address, PET_MASTER_ADDR=address)
            rank = index + (role == "Worker")
            _add_env(container, WORLD_SIZE=total * (int(processes) if processes.isdigit() else 1), RANK=rank, PET_NODE_RANK=rank)
        _add_env(container, PET_NPROC_PER_NODE=processes)
        if "elasticPolicy" in spec:
            _add_env(container, **_elastic_env(job))
        else:
            _add_env(container, PET_NNODES=total)
    # A headless service for each pod, called as the pod.
    (container,) = [each for each in template["spec"]["containers"] if each["name"] == "pytorch"]
    policy = replica.get("restartPolicy", "OnFailure")
    names = _service_names(pod_name, job["metadata"]["namespace"])
    restart_policy = "Never" if policy == "ExitCode" else policy
    pod = Pod(pod_name, role.lower(), index, pod_name, [pod_name], names, template["spec"], container, restart_policy)
    if role == "Worker" and "Master" in spec["pytorchReplicaSpecs"]:
        pod.waits_for = f"{name}-master-0"
        pod.spec.setdefault("initContainers", []).append(copy.deepcopy(INIT_CONTAINER))
    return pod


def _elastic_env(job: dict) -> dict[str, object]:
    policy, worker = job["spec"]["elasticPolicy"], job["spec"]["pytorchReplicaSpecs"]["Worker"]
    host = policy.get("rdzvHost", f"{job['metadata']['name']}-worker-0")
    count = worker.get("replicas", 1)
    low = policy.get("minReplicas", policy.get("maxReplicas", count))
    high = policy.get("maxReplicas", policy.get("minReplicas", count))
    env = dict(PET_RDZV_ENDPOINT=f"{host}:{policy.get('rdzvPort', _port(worker))}", PET_RDZV_BACKEND=policy.get("rdzvBackend", "c10d"))
    env |= dict(PET_NNODES=f"{low}:{high}")
    for field, variable in (("maxRestarts", "PET_MAX_RESTARTS"), ("nProcPerNode", "PET_NPROC_PER_NODE"), ("rdzvId", "PET_RDZV_ID")):
        if field in policy:
            env[variable] = policy[field]
    if "rdzvConf" in policy:
        env["PET_RDZV_CONF"] = ",".join(f"{each['key']}={each['value']}" for each in policy["rdzvConf"])
    if policy.get("standalone"):
        env["PET_STANDALONE"] = ""
    return env


# ---- MPIJob ----

MPI_ENV = {
    "OpenMPI": {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    },
    "Intel": {"I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10"},
    "MPICH": {"HYDRA_HOST_FILE": "/etc/mpi/hostfile", "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"},
}
MPI_RESTART_POLICY = {"Launcher": "OnFailure", "Worker": "Never"}  # where a manifest has none
SLOTS_ENV = {"OpenMPI": "OMPI_MCA_orte_set_default_slots", "Intel": "I_MPI_PERHOST"}


def _mpijob(job: dict) -> Job:
    spec, name, namespace = job["spec"], job["metadata"]["name"], job["metadata"]["namespace"]
    assert not spec.get("runLauncherAsWorker"), "a launcher that is a worker too is not simulated"
    implementation, slots = spec.get("mpiImplementation", "OpenMPI"), spec.get("slotsPerWorker", 1)
    replicas = spec["mpiReplicaSpecs"]
    workers = [f"{name}-worker-{index}.{name}.{namespace}.svc" for index in range(replicas["Worker"]["replicas"])]
    line = "{} slots={}\n" if implementation == "OpenMPI" else "{}:{}\n"
    hostfile = "".join(line.format(host, slots) for host in workers)
    discover = "#!/bin/sh\n" + "".join(f"echo {host}\n" for host in workers)

    launcher = _mpi_pod(job, "Launcher", 0, f"{name}-launcher")
    _add_env(launcher.container, K_MPI_JOB_ROLE="launcher", **MPI_ENV[implementation])
    if implementation in SLOTS_ENV:
        _add_env(launcher.container, **{SLOTS_ENV[implementation]: slots})
    _add_env(launcher.container, NVIDIA_VISIBLE_DEVICES="", NVIDIA_DRIVER_CAPABILITIES="")
    launcher.files = {"/etc/mpi/hostfile": (hostfile, 0o444), "/etc/mpi/discover_hosts.sh": (discover, 0o555)}
    pods = [launcher]
    for index in range(replicas["Worker"]["replicas"]):
        worker = _mpi_pod(job, "Worker", index, f"{name}-worker-{index}")
        if "command" not in worker.container and "args" not in worker.container:
            worker.container["command"] = ["/usr/sbin/sshd", "-De"]
        _add_env(worker.container, K_MPI_JOB_ROLE="worker")
        pods.append(worker)
    return Job(name, "MPIJob", pods, job, secrets_of=spec.get("sshAuthMountPath", ROOT_SSH))


def _mpi_pod(job: dict, role: str, index: int, hostname: str) -> Pod:
    """The operator takes the first container for the one that counts. All pods are below one service, which is called as the job; workers search
    that service, too, so that a launcher is found by its bare name."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    replica = job["spec"]["mpiReplicaSpecs"][role]
    template = copy.deepcopy(replica["template"])
    names = _service_names(f"{hostname}.{name}", namespace)
    pod_name = f"{hostname}-abcde" if role == "Launcher" else hostname  # a Job's pods have a random end
    container, restart_policy = template["spec"]["containers"][0], replica.get("restartPolicy", MPI_RESTART_POLICY[role])
    return Pod(pod_name, role.lower(), index, hostname, [names[-1], hostname], [*names, hostname], template["spec"], container, restart_policy)


def ssh_files(folder: str, private_key: str, public_key: str) -> dict[str, tuple[str, int]]:
    """The Secret that mpi-operator makes, as its volume shows it in every pod."""
    mode = 0o600 if folder == ROOT_SSH else SECRET_MODE
    contents = {"id_rsa": private_key, "id_rsa.pub": public_key, "authorized_keys": public_key}
    return {f"{folder}/{name}": (text, mode) for name, text in contents.items()}


# ---- TrainJob ----

TRAINER_PORT = 29500


def _trainjob(job: dict, runtime: dict) -> Job:
    name, namespace, trainer = job["metadata"]["name"], job["metadata"]["namespace"], job["spec"].get("trainer", {})
    policy = runtime["spec"]["mlPolicy"]
    assert "torch" in policy, "only the torch policy is simulated"
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    nodes = trainer.get("numNodes", policy.get("numNodes", 1))
    pods = []
    for index in range(nodes):
        spec = copy.deepcopy(replicated["template"]["spec"]["template"]["spec"])
        (container,) = [each for each in spec["containers"] if each["name"] == "node"]
        container.update({field: trainer[field] for field in ("image", "command", "args") if field in trainer})
        if "resourcesPerNode" in trainer:
            container["resources"] = copy.deepcopy(trainer["resourcesPerNode"])
        _upsert_env(container, copy.deepcopy(trainer.get("env", [])))
        _upsert_env(container, _torch_env(name, nodes, trainer, container))
        hostname = f"{name}-{replicated['name']}-0-{index}"
        names = _service_names(f"{hostname}.{name}", namespace)
        annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
        restart_policy = spec.get("restartPolicy", "OnFailure")  # JobSet's default
        pods.append(Pod(f"{hostname}-abcde", "node", index, hostname, [names[-1], hostname], names, spec, container, restart_policy, annotations))
    return Job(name, "TrainJob", pods, job)


def _torch_env(name: str, nodes: int, trainer: dict, container: dict) -> list[dict]:
    processes = trainer.get("numProcPerNode")
    if processes is None:  # one for each CPU that is asked for
        resources = container.get("resources", {})
        processes = max(1, int(resources.get("requests", {}).get("cpu", resources.get("limits", {}).get("cpu", 0))))
    values = {"PET_NNODES": nodes, "PET_NPROC_PER_NODE": processes}
    values_after = {"PET_MASTER_ADDR": f"{name}-node-0-0.{name}", "PET_MASTER_PORT": TRAINER_PORT}
    rank = {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}}
    plain = lambda pairs: [{"name": key, "value": str(value)} for key, value in pairs.items()]  # noqa: E731
    return [*plain(values), rank, *plain(values_after)]
