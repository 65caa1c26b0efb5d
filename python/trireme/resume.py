"""Starts a script of Hugging Face's Trainer so that it goes on from the newest checkpoint that is whole.

    torchrun --max-restarts=10 ... -m trireme.resume run_qa.py --output_dir out ...

torchrun gives every start the same arguments, and the Trainer writes its checkpoints in place: what a killed process was writing looks like a checkpoint and
cannot be loaded. So this program looks into --output_dir, passes over what is not whole, one line each, and runs the script with
--resume_from_checkpoint. A checkpoint that the user names there counts until --output_dir has a newer one; with none at all the script begins from nothing.

If no checkpoint is whole, those that are not get another name (incomplete-checkpoint-N): the examples of transformers up to 4.57 take the last one that they
find. Nothing else is touched. The script's torch.load knows "cpu:0", to which the Trainer loads an optimizer's state where there are several processes.
"""

import json
import os
import pathlib
import re
import runpy
import struct
import sys
import zipfile
from collections.abc import Sequence

FLAG = "--resume_from_checkpoint"
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")


def step_of(path: pathlib.Path) -> int:
    """N of checkpoint-N; -1 for any other name."""
    found = re.fullmatch(r"checkpoint-(\d+)", path.name)
    return int(found[1]) if found else -1


def why_not_whole(checkpoint: pathlib.Path) -> str | None:
    """Why training cannot go on from it, or None."""
    state = checkpoint / "trainer_state.json"
    try:
        if not isinstance(json.loads(state.read_text())["global_step"], int):
            return "trainer_state.json has no global_step"
    except FileNotFoundError:
        return "it has no trainer_state.json, which is written last"
    except (ValueError, KeyError, TypeError):
        return "trainer_state.json is cut short"
    if not (files := _weights_of(checkpoint)):
        return f"it has no weights ({', '.join(WEIGHTS)}, or an index of shards)"
    for name in (*files, "optimizer.pt", "scheduler.pt"):
        if reason := _why_not_readable(checkpoint / name):
            return reason
    return None


def _weights_of(checkpoint: pathlib.Path) -> list[str]:
    """The files that hold them; of shards, what their index names."""
    for name in WEIGHTS:
        if (checkpoint / name).exists():
            return [name]
        index = checkpoint / (name + ".index.json")
        if index.exists():
            try:
                return sorted(set(json.loads(index.read_text())["weight_map"].values()))
            except (ValueError, KeyError, AttributeError):
                return []
    return []


def _why_not_readable(path: pathlib.Path) -> str | None:
    """Both formats tell whether the end of a file is missing: one by the lengths in its head, the other by a directory at its end."""
    if not path.exists():
        return f"it has no {path.name}"
    if path.suffix != ".safetensors":
        return None if zipfile.is_zipfile(path) else f"{path.name} is cut short"
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            tensors = json.loads(file.read(length))
        end = max((entry["data_offsets"][1] for name, entry in tensors.items() if name != "__metadata__"), default=0)
        return None if path.stat().st_size == 8 + length + end else f"{path.name} is cut short"
    except (ValueError, KeyError, struct.error, MemoryError, OverflowError):
        return f"{path.name} is cut short"


def newest_whole(output_dir: pathlib.Path) -> tuple[pathlib.Path | None, list[tuple[pathlib.Path, str]]]:
    """The checkpoint to go on from, and the newer ones that were passed over with the reason."""
    checkpoints = [path for path in output_dir.glob("checkpoint-*") if step_of(path) >= 0 and path.is_dir()]
    passed_over = []
    for checkpoint in sorted(checkpoints, key=step_of, reverse=True):
        if (reason := why_not_whole(checkpoint)) is None:
            return checkpoint, passed_over
        passed_over.append((checkpoint, reason))
    return None, passed_over


def value_of(arguments: Sequence[str], flag: str) -> str | None:
    """What comes last counts, as for argparse."""
    found = None
    for argument, following in zip(arguments, [*arguments[1:], ""]):
        if argument == flag:
            found = following
        elif argument.startswith(flag + "="):
            found = argument.partition("=")[2]
    return found


def without(arguments: Sequence[str], flag: str) -> list[str]:
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == flag:
            skip = True
        elif not argument.startswith(flag + "="):
            kept.append(argument)
    return kept


def _say(line: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(f"trireme.resume: {line}", file=sys.stderr, flush=True)


def resumed(arguments: Sequence[str]) -> list[str]:
    """The script's arguments with the checkpoint to go on from."""
    folder = value_of(arguments, "--output_dir")
    if folder is None:
        raise SystemExit("trireme.resume: the script's arguments have no --output_dir, where its checkpoints would be")
    newest, passed_over = newest_whole(pathlib.Path(folder))
    for checkpoint, reason in passed_over:
        _say(f"{checkpoint} is passed over: {reason}")
    named = value_of(arguments, FLAG)
    if named in ("True", "true"):
        named = None
    if newest is None and named is None:
        for checkpoint, _ in passed_over:
            _put_aside(checkpoint)
        return without(arguments, FLAG)
    chosen = named if newest is None or (named is not None and step_of(pathlib.Path(named)) >= step_of(newest)) else str(newest)
    _say(f"goes on from {chosen}")
    return [*without(arguments, FLAG), FLAG, chosen]


def _put_aside(checkpoint: pathlib.Path) -> None:
    aside = checkpoint.with_name(f"incomplete-{checkpoint.name}")
    number = 0
    while aside.exists():
        number += 1
        aside = checkpoint.with_name(f"incomplete-{checkpoint.name}.{number}")
    try:
        checkpoint.rename(aside)
    except FileNotFoundError:
        return  # another rank was first
    _say(f"{checkpoint.name} is called {aside.name} from now on")


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        raise SystemExit(0 if len(sys.argv) > 1 else 2)
    from trireme._huggingface.for_transformers import load_on_numbered_cpus

    load_on_numbered_cpus()
    script = sys.argv[1]
    sys.argv = [script, *resumed(sys.argv[2:])]
    sys.path[0] = str(pathlib.Path(script).resolve().parent)  # as Python itself would
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
