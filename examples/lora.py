"""Classifies texts as text_classification.py does, but trains only low-rank adapters (PEFT's LoRA) in an encoder that stays as it is.

    pip install peft
    python examples/lora.py --model_name_or_path MODEL --train_file train.tsv --validation_file dev.tsv --output_dir out \\
        --learning_rate 1e-3 --use_ipex --no_cuda
    mpirun -n 2 python examples/lora.py ... --no_cuda --ddp_backend ccl --use_ipex
    torchrun --nproc-per-node 2 examples/lora.py ... --no_cuda --ddp_backend ccl --use_ipex

The encoder still runs packed; of a layer, the half that has adapters runs module by module. Between processes only the gradients of adapters and
classifier travel, and only these are saved. The last line of the output is JSON: the share of parameters that are trained, the accuracy, and
what it ran on.
"""

from __future__ import annotations

import dataclasses
import json

import torch.distributed.tensor  # noqa: F401  PEFT looks into it without importing it; newer transformers do
from labelled_texts import LabelledTexts, TextArguments, labels_for, read_texts
from peft import LoraConfig, TaskType, get_peft_model
from ran_on import ran_on
from text_classification import accuracy
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclasses.dataclass
class LoraArguments:
    lora_rank: int = 8
    lora_alpha: int = dataclasses.field(default=16, metadata={"help": "Adapters are scaled by lora_alpha / lora_rank."})
    lora_dropout: float = 0.1
    lora_targets: list[str] | None = dataclasses.field(
        default=None, metadata={"help": "Names of the modules that get adapters. Default: PEFT's choice for the model, for BERT query and value."}
    )


def main() -> None:
    arguments, lora, training = HfArgumentParser((TextArguments, LoraArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(training.seed)
    train, validation = read_texts(arguments.train_file), read_texts(arguments.validation_file)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model_name_or_path)
    base = AutoModelForSequenceClassification.from_pretrained(arguments.model_name_or_path, **labels_for(train))
    label2id = base.config.label2id
    # SEQ_CLS: the classifier is new, so it is trained in full.
    config = LoraConfig(
        task_type=TaskType.SEQ_CLS, r=lora.lora_rank, lora_alpha=lora.lora_alpha, lora_dropout=lora.lora_dropout, target_modules=lora.lora_targets
    )
    model = get_peft_model(base, config)
    trained, parameters = model.get_nb_trainable_parameters()
    training.label_names = ["labels"]  # the Trainer finds them by the model's signature, which PEFT hides
    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=LabelledTexts(train, tokenizer, label2id, arguments.max_seq_length),
        eval_dataset=LabelledTexts(validation, tokenizer, label2id, arguments.max_seq_length),
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=accuracy,
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    description = ran_on(trainer)
    trainer.save_model()
    tokenizer.save_pretrained(training.output_dir)
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(json.dumps({"trainable_share": trained / parameters, "accuracy": metrics["eval_accuracy"], **description}))


if __name__ == "__main__":
    main()
