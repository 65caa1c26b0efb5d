"""Tokenizers of the families that the trainer knows, trained on the texts of this repository."""

import base64
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from .charsmap import charsmap
from .texts import HARD
from .tokens import REPOSITORY, load


def corpus() -> list[str]:
    documents = [path.read_text() for path in sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])]
    return [line for document in documents for line in document.splitlines()] + HARD


def add_tokens(tokenizer: Tokenizer) -> None:
    """Tokens with every flag, which the last of HARD contains."""
    tokenizer.add_tokens(["ADDED", AddedToken("added", normalized=False), AddedToken("STRIP", lstrip=True, rstrip=True)])
    tokenizer.add_tokens([AddedToken("Word", single_word=True), "Café", AddedToken("<S>", normalized=False, rstrip=True)])


def roberta(add_prefix_space: bool = False, trim_offsets: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, trim_offsets=trim_offsets)
    special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    ends = {name: (token, tokenizer.token_to_id(token)) for name, token in (("sep", "</s>"), ("cls", "<s>"))}
    tokenizer.post_processor = processors.RobertaProcessing(**ends, trim_offsets=trim_offsets, add_prefix_space=add_prefix_space)
    add_tokens(tokenizer)
    return tokenizer


def xlm_roberta(byte_fallback: bool = False) -> Tokenizer:
    precompiled = normalizers.Precompiled(base64.b64decode(charsmap()))
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([precompiled, normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)]
    trainer = trainers.UnigramTrainer(vocab_size=2000, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    if byte_fallback:
        document = json.loads(tokenizer.to_str())
        document["model"]["byte_fallback"] = True
        document["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
        tokenizer = Tokenizer.from_str(json.dumps(document))
    add_tokens(tokenizer)
    return tokenizer


def changed(tokenizer: Tokenizer, **parts: object) -> Tokenizer:
    """A copy with another normalizer, pre_tokenizer or post_processor."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    for name, part in parts.items():
        setattr(copy, name, part)
    # Added tokens are normalized when they are added: with another normalizer they have to be read again.
    return Tokenizer.from_str(copy.to_str())


def save(tokenizer: Tokenizer, directory: pathlib.Path) -> tuple[pathlib.Path, Tokenizer]:
    """And reads it again: the scores of Unigram are not always those that were written."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory, load(directory / "tokenizer.json")
