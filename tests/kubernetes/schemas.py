"""What an API server would accept, field by field: the operators' CRDs read strictly, so that an unknown field is an error and not a field that
the server drops without a word (`kubectl create` sends strict requests too).

The CRDs are those in the folder that TEST_CRDS names, or in ../shared/kubernetes/crds. They hold the whole of a pod's template, and a claim's spec in its ephemeral volumes; so pods
and claims are checked by them as well. The models of the package kubeflow-training (PyTorchJob) with those of kubernetes (pods, claims) are another witness, and
the only one where there are no CRDs. They know fields and types, but neither ranges nor patterns; make_venv of tools/setup.sh puts them into .venv/kubernetes.
"""

import functools
import importlib
import os
import pathlib
import re
import sys

import yaml

from .manifests import REPOSITORY

CRDS = pathlib.Path(os.environ.get("TEST_CRDS") or REPOSITORY.parent / "shared" / "kubernetes" / "crds")
FILES = {
    "PyTorchJob": "kubeflow.org_pytorchjobs.yaml",
    "MPIJob": "kubeflow.org_mpijobs.yaml",
    "ClusterTrainingRuntime": "trainer.kubeflow.org_clustertrainingruntimes.yaml",
    "TrainJob": "trainer.kubeflow.org_trainjobs.yaml",
}
API_VERSIONS = {"Pod": "v1", "PersistentVolumeClaim": "v1"}
INT_RANGES = {"int32": 2**31, "int64": 2**63}
# A quantity that has a range of its own, or a rule over time, is for rules.py. These we read and do not need:
IGNORED = {"description", "default", "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-map-type", "format", "nullable"}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = {  # a CRD says of its own metadata only that it is an object
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}, "labels": TEXTS, "annotations": TEXTS},
}


def strict(schema: dict) -> dict:
    """The same as JSON Schema, closed: what a CRD leaves open by saying nothing is closed to a strict request."""
    result = {key: value for key, value in schema.items() if key not in IGNORED and key != "x-kubernetes-int-or-string"}
    if limit := INT_RANGES.get(schema.get("format", "")):
        result.setdefault("minimum", -limit)
        result.setdefault("maximum", limit - 1)
    if "properties" in schema:
        result["properties"] = {name: strict(each) for name, each in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        result["items"] = strict(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = strict(schema["additionalProperties"])
    elif schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        result["additionalProperties"] = False
    return result


def _repeated_keys(validator, keys, items, schema):
    """x-kubernetes-list-map-keys: a list whose entries are told apart by these fields. A missing one is one value like any other."""
    from jsonschema import ValidationError

    seen = set()
    for item in items if isinstance(items, list) else ():
        key = tuple(item.get(name) for name in keys) if isinstance(item, dict) else None
        if key in seen:
            yield ValidationError(f"two entries with the same {', '.join(keys)}: {', '.join(map(str, key))}")
        seen.add(key)


@functools.cache
def _crd(kind: str) -> dict:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # these files have 30,000 lines
    return yaml.load((CRDS / FILES[kind]).read_text(), loader)


def _version(kind: str) -> dict:
    (version,) = [each for each in _crd(kind)["spec"]["versions"] if each["storage"]]
    return version


@functools.cache
def _schema(kind: str) -> dict:
    if kind in FILES:
        group, version = _crd(kind)["spec"]["group"], _version(kind)
        spec = strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
        return _document(f"{group}/{version['name']}", kind, spec)
    replicas = _version("PyTorchJob")["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["pytorchReplicaSpecs"]
    pod = replicas["additionalProperties"]["properties"]["template"]["properties"]["spec"]
    if kind == "Pod":
        return _document("v1", kind, strict(pod))
    claim = pod["properties"]["volumes"]["items"]["properties"]["ephemeral"]["properties"]["volumeClaimTemplate"]["properties"]["spec"]
    assert kind == "PersistentVolumeClaim"
    return _document("v1", kind, strict(claim))


def _document(api_version: str, kind: str, spec: dict) -> dict:
    properties = {"apiVersion": {"const": api_version}, "kind": {"const": kind}, "metadata": METADATA, "spec": spec}
    return {"type": "object", "required": list(properties), "properties": properties, "additionalProperties": False}


@functools.cache
def _validator(kind: str):
    import jsonschema

    checks = {"x-kubernetes-list-map-keys": _repeated_keys}
    return jsonschema.validators.extend(jsonschema.Draft202012Validator, checks)(_schema(kind))


def crd_why_not() -> str | None:
    if importlib.util.find_spec("jsonschema") is None:
        return "jsonschema is not installed: pip install -r tests/requirements.txt"
    if missing := [name for name in FILES.values() if not (CRDS / name).exists()]:
        return (
            f"no CRDs to check against: {', '.join(missing)} not in {CRDS}. They are in the sources of Kubeflow's training-operator 1.9 "
            "(manifests/base/crds), mpi-operator 0.8 (manifests/base) and trainer 2.3 (manifests/base/crds); TEST_CRDS names a folder with copies"
        )
    return None


def crd_errors(manifest: dict) -> list[str]:
    """What the CRD says against it: "spec.elasticPolicy: ..." each."""
    if manifest["kind"] not in (*FILES, *API_VERSIONS):
        return [f"kind: {manifest['kind']} is not known"]
    errors = _validator(manifest["kind"]).iter_errors(manifest)
    return [f"{_path(error.absolute_path)}: {error.message}" for error in errors]


def _path(parts) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")


# ---- The same by the clients' models ----

MODELS = {"PyTorchJob": "KubeflowOrgV1PyTorchJob", "Pod": "V1Pod", "PersistentVolumeClaim": "V1PersistentVolumeClaim"}
MODELS_FOLDER = REPOSITORY / ".venv" / "kubernetes"
SCALARS = {"str": str, "int": int, "bool": bool, "float": (int, float)}


def models_why_not(kind: str) -> str | None:
    if kind not in MODELS:
        return f"no package has models of {kind}"
    if not MODELS_FOLDER.exists():
        return f"no models of {kind}: pip install --no-deps --target .venv/kubernetes -r tests/requirements-kubernetes.txt"
    return None


@functools.cache
def _models(name: str):
    """A module that is in that folder alone; what it imports may be in both."""
    sys.path.append(str(MODELS_FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(MODELS_FOLDER))


def model_errors(manifest: dict) -> list[str]:
    return list(_model_errors(manifest, MODELS[manifest["kind"]], ""))


def _model_class(name: str):
    module = "kubeflow.training" if name.startswith("KubeflowOrg") else "kubernetes.client"
    # K8sIoApiCoreV1PodTemplateSpec is V1PodTemplateSpec in the client of Kubernetes.
    short = re.sub(r"^(K8sIoApi[A-Z][a-z]+|K8sIoApimachineryPkgApisMeta)(V\d)", r"\2", name)
    return getattr(_models(module), short)


def _model_errors(value, kind: str, path: str):
    if many := re.fullmatch(r"(list\[|dict\(str, )(.+)[\])]", kind):
        container = list if many[1] == "list[" else dict
        if not isinstance(value, container):
            yield f"{path}: {value!r} is not a {container.__name__}"
            return
        for key, each in enumerate(value) if container is list else value.items():
            yield from _model_errors(each, many[2], f"{path}[{key}]" if container is list else f"{path}.{key}")
    elif kind in SCALARS:
        if not isinstance(value, SCALARS[kind]) or isinstance(value, bool) != (kind == "bool"):
            yield f"{path}: {value!r} is not of type {kind}"
    elif kind not in ("object", "datetime"):
        yield from _object_errors(value, _model_class(kind), path)


def _object_errors(value, model, path: str):
    if not isinstance(value, dict):
        yield f"{path}: {value!r} is not an object"
        return
    names = {key: attribute for attribute, key in model.attribute_map.items()}
    for key, each in value.items():
        where = f"{path}.{key}".lstrip(".")
        if key not in names:
            yield f"{path}: '{key}' was unexpected"
        else:
            types = model.openapi_types[names[key]]
            # Quantities are strings to the models and numbers to people; the server takes both.
            kind = types.replace("str)", "object)") if key in ("limits", "requests") else types
            yield from _model_errors(each, kind, where)
    given = {names[key]: each for key, each in value.items() if key in names}
    try:
        model(**given)
    except (ValueError, TypeError) as error:
        yield f"{path}: {error}"
