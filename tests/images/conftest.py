"""What the tests of built images share."""

import os
import pathlib
import subprocess

import pytest

from ..trainer.runs import questions, tiny_model
from .builder import REPOSITORY
from .chroot import why_not

IMAGES = REPOSITORY / "build" / "images"


@pytest.fixture(scope="session")
def images_folder() -> pathlib.Path:
    if reason := why_not():
        pytest.skip(reason)
    return IMAGES


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    """A volume of uid 1000 with a tiny model and questions; seen as /data in a container."""
    folder = tmp_path / "data"
    folder.mkdir()
    tiny_model(folder / "model")
    questions(folder)
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, 1000, 1000)
    return folder


@pytest.fixture(scope="session")
def qa_flags() -> list[str]:
    return (
        "--model_name_or_path /data/model --train_file /data/train.json --validation_file /data/dev.json --do_train --per_device_train_batch_size 4 "
        "--max_steps 6 --learning_rate 1e-3 --logging_steps 2 --save_strategy no --report_to none --use_cpu"
    ).split()


@pytest.fixture
def make_secret(tmp_path):
    """A function that makes a folder as kubelet mounts a Secret of MPIJob's: of root, readable by all, every name a link."""

    def make(name: str) -> pathlib.Path:
        folder = tmp_path / name
        (folder / "..data").mkdir(parents=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-C", "job", "-f", folder / "..data" / "id_rsa"], check=True)
        (folder / "..data" / "authorized_keys").write_text((folder / "..data" / "id_rsa.pub").read_text())
        for path in (folder / "..data").iterdir():
            path.chmod(0o644)
            (folder / path.name).symlink_to(pathlib.Path("..data") / path.name)
        return folder

    return make
