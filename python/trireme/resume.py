"""Starts a script of Hugging Face's Trainer so that it goes on from the newest checkpoint that is whole.

    torchrun --max-restarts=10 ... -m trireme.resume run_qa.py --output_dir out ...

torchrun gives every start the same arguments, and the Trainer writes its checkpoints in place: what a killed process was writing looks like a checkpoint and
cannot be loaded. So this program looks into --output_dir, passes over what is not whole, one line each, and runs the script with
--resume_from_checkpoint. A checkpoint that the user names there counts until --output_dir has a newer one; with none at all the script begins from nothing.

Rank 0 chooses, and tells the others (_first_word.py): on a network's file system two hosts need not see the same folders at the same time.

If no checkpoint is whole, those that are not move to another folder beside --output_dir (out.incomplete): the examples of transformers up to 4.57 take the last
one that they find, and without one they refuse a folder that is not empty. Nothing else is touched. The script's torch.load knows "cpu:0", to which the Trainer
loads an optimizer's state where there are several processes.
"""

import contextlib
import json
import os
import pathlib
import re
import runpy
import shutil
import struct
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence

from trireme import _first_word, _launch

OUTPUT_DIR, FLAG = "--output_dir", "--resume_from_checkpoint"
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
SHOW_S = 30.0  # what one host has written, another may see later: so long does a network's file system keep an old listing


def step_of(path: pathlib.Path) -> int:
    """N of checkpoint-N; -1 for any other name."""
    found = re.fullmatch(r"checkpoint-(\d+)", path.name)
    return int(found[1]) if found else -1


def why_not_whole(checkpoint: pathlib.Path) -> str | None:
    """Why training cannot go on from it, or None."""
    try:
        return _why_not_whole(checkpoint)
    except OSError as error:  # such as a file that vanishes meanwhile
        return f"{pathlib.Path(error.filename or checkpoint).name} cannot be read: {error.strerror}"


def _why_not_whole(checkpoint: pathlib.Path) -> str | None:
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
    for name in (*files, *_training_state_of(checkpoint)):
        if reason := _why_not_readable(checkpoint / name):
            return reason
    return None


def _training_state_of(checkpoint: pathlib.Path) -> list[str]:
    """Each rank writes its own rng_state, so rank 0's trainer_state.json does not say that all are there; the Trainer does without those that are not.
    None of all this is there after --save_only_model: then the weights are the checkpoint."""
    found = [path.name for path in sorted(checkpoint.glob("rng_state*.pth"))]
    if not found and not any((checkpoint / name).exists() for name in ("optimizer.pt", "scheduler.pt")):
        return []
    return ["optimizer.pt", "scheduler.pt", *found]


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
        with open(path, "rb") as file:
            return None if zipfile.is_zipfile(file) else f"{path.name} is cut short"
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


def spellings(flag: str) -> tuple[str, str]:
    """HfArgumentParser takes either."""
    return flag, "--" + flag.removeprefix("--").replace("_", "-")


def value_of(arguments: Sequence[str], flag: str) -> str | None:
    """What comes last counts, as for argparse."""
    found = None
    for argument, following in zip(arguments, [*arguments[1:], ""]):
        name, equals, value = argument.partition("=")
        if name in spellings(flag):
            found = value if equals else following
    return found


def without(arguments: Sequence[str], flag: str) -> list[str]:
    kept, skip = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if skip:
            skip = False
        elif name in spellings(flag):
            skip = not equals
        else:
            kept.append(argument)
    return kept


def _say(line: str) -> None:
    print(f"trireme.resume: {line}", file=sys.stderr, flush=True)


def choose(output_dir: pathlib.Path, named: str | None) -> str | None:
    """The checkpoint to go on from, of --output_dir or the one that the user names; None: begin from nothing. Says what it passes over."""
    newest, passed_over = newest_whole(output_dir)
    takes_named = named is not None and (newest is None or step_of(pathlib.Path(named)) >= step_of(newest))
    for checkpoint, reason in passed_over:
        if not takes_named or checkpoint.resolve() != pathlib.Path(named or "").resolve():
            _say(f"{checkpoint} is passed over: {reason}")
    if takes_named:
        _say(f"goes on from {named}, which {FLAG} names")  # the user's word: whether it is whole is for the script to say
        return named
    if newest is None:
        for checkpoint, _ in passed_over:
            _put_aside(checkpoint)
        return None
    _say(f"goes on from {newest}" + ("" if _training_state_of(newest) else ", which has weights alone: the script's optimizer begins anew"))
    return str(newest)


def resumed(arguments: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The script's arguments with the checkpoint to go on from, the same on every rank."""
    folder, named = value_of(arguments, OUTPUT_DIR), value_of(arguments, FLAG)
    if folder is None:
        raise ValueError("the script's arguments have no --output_dir, where its checkpoints would be")
    output_dir, named = pathlib.Path(folder), None if named in ("True", "true") else named
    if int(env.get("WORLD_SIZE", "1")) == 1:
        chosen = choose(output_dir, named)
    elif (rank := env.get("RANK")) is None:
        raise ValueError("WORLD_SIZE is above 1 and RANK is not set: torchrun and mpirun set both")
    elif int(rank) == 0:
        chosen = choose(output_dir, named)
        _first_word.send(env, json.dumps(chosen))
    else:
        chosen = json.loads(_first_word.receive(env))
        if chosen not in (None, named):
            _wait_until_it_shows(pathlib.Path(chosen), SHOW_S)
    has_hyphens = OUTPUT_DIR not in (word.partition("=")[0] for word in arguments)
    return without(arguments, FLAG) + ([] if chosen is None else [spellings(FLAG)[has_hyphens], chosen])


def _wait_until_it_shows(checkpoint: pathlib.Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not (checkpoint / "trainer_state.json").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 goes on from {checkpoint}, and there is none on this host. It must be the same on every host")
        time.sleep(0.1)


def _put_aside(checkpoint: pathlib.Path) -> None:
    """Nothing is lost but what lies there under the same name and was never finished, either: such ones would pile up. Where --output_dir is a mount there is no
    place beside it that a rename reaches, and a checkpoint that looks broken may be of a kind that is not known here: then the user has to say."""
    folder, number = checkpoint.parent.resolve(), 0
    aside = folder.with_name(f"{folder.name}.incomplete") / checkpoint.name
    try:
        aside.parent.mkdir(exist_ok=True)
        while (aside / "trainer_state.json").exists():
            number += 1
            aside = aside.with_name(f"{checkpoint.name}.{number}")
        if aside.exists():
            shutil.rmtree(aside)
        checkpoint.rename(aside)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.parent.rmdir()  # unless something is in it
        raise ValueError(f"{checkpoint} is in the script's way and cannot be moved to {aside}: {error.strerror}. Move or delete it") from None
    _say(f"{checkpoint} is moved to {aside}")


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        raise SystemExit(0 if len(sys.argv) > 1 else 2)
    from trireme._huggingface import why_uncounted
    from trireme._huggingface.for_transformers import let_checkpoints_load

    let_checkpoints_load()
    env = dict(os.environ)
    script = sys.argv[1]
    try:
        _launch.fill(env)  # of mpirun's variables; the script's own environment stays as it is
        if problem := why_uncounted(env):
            raise ValueError(problem)
        sys.argv = [script, *resumed(sys.argv[2:], env)]
    except (ValueError, TimeoutError, _first_word.NoWord) as error:
        raise SystemExit(f"trireme.resume: {error}") from None
    sys.path[0] = str(pathlib.Path(script).resolve().parent)  # as Python itself would
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
