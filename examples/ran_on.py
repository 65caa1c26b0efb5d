"""What a Trainer ran on, for the line of JSON that the examples end with."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Trainer


def ran_on(trainer: Trainer) -> dict[str, Any]:
    """To be asked after train() and before evaluate(), which wraps the model anew."""
    is_together = torch.distributed.is_initialized()
    model = trainer.accelerator.unwrap_model(trainer.model)
    packed_calls = sum(vars(module).get("_trireme_packed", 0) for module in model.modules())
    return {
        "backend": torch.distributed.get_backend() if is_together else None,
        "world_size": torch.distributed.get_world_size() if is_together else 1,
        "wrapper": type(trainer.model_wrapped).__name__,
        "packed": packed_calls > 0,
        "packed_calls": packed_calls,  # of encoders, that computed no padding
        "attention": model.config._attn_implementation,  # "trireme" or "trireme_padded" in other models
        "optimizer": type(getattr(trainer.optimizer, "optimizer", trainer.optimizer)).__module__,
    }
