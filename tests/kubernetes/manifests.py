"""The manifests that ship, as kubectl reads them."""

import copy
import functools
import pathlib
from collections.abc import Iterator

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "deploy" / "kubernetes"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str) -> dict:
    """One manifest, its own copy: a test may change it. An anchor's two places are two objects, as in what kubectl sends."""
    return copy.deepcopy(_parsed(name))


@functools.cache
def _parsed(name: str) -> dict:
    return _without_aliases(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))


def _without_aliases(value):
    if isinstance(value, dict):
        return {key: _without_aliases(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_aliases(each) for each in value]
    return value


def pod_specs(manifest: dict) -> Iterator[tuple[str, dict]]:
    """Every pod template in it, with its path."""
    spec, kind = manifest["spec"], manifest["kind"]
    if kind == "Pod":
        yield "spec", spec
    elif kind in ("PyTorchJob", "MPIJob"):
        field = "pytorchReplicaSpecs" if kind == "PyTorchJob" else "mpiReplicaSpecs"
        for role, replica in (spec.get(field) or {}).items():
            yield f"spec.{field}.{role}.template.spec", replica["template"]["spec"]
    elif kind == "ClusterTrainingRuntime":
        for index, job in enumerate(spec["template"]["spec"]["replicatedJobs"]):
            yield f"spec.template.spec.replicatedJobs[{index}].template.spec.template.spec", job["template"]["spec"]["template"]["spec"]
