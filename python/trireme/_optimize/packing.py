"""Padded batches and packed tokens: [batch, length, ...] with a mask, and [tokens, ...] end to end."""

from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Packing:
    """Which places of a padded batch hold tokens. Made once per forward pass and handed to every layer."""

    batch: int
    length: int
    indices: torch.Tensor | None  # of the tokens in the flattened batch; None: there is no padding
    cu_seqlens: torch.Tensor  # where each sequence begins; sequences without a token are left out

    def pack(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, ...] -> [tokens, ...]"""
        flat = x.reshape(self.batch * self.length, *x.shape[2:])
        return flat if self.indices is None else flat.index_select(0, self.indices)

    def unpack(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, ...] -> [batch, length, ...], zeros where there is padding"""
        if self.indices is not None:
            x = x.new_zeros(self.batch * self.length, *x.shape[1:]).index_copy(0, self.indices, x)
        return x.view(self.batch, self.length, *x.shape[1:])


def packing_of(shape: tuple[int, int], mask: torch.Tensor | None) -> Packing | None:
    """The packing of a batch. None where the mask is not one place per token, or there is no token at all."""
    batch, length = shape
    if mask is None:
        return Packing(batch, length, None, torch.arange(0, (batch + 1) * length, length)) if batch * length else None
    if mask.shape != (batch, length):
        return None
    present = mask.bool()
    lengths = present.sum(1)
    lengths = lengths[lengths > 0]
    if lengths.numel() == 0:
        return None
    cu_seqlens = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    tokens = int(cu_seqlens[-1])
    indices = None if tokens == batch * length else present.flatten().nonzero().flatten()
    return Packing(batch, length, indices, cu_seqlens)
