"""Calls a function once a module has been imported, whoever imports it and when. The modules are those that the flags of the guides pass through."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Sequence

from trireme._huggingface import asked

# The module, and what changes it: a function of the module, by its own module's name.
TARGETS = {
    "transformers.training_args": ("trireme._huggingface.for_transformers", "patch_arguments"),
    "transformers.hf_argparser": ("trireme._huggingface.for_transformers", "patch_parser"),
    "transformers.trainer": ("trireme._huggingface.for_transformers", "patch_trainer"),
    "accelerate.state": ("trireme._huggingface.for_accelerate", "patch_state"),
    "accelerate.accelerator": ("trireme._huggingface.for_accelerate", "patch_accelerator"),
    "accelerate.commands.config.config_args": ("trireme._huggingface.for_accelerate", "patch_config"),
    "accelerate.utils.launch": ("trireme._huggingface.for_accelerate", "patch_launcher"),
}


def install() -> None:
    """Once. Modules that are there already are patched at once, those that are being imported when they are finished."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name in TARGETS:
        module = sys.modules.get(name)
        if module is None:
            continue
        if getattr(module.__spec__, "_initializing", False):
            module.__class__ = _Unfinished
        else:
            patch(module)


def patch(module: types.ModuleType) -> None:
    """Never raises: an import of transformers must not fail because of this. A flag that asks for what was not patched is told: warnings are easily
    turned off."""
    where, name = TARGETS[module.__name__]
    try:
        getattr(importlib.import_module(where), name)(module)
    except Exception as error:
        what = f"{module.__name__} stays as it is: {type(error).__name__}: {error}"
        asked.misfits.append(what)
        with contextlib.suppress(Warning):  # which python -W error raises
            warnings.warn(f"trireme: {what}", stacklevel=2)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a target by the other finders, and lets its loader tell when it has run."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name not in TARGETS:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        patch(module)


class _Unfinished(types.ModuleType):
    """A module that imported torch, and with it this, before it had run to its end: patched when somebody first looks into it after that."""

    def __getattribute__(self, name: str) -> object:
        get = super().__getattribute__
        if not name.startswith("__") and not getattr(get("__spec__"), "_initializing", False):
            object.__setattr__(self, "__class__", types.ModuleType)
            patch(self)
        return get(name)
