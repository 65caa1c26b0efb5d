"""What is refused beyond the schemas: by the API server of every pod and claim, and by each operator of its own jobs.

The operators' rules are those of training-operator 1.9 (its webhook of PyTorchJobs), mpi-operator 0.8 (its controller, which reports them as events of the
job) and Kubeflow Trainer 2.3 with JobSet (webhooks, and the rules in the CRDs that say more than a schema can), each told in our words.
A rule is a generator of sentences that begin with the path of the field.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from .manifests import pod_specs

Errors = Iterator[str]

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123
SERVICE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1035: the name of a service, so it begins with a letter
PORT_NAME = re.compile(r"(?=.{1,15}$)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")
QUALIFIED_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
QUANTITY = re.compile(r"([+-]?[0-9.]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
SUFFIXES = {"": 1, "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "k": 1000}
SUFFIXES |= {letter: 1000 ** (2 + i) for i, letter in enumerate("MGTPE")} | {f"{letter}i": 1024 ** (1 + i) for i, letter in enumerate("KMGTPE")}


def quantity(value: int | str) -> Fraction:
    match = QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a quantity")
    number, suffix = Fraction(match[1]), match[2] or ""
    return number * (10 ** int(suffix[1:]) if suffix[:1] in ("e", "E") and len(suffix) > 1 else SUFFIXES[suffix])


def errors(manifest: dict, existing: Mapping[str, dict] = {}) -> list[str]:
    """Everything against this manifest; `existing` are the ClusterTrainingRuntimes of the cluster, by name."""
    found = [*_metadata(manifest)]
    for path, spec in pod_specs(manifest):
        found += _pod(path, spec)
    kind = manifest["kind"]
    if kind == "PersistentVolumeClaim":
        found += _claim(manifest["spec"])
    elif kind == "PyTorchJob":
        found += _pytorchjob(manifest)
    elif kind == "MPIJob":
        found += _mpijob(manifest)
    elif kind == "ClusterTrainingRuntime":
        found += _runtime(manifest)
    elif kind == "TrainJob":
        found += _trainjob(manifest, existing)
    return found


# ---- The API server ----


def _metadata(manifest: dict) -> Errors:
    metadata = manifest["metadata"]
    if not LABEL.fullmatch(metadata["name"]):
        yield f"metadata.name: {metadata['name']!r} is no DNS label"
    if (manifest["kind"] == "ClusterTrainingRuntime") == ("namespace" in metadata):
        yield "metadata.namespace: a ClusterTrainingRuntime belongs to no namespace, everything else here to one"
    for field in ("labels", "annotations"):
        for name in metadata.get(field, {}):
            if not QUALIFIED_NAME.fullmatch(name):
                yield f"metadata.{field}: {name!r} is no qualified name"


def _repeated(values) -> list:
    values = list(values)
    return sorted({each for each in values if values.count(each) > 1})


def _pod(path: str, spec: dict) -> Errors:
    volumes = spec.get("volumes", [])
    names = [volume["name"] for volume in volumes]
    for name in _repeated(names):
        yield f"{path}.volumes: two are called {name}"
    for index, volume in enumerate(volumes):
        if len(volume) != 2:
            yield f"{path}.volumes[{index}]: {volume['name']} must have one source, not {sorted(set(volume) - {'name'})}"
    if spec.get("restartPolicy", "Always") not in ("Always", "OnFailure", "Never"):
        yield f"{path}.restartPolicy: {spec['restartPolicy']} is not supported"
    if spec.get("terminationGracePeriodSeconds", 30) < 0:
        yield f"{path}.terminationGracePeriodSeconds: must not be negative"
    if not spec.get("containers"):
        yield f"{path}.containers: there must be one at least"
    for name in _repeated(container.get("name") for container in spec.get("containers", [])):
        yield f"{path}.containers: two are called {name}"
    for index, container in enumerate(spec.get("containers", [])):
        yield from _container(f"{path}.containers[{index}]", container, set(names), spec)


def _container(path: str, container: dict, volumes: set, spec: dict) -> Errors:
    if not LABEL.fullmatch(container["name"]):
        yield f"{path}.name: {container['name']!r} is no DNS label"
    if not container.get("image"):
        yield f"{path}.image: must be given"
    mounts = container.get("volumeMounts", [])
    for index, mount in enumerate(mounts):
        if mount["name"] not in volumes:
            yield f"{path}.volumeMounts[{index}]: there is no volume {mount['name']}"
        if ":" in mount["mountPath"] or not mount["mountPath"].startswith("/"):
            yield f"{path}.volumeMounts[{index}]: {mount['mountPath']} is no absolute path without colons"
    for where in _repeated(mount["mountPath"] for mount in mounts):
        yield f"{path}.volumeMounts: two at {where}"
    for variable in container.get("env", []):
        if not ENVIRONMENT_NAME.fullmatch(variable["name"]):
            yield f"{path}.env: {variable['name']!r} is no name of a variable"
        if "value" in variable and "valueFrom" in variable:
            yield f"{path}.env: {variable['name']} has a value and a source"
    yield from _resources(f"{path}.resources", container.get("resources", {}))
    ports = {port.get("name"): port for port in container.get("ports", [])}
    for name in ports:
        if name is not None and not PORT_NAME.fullmatch(name):
            yield f"{path}.ports: {name!r} is no name of a port: at most 15 of a-z, 0-9 and -"
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        wanted = container.get(probe, {}).get("tcpSocket", {}).get("port")
        if isinstance(wanted, str) and wanted not in ports:
            yield f"{path}.{probe}: there is no port {wanted}"
    security = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
    if security.get("runAsNonRoot") and security.get("runAsUser") == 0:
        yield f"{path}.securityContext: runAsNonRoot, and runAsUser is root: the kubelet refuses to start it"


def _resources(path: str, resources: dict) -> Errors:
    limits = resources.get("limits", {})
    for name, request in resources.get("requests", {}).items():
        if quantity(request) < 0:
            yield f"{path}.requests.{name}: must not be negative"
        if name in limits and quantity(request) > quantity(limits[name]):
            yield f"{path}.requests.{name}: {request} is more than the limit, {limits[name]}"


def _claim(spec: dict) -> Errors:
    modes = spec.get("accessModes", [])
    if not modes:
        yield "spec.accessModes: there must be one at least"
    for mode in modes:
        if mode not in ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"):
            yield f"spec.accessModes: {mode} is not supported"
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if storage is None or quantity(storage) <= 0:
        yield "spec.resources.requests.storage: must be given, and above 0"


# ---- training-operator 1.9 ----


def _pytorchjob(job: dict) -> Errors:
    spec = job["spec"]
    if not SERVICE.fullmatch(job["metadata"]["name"]):
        yield f"metadata.name: {job['metadata']['name']!r} must begin with a letter: pods' services are called after it"
    if spec.get("runPolicy", {}).get("managedBy") not in (None, "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"):
        yield f"spec.runPolicy.managedBy: {spec['runPolicy']['managedBy']} is not supported"
    replicas, elastic = spec.get("pytorchReplicaSpecs"), spec.get("elasticPolicy")
    if not replicas:
        yield "spec.pytorchReplicaSpecs: must be given"
        return
    if elastic is not None:
        if "Worker" not in replicas:
            yield "spec.pytorchReplicaSpecs.Worker: must be there if elasticPolicy is"
        if "nProcPerNode" in elastic and "nprocPerNode" in spec:
            yield "spec.elasticPolicy.nProcPerNode: must not be used with spec.nprocPerNode"
        yield from _autoscaler(elastic)
    for role, replica in replicas.items():
        path = f"spec.pytorchReplicaSpecs.{role}"
        if role not in ("Master", "Worker"):
            yield f"{path}: a replica is Master or Worker"
        if "pytorch" not in [container["name"] for container in replica["template"]["spec"].get("containers", [])]:
            yield f"{path}.template.spec.containers: one must be called pytorch"
        count = replica.get("replicas")
        if role == "Master" and count != 1:
            yield f"{path}.replicas: must be 1"
        if role != "Master" and count is not None and count < 1:
            yield f"{path}.replicas: must be at least 1"
        # Not the webhook's: the operator copies it into the pod, and the API server refuses the pod.
        if replica.get("restartPolicy", "OnFailure") not in ("Always", "OnFailure", "Never", "ExitCode"):
            yield f"{path}.restartPolicy: {replica['restartPolicy']} is not supported"
        if "restartPolicy" in replica["template"]["spec"]:
            yield f"{path}.template.spec.restartPolicy: the operator overwrites it; give {path}.restartPolicy alone"


def _autoscaler(elastic: dict) -> Errors:
    low, high = elastic.get("minReplicas"), elastic.get("maxReplicas")
    if low is not None and high is not None and low > high:
        yield f"spec.elasticPolicy: minReplicas {low} is above maxReplicas {high}: torchrun refuses --nnodes={low}:{high}"
    if elastic.get("rdzvBackend", "c10d") not in ("c10d", "etcd", "etcd-v2"):
        yield f"spec.elasticPolicy.rdzvBackend: torchrun has no {elastic['rdzvBackend']}"


# ---- mpi-operator 0.8 ----


def _mpijob(job: dict) -> Errors:
    spec, replicas = job["spec"], job["spec"].get("mpiReplicaSpecs")
    if not replicas:
        yield "spec.mpiReplicaSpecs: must be given"
        return
    if "Launcher" not in replicas:
        yield "spec.mpiReplicaSpecs.Launcher: must be there"
    workers = (replicas.get("Worker") or {}).get("replicas", 1)
    last = f"{job['metadata']['name']}-worker-{max(workers, 1) - 1}"
    if not SERVICE.fullmatch(last):
        yield f"metadata.name: {last!r} would be a pod, and is no DNS label that begins with a letter"
    for role, replica in replicas.items():
        path = f"spec.mpiReplicaSpecs.{role}"
        if role not in ("Launcher", "Worker"):
            yield f"{path}: a replica is Launcher or Worker"
        if replica.get("restartPolicy", "Never") not in ("Never", "OnFailure"):
            yield f"{path}.restartPolicy: {replica['restartPolicy']} is not supported; Never or OnFailure"
        if role == "Launcher" and replica.get("replicas", 1) != 1:
            yield f"{path}.replicas: must be 1"
        if role == "Worker" and replica.get("replicas", 0) <= 0:
            yield f"{path}.replicas: must be at least 1"
        if "restartPolicy" in replica["template"]["spec"]:
            yield f"{path}.template.spec.restartPolicy: the operator overwrites it; give {path}.restartPolicy alone"
    if spec.get("slotsPerWorker", 1) < 0:
        yield "spec.slotsPerWorker: must not be negative"
    if spec.get("mpiImplementation", "OpenMPI") not in ("OpenMPI", "Intel", "MPICH"):
        yield f"spec.mpiImplementation: {spec['mpiImplementation']} is not supported"
    policy = spec.get("runPolicy", {})
    if policy.get("cleanPodPolicy", "None") not in ("None", "Running", "All"):
        yield f"spec.runPolicy.cleanPodPolicy: {policy['cleanPodPolicy']} is not supported"
    for name in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"):
        if policy.get(name, 0) < 0:
            yield f"spec.runPolicy.{name}: must not be negative"
    if policy.get("managedBy") not in (None, "kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue"):
        yield f"spec.runPolicy.managedBy: {policy['managedBy']} is not supported"


# ---- Kubeflow Trainer 2.3 ----

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
CONTAINER_OF = {"trainer": "node", "model-initializer": "model-initializer", "dataset-initializer": "dataset-initializer"}
TORCH_RESERVED = {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")


def _runtime(runtime: dict) -> Errors:
    policy = runtime["spec"].get("mlPolicy", {})
    if len(sources := sorted({"torch", "mpi", "jax", "xgboost", "flux"} & policy.keys())) > 1:
        yield f"spec.mlPolicy: only one policy can be configured, not {' and '.join(sources)}"
    for index, job in enumerate(runtime["spec"]["template"]["spec"]["replicatedJobs"]):
        path = f"spec.template.spec.replicatedJobs[{index}]"
        step = job["template"].get("metadata", {}).get("labels", {}).get(ANCESTOR)
        if step not in CONTAINER_OF:
            continue
        if job.get("replicas", 1) != 1:
            yield f"{path}.replicas: must be 1"
        if CONTAINER_OF[step] not in [container["name"] for container in job["template"]["spec"]["template"]["spec"]["containers"]]:
            yield f"{path}: the step {step} needs a container called {CONTAINER_OF[step]}"


def _trainjob(job: dict, existing: Mapping[str, dict]) -> Errors:
    name, spec = job["metadata"]["name"], job["spec"]
    if not SERVICE.fullmatch(name):
        yield f"metadata.name: {name!r} must begin with a letter and have at most 63 characters"
    trainer = spec.get("trainer", {})
    if trainer.get("numProcPerNode", 1) < 1:
        yield "spec.trainer.numProcPerNode: must be at least 1"
    if spec.get("managedBy", MANAGERS[0]) not in MANAGERS:
        yield f"spec.managedBy: {spec['managedBy']} is not supported"
    yield from _resources("spec.trainer.resourcesPerNode", trainer.get("resourcesPerNode", {}))
    reference = spec["runtimeRef"]
    if reference.get("kind", "ClusterTrainingRuntime") not in ("ClusterTrainingRuntime", "TrainingRuntime"):
        yield f"spec.runtimeRef: {reference['kind']} is not a runtime"
        return
    runtime = existing.get(reference["name"])
    if runtime is None:
        yield f"spec.runtimeRef: there is no runtime {reference['name']}; it must be created before the TrainJob"
        return
    if "torch" in runtime["spec"].get("mlPolicy", {}):
        reserved = sorted(TORCH_RESERVED & {variable["name"] for variable in trainer.get("env", [])})
        if reserved:
            yield f"spec.trainer.env: the operator sets {', '.join(reserved)}"
    jobs = {each["name"] for each in runtime["spec"]["template"]["spec"]["replicatedJobs"]}
    for part in ("dataset", "model"):
        if part in spec.get("initializer", {}) and f"{part}-initializer" not in jobs:
            yield f"spec.initializer.{part}: the runtime has no job {part}-initializer"
    # JobSet's: its pods' names end with a hyphen and five characters.
    nodes = trainer.get("numNodes", runtime["spec"].get("mlPolicy", {}).get("numNodes", 1))
    for each in sorted(jobs):
        longest = f"{name}-{each}-0-{max(nodes, 1) - 1}-abcde"
        if not SERVICE.fullmatch(longest):
            yield f"metadata.name: {longest!r} would be a pod, and is longer than 63 characters"
