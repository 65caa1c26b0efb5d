"""Hugging Face's Trainer and Accelerator on Trireme: the flags of the guides for CPU training act again.

Nothing here is imported before transformers or accelerate is: ``hook`` waits for their modules. What a run asks for is kept here, because
accelerate's own state is the process's, too; the seams are in ``for_transformers`` and ``for_accelerate``.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from datetime import timedelta

from trireme import _environment, _launch

__all__ = ["Misfit", "asked", "patch_trainer"]

TRUE = ("1", "true", "yes", "on", "y", "t")
SIZES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")  # by which accelerate knows how many processes there are

MEANT_TO = "If they are meant to train alone, set TRIREME_ALONE=1."


class Misfit(RuntimeError):
    """A version of transformers or accelerate in which a flag cannot be made to act."""


@dataclasses.dataclass
class Asked:
    """What a TrainingArguments, or patch_trainer, asks for. Environment variables are read each time. ``asked`` is the newest's of this process; a Trainer's
    Accelerator keeps its own (``of``)."""

    use_ipex: bool = False
    ccl: bool = False
    auto: bool = False
    timeout: timedelta | None = None  # while a TrainingArguments sets up its devices
    misfits: list[str] = dataclasses.field(default_factory=list)

    def take(self, arguments: object) -> None:
        """What these TrainingArguments ask for."""
        self.use_ipex = bool(getattr(arguments, "use_ipex", False))
        self.ccl = getattr(arguments, "ddp_backend", None) == "ccl"

    def automatic(self) -> bool:
        return self.auto or _environment.flag("TRIREME_AUTO")

    def optimized(self) -> bool:
        """Whether models and optimizers go through trireme.optimize."""
        return self.use_ipex or is_true("ACCELERATE_USE_IPEX") or self.automatic()

    def anything(self) -> bool:
        return self.ccl or self.optimized()

    def raise_misfits(self) -> None:
        if self.anything():
            self.raise_misfits_at_once()

    def raise_misfits_at_once(self) -> None:
        """Where something is asked for that is not written down here, because the seam that would have is what does not fit."""
        if self.misfits:
            raise Misfit("trireme: " + "; ".join(self.misfits))


asked = Asked()


def of(accelerator: object) -> Asked:
    """What is asked of an Accelerator: by the arguments of the Trainer that made it, or by the newest ones."""
    return getattr(accelerator, "_trireme_asked", asked)


def is_true(name: str) -> bool:
    """Of accelerate's variables, by its rule."""
    return os.environ.get(name, "").lower() in TRUE


def launched_processes(env: Mapping[str, str]) -> int:
    """How many processes a launcher started for this job. (Slurm's variables are set in a batch script too, where one process runs.)"""
    for name in SIZES:
        if env.get(name, "").isdigit():
            return int(env[name])
    if env.get("SLURM_STEP_NUM_TASKS", "").isdigit() and "SLURM_PROCID" in env:
        return int(env["SLURM_STEP_NUM_TASKS"])
    return 1


def why_uncounted(env: Mapping[str, str]) -> str | None:
    """Processes that cannot know of each other would all train alone: a sentence, or None."""
    problem = None if _environment.flag("TRIREME_ALONE") else _launch.uncounted(env)
    return problem and f"{problem}. {MEANT_TO}"


def refuse_uncounted() -> None:
    if problem := why_uncounted(os.environ):
        raise ValueError(f"trireme: {problem}")


def patch_trainer() -> None:
    """From here on every Trainer and Accelerator of this process trains on Trireme, without a flag: models and optimizers go through
    ``trireme.optimize``, processes that were launched through the backend ``ccl``, and bf16 follows ``trireme.bf16_plan``. Call it before
    TrainingArguments or an Accelerator is made. ``TRIREME_AUTO=1`` does the same from outside."""
    from trireme import _register
    from trireme._huggingface import hook

    asked.auto = True
    _register.register()  # which torch does not do with TORCH_DEVICE_BACKEND_AUTOLOAD=0
    hook.install()  # register() never raises; here what cannot be had is an error
    asked.raise_misfits()
