"""Weights files: ours are byte for byte those of the package safetensors, and each side reads the other's."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
import safetensors.numpy
import safetensors.torch
import torch

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", REPOSITORY / "build" / "release")).resolve()
TOOL = BUILD / "tests" / "trainer" / "safetensors_tool"
NAMES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.uint16: "U16", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.int32: "I32", torch.uint32: "U32", torch.float32: "F32", torch.complex64: "C64", torch.float64: "F64",
    torch.int64: "I64", torch.uint64: "U64", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e8m0fnu: "F8_E8M0", torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip


def tool(*arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60, **options)


def tensors_of_every_type() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for number, dtype in enumerate(NAMES):
        for shape in [(), (3,), (0, 2), (2, 3, 1)]:
            bits = torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8, generator=generator)
            value = bits.view(dtype).reshape(shape) if dtype != torch.bool else bits[..., 0] > 127
            # Names whose order by bytes, by letters and by length differ.
            tensors[f"{chr(97 + number * 7 % 26)}.{len(shape)}"] = value
            tensors[f"Ä{number % 3}.\"{number}\"\n{shape}"] = value.clone()
    return tensors


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {'"quoted"\t\u0007\u007f\u2028': "ü\\/"}], ids=["none", "format", "escapes"])
def test_files_are_the_same_byte_for_byte(tmp_path, metadata):
    safetensors.torch.save_file(tensors_of_every_type(), tmp_path / "theirs", metadata)
    assert tool("copy", tmp_path / "theirs", tmp_path / "ours").stderr == ""
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_an_empty_file_is_the_same(tmp_path):
    safetensors.torch.save_file({}, tmp_path / "theirs")
    assert tool("copy", tmp_path / "theirs", tmp_path / "ours").stderr == ""
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_we_read_what_the_package_wrote(tmp_path):
    tensors = {name: value for name, value in tensors_of_every_type().items() if "\n" not in name}
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    lines = tool("list", tmp_path).stdout.splitlines()
    found = {name: rest for name, *rest in (line.split("\t") for line in lines)}
    assert found == {
        name: [NAMES[value.dtype], "".join(f"{extent}," for extent in value.shape), raw(value).hex(), "model.safetensors"]
        for name, value in tensors.items()
    }


def test_the_package_reads_what_we_wrote(tmp_path):
    tensors = tensors_of_every_type()
    metadata = {"format": "pt", "b": "2", "a": "1"}
    safetensors.torch.save_file(tensors, tmp_path / "theirs", metadata)
    assert tool("copy", tmp_path / "theirs", tmp_path / "ours").stderr == ""
    read = safetensors.torch.load_file(tmp_path / "ours")
    assert {name: (value.dtype, value.shape, raw(value)) for name, value in read.items()} == {
        name: (value.dtype, value.shape, raw(value)) for name, value in tensors.items()
    }
    with safetensors.safe_open(tmp_path / "ours", "pt") as file:
        assert file.metadata() == metadata


def test_shards_as_transformers_saves_them(tmp_path):
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    model = BertModel(config)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    found = {line.split("\t")[0]: line.split("\t")[1:] for line in tool("list", tmp_path).stdout.splitlines()}
    assert found == {
        name: ["F32", "".join(f"{extent}," for extent in value.shape), raw(value).hex(), index["weight_map"][name]]
        for name, value in model.state_dict().items()
    }


def test_both_refuse_a_file_that_was_cut_anywhere(tmp_path):
    safetensors.torch.save_file({"a": torch.zeros(3), "b": torch.ones(2, dtype=torch.int8)}, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    path = tmp_path / "model.safetensors"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(safetensors.SafetensorError):
            safetensors.torch.load_file(path)
        run = tool("list", tmp_path)
        assert run.returncode == 1 and run.stderr.startswith(str(path)), run.stderr


@pytest.mark.parametrize("options, remedy", [("size=64k", "free some space"), ("ro", "read-only file system")])
def test_a_disk_that_refuses(tmp_path, options, remedy):
    """On a file system of its own, in a mount namespace that ends with the test."""
    source, mount = tmp_path / "source", tmp_path / "mount"
    mount.mkdir()
    safetensors.torch.save_file({"a": torch.zeros(100_000)}, source)
    script = f'mount -t tmpfs -o {options} none {mount} || exit 77; {TOOL} copy {source} {mount}/x; code=$?; ls {mount}; exit $code'
    flags = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    if not shutil.which("unshare"):
        pytest.skip("unshare (util-linux) is missing")
    run = subprocess.run(["unshare", *flags, "sh", "-c", script], capture_output=True, text=True, timeout=60)
    if run.returncode == 77 or "unshare" in run.stderr:
        pytest.skip(f"this machine lets nobody mount: {run.stderr}")
    assert run.returncode == 1 and run.stderr.startswith(f"cannot write {mount}/x: ") and remedy in run.stderr
    assert run.stdout == "", "something was left behind"
