"""The models, the batches and the arithmetic that a training step is measured with."""

import dataclasses

FULL_LENGTH = 384
CHECKED_LENGTHS = [FULL_LENGTH, 161, 48, 1]  # of the batch whose logits are compared before anything is timed

# Tokens of SQuAD 1.1's features at max_seq_length 384, doc_stride 128: 96 quantiles of a training part's 12,022 features (mean 160.9).
SQUAD_LENGTHS = [
    48, 53, 57, 62, 66, 70, 72, 75, 78, 81, 83, 86, 88, 91, 93, 95, 97, 99, 101, 103, 104, 106, 108, 110, 111, 113, 114, 116, 118, 119, 121, 123,
    125, 126, 128, 129, 131, 133, 134, 135, 137, 139, 140, 142, 144, 145, 147, 149, 151, 153, 154, 156, 157, 159, 161, 163, 165, 167, 169, 171, 173,
    175, 177, 179, 180, 183, 185, 187, 189, 191, 194, 196, 199, 201, 204, 207, 210, 213, 217, 222, 227, 232, 237, 242, 246, 252, 258, 263, 269, 277,
    289, 301, 315, 334, 368, 384,
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    hidden: int
    heads: int
    batch: int

    def flops(self, lengths: list[int]) -> float:
        """Of one training step: forward once, backward twice that; nothing for what is computed again. Embeddings and the head are left out."""
        tokens, pairs = sum(lengths), sum(length * length for length in lengths)
        products = 2 * 12 * self.hidden**2 * tokens + 4 * self.hidden * pairs
        return 3.0 * self.layers * products


MODELS = {
    "minilm": Model(layers=6, hidden=384, heads=12, batch=12),
    "base": Model(layers=12, hidden=768, heads=12, batch=12),
    "large": Model(layers=24, hidden=1024, heads=16, batch=4),
}


def batches(lengths: str, batch: int, grouped: bool) -> list[list[int]]:
    """The lengths of each batch's sequences.

    Mixed, a batch is every n-th quantile, so that each has the whole distribution. Grouped, neighbours in length go together, as under
    --group_by_length.
    """
    if lengths == "full":
        return [[FULL_LENGTH] * batch]
    count = len(SQUAD_LENGTHS) // batch
    if grouped:
        return [SQUAD_LENGTHS[i * batch : (i + 1) * batch] for i in range(count)]
    return [SQUAD_LENGTHS[i::count] for i in range(count)]
