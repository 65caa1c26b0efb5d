"""Trains a small Llama from nothing on a plain text file, on Hugging Face's Trainer. Tokens are bytes, so that no tokenizer is needed.

    python examples/causal_lm.py --train_file text.txt --hidden_size 256 --layers 4 --heads 4 --block_size 256 --output_dir out \\
        --learning_rate 1e-3 --use_ipex --no_cuda
    mpirun -n 2 python examples/causal_lm.py ... --no_cuda --ddp_backend ccl --use_ipex
    torchrun --nproc-per-node 2 examples/causal_lm.py ... --no_cuda --ddp_backend ccl --use_ipex

Llama is none of the encoders that Trireme packs: it gets Trireme's attention (transformers 4.48 and later) and the fused AdamW. The end of the
file is not trained on; the last line of the output is JSON, with loss (nats a byte) and perplexity there, and what it ran on.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import sys

import numpy as np
import torch
from ran_on import ran_on
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, default_data_collator, set_seed


@dataclasses.dataclass
class TextArguments:
    train_file: str = dataclasses.field(metadata={"help": "Any text."})
    validation_share: float = dataclasses.field(default=0.1, metadata={"help": "How much of the text, at its end, is kept to evaluate with."})
    block_size: int = dataclasses.field(default=256, metadata={"help": "Bytes of a sample."})


@dataclasses.dataclass
class ModelArguments:
    hidden_size: int = 256
    intermediate_size: int | None = dataclasses.field(default=None, metadata={"help": "Default: 4 times hidden_size."})
    layers: int = 4
    heads: int = 4
    key_value_heads: int | None = dataclasses.field(default=None, metadata={"help": "Fewer than heads share keys and values. Default: as many."})


class Blocks(torch.utils.data.Dataset):
    """Bytes cut into samples of one length; a rest that does not fill one is left out. The model itself shifts the labels by one."""

    def __init__(self, text: bytes, block_size: int) -> None:
        count = len(text) // block_size
        self.blocks = np.frombuffer(text, dtype=np.uint8)[: count * block_size].reshape(count, block_size)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        tokens = torch.tensor(self.blocks[row], dtype=torch.long)
        return {"input_ids": tokens, "labels": tokens}


def make_model(arguments: ModelArguments, block_size: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=arguments.hidden_size,
        intermediate_size=arguments.intermediate_size or 4 * arguments.hidden_size,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.heads,
        num_key_value_heads=arguments.key_value_heads or arguments.heads,
        max_position_embeddings=block_size,
        bos_token_id=None,  # every byte is text
        eos_token_id=None,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def main() -> None:
    arguments, shape, training = HfArgumentParser((TextArguments, ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(training.seed)
    text = pathlib.Path(arguments.train_file).read_bytes()
    end = round(len(text) * (1 - arguments.validation_share))
    train, validation = Blocks(text[:end], arguments.block_size), Blocks(text[end:], arguments.block_size)
    if not len(train) or not len(validation):
        sys.exit(f"{arguments.train_file} has {len(text)} bytes: too few for blocks of {arguments.block_size} to train and to evaluate with")
    model = make_model(shape, arguments.block_size)
    trainer = Trainer(model=model, args=training, train_dataset=train, eval_dataset=validation, data_collator=default_data_collator)
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    description = ran_on(trainer)
    trainer.save_model()
    loss = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        parameters = sum(parameter.numel() for parameter in model.parameters())
        print(json.dumps({"loss": loss, "perplexity": math.exp(loss), "parameters": parameters, **description}))


if __name__ == "__main__":
    main()
