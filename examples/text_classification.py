"""Classifies texts, on Hugging Face's Trainer: trains on one file of label<TAB>text lines, then evaluates on another.

    python examples/text_classification.py --model_name_or_path MODEL --train_file train.tsv --validation_file dev.tsv --output_dir out \\
        --use_ipex --no_cuda
    mpirun -n 2 python examples/text_classification.py ... --no_cuda --ddp_backend ccl --use_ipex
    torchrun --nproc-per-node 2 examples/text_classification.py ... --no_cuda --ddp_backend ccl --use_ipex

Nothing in it knows of Trireme: the flags do it. The last line of its output is JSON: the accuracy, and what it ran on.
"""

from __future__ import annotations

import json

from labelled_texts import LabelledTexts, TextArguments, labels_for, read_texts
from ran_on import ran_on
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main() -> None:
    arguments, training = HfArgumentParser((TextArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(training.seed)
    train, validation = read_texts(arguments.train_file), read_texts(arguments.validation_file)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model_name_or_path)
    model = AutoModelForSequenceClassification.from_pretrained(arguments.model_name_or_path, **labels_for(train))
    label2id = model.config.label2id
    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=LabelledTexts(train, tokenizer, label2id, arguments.max_seq_length),
        eval_dataset=LabelledTexts(validation, tokenizer, label2id, arguments.max_seq_length),
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=accuracy,
    )
    train_loss = trainer.train(resume_from_checkpoint=training.resume_from_checkpoint).training_loss
    description = ran_on(trainer)
    trainer.save_model()
    tokenizer.save_pretrained(training.output_dir)

    # Every process evaluates a share; the Trainer puts them together, so that all have the same figures.
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(json.dumps({"accuracy": metrics["eval_accuracy"], "eval_loss": metrics["eval_loss"], "train_loss": train_loss, **description}))


if __name__ == "__main__":
    main()
