"""The manifests that ship, run: pods as the operators make them, in hosts of their own.

The model and the questions are tiny: they lie in the claim, in the cache that the manifest names, under the names that it asks for. HF_HUB_OFFLINE
keeps the trainer from asking the hub whether that is so, TRIREME_LEDGER makes it write down who trained on what. Flags that a test replaces stand beside it.
"""

import collections
import importlib.util
import pathlib
import re
import shutil
import time

import pytest

from tests.cluster import ssh
from tests.huggingface.questions import write_questions
from tests.trainer.runs import json_of, ledger, needs_program, tiny_model

from .kubelet import SSH, Container, wait_until
from .manifests import load
from .operators import Job, make_job
from .simulation import with_arguments

pytestmark = needs_program

MODEL, COMMIT = "models--google-bert--bert-large-uncased", "0" * 40
QUESTIONS = 384  # some seconds of training: a pod is deleted in its midst
CLAIM = "/tmp/pvc-mount"
ENV = {"HF_HUB_OFFLINE": "1", "TRIREME_LEDGER": f"{CLAIM}/ledger"}
# Do not wait for the pods that are not simulated as long as torchrun would, but for those that are: a name is known seconds after its pod has started.
SOON = {"PET_RDZV_CONF": "last_call_timeout=10"}
RUN_QA = pathlib.Path(__file__).with_name("programs") / "run_qa.py"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A BERT of two narrow layers that takes 384 tokens."""
    return tiny_model(tmp_path_factory.mktemp("model"), max_positions=512)


@pytest.fixture
def claim(tmp_path, tiny):
    """A claim with what the jobs look for in it."""
    folder = tmp_path / "pvc"
    hub, data = folder / "huggingface" / "hub" / MODEL, folder / "huggingface" / "datasets" / "trireme-squad"
    shutil.copytree(tiny, hub / "snapshots" / COMMIT)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text(COMMIT)
    data.mkdir(parents=True)
    write_questions(data / "train-v1.1.json", QUESTIONS, seed=1)
    write_questions(data / "dev-v1.1.json", 8, seed=2)
    return folder


def times_seen(claim: pathlib.Path) -> collections.Counter:
    """How often each (epoch, sample) was trained on."""
    return collections.Counter((epoch, sample) for _, epoch, sample in ledger(claim / "ledger"))


def samples_done(claim: pathlib.Path) -> int:
    return len(ledger(claim / "ledger"))


EACH_ONCE = {(epoch, sample): 1 for epoch in (0, 1) for sample in range(QUESTIONS)}
SMALL_STEPS = {"--per_device_train_batch_size": "2"}


def evict(run, claim: pathlib.Path, name: str) -> int:
    """Deletes a pod while the job trains; the step that it saved."""
    run.run_until(lambda: samples_done(claim) >= 16, 300, "some steps are done")
    run.delete(name)
    run.run_until(lambda: run.deleted, 120, f"{name} is gone")
    ((gone, code),) = run.deleted
    codes = {pod.name: code if pod.name == name else None for pod in run.job.pods}
    assert gone == name and not run.job.succeeded(codes), f"its exit code, {code}, would be the success of the whole job"
    said = "".join(run.log(pod) for pod in run.pods)
    saved = re.findall(r"SIGTERM: step (\d+) is saved", said)
    assert len(saved) == 1, said
    return int(saved[0])


def assert_it_went_on(run, claim: pathlib.Path, out: pathlib.Path, step: int) -> None:
    """From that step, to the end of both epochs, with no sample lost or repeated."""
    said = "".join(run.log(pod) for pod in run.pods)
    assert f"goes on from {CLAIM}/{out.name}/checkpoint-{step}, step {step}" in said, said
    assert times_seen(claim) == EACH_ONCE
    assert json_of(out / "all_results.json")["epoch"] == 2.0 and 0 <= json_of(out / "all_results.json")["eval_f1"] <= 100
    assert (out / "model.safetensors").stat().st_uid == 1000, "the pods' user writes it"


def test_an_elastic_job_survives_the_eviction_of_a_pod(simulate, claim):
    """Two of its four pods have found a node. One is deleted; another takes its place, at another address, and both go on."""
    job = make_job(load("pytorchjob-trireme"))
    run = simulate(job, claims={"transformers-pvc": claim}, only=2, spares=1, env={**ENV, **SOON}, arguments=SMALL_STEPS)
    step = evict(run, claim, "trireme-pytorchjob-worker-1")
    run.run_to_the_end(600)
    assert run.codes == {"trireme-pytorchjob-worker-0": 0, "trireme-pytorchjob-worker-1": 0}
    assert run.containers["trireme-pytorchjob-worker-1"].host.name == "node2" and run.containers["trireme-pytorchjob-worker-0"].restarts == 0
    assert_it_went_on(run, claim, claim / "output-trireme", step)


@pytest.mark.long
def test_an_elastic_job_as_it_ships_survives_the_eviction_of_the_rendezvous(simulate, claim):
    """All four pods, nothing but the size of a step changed. Worker 0 keeps the rendezvous: without it the others' torchrun ends, the kubelet starts it
    again, and all meet at the new worker 0."""
    job = make_job(load("pytorchjob-trireme"))
    run = simulate(job, claims={"transformers-pvc": claim}, spares=1, env=ENV, arguments=SMALL_STEPS)
    step = evict(run, claim, "trireme-pytorchjob-worker-0")
    run.run_to_the_end(600)
    assert all(code == 0 for code in run.codes.values())
    assert_it_went_on(run, claim, claim / "output-trireme", step)


@pytest.mark.long
def test_a_pod_that_does_not_end_is_killed_after_its_grace_period(simulate, claim):
    """torchrun and its worker are stopped, and so deaf to SIGTERM. The others go on without them from the last checkpoint."""
    job = make_job(load("pytorchjob-trireme"))
    for pod in job.pods:
        pod.spec["terminationGracePeriodSeconds"] = 45  # instead of 180, which nobody needs to wait for here
    arguments = {**SMALL_STEPS, "--save_steps": "2"}
    run = simulate(job, claims={"transformers-pvc": claim}, only=2, spares=1, env={**ENV, **SOON}, arguments=arguments)
    run.run_until(lambda: samples_done(claim) >= 16, 300, "some steps are done")
    victim = run.containers["trireme-pytorchjob-worker-1"]
    victim.host.run(["sh", "-c", "kill -STOP -1"], check=False)
    begin = time.monotonic()
    run.delete("trireme-pytorchjob-worker-1")
    run.run_until(lambda: run.deleted, 200, "the pod is gone")
    assert run.deleted == [("trireme-pytorchjob-worker-1", 137)] and time.monotonic() - begin >= victim.pod.grace_s == 45
    run.run_to_the_end(600)
    seen = times_seen(claim)
    assert seen.keys() == EACH_ONCE.keys(), "none is lost"
    # At most two steps of four samples between a checkpoint and the next, and the one that was under way.
    assert sum(count - 1 for count in seen.values()) <= 3 * 4


@pytest.mark.long
@pytest.mark.parametrize("victim", ["master-0", "worker-2"])
def test_a_static_job_waits_for_a_pod_to_return(simulate, claim, victim):
    job = make_job(load("pytorchjob-static"))
    run = simulate(job, claims={"transformers-pvc": claim}, spares=1, env=ENV, arguments=SMALL_STEPS)
    step = evict(run, claim, f"trireme-pytorchjob-static-{victim}")
    run.run_to_the_end(600)
    assert_it_went_on(run, claim, claim / "output-static", step)


@pytest.mark.long
def test_a_trainjob_waits_for_a_pod_to_return(simulate, claim):
    job = make_job(load("trainjob"), {"trireme-torch": load("clustertrainingruntime")})
    run = simulate(job, claims={"transformers-pvc": claim}, spares=1, env=ENV, arguments=SMALL_STEPS)
    step = evict(run, claim, "trireme-trainjob-node-0-3-abcde")
    run.run_to_the_end(600)
    assert_it_went_on(run, claim, claim / "output-trainjob", step)


needs_sshd = pytest.mark.skipif(not SSH.exists() or ssh.why_not() is not None, reason=f"the image's sshd is missing: {ssh.why_not() or SSH}")


def mpijob(workers: int) -> Job:
    """The one that ships, with so many workers of two ranks."""
    manifest = load("mpijob")
    manifest["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = workers
    launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    launcher["args"] = with_arguments(launcher["args"], {"-n": str(2 * workers)})
    return make_job(manifest)


@needs_sshd
def test_an_mpijobs_workers_need_not_know_the_launchers_name(simulate, tmp_path):
    """The operator's service has the names of pods that are ready. The launcher is not, in its first seconds, when mpirun's agents call back."""
    job = mpijob(workers=2)
    launcher, *workers = job.pods
    launcher.container["args"] = [*launcher.container["args"][: launcher.container["args"].index("trireme")], "hostname"]
    (claim := tmp_path / "pvc").mkdir()
    run = simulate(job, claims={"transformers-pvc": claim})
    run.run_to_the_end(300)
    assert sorted(run.log(launcher.name).split()) == [pod.hostname for pod in workers for _ in range(2)]
    assert run.containers[launcher.name].restarts == 0


@pytest.mark.long
@needs_sshd
@pytest.mark.parametrize("victim", ["launcher-abcde", "worker-1"])
def test_an_mpijob_goes_on_after_an_eviction(simulate, claim, victim):
    """Eight ranks in four workers, over the sshd that the image has, with keys that the operator makes. mpirun ends with the pod that is lost, and is
    started again."""
    job = make_job(load("mpijob"))
    run = simulate(job, claims={"transformers-pvc": claim}, spares=1, env=ENV, arguments={"--per_device_train_batch_size": "1"})
    step = evict(run, claim, f"trireme-mpijob-{victim}")
    run.run_to_the_end(600)
    assert "8 ranks on 4 hosts" in run.log("trireme-mpijob-launcher-abcde")
    assert_it_went_on(run, claim, claim / "output-mpijob", step)


@pytest.mark.long
@needs_sshd
def test_an_mpijob_goes_on_after_a_node_is_lost(simulate, claim):
    """No FIN, no RST: the other ranks give the lost ones up after the peer timeout, and mpirun its agent there by the image's ssh_config. Two workers, of which
    one is left: of four, the ends of the others' agents ended mpirun."""
    job = mpijob(workers=2)
    env, arguments = {**ENV, "TRIREME_PEER_TIMEOUT_MS": "3000"}, {"--per_device_train_batch_size": "1", "--save_steps": "2"}
    run = simulate(job, claims={"transformers-pvc": claim}, spares=1, env=env, arguments=arguments)
    run.run_until(lambda: list((claim / "output-mpijob").glob("checkpoint-*")), 300, "a checkpoint is written")
    launcher = run.containers["trireme-mpijob-launcher-abcde"]
    before, lost = launcher.restarts, time.monotonic()
    run.lose("trireme-mpijob-worker-1")
    run.run_until(lambda: launcher.restarts > before, 60, "mpirun has ended by itself")
    print(f"mpirun has ended {time.monotonic() - lost:.1f} s after the node was lost")
    run.run_to_the_end(600)
    seen = times_seen(claim)
    assert seen.keys() == EACH_ONCE.keys(), "none is lost"
    assert sum(count - 1 for count in seen.values()) <= 3 * 4, "steps since the last checkpoint are done again, of four samples"


@pytest.mark.long
@needs_sshd
def test_an_mpijobs_ranks_end_when_the_launchers_node_is_lost(simulate, claim):
    """The workers' sshd miss it (ClientAliveInterval), and with their sessions end the ranks: none trains on beside those of the next launcher, which a
    cluster makes minutes later."""
    epochs = 30  # more than the ranks have time for
    arguments = {"--per_device_train_batch_size": "1", "--num_train_epochs": str(epochs), "--save_steps": "10"}
    run = simulate(mpijob(workers=2), claims={"transformers-pvc": claim}, spares=1, env=ENV, arguments=arguments)
    run.run_until(lambda: samples_done(claim) >= 16, 300, "some steps are done")
    workers = [container for name, container in run.containers.items() if "worker" in name]
    assert [ranks_of(each) for each in workers] == [2, 2]
    lost = time.monotonic()
    run.lose("trireme-mpijob-launcher-abcde")
    wait_until(lambda: not any(ranks_of(each) for each in workers), 60, "no rank is left", detail=run.tails)
    print(f"the ranks have ended {time.monotonic() - lost:.1f} s after the launcher's node was lost, at {samples_done(claim)} samples")
    assert samples_done(claim) < epochs * QUESTIONS, "not because they were done"
    run.run_to_the_end(600)
    assert "goes on from" in run.log("trireme-mpijob-launcher-abcde")
    seen = times_seen(claim)
    assert seen.keys() == {(epoch, sample) for epoch in range(epochs) for sample in range(QUESTIONS)}, "none is lost"
    assert sum(count - 1 for count in seen.values()) <= 11 * 4, "steps since the last checkpoint are done again, of four samples"


def ranks_of(worker: Container) -> int:
    return len(worker.host.run(["pgrep", "-x", "trireme"], check=False).stdout.split())


has_resume = importlib.util.find_spec("trireme") is not None and importlib.util.find_spec("trireme.resume") is not None


@pytest.mark.long
@pytest.mark.skipif(not has_resume, reason="the installed package trireme has no trireme.resume: pip install --no-build-isolation --no-deps .")
def test_the_guides_job_goes_on_after_a_pod_is_lost(simulate, claim):
    """Hugging Face's Trainer, under the command that ships. A program of ours stands in for run_qa.py (programs/run_qa.py)."""
    job = make_job(load("pytorchjob"))
    arguments = {**SMALL_STEPS, "--save_steps": "4"}
    env = {"HF_HUB_OFFLINE": "1", **SOON}
    run = simulate(job, claims={"transformers-pvc": claim}, only=2, spares=1, env=env, arguments=arguments, run_qa=RUN_QA)
    out = claim / "output"
    run.run_until(lambda: any((path / "trainer_state.json").exists() for path in out.glob("checkpoint-*")), 300, "a checkpoint is written")
    run.delete("transformers-pytorchjob-worker-1")
    run.run_to_the_end(600)
    assert "trireme.resume: goes on from /tmp/pvc-mount/output/checkpoint-" in run.log("transformers-pytorchjob-worker-0")
    group = json_of(out / "group.json")
    assert (group["backend"], group["world_size"], group["packed"]) == ("ccl", 2, True)
    assert json_of(out / "all_results.json")["epoch"] == 2.0
