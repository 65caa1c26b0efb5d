"""What the operators make of the manifests: pods by name, with their environment, their command and their files."""

import pytest

from .manifests import load
from .operators import make_job
from .simulation import with_arguments

RUNTIMES = {"trireme-torch": load("clustertrainingruntime")}


def job_of(name: str, **changes):
    manifest = load(name)
    manifest["spec"].update(changes)
    return make_job(manifest, RUNTIMES)


def torchrun_env(pod) -> dict[str, str]:
    return {name: value for name, value in pod.env.items() if name.startswith(("PET_", "MASTER_", "RANK", "WORLD_"))}


def test_an_elastic_pytorchjob():
    job = job_of("pytorchjob")
    assert [pod.name for pod in job.pods] == [f"transformers-pytorchjob-worker-{i}" for i in range(4)]
    for pod in job.pods:
        # None has a rank, or a master: torchrun finds both in the rendezvous.
        assert torchrun_env(pod) == {
            "PET_RDZV_ENDPOINT": "transformers-pytorchjob-worker-0:23456",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ID": "transformers-pytorchjob",
            "PET_RDZV_CONF": "last_call_timeout=15",
            "PET_NNODES": "1:4",
            "PET_MAX_RESTARTS": "10",
            "PET_NPROC_PER_NODE": "1",
        }
        assert pod.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1" and pod.env["PYTHONUNBUFFERED"] == "1"
        assert pod.hostname == pod.name and pod.waits_for is None and pod.restart_policy == "OnFailure"
        assert {pod.name, f"{pod.name}.kubeflow.svc.cluster.local"} <= set(pod.names)


def test_an_elastic_policy_that_says_little():
    """min and max stand for each other, and the workers for both; the port may be the container's own, or the policy's."""
    policy = load("pytorchjob")["spec"]["elasticPolicy"]
    for given, nodes in [({"maxReplicas": 3}, "3:3"), ({"minReplicas": 2}, "2:2"), ({}, "4:4")]:
        job = job_of("pytorchjob", elasticPolicy=given)
        assert torchrun_env(job.pods[1]) == {
            "PET_RDZV_ENDPOINT": "transformers-pytorchjob-worker-0:23456",
            "PET_RDZV_BACKEND": "c10d",
            "PET_NNODES": nodes,
            "PET_NPROC_PER_NODE": "1",
        }
    job = job_of("pytorchjob", elasticPolicy={**policy, "rdzvHost": "etcd", "rdzvPort": 2379, "rdzvBackend": "etcd-v2"})
    assert (job.pods[0].env["PET_RDZV_ENDPOINT"], job.pods[0].env["PET_RDZV_BACKEND"]) == ("etcd:2379", "etcd-v2")
    manifest = load("pytorchjob")
    manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["ports"] = [{"name": "pytorchjob-port", "containerPort": 7}]
    assert make_job(manifest).pods[3].env["PET_RDZV_ENDPOINT"] == "transformers-pytorchjob-worker-0:7"
    del manifest["spec"]["nprocPerNode"]
    assert make_job(manifest).pods[0].env["PET_NPROC_PER_NODE"] == "auto"


def test_a_static_pytorchjob():
    job = job_of("pytorchjob-static")
    master = "trireme-pytorchjob-static-master-0"
    assert [pod.name for pod in job.pods] == [master, *(f"trireme-pytorchjob-static-worker-{i}" for i in range(3))]
    for rank, pod in enumerate(job.pods):
        assert torchrun_env(pod) == {
            "MASTER_ADDR": master,
            "PET_MASTER_ADDR": master,
            "MASTER_PORT": "23456",
            "PET_MASTER_PORT": "23456",
            "WORLD_SIZE": "4",
            "RANK": str(rank),
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": "1",
            "PET_NNODES": "4",
        }
        assert pod.waits_for == (None if rank == 0 else master), "the operator's init container"
    assert job_of("pytorchjob-static", nprocPerNode="3").pods[0].env["WORLD_SIZE"] == "12"


@pytest.mark.parametrize("name", ["pytorchjob", "pytorchjob-trireme", "pytorchjob-static", "mpijob", "trainjob"])
def test_a_pod_may_have_cores_to_itself(name):
    """Guaranteed, as the manifests promise, but for the workers of a job with a master: the operator's init container asks for less than its limit."""
    for pod in job_of(name).pods:
        assert pod.qos == ("Burstable" if name == "pytorchjob-static" and pod.role == "worker" else "Guaranteed"), pod.name


def test_an_mpijob_for_mpich():
    job = job_of("mpijob")
    launcher, *workers = job.pods
    assert launcher.hostname == "trireme-mpijob-launcher" and [pod.name for pod in workers] == [f"trireme-mpijob-worker-{i}" for i in range(4)]
    assert launcher.env["HYDRA_HOST_FILE"] == "/etc/mpi/hostfile" and launcher.env["HYDRA_LAUNCH_EXTRA_ARGS"] == "-o ConnectionAttempts=10"
    assert launcher.env["K_MPI_JOB_ROLE"] == "launcher" and all(pod.env == {"K_MPI_JOB_ROLE": "worker"} for pod in workers)
    assert launcher.files["/etc/mpi/hostfile"] == ("".join(f"trireme-mpijob-worker-{i}.trireme-mpijob.kubeflow.svc:2\n" for i in range(4)), 0o444)
    assert all(host.partition(":")[0] in pod.names for host, pod in zip(launcher.files["/etc/mpi/hostfile"][0].split(), workers))
    assert workers[0].container["args"] == ["/usr/local/bin/trireme-sshd"] and job.secrets_of == "/home/trireme/.ssh"


def test_an_mpijobs_restart_policies():
    manifest = load("mpijob")
    assert {pod.role: pod.restart_policy for pod in make_job(manifest).pods} == {"launcher": "OnFailure", "worker": "OnFailure"}
    for replica in manifest["spec"]["mpiReplicaSpecs"].values():
        del replica["restartPolicy"]
    assert {pod.role: pod.restart_policy for pod in make_job(manifest).pods} == {"launcher": "OnFailure", "worker": "Never"}


def test_a_command_has_the_values_of_variables():
    launcher = job_of("mpijob").pods[0]
    launcher.address = "10.1.2.3"
    assert launcher.env["POD_IP"] == "10.1.2.3" and launcher.command[:4] == ["trireme-mpirun", "-localhost", "10.1.2.3", "-n"]
    launcher.container["args"] = ["$(POD_IP):$(HF_HOME)", "$$(POD_IP)", "$(NO_SUCH) $HOME"]
    assert launcher.command == ["10.1.2.3:/tmp/pvc-mount/huggingface", "$(POD_IP)", "$(NO_SUCH) $HOME"]


def test_other_mpis():
    open_mpi = job_of("mpijob", mpiImplementation="OpenMPI").pods[0]
    assert open_mpi.env["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile" and open_mpi.env["OMPI_MCA_orte_set_default_slots"] == "2"
    assert open_mpi.files["/etc/mpi/hostfile"][0].splitlines()[0] == "trireme-mpijob-worker-0.trireme-mpijob.kubeflow.svc slots=2"
    intel = job_of("mpijob", mpiImplementation="Intel").pods[0]
    assert intel.env["I_MPI_HYDRA_HOST_FILE"] == "/etc/mpi/hostfile" and intel.env["I_MPI_PERHOST"] == "2" and "HYDRA_HOST_FILE" not in intel.env


def test_a_trainjob():
    job = job_of("trainjob")
    assert [pod.hostname for pod in job.pods] == [f"trireme-trainjob-node-0-{i}" for i in range(4)]
    for rank, pod in enumerate(job.pods):
        assert torchrun_env(pod) == {
            "PET_NNODES": "4",
            "PET_NPROC_PER_NODE": "1",
            "PET_NODE_RANK": str(rank),
            "PET_MASTER_ADDR": "trireme-trainjob-node-0-0.trireme-trainjob",
            "PET_MASTER_PORT": "29500",
        }
        assert pod.env["HF_HOME"] == "/tmp/pvc-mount/huggingface", "the runtime's own variables stay"
        assert pod.container["args"][:4] == ["torchrun", "--no-python", "trireme", "qa"] and pod.container["image"].startswith("trireme/huggingface:")
        assert pod.container["resources"] == load("trainjob")["spec"]["trainer"]["resourcesPerNode"]
        assert pod.restart_policy == "OnFailure"
    assert "trireme-trainjob-node-0-0.trireme-trainjob" in job.pods[0].names
    trainer = load("trainjob")["spec"]["trainer"]
    del trainer["numProcPerNode"], trainer["numNodes"]
    (pod,) = job_of("trainjob", trainer=trainer).pods
    assert (pod.env["PET_NNODES"], pod.env["PET_NPROC_PER_NODE"]) == ("1", "16"), "the runtime's number of nodes, a process for each CPU"


@pytest.mark.parametrize(
    ("name", "codes", "succeeded"),
    [
        ("pytorchjob", [None, None, 0, None], True),  # any worker of an elastic job
        ("pytorchjob", [None, 1, None, 143], False),
        ("pytorchjob-static", [0, None, None, None], True),  # the master's end is the job's
        ("pytorchjob-static", [None, 0, 0, 0], False),
        ("mpijob", [0, None, None, None, None], True),  # the launcher's
        ("mpijob", [1, 0, 0, 0, 0], False),
        ("trainjob", [0, 0, 0, 0], True),
        ("trainjob", [0, 0, None, 0], False),
    ],
)
def test_when_a_job_has_succeeded(name, codes, succeeded):
    job = job_of(name)
    assert job.succeeded(dict(zip([pod.name for pod in job.pods], codes))) == succeeded


def test_a_pod_is_the_template_and_what_the_operator_adds():
    """Nothing of a template is lost on the way, and the templates themselves stay as they are."""
    manifest = load("pytorchjob")
    job = make_job(manifest)
    template = load("pytorchjob")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert manifest == load("pytorchjob")
    for pod in job.pods:
        given = template["containers"][0]["env"]
        assert pod.container["env"][: len(given)] == given
        assert {**pod.container, "env": given} == template["containers"][0]
        assert {**pod.spec, "containers": template["containers"]} == template


def test_only_flags_that_are_there_can_be_replaced():
    arguments = ["trireme", "qa", "--save_steps", "200", "--do_train", "--bf16"]
    assert with_arguments(arguments, {"--save_steps": "2"}) == ["trireme", "qa", "--save_steps", "2", "--do_train", "--bf16"]
    for changes in ({"--max_steps": "2"}, {"--do_train": "2"}):
        with pytest.raises(AssertionError):
            with_arguments(arguments, changes)
