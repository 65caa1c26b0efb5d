"""The manifests that ship are what API servers and operators accept, and what they would refuse is refused here."""


import pytest
import yaml

from . import rules, schemas
from .manifests import FOLDER, NAMES, REPOSITORY, load, pod_specs

RUNTIMES = {"trireme-torch": load("clustertrainingruntime")}
JOBS = ["pytorchjob", "pytorchjob-trireme", "pytorchjob-static", "mpijob"]


needs_crds = pytest.mark.skipif(schemas.crd_why_not() is not None, reason=str(schemas.crd_why_not()))


# ---- What ships ----


def test_there_is_one_of_each():
    kinds = sorted(load(name)["kind"] for name in NAMES)
    assert kinds == ["ClusterTrainingRuntime", "MPIJob", "PersistentVolumeClaim", "Pod", "PyTorchJob", "PyTorchJob", "PyTorchJob", "TrainJob"]


@needs_crds
@pytest.mark.parametrize("name", NAMES)
def test_the_crds_accept_it(name):
    assert schemas.crd_errors(load(name)) == []


needs_models = pytest.mark.skipif(schemas.models_why_not("PyTorchJob") is not None, reason=str(schemas.models_why_not("PyTorchJob")))


@needs_models
@pytest.mark.parametrize("name", ["pvc-shell", "pytorchjob", "pytorchjob-static", "pytorchjob-trireme", "transformers-pvc"])
def test_the_clients_models_accept_it(name):
    assert schemas.model_errors(load(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_servers_and_operators_accept_it(name):
    assert rules.errors(load(name), RUNTIMES) == []


def test_the_guides_job():
    """What Hugging Face's guide has, and what it lacks."""
    job = load("pytorchjob")
    assert (job["metadata"]["name"], job["metadata"]["namespace"]) == ("transformers-pytorchjob", "kubeflow")
    elastic = job["spec"]["elasticPolicy"]
    assert [elastic[field] for field in ("rdzvBackend", "minReplicas", "maxReplicas", "maxRestarts")] == ["c10d", 1, 4, 10]
    assert job["spec"]["nprocPerNode"].isdigit(), "the default starts a process for each CPU"
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"]) == (4, "OnFailure")
    pod = worker["template"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == "pytorch" and pod["nodeSelector"]
    assert container["resources"]["limits"] == container["resources"]["requests"] and container["resources"]["limits"].keys() == {"cpu", "memory"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["pvc-volume"] == "/tmp/pvc-mount" and mounts["dshm"] == "/dev/shm"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["pvc-volume"]["persistentVolumeClaim"]["claimName"] == load("transformers-pvc")["metadata"]["name"] == "transformers-pvc"
    assert volumes["dshm"]["emptyDir"]["medium"] == "Memory"
    arguments = container["args"]
    assert arguments[:3] == ["torchrun", "-m", "trireme.resume"] and arguments[3].endswith("/run_qa.py")
    assert {"--use_cpu", "--use_ipex", "--bf16"} <= set(arguments)
    assert arguments[arguments.index("--ddp_backend") + 1] == "ccl"
    assert arguments[arguments.index("--output_dir") + 1].startswith("/tmp/pvc-mount/") and "--overwrite_output_dir" not in arguments
    assert {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"} in container["env"]


@pytest.mark.parametrize("name", NAMES)
def test_pods_are_guaranteed_unprivileged_and_write_only_to_volumes(name):
    trainjob = load("trainjob")["spec"]["trainer"]["resourcesPerNode"]
    for path, spec in pod_specs(load(name)):
        for container in spec["containers"]:
            resources = trainjob if name == "clustertrainingruntime" else container["resources"]
            assert resources["limits"] == resources["requests"] and resources["limits"].keys() == {"cpu", "memory"}, path
            assert container["image"].startswith("trireme/") and container["image"].endswith(f":{version()}"), path
            assert "command" not in container, f"{path}: the image's entry point is tini, and args keep it"
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"] and security["capabilities"] == {"drop": ["ALL"]}
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert mounts.keys() >= {"/tmp"} and set(mounts.values()) == {volume["name"] for volume in spec["volumes"]}, "one that nobody mounts"
        assert spec["securityContext"]["runAsUser"] == 1000 and spec["securityContext"]["runAsNonRoot"]


def version() -> str:
    (line,) = [line for line in (REPOSITORY / "pyproject.toml").read_text().splitlines() if line.startswith("version = ")]
    return line.split('"')[1]


@pytest.mark.parametrize("name", [*JOBS, "clustertrainingruntime"])
def test_an_eviction_leaves_time_to_save(name):
    """`trireme qa` needs 20 s, and writes 12 bytes a parameter of BERT-large to a volume that takes 40 MB/s. torchrun must wait so long before it kills its
    workers, and the kubelet longer, so that torchrun ends by itself. run_qa.py saves nothing then."""
    needed = 0 if name == "pytorchjob" else 20 + 12 * 335e6 / 40e6
    for path, spec in pod_specs(load(name)):
        variables = {each["name"]: each["value"] for each in spec["containers"][0].get("env", []) if "value" in each}
        patience = needed if name == "mpijob" else torchrun_patience(variables)
        assert patience >= needed and spec["terminationGracePeriodSeconds"] >= patience + 10, path


def torchrun_patience(variables: dict[str, str]) -> int:
    """As torchrun itself reads it."""
    launcher = pytest.importorskip("torch.distributed.launcher.api")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", raising=False)
        for variable, value in variables.items():
            patch.setenv(variable, value)
        return launcher.LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1).shutdown_timeout


def test_mpirun_starts_as_many_as_there_are_slots():
    spec = load("mpijob")["spec"]
    arguments = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[0] == "trireme-mpirun" and int(arguments[arguments.index("-n") + 1]) == spec["mpiReplicaSpecs"]["Worker"]["replicas"] * spec["slotsPerWorker"]


def test_the_trainers_flags_are_those_of_the_guide():
    """One job in several forms: what run_qa.py is told, `trireme qa` is told."""

    def flags(arguments: list[str]) -> dict[str, str]:
        first = next(i for i, each in enumerate(arguments) if each.startswith("--") and each != "--no-python")
        values: dict[str, str] = {}
        for word in arguments[first:]:
            if word.startswith("--"):
                values[flag := word] = ""
            else:
                values[flag] = word
        return {name: value for name, value in values.items() if name not in ("--output_dir", "--report_to", "--use_ipex")}

    guide = flags(load("pytorchjob")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"])
    assert len(guide) == 14
    for name in JOBS:
        for path, spec in pod_specs(load(name)):
            if not path.endswith("Worker.template.spec") or name != "mpijob":
                assert flags(spec["containers"][0]["args"]) == guide, path
    assert flags(load("trainjob")["spec"]["trainer"]["args"]) == guide


def test_comments_and_commands_name_files_that_exist():
    for name in NAMES:
        words = (FOLDER / f"{name}.yaml").read_text().split()
        for word in words:
            if word.endswith(".yaml"):
                assert (FOLDER / word).exists(), f"{name}.yaml names {word}"


@pytest.mark.parametrize("name", NAMES)
def test_a_duplicate_key_would_be_noticed(name):
    """YAML's last one wins without a word; kubectl refuses it."""

    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader, node):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"line {node.start_mark.line + 1}: a key twice in {keys}"
        return {loader.construct_object(key): loader.construct_object(value, deep=True) for key, value in node.value}

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    yaml.load((FOLDER / f"{name}.yaml").read_text(), Strict)


# ---- What is refused ----

WORKER = "spec.pytorchReplicaSpecs.Worker"
POD = f"{WORKER}.template.spec"
CONTAINER = f"{POD}.containers[0]"
REMOVED = object()

# manifest, the field that is changed, its new value, what the refusal says
BY_SCHEMA = [
    ("pytorchjob", "spec.elasticPolicy.minReplica", 1, "spec.elasticPolicy: Additional properties are not allowed ('minReplica' was unexpected)"),
    ("pytorchjob", "spec.nprocPerNode", 1, "spec.nprocPerNode: 1 is not of type 'string'"),
    ("pytorchjob", "spec.nProcPerNode", "1", "'nProcPerNode' was unexpected"),
    ("pytorchjob", "spec.elasticPolicy.maxRestarts", "10", "'10' is not of type 'integer'"),
    ("pytorchjob", "spec.elasticPolicy.maxRestarts", 2**31, "2147483648 is greater than the maximum"),
    ("pytorchjob", "spec.pytorchReplicaSpecs", REMOVED, "'pytorchReplicaSpecs' is a required property"),
    ("pytorchjob", f"{WORKER}.restartpolicy", "OnFailure", "'restartpolicy' was unexpected"),
    ("pytorchjob", f"{POD}.containers", REMOVED, "'containers' is a required property"),
    ("pytorchjob", f"{POD}.terminationGracePeriod", 45, "'terminationGracePeriod' was unexpected"),
    ("pytorchjob", f"{POD}.terminationGracePeriodSeconds", "45", "'45' is not of type 'integer'"),
    ("pytorchjob", f"{POD}.volumes[2].emptyDir.medum", "Memory", "'medum' was unexpected"),
    ("pytorchjob", f"{POD}.volumes[1].persistentVolumeClaim.claimName", REMOVED, "'claimName' is a required property"),
    ("pytorchjob", f"{POD}.securityContext.runAsUser", "1000", "'1000' is not of type 'integer'"),
    ("pytorchjob", f"{POD}.nodeSelector", ["amd64"], "['amd64'] is not of type 'object'"),
    ("pytorchjob", f"{CONTAINER}.args[16]", 2, "2 is not of type 'string'"),
    ("pytorchjob", f"{CONTAINER}.env[3].value", 1, "1 is not of type 'string'"),
    ("pytorchjob", f"{CONTAINER}.env[3].name", REMOVED, "'name' is a required property"),
    ("pytorchjob", f"{CONTAINER}.resources.limits.memory", "64 GB", "'64 GB' does not match"),
    ("pytorchjob", f"{CONTAINER}.volumeMounts[1].mountpath", "/tmp/pvc-mount", "'mountpath' was unexpected"),
    ("pytorchjob", f"{CONTAINER}.volumeMounts[1].mountPath", REMOVED, "'mountPath' is a required property"),
    ("pytorchjob", f"{CONTAINER}.securityContext.readOnlyRootFileSystem", True, "'readOnlyRootFileSystem' was unexpected"),
    ("pytorchjob", "apiVersion", "kubeflow.org/v2beta1", "apiVersion: 'kubeflow.org/v1' was expected"),
    ("pytorchjob", "metadata.lables", {}, "'lables' was unexpected"),
    ("mpijob", "spec.mpiImplementation", "mpich", "'mpich' is not one of ['OpenMPI', 'Intel', 'MPICH']"),
    ("mpijob", "spec.slotsPerWorker", "2", "'2' is not of type 'integer'"),
    ("mpijob", "spec.sshAuthMountpath", "/keys", "'sshAuthMountpath' was unexpected"),
    ("mpijob", "apiVersion", "kubeflow.org/v1", "'kubeflow.org/v2beta1' was expected"),
    ("mpijob", "spec.cleanPodPolicy", "Running", "'cleanPodPolicy' was unexpected"),
    ("trainjob", "spec.trainer.numProcPerNode", "auto", "'auto' is not of type 'integer'"),
    ("trainjob", "spec.trainer.numNodes", -1, "-1 is less than the minimum"),
    ("trainjob", "spec.trainer.volumes", [], "'volumes' was unexpected"),
    ("trainjob", "spec.runtimeRef.name", REMOVED, "'name' is a required property"),
    ("trainjob", "spec.trainer.env", [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], "two entries with the same name: A"),
    ("clustertrainingruntime", "spec.mlPolicy.torch.numProcPerNode", 2, "'numProcPerNode' was unexpected"),
    ("clustertrainingruntime", "spec.template.spec.replicatedJobs[0].name", REMOVED, "'name' is a required property"),
    ("clustertrainingruntime", "spec.template.spec.failurePolicy", {"restartStrategy": "Later"}, "'Later' is not one of"),
    ("transformers-pvc", "spec.accessMode", "ReadWriteMany", "'accessMode' was unexpected"),
    ("transformers-pvc", "spec.resources.requests.storage", "100 Gi", "'100 Gi' does not match"),
    ("pvc-shell", "spec.restartpolicy", "Never", "'restartpolicy' was unexpected"),
]  # fmt: skip

BY_RULE = [
    # Every server's
    ("pytorchjob", f"{CONTAINER}.volumeMounts[2].name", "shm", "there is no volume shm"),
    ("pytorchjob", f"{CONTAINER}.volumeMounts[2].mountPath", "dev/shm", "dev/shm is no absolute path"),
    ("pytorchjob", f"{CONTAINER}.resources.requests.cpu", 17, "17 is more than the limit, 16"),
    ("pytorchjob", f"{CONTAINER}.resources.requests.memory", "65537Mi", "65537Mi is more than the limit, 64Gi"),
    ("pytorchjob", f"{CONTAINER}.env[0].name", "LD PRELOAD", "'LD PRELOAD' is no name of a variable"),
    ("pytorchjob", f"{CONTAINER}.image", "", "image: must be given"),
    ("pytorchjob", f"{POD}.securityContext.runAsUser", 0, "runAsNonRoot, and runAsUser is root"),
    ("pytorchjob", f"{POD}.volumes[2].hostPath", {"path": "/dev/shm"}, "dshm must have one source"),
    ("mpijob", "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].readinessProbe.tcpSocket.port", "sshd", "there is no port sshd"),
    ("mpijob", "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].ports[0].name", "secure-shell-port", "is no name of a port"),
    ("transformers-pvc", "spec.accessModes", [], "there must be one at least"),
    ("transformers-pvc", "spec.accessModes[0]", "ReadWriteMost", "ReadWriteMost is not supported"),
    ("transformers-pvc", "spec.resources.requests.storage", REMOVED, "must be given, and above 0"),
    ("transformers-pvc", "metadata.namespace", REMOVED, "everything else here to one"),
    ("pvc-shell", "spec.restartPolicy", "Sometimes", "Sometimes is not supported"),
    # training-operator's
    ("pytorchjob", "metadata.name", "2-workers", "must begin with a letter"),
    ("pytorchjob", f"{CONTAINER}.name", "trainer", "one must be called pytorch"),
    ("pytorchjob", f"{WORKER}.replicas", 0, "must be at least 1"),
    ("pytorchjob", f"{WORKER}.restartPolicy", "Often", "Often is not supported"),
    ("pytorchjob", f"{POD}.restartPolicy", "Never", "the operator overwrites it"),
    ("pytorchjob", "spec.elasticPolicy.nProcPerNode", 2, "must not be used with spec.nprocPerNode"),
    ("pytorchjob", "spec.elasticPolicy.minReplicas", 5, "minReplicas 5 is above maxReplicas 4"),
    ("pytorchjob", "spec.elasticPolicy.rdzvBackend", "tcp", "torchrun has no tcp"),
    ("pytorchjob", "spec.runPolicy.managedBy", "somebody", "somebody is not supported"),
    ("pytorchjob", "spec.pytorchReplicaSpecs", {"Chief": load("pytorchjob")["spec"]["pytorchReplicaSpecs"]["Worker"]}, "a replica is Master or Worker"),
    ("pytorchjob", "spec.pytorchReplicaSpecs", {"Master": load("pytorchjob-static")["spec"]["pytorchReplicaSpecs"]["Master"]}, "must be there if elasticPolicy is"),
    ("pytorchjob-trireme", f"{WORKER}.replicas", -1, "must be at least 1"),
    ("pytorchjob-static", "spec.pytorchReplicaSpecs.Master.replicas", 2, "must be 1"),
    ("pytorchjob-static", "spec.pytorchReplicaSpecs.Master.replicas", REMOVED, "must be 1"),
    # mpi-operator's
    ("mpijob", "spec.mpiReplicaSpecs.Launcher", REMOVED, "Launcher: must be there"),
    ("mpijob", "spec.mpiReplicaSpecs.Launcher.replicas", 2, "must be 1"),
    ("mpijob", "spec.mpiReplicaSpecs.Worker.replicas", 0, "must be at least 1"),
    ("mpijob", "spec.mpiReplicaSpecs.Worker.restartPolicy", "Always", "Always is not supported; Never or OnFailure"),
    ("mpijob", "spec.runPolicy.cleanPodPolicy", "Some", "Some is not supported"),
    ("mpijob", "spec.runPolicy.backoffLimit", -1, "must not be negative"),
    ("mpijob", "metadata.name", "m" * 60, "would be a pod, and is no DNS label"),
    # Trainer's and JobSet's
    ("trainjob", "spec.runtimeRef.name", "torch-distributed", "there is no runtime torch-distributed; it must be created before"),
    ("trainjob", "spec.trainer.env", [{"name": "PET_NNODES", "value": "1:4"}], "the operator sets PET_NNODES"),
    ("trainjob", "spec.trainer.numProcPerNode", 0, "must be at least 1"),
    ("trainjob", "spec.trainer.resourcesPerNode.requests.cpu", 32, "32 is more than the limit, 16"),
    ("trainjob", "spec.initializer", {"dataset": {"storageUri": "hf://squad"}}, "the runtime has no job dataset-initializer"),
    ("trainjob", "spec.managedBy", "somebody", "somebody is not supported"),
    ("trainjob", "metadata.name", "t" * 50, "is longer than 63 characters"),
    ("clustertrainingruntime", "spec.mlPolicy.mpi", {}, "only one policy can be configured, not mpi and torch"),
    ("clustertrainingruntime", "spec.template.spec.replicatedJobs[0].replicas", 2, "must be 1"),
    ("clustertrainingruntime", "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].name", "trainer", "needs a container called node"),
    ("clustertrainingruntime", "metadata.namespace", "kubeflow", "a ClusterTrainingRuntime belongs to no namespace"),
]  # fmt: skip


def change(manifest: dict, path: str, value) -> None:
    """Sets or removes what is at spec.a[0].b."""
    *parents, last = path.replace("[", ".[").split(".")
    key = lambda part: int(part[1:-1]) if part.startswith("[") else part  # noqa: E731
    place = manifest
    for part in parents:
        place = place[key(part)]
    if value is REMOVED:
        del place[key(last)]
    else:
        place[key(last)] = value


def mutations(table: list[tuple]):
    names = [f"{name}:no {path}" if value is REMOVED else f"{name}:{path}={value}"[:100] for name, path, value, _ in table]
    return pytest.mark.parametrize(("name", "path", "value", "message"), table, ids=names)


@needs_crds
@mutations(BY_SCHEMA)
def test_a_schema_refuses(name, path, value, message):
    manifest = load(name)
    change(manifest, path, value)
    errors = schemas.crd_errors(manifest)
    assert any(message in error for error in errors), errors


# What models do not look at: ranges, patterns, and which version of an API a kind is of.
UNKNOWN_TO_MODELS = ("is greater than the maximum", "does not match", "was expected")


@needs_models
@mutations([row for row in BY_SCHEMA if load(row[0])["kind"] in schemas.MODELS and not row[3].endswith(UNKNOWN_TO_MODELS)])
def test_a_model_refuses(name, path, value, message):
    """The same field; for the words, which differ, see schemas.py."""
    manifest = load(name)
    change(manifest, path, value)
    (error,) = schemas.model_errors(manifest)
    parent, _, field = path.rpartition(".")
    if "was unexpected" in message:
        assert error == f"{parent}: '{field}' was unexpected"
    elif value is REMOVED:
        assert error.startswith(f"{parent}: Invalid value for ")
    else:
        assert error.startswith(f"{path}: {value!r} is not ")


@mutations(BY_RULE)
def test_a_rule_refuses_what_a_schema_takes(name, path, value, message):
    manifest = load(name)
    change(manifest, path, value)
    if schemas.crd_why_not() is None:
        assert schemas.crd_errors(manifest) == []
    errors = rules.errors(manifest, RUNTIMES)
    assert any(message in error for error in errors), errors


def test_every_manifest_has_a_mutation():
    assert {name for name, *_ in BY_RULE} == set(NAMES)
    # The three PyTorchJobs have one schema.
    assert {load(name)["kind"] for name, *_ in BY_SCHEMA} == {load(name)["kind"] for name in NAMES}
