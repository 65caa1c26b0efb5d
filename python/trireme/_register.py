"""What torch calls at ``import torch``, through the entry point group ``torch.backends``.

It must cost next to nothing and must never raise: an exception here would break ``import torch`` for every program. So it registers
functions, and puts some around torch's, that do nothing until a group is made, and nothing else.
"""

import contextlib
import functools
import os
import warnings
from typing import Any


def register() -> None:
    """Makes "ccl" a backend of torch.distributed. Does nothing where torch was built without it."""
    try:
        _fix_bits()
        import torch.distributed as dist

        if dist.is_available():
            _register(dist)
        from trireme._huggingface import hook

        hook.install()
    except Exception as error:  # whatever it is, torch itself must be importable
        with contextlib.suppress(Warning):  # which python -W error raises
            warnings.warn(f"trireme: the backend ccl is not available: {error}", stacklevel=2)


def _fix_bits() -> None:
    """TRIREME_DETERMINISTIC=1: MKL's products get bits that do not depend on the number of threads. It looks at its variable when it first
    computes; a value that the user set stays."""
    from trireme import _environment

    if _environment.flag("TRIREME_DETERMINISTIC") and "MKL_CBWR" not in os.environ:
        import torch

        best = {"AVX512": "AVX512,STRICT", "AVX2": "AVX2,STRICT"}
        os.environ["MKL_CBWR"] = best.get(torch.backends.cpu.get_cpu_capability(), "COMPATIBLE")


def _register(dist: Any) -> None:
    if "CCL" not in dist.Backend._plugins:
        dist.Backend.register_backend("ccl", _create, extended_api=True, devices=["cpu"])
    _add_class(dist)
    _give_default_backends(dist)
    from trireme import _launch

    _launch.fill_env_rendezvous()


def _create(options: Any, backend_options: Any) -> Any:
    """The backend's creator: torch passes torch._C._distributed_c10d._DistributedBackendOptions, and pg_options."""
    from torch.distributed.constants import default_pg_timeout

    from trireme._library import bindings

    timeout = getattr(backend_options, "_timeout", options.timeout)
    if timeout == default_pg_timeout:  # nobody has set it: torch's argument counts
        timeout = options.timeout
    return bindings().ProcessGroupCCL(
        options.store,
        options.group_rank,
        options.group_size,
        timeout,
        options.group_id,
        list(options.global_ranks_in_group),
    )


def _give_default_backends(dist: Any) -> None:
    """Of a group by devices ("cpu:ccl"), torch 2.13 looks for a default backend among plugins by their names in capitals, which it never finds, and where
    there is a plugin no longer takes gloo ("cpu:gloo"). DDP's shared buckets, _wait_for_pending_works and the group's name go by it."""
    c10d = dist.distributed_c10d
    original = getattr(c10d, "_new_process_group_helper", None)
    if original is None or getattr(original, "_trireme", False):
        return

    @functools.wraps(original)
    def make_group(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        with contextlib.suppress(Exception):  # another torch's: then it is as torch has it
            _give_default_backend(c10d, made[0])
        return made

    make_group._trireme = True  # type: ignore[attr-defined]
    c10d._new_process_group_helper = make_group


def _give_default_backend(c10d: Any, group: Any) -> None:
    if not isinstance(group, c10d.ProcessGroup) or group.name() != c10d.Backend.UNDEFINED:
        return
    backends = c10d.BackendConfig(c10d._world.pg_backend_config[group]).device_backend_map.values()
    if "ccl" in backends:
        group._set_default_backend(c10d.ProcessGroup.BackendType.CUSTOM)
    elif set(c10d.Backend._plugins) == {"CCL"}:  # as without this one
        group._set_default_backend(c10d.ProcessGroup.BackendType.GLOO)


def _add_class(dist: Any) -> None:
    """torch.distributed.ProcessGroupCCL, which programs for the older ccl backend use; loaded when it is looked up."""
    previous = getattr(dist, "__getattr__", None)
    if getattr(previous, "_trireme", False):
        return

    def look_up(name: str) -> Any:
        if name == "ProcessGroupCCL":
            from trireme._library import bindings

            return bindings().ProcessGroupCCL
        if previous is not None:
            return previous(name)
        raise AttributeError(f"module '{dist.__name__}' has no attribute '{name}'")

    look_up._trireme = True  # type: ignore[attr-defined]
    dist.__getattr__ = look_up
