"""The seams in transformers, 4.46 to 5.22: the arguments, their parser, and the Trainer.

| what | where it went | what stands here instead |
|---|---|---|
| ``--no_cuda`` | left with 5.0 | a field of TrainingArguments that sets ``use_cpu`` |
| ``--use_ipex`` | left after 4.52 | a field of TrainingArguments; accelerate's Accelerator then optimizes (for_accelerate) |
| ``--ddp_backend ccl`` | no longer a choice from 5.1 on | a choice |
| ``--ddp_timeout`` | never reached a group of CPUs | handed to accelerate's state |
| ``--bf16`` | refused without ``--use_cpu``, also where there is nothing but CPUs (after 4.46) | ``--ddp_backend ccl`` sets ``use_cpu`` there |
| resuming on several processes | an optimizer's state is loaded to "cpu:0", which torch does not know | torch.load knows it |
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
import types
from collections.abc import Iterable
from typing import Any

from trireme import _environment
from trireme._huggingface import MEANT_TO, SIZES, asked, is_true, launched_processes, of, refuse_uncounted

VERSIONS = "4.46 to 5.22"

ALONE = "the Trainer would train alone in each of them, as if the others were not there"
REFUSED = "nothing says that they train on CPUs, without which transformers refuses --bf16, and accelerate from 1.13 on lets each of them train alone"


@dataclasses.dataclass
class GuideFlags:
    """Those that transformers once had. Their fields are put into TrainingArguments where they are missing."""

    no_cuda: bool = dataclasses.field(default=False, metadata={"help": "Train on the CPU: the older name of --use_cpu."})
    use_ipex: bool = dataclasses.field(default=False, metadata={"help": "Make the model and its optimizer fast on CPUs, by trireme.optimize."})


def misfit(module: types.ModuleType, what: str) -> None:
    import transformers

    asked.misfits.append(f"transformers {transformers.__version__}: {module.__name__} has no {what}; versions {VERSIONS} are known to fit")


# ---- TrainingArguments ----


def patch_arguments(module: types.ModuleType) -> None:
    cls = getattr(module, "TrainingArguments", None)
    if cls is None or not dataclasses.is_dataclass(cls):
        return misfit(module, "dataclass TrainingArguments")
    for name in ("__post_init__", "_setup_devices"):
        if name not in vars(cls):
            return misfit(module, f"TrainingArguments.{name}")
    cls._trireme = True  # by which a parser knows it
    added = _add_flags(cls)
    _add_choice(cls)
    _take_flags(cls, added)
    _hand_over_timeout(cls)
    return None


def _add_flags(cls: Any) -> list[str]:
    """Fields as if they had been written in the class; its __init__ was made without them."""
    added = [name for name in GuideFlags.__dataclass_fields__ if name not in cls.__dataclass_fields__]
    for name in added:
        field = GuideFlags.__dataclass_fields__[name]
        cls.__dataclass_fields__[name] = field
        cls.__annotations__[name] = bool
        setattr(cls, name, field.default)
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in added:
            setattr(self, name, bool(kwargs.pop(name, False)))
        original(self, *args, **kwargs)

    if added:
        cls.__init__ = __init__
    return added


def withdraw_flags(cls: Any, names: Iterable[str]) -> None:
    """A script has options of these names of its own."""
    for each in (cls, *_subclasses(cls)):
        for name in names:
            each.__dataclass_fields__.pop(name, None)
            vars(each).get("__annotations__", {}).pop(name, None)


def _subclasses(cls: type) -> Iterable[type]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)


def _add_choice(cls: Any) -> None:
    field = cls.__dataclass_fields__.get("ddp_backend")
    choices = field.metadata.get("choices") if field is not None else None
    if choices is not None and "ccl" not in choices:
        field.metadata = types.MappingProxyType({**field.metadata, "choices": [*choices, "ccl"]})


def _take_flags(cls: Any, added: list[str]) -> None:
    import torch

    original = cls.__post_init__

    @functools.wraps(original)
    def __post_init__(self: Any) -> None:
        asked.take(self)
        asked.raise_misfits()
        if asked.anything():
            let_checkpoints_load()
        if "no_cuda" in added and self.no_cuda or (asked.ccl or asked.automatic()) and not torch.accelerator.is_available():
            self.use_cpu = True
        try:
            original(self)
        except ValueError as error:
            if "bf16/gpu" in str(error) and not torch.accelerator.is_available() and (count := launched_together()) > 1:
                raise ValueError(how_to_train_together(count, REFUSED, self)) from error
            raise

    cls.__post_init__ = __post_init__


def _hand_over_timeout(cls: Any) -> None:
    """While the devices are set up, and the group with them, accelerate's state can see the timeout."""
    import torch

    original = vars(cls)["_setup_devices"]

    def _setup_devices(self: Any) -> Any:
        seconds = self.ddp_timeout if asked.anything() else None
        asked.timeout = datetime.timedelta(seconds=float(seconds)) if seconds else None
        try:
            device = original.__get__(self, type(self))
        except ValueError:  # torch's: a backend was named, no group was made, and accelerate asks for its size
            refuse_to_train_alone(self, on_cpu=not torch.accelerator.is_available())
            raise
        finally:
            asked.timeout = None
        refuse_to_train_alone(self, on_cpu=getattr(device, "type", "") == "cpu")
        return device

    cls._setup_devices = property(_setup_devices)


# ---- Processes that a launcher started, and that would not find each other ----


def launched_together() -> int:
    """How many were launched that are meant to train together."""
    return 1 if _environment.flag("TRIREME_ALONE") else launched_processes(os.environ)


def refuse_to_train_alone(arguments: Any, on_cpu: bool) -> None:
    """A state without a kind of distribution may have a group all the same (accelerate 1.13 and later, `--ddp_backend gloo`): its models are not put into
    DDP."""
    if not on_cpu:
        return
    from accelerate import PartialState

    state = PartialState._shared_state
    if state.get("num_processes") != 1 and state.get("distributed_type") != "NO":
        return
    if (count := launched_together()) > 1:
        raise ValueError(how_to_train_together(count, ALONE, arguments))
    refuse_uncounted()


def how_to_train_together(count: int, problem: str, arguments: Any) -> str:
    """Names the flags that help and were not given. Slurm's variables are known to --ddp_backend ccl, not to accelerate."""
    names_cpu = getattr(arguments, "use_cpu", False) or getattr(arguments, "no_cuda", False) or is_true("ACCELERATE_USE_CPU")
    can_be_counted = any(name in os.environ for name in SIZES)
    flags = ["--use_cpu (or --no_cuda)"] if can_be_counted and not names_cpu else []
    flags += ["--ddp_backend ccl"] if getattr(arguments, "ddp_backend", None) != "ccl" else []
    remedy = f"Give {' or '.join(flags)}" if flags else "Make the arguments before any Accelerator: its state is for one process"
    return f"trireme: {count} processes were launched, but {problem}. {remedy}. {MEANT_TO}"


@functools.cache
def let_checkpoints_load() -> None:
    """accelerate numbers the CPU where there are several processes, and the Trainer loads an optimizer's state to its device when it resumes. torch.load
    knows "cpu" alone: without this no Trainer on several CPUs goes on from a checkpoint. Nor does one of transformers 4.46 with torch 2.6 and later: the random
    state in it has arrays of numpy's, which later versions of transformers allow themselves."""
    import torch

    with contextlib.suppress(ImportError):  # without numpy there are none
        import numpy

        core = getattr(numpy, "_core", None) or numpy.core
        torch.serialization.add_safe_globals([core.multiarray._reconstruct, numpy.ndarray, numpy.dtype, type(numpy.dtype(numpy.uint32))])
    torch.serialization.register_package(9, lambda storage: None, lambda storage, location: storage if location.startswith("cpu:") else None)


# ---- HfArgumentParser ----


def patch_parser(module: types.ModuleType) -> None:
    """A script that has an option with the name of one of ours, in a dataclass of its own or by add_argument, keeps it."""
    cls = getattr(module, "HfArgumentParser", None)
    if cls is None:
        return misfit(module, "HfArgumentParser")
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, dataclass_types: Any = None, *args: Any, **kwargs: Any) -> None:
        if dataclass_types is not None and not dataclasses.is_dataclass(dataclass_types):
            dataclass_types = list(dataclass_types)  # may be an iterator
        _yield_names(dataclass_types, kwargs.get("parents", ()))
        if dataclass_types is None:
            original(self, *args, **kwargs)
        else:
            original(self, dataclass_types, *args, **kwargs)

    add = cls.add_argument

    @functools.wraps(add)
    def add_argument(self: Any, *names: Any, **kwargs: Any) -> Any:
        _yield_options(self, names)
        return add(self, *names, **kwargs)

    cls.__init__ = __init__
    cls.add_argument = add_argument
    for name in ("add_argument_group", "add_mutually_exclusive_group"):
        setattr(cls, name, _yielding_group(getattr(cls, name)))
    return None


def _yielding_group(make: Any) -> Any:
    @functools.wraps(make)
    def make_group(self: Any, *args: Any, **kwargs: Any) -> Any:
        group = make(self, *args, **kwargs)
        add = group.add_argument

        @functools.wraps(add)
        def add_argument(*names: Any, **kwargs: Any) -> Any:
            _yield_options(self, names)
            return add(*names, **kwargs)

        group.add_argument = add_argument
        return group

    return make_group


def _yield_names(dataclass_types: Any, parents: Iterable[Any]) -> None:
    kinds = [dataclass_types] if dataclasses.is_dataclass(dataclass_types) else dataclass_types or ()
    fields = [field for kind in kinds if dataclasses.is_dataclass(kind) for field in dataclasses.fields(kind) if not _is_ours(field)]
    taken = {name for field in fields for name in _options_of(field)}
    taken |= {action.dest for parent in parents for action in parent._actions}
    _yield([kind for kind in kinds if getattr(kind, "_trireme", False)], taken)


def _is_ours(field: Any) -> bool:
    return GuideFlags.__dataclass_fields__.get(field.name) is field


def _options_of(field: Any) -> set[str]:
    """What HfArgumentParser makes of a field, as names: what is true by default gets a second option, by which it becomes false."""
    aliases = field.metadata.get("aliases", [])
    aliases = [aliases] if isinstance(aliases, str) else aliases
    negation = [f"no_{field.name}"] if field.default is True else []
    return {name.lstrip("-").replace("-", "_") for name in (field.name, *negation, *aliases)}


def _yield_options(parser: Any, options: Iterable[str]) -> None:
    """The parser's own calls for our fields pass: nothing is in their place yet."""
    known = parser._option_string_actions
    clashing = {option: known[option] for option in options if option in known}
    wanted = {action.dest for action in clashing.values()}
    kinds = getattr(parser, "dataclass_types", ())  # none while argparse makes a parser
    for name in _yield([kind for kind in kinds if getattr(kind, "_trireme", False)] if clashing else [], wanted):
        ours = [(option, action) for option, action in known.items() if action.dest == name]
        parser._handle_conflict_resolve(None, ours)


def _yield(arguments: Iterable[Any], taken: set[str]) -> set[str]:
    """Withdraws our fields of these names. Returns those that were there."""
    withdrawn: set[str] = set()
    for kind in arguments:
        ours = {name for name, field in kind.__dataclass_fields__.items() if _is_ours(field)}
        if ours & taken:
            root = next(base for base in reversed(kind.__mro__) if "_trireme" in vars(base))
            withdraw_flags(root, ours & taken)
            withdrawn |= ours & taken
    return withdrawn


# ---- Trainer ----


def patch_trainer(module: types.ModuleType) -> None:
    cls = getattr(module, "Trainer", None)
    if cls is None:
        return misfit(module, "Trainer")
    if not hasattr(cls, "create_accelerator_and_postprocess"):
        return misfit(module, "Trainer.create_accelerator_and_postprocess")
    _ask_for_itself(cls)
    if hasattr(cls, "ipex_optimize_model"):  # up to 4.52; accelerate's Accelerator does it, in every version
        _replace_ipex(cls)
    if hasattr(cls, "autocast_smart_context_manager"):
        _follow_bf16_plan(cls)
    return None


def _ask_for_itself(cls: Any) -> None:
    """Other arguments may have been made since a Trainer's own were."""
    original = cls.create_accelerator_and_postprocess

    @functools.wraps(original)
    def create_accelerator_and_postprocess(self: Any, *args: Any, **kwargs: Any) -> Any:
        newest = (asked.use_ipex, asked.ccl)
        asked.take(self.args)
        try:
            result = original(self, *args, **kwargs)
            self.accelerator._trireme_asked = dataclasses.replace(asked)
        finally:
            asked.use_ipex, asked.ccl = newest
        return result

    cls.create_accelerator_and_postprocess = create_accelerator_and_postprocess


def _replace_ipex(cls: Any) -> None:
    original = cls.ipex_optimize_model

    @functools.wraps(original)
    def ipex_optimize_model(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        return model if of(self.accelerator).optimized() else original(self, model, *args, **kwargs)

    cls.ipex_optimize_model = ipex_optimize_model


def _follow_bf16_plan(cls: Any) -> None:
    """Where bf16 would be slower than fp32, the steps are not put under autocast."""
    from trireme._huggingface import for_accelerate

    original = cls.autocast_smart_context_manager

    @functools.wraps(original)
    def autocast_smart_context_manager(self: Any, *args: Any, **kwargs: Any) -> Any:
        if for_accelerate.computes_in_fp32(of(self.accelerator), self.args.device, "bf16" if self.args.bf16 else "no"):
            return contextlib.nullcontext()
        return original(self, *args, **kwargs)

    cls.autocast_smart_context_manager = autocast_smart_context_manager
