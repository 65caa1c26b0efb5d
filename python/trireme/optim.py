"""Optimizers that step in one pass over memory, on all cores: AdamW, Adam, SGD, Adagrad, Lamb.

They are called as torch.optim's, have the same parameter groups, and their state_dict can be loaded there and back::

    optimizer = trireme.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, max_grad_norm=1.0)
    loss.backward()
    optimizer.step()          # gradients are clipped by their global norm on the way
    optimizer.grad_norm       # what the norm was

Two options are ours. ``max_grad_norm`` clips by the norm over the gradients of all groups, as torch.nn.utils.clip_grad_norm_ does, but leaves
the gradients themselves as they are; ``float("inf")`` measures without clipping. ``master_weights`` says what bfloat16 parameters have
behind them: ``"split"``, the lower halves of fp32 weights whose upper halves they are; ``"fp32"``, an fp32 copy; or None, nothing: steps that
are too small for bfloat16 are then lost. State is fp32 for bfloat16 parameters too. See docs/optim.md.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from trireme._library import ops

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Lamb"]

MasterWeights = Literal["split", "fp32"]
# Where a parameter's state keeps what is behind it, and as what.
_MASTER_KEYS: dict[str, tuple[str, torch.dtype]] = {"split": ("lower_half", torch.int16), "fp32": ("master", torch.float32)}


def _zeros_behind(param: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros_like(param, dtype=dtype, memory_format=torch.preserve_format)


def is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill their memory without gaps or overlaps, in whatever order."""
    if tensor.layout != torch.strided:
        return False
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _dtype_of(key: str) -> torch.dtype:
    return dict(_MASTER_KEYS.values()).get(key, torch.float32)


def laid_as(param: Tensor, value: Tensor, key: str) -> Tensor:
    """State of a parameter as our operators take it: of the type that its name has, in memory as the parameter is."""
    if value.shape != param.shape or value.stride() == param.stride():
        return value.to(_dtype_of(key))
    return torch.empty_like(param, dtype=_dtype_of(key), memory_format=torch.preserve_format).copy_(value)


def _refuse(optimizer: str, **options: Any) -> None:
    for name, value in options.items():
        if value:
            raise ValueError(f"trireme.optim.{optimizer}: {name}=True is not supported; torch.optim.{optimizer} has it")


def _is_supported(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float32, torch.bfloat16) and (tensor.is_cpu or tensor.is_meta)


def _why_not(param: Tensor, grad: Tensor) -> str | None:
    """Why a parameter cannot be stepped; {} stands for it."""
    if grad.layout != torch.strided:
        return "the gradient of {} is sparse; use sparse=False in its embedding, or torch.optim.SparseAdam"
    if hasattr(param, "placements"):
        return "{} is a DTensor (FSDP2), which is not supported; use torch.optim"
    if not _is_supported(param):
        return f"{{}} is {param.dtype} on {param.device}; float32 and bfloat16 on cpu are supported"
    if not _is_supported(grad) or grad.shape != param.shape:
        shape = tuple(grad.shape)
        return f"the gradient of {{}} is {grad.dtype} of shape {shape} on {grad.device}; it must be float32 or bfloat16 on cpu, of the same shape"
    if not is_dense(param):
        return f"the elements of {{}} overlap or have gaps between them: strides {param.stride()}. Update the tensor that it is a view of"
    return None


def _check_range(name: str, value: Any, upper: float = float("inf")) -> None:
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"{name} is a tensor of {value.numel()} elements; it must have one")
    if not 0.0 <= value < upper:
        raise ValueError(f"{name} is {value}; it must be at least 0{f' and below {upper}' if upper != float('inf') else ''}")


class _Optimizer(Optimizer):
    """What all have in common: masters, clipping, loading. A subclass makes state and calls its operator."""

    max_grad_norm: float | None
    master_weights: MasterWeights | None
    grad_norm: float | None  # of the last step, before clipping; None without max_grad_norm

    def __init__(self, params: ParamsT, defaults: dict[str, Any], max_grad_norm: float | None, master_weights: MasterWeights | None) -> None:
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ValueError(f"max_grad_norm is {max_grad_norm}; it must be positive, or None for no clipping")
        if master_weights not in (None, *_MASTER_KEYS):
            raise ValueError(f"master_weights is {master_weights!r}; it must be 'split', 'fp32' or None")
        self.max_grad_norm, self.master_weights, self.grad_norm = max_grad_norm, master_weights, None
        super().__init__(params, defaults)

    # -- what a subclass defines

    def _init_state(self, group: dict[str, Any], param: Tensor) -> None:
        """Adds what is missing in a parameter's state."""
        raise NotImplementedError

    def _update(self, group: dict[str, Any], params: list[Tensor], masters: list[Tensor], scale: float) -> None:
        """A step of parameters of one group; masters is empty or has one for each."""
        raise NotImplementedError

    # -- torch.optim's interface

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Makes a step from the gradients that are there, after calling closure, if given, for the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = [(group, [param for param in group["params"] if param.grad is not None]) for group in self.param_groups]
        self._check_gradients(work)
        scale = self._measure(work)
        for group, params in work:
            self._step_group(group, params, scale)
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for param in group["params"]:
            if not _is_supported(param):
                self.param_groups.pop()
                raise TypeError(
                    f"trireme.optim.{type(self).__name__}: a parameter of shape {tuple(param.shape)} is {param.dtype} on {param.device}; "
                    "float32 and bfloat16 on cpu are supported"
                )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the state of an optimizer of the same kind, torch.optim's or ours."""
        loaded: dict[str, Any] = {}
        masters = self._masters_of_now()

        def look(_: Optimizer, final: dict[str, Any]) -> None:
            loaded.update(final)

        def restore(_: Optimizer) -> None:
            self._restore_state(loaded)
            for param, (key, master) in masters.items():
                if not any(other in self.state[param] for other, _ in _MASTER_KEYS.values()):
                    self.state[param][key] = master

        # After the hooks that change what is loaded, and before those that look at what it became.
        ours = (self.register_load_state_dict_pre_hook(look), self.register_load_state_dict_post_hook(restore, prepend=True))
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in ours:
                hook.remove()

    def __getstate__(self) -> dict[str, Any]:
        ours = {name: getattr(self, name) for name in ("max_grad_norm", "master_weights", "grad_norm")}
        return {**super().__getstate__(), **ours}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        for of_param in self.state.values():
            if "step" in of_param and not (isinstance(of_param["step"], Tensor) and of_param["step"].is_floating_point()):
                of_param["step"] = torch.tensor(float(of_param["step"]))

    def fp32_weights(self, param: Tensor) -> Tensor:
        """A copy of a parameter's weights in fp32, with all that is behind it."""
        state = self.state.get(param, {})
        if param.dtype == torch.bfloat16 and "lower_half" in state:
            return ops().join_bf16(param.detach(), state["lower_half"])
        if param.dtype == torch.bfloat16 and "master" in state:
            master = state["master"]
            return torch.where(master.to(torch.bfloat16) == param, master, param.detach().float())
        return param.detach().to(torch.float32, copy=True)

    # -- within a step

    def _check_gradients(self, work: list[tuple[dict[str, Any], list[Tensor]]]) -> None:
        """Before the first group steps: an operator knows those of one group only."""
        for _, params in work:
            for param in params:
                if reason := _why_not(param, param.grad):
                    raise RuntimeError(f"trireme.optim.{type(self).__name__}: " + reason.format(f"a parameter of shape {tuple(param.shape)}"))

    def _measure(self, work: list[tuple[dict[str, Any], list[Tensor]]]) -> float:
        """Sets grad_norm; returns what gradients are to be multiplied by."""
        self.grad_norm = None
        if self.max_grad_norm is None:
            return 1.0
        grads = [param.grad for _, params in work for param in params]
        self.grad_norm = ops().global_norm(grads).item() if grads else 0.0
        if self.max_grad_norm == float("inf"):
            return 1.0
        coefficient = self.max_grad_norm / (self.grad_norm + 1e-6)
        return 1.0 if coefficient > 1 else coefficient  # NaN stays NaN, as in torch

    def _step_group(self, group: dict[str, Any], params: list[Tensor], scale: float) -> None:
        with_master = [param for param in params if self.master_weights and param.dtype == torch.bfloat16]
        without = [param for param in params if not (self.master_weights and param.dtype == torch.bfloat16)]
        for param in params:
            self._init_state(group, param)
        if without:
            self._update(group, without, [], scale)
        if with_master:
            self._update(group, with_master, [self._master(param) for param in with_master], scale)

    def _master(self, param: Tensor) -> Tensor:
        """What is behind a bfloat16 parameter, made from what there is if it is the first time or another kind was loaded."""
        assert self.master_weights is not None
        key, _ = _MASTER_KEYS[self.master_weights]
        if key not in self.state[param]:
            param.copy_(self._put_behind(param, self.fp32_weights(param)))
        return self.state[param][key]

    def _put_behind(self, param: Tensor, exact: Tensor) -> Tensor:
        """Keeps fp32 weights, which become the optimizer's; returns what the parameter is to be."""
        state = self.state[param]
        for key, _ in _MASTER_KEYS.values():
            state.pop(key, None)
        if self.master_weights == "split":
            upper, state["lower_half"] = ops().split_bf16(exact)
            return upper
        state["master"] = exact
        return exact.to(torch.bfloat16)

    def _restore_state(self, loaded: dict[str, Any]) -> None:
        """torch casts state to the dtype of its parameter, which for bfloat16 is not what was saved. It also may lie otherwise in memory."""
        saved_ids = (name for group in loaded["param_groups"] for name in group["params"])
        params = (param for group in self.param_groups for param in group["params"])
        for saved_id, param in zip(saved_ids, params, strict=True):
            for key, value in loaded["state"].get(saved_id, {}).items():
                if not isinstance(value, Tensor) or key == "step":
                    continue
                now = self.state[param][key]
                if now.dtype != _dtype_of(key):
                    now = value.to(_dtype_of(key), copy=True)
                self.state[param][key] = laid_as(param, now, key)

    def _masters_of_now(self) -> dict[Tensor, tuple[str, Tensor]]:
        """Of parameters that nobody has written to since they were taken apart: then what is loaded, if it has none, knows less than these."""
        split_at: dict[Tensor, int] = getattr(self, "_split_at", {})
        return {
            param: (key, self.state[param][key])
            for param, version in split_at.items()
            for key, _ in _MASTER_KEYS.values()
            if param._version == version and key in self.state.get(param, {})
        }

    def _gather(self, params: Iterable[Tensor], key: str) -> list[Tensor]:
        return [self.state[param][key] for param in params]


class Adam(_Optimizer):
    """Adam, as torch.optim.Adam: weight decay is added to the gradient, or decoupled on request."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
        max_grad_norm: float | None = None,
        master_weights: MasterWeights | None = None,
    ) -> None:
        _refuse(type(self).__name__, capturable=capturable, differentiable=differentiable)
        _check_range("lr", lr)
        _check_range("eps", eps)
        _check_range("betas[0]", betas[0], 1)
        _check_range("betas[1]", betas[1], 1)
        _check_range("weight_decay", weight_decay)
        defaults = {
            "lr": lr,
            "betas": (float(betas[0]), float(betas[1])),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,  # this and `fused` choose among torch's implementations, after loading there
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults, max_grad_norm, master_weights)

    def _init_state(self, group: dict[str, Any], param: Tensor) -> None:
        state = self.state[param]
        if "step" not in state:
            state["step"] = torch.tensor(0.0, dtype=torch.float32)
            state["exp_avg"] = _zeros_behind(param)
            state["exp_avg_sq"] = _zeros_behind(param)
        if group["amsgrad"] and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = _zeros_behind(param)

    def _update(self, group: dict[str, Any], params: list[Tensor], masters: list[Tensor], scale: float) -> None:
        operator = ops().adamw_ if group["decoupled_weight_decay"] else ops().adam_
        operator(
            params,
            [param.grad for param in params],
            self._gather(params, "exp_avg"),
            self._gather(params, "exp_avg_sq"),
            self._gather(params, "max_exp_avg_sq") if group["amsgrad"] else [],
            self._gather(params, "step"),
            masters,
            lr=float(group["lr"]),
            beta1=float(group["betas"][0]),
            beta2=float(group["betas"][1]),
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
            gradient_scale=scale,
        )


class AdamW(Adam):
    """AdamW, as torch.optim.AdamW: weights shrink by lr * weight_decay, apart from the gradient."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        max_grad_norm: float | None = None,
        master_weights: MasterWeights | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
            max_grad_norm=max_grad_norm,
            master_weights=master_weights,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class SGD(_Optimizer):
    """Stochastic gradient descent, as torch.optim.SGD."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        max_grad_norm: float | None = None,
        master_weights: MasterWeights | None = None,
    ) -> None:
        _refuse(type(self).__name__, differentiable=differentiable)
        _check_range("lr", lr)
        _check_range("momentum", momentum)
        _check_range("weight_decay", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("nesterov needs momentum, and no dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults, max_grad_norm, master_weights)

    def _init_state(self, group: dict[str, Any], param: Tensor) -> None:
        pass  # a momentum_buffer is its first gradient, and _update must know which are new

    def _update(self, group: dict[str, Any], params: list[Tensor], masters: list[Tensor], scale: float) -> None:
        buffers, first = [], []
        if group["momentum"] != 0:
            for param in params:
                state = self.state[param]
                first.append(state.get("momentum_buffer") is None)
                if first[-1]:
                    state["momentum_buffer"] = _zeros_behind(param)
                buffers.append(state["momentum_buffer"])
        ops().sgd_(
            params,
            [param.grad for param in params],
            buffers,
            masters,
            first=first,
            lr=float(group["lr"]),
            momentum=group["momentum"],
            dampening=group["dampening"],
            weight_decay=float(group["weight_decay"]),
            nesterov=group["nesterov"],
            maximize=group["maximize"],
            gradient_scale=scale,
        )


class Adagrad(_Optimizer):
    """Adagrad, as torch.optim.Adagrad, for dense gradients."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        max_grad_norm: float | None = None,
        master_weights: MasterWeights | None = None,
    ) -> None:
        _refuse(type(self).__name__, differentiable=differentiable)
        _check_range("lr", lr)
        _check_range("lr_decay", lr_decay)
        _check_range("weight_decay", weight_decay)
        _check_range("initial_accumulator_value", initial_accumulator_value)
        _check_range("eps", eps)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults, max_grad_norm, master_weights)
        for group in self.param_groups:  # at once, as torch does
            for param in group["params"]:
                self._init_state(group, param)

    def share_memory(self) -> None:
        """Puts the sums into shared memory."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _init_state(self, group: dict[str, Any], param: Tensor) -> None:
        state = self.state[param]
        if "step" not in state:
            state["step"] = torch.tensor(0.0, dtype=torch.float32)
            state["sum"] = _zeros_behind(param).fill_(group["initial_accumulator_value"])

    def _update(self, group: dict[str, Any], params: list[Tensor], masters: list[Tensor], scale: float) -> None:
        ops().adagrad_(
            params,
            [param.grad for param in params],
            self._gather(params, "sum"),
            self._gather(params, "step"),
            masters,
            lr=float(group["lr"]),
            lr_decay=group["lr_decay"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
            gradient_scale=scale,
        )


class Lamb(_Optimizer):
    """LAMB (You et al., 2020, algorithm 2): Adam's direction, with a step as long as the norm of each parameter says. State as Adam's.

    The step of a parameter is lr * |w| / |r| long in the direction r = m / (sqrt(v) + eps) + weight_decay * w, with m and v corrected for bias;
    the ratio is 1 where a norm is 0.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        max_grad_norm: float | None = None,
        master_weights: MasterWeights | None = None,
    ) -> None:
        _check_range("lr", lr)
        _check_range("eps", eps)
        _check_range("betas[0]", betas[0], 1)
        _check_range("betas[1]", betas[1], 1)
        _check_range("weight_decay", weight_decay)
        defaults = {"lr": lr, "betas": (float(betas[0]), float(betas[1])), "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults, max_grad_norm, master_weights)

    def _init_state(self, group: dict[str, Any], param: Tensor) -> None:
        state = self.state[param]
        if "step" not in state:
            state["step"] = torch.tensor(0.0, dtype=torch.float32)
            state["exp_avg"] = _zeros_behind(param)
            state["exp_avg_sq"] = _zeros_behind(param)

    def _update(self, group: dict[str, Any], params: list[Tensor], masters: list[Tensor], scale: float) -> None:
        ops().lamb_(
            params,
            [param.grad for param in params],
            self._gather(params, "exp_avg"),
            self._gather(params, "exp_avg_sq"),
            self._gather(params, "step"),
            masters,
            lr=float(group["lr"]),
            beta1=float(group["betas"][0]),
            beta2=float(group["betas"][1]),
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
            gradient_scale=scale,
        )
