"""The trainer's tokenizers give the ids and the offsets of Hugging Face's tokenizers package, from the same files."""

import functools
import json
import shutil

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from ..huggingface.questions import minilm
from . import families, texts
from .tokens import PROGRAM, compare, load, run_program


@pytest.fixture(autouse=True)
def built():
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is not built")


def squad() -> list[str]:
    if not texts.squad_files():
        pytest.skip(f"SQuAD is not in {texts.SQUAD}")
    return texts.squad_texts()


@functools.cache
def bert() -> Tokenizer:
    return load(minilm() / "tokenizer.json")


roberta = functools.cache(families.roberta)
xlm_roberta = functools.cache(families.xlm_roberta)
FAMILIES = [bert, roberta, xlm_roberta]


def check(tokenizer: Tokenizer, directory, lines: list[str]) -> None:
    compare(*families.save(tokenizer, directory), lines)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_squad(family, tmp_path):
    check(family(), tmp_path, squad())


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_hard_texts(family, tmp_path):
    check(family(), tmp_path, texts.HARD)


def test_every_code_point(tmp_path):
    check(bert(), tmp_path, texts.code_points())


# A token for each byte makes the others slower: beyond plane 1 they take samples, unless there is time.
@pytest.mark.parametrize("family", [roberta, xlm_roberta], ids=lambda family: family.__name__)
def test_most_code_points(family, tmp_path):
    check(family(), tmp_path, texts.code_points(step_beyond=97))


@pytest.mark.long
@pytest.mark.parametrize("family", [roberta, xlm_roberta], ids=lambda family: family.__name__)
def test_every_code_point_in_other_families(family, tmp_path):
    check(family(), tmp_path, texts.code_points())


BERT_NORMALIZERS = {
    "cased": {"lowercase": False},
    "cased without accents": {"lowercase": False, "strip_accents": True},
    "uncased with accents": {"lowercase": True, "strip_accents": False},
    "chinese in words": {"handle_chinese_chars": False},
    "not cleaned": {"clean_text": False},
    "nothing": {"clean_text": False, "handle_chinese_chars": False, "lowercase": False},
}


@pytest.mark.parametrize("options", BERT_NORMALIZERS.values(), ids=BERT_NORMALIZERS)
def test_bert_normalizers(options, tmp_path):
    tokenizer = families.changed(bert(), normalizer=normalizers.BertNormalizer(**options))
    families.add_tokens(tokenizer)
    check(tokenizer, tmp_path, texts.HARD + texts.code_points(step_beyond=997)[::4])


NORMALIZERS = {
    "NFD": normalizers.NFD(),
    "NFC": normalizers.NFC(),
    "NFKD": normalizers.NFKD(),
    "NFKC": normalizers.NFKC(),
    "Lowercase": normalizers.Lowercase(),
    "StripAccents": normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
    "Strip": normalizers.Strip(),
    "Strip on the left": normalizers.Strip(right=False),
    "Prepend": normalizers.Sequence([normalizers.Prepend("\u2581\u2581"), normalizers.Replace(" ", "\u2581")]),
    "Replace": normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("d", "\u00fcx"), normalizers.Replace("e", "")]),
}


@pytest.mark.parametrize("normalizer", NORMALIZERS.values(), ids=NORMALIZERS)
@pytest.mark.parametrize("family", [roberta, xlm_roberta], ids=lambda family: family.__name__)
def test_normalizers(family, normalizer, tmp_path):
    check(families.changed(family(), normalizer=normalizer), tmp_path, texts.HARD + texts.code_points(step_beyond=997)[::16])


PRE_TOKENIZERS = {
    "ByteLevel": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "ByteLevel without a pattern": pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
    "Metaspace": pre_tokenizers.Metaspace(),
    "Metaspace at first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "Metaspace never": pre_tokenizers.Metaspace(replacement="_", prepend_scheme="never"),
    "Metaspace in one": pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
    "Whitespace": pre_tokenizers.Whitespace(),
    "Whitespace and bytes": pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer(),
    "none": None,
}


@pytest.mark.parametrize("pre_tokenizer", PRE_TOKENIZERS.values(), ids=PRE_TOKENIZERS)
@pytest.mark.parametrize("family", [roberta, xlm_roberta], ids=lambda family: family.__name__)
def test_pre_tokenizers(family, pre_tokenizer, tmp_path):
    lines = texts.HARD + texts.code_points(step_beyond=997)[::16]
    check(families.changed(family(), pre_tokenizer=pre_tokenizer), tmp_path, lines)


# Each asks for other properties of characters than the families do.
@pytest.mark.long
@pytest.mark.parametrize("normalizer", NORMALIZERS.values(), ids=NORMALIZERS)
def test_normalizers_on_every_code_point(normalizer, tmp_path):
    check(families.changed(roberta(), normalizer=normalizer), tmp_path, texts.code_points(step_beyond=97))


@pytest.mark.long
def test_words_of_every_code_point(tmp_path):
    check(families.changed(bert(), pre_tokenizer=pre_tokenizers.Whitespace()), tmp_path, texts.code_points())


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("prefix", [True, False])
def test_trimmed_offsets(prefix, trim, tmp_path):
    check(families.roberta(add_prefix_space=prefix, trim_offsets=trim), tmp_path / "roberta", texts.HARD)
    parts = [processors.ByteLevel(trim_offsets=trim, add_prefix_space=prefix), roberta().post_processor]
    check(families.changed(roberta(), post_processor=processors.Sequence(parts)), tmp_path / "twice", texts.HARD)


def test_bytes_instead_of_the_unknown(tmp_path):
    check(families.xlm_roberta(byte_fallback=True), tmp_path, texts.HARD + texts.code_points(step_beyond=997)[::16])


def bpe_models() -> dict[str, models.BPE]:
    """Of characters, not of bytes: with and without something for what is unknown."""
    tokens = ["<unk>", *"abcdeo", "ab", "abc", "de", "##a", "##b", "##ab", "e</w>", "b</w>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    merges = [("a", "b"), ("ab", "c"), ("d", "e")]
    return {
        "nothing for the unknown": models.BPE(vocabulary, merges),
        "one for each": models.BPE(vocabulary, merges, unk_token="<unk>"),
        "one for all": models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True),
        "bytes": models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True),
        "whole words": models.BPE(vocabulary | {"cab": 900}, merges, unk_token="<unk>", ignore_merges=True),
        "prefix": models.BPE(vocabulary, [("##a", "##b")], unk_token="<unk>", continuing_subword_prefix="##"),
        "suffix": models.BPE(vocabulary, merges, unk_token="<unk>", end_of_word_suffix="</w>"),
    }


@pytest.mark.parametrize("name", bpe_models())
def test_bpe_of_characters(name, tmp_path):
    tokenizer = Tokenizer(bpe_models()[name])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[CLS]"])
    lines = ["abcab cab dedeab ab", "xab abx axxb", "\u00e9a\u4e2db\u00e9\u00e9", "abc\u00e9", "aaabbb eoeo ooo", "xyz"]
    check(tokenizer, tmp_path, lines + texts.HARD)


def test_merges_as_strings(tmp_path):
    document = json.loads(roberta().to_str())
    assert isinstance(document["model"]["merges"][0], list)
    document["model"]["merges"] = ["#version: 0.2"] + [" ".join(merge) for merge in document["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    compare(tmp_path, roberta(), texts.HARD)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_what_stands_around_a_pair(family, tmp_path):
    directory, tokenizer = families.save(family(), tmp_path)
    about = json.loads(run_program(directory).stdout)
    first, second = (tokenizer.encode(text, add_special_tokens=False) for text in ("the question", "a context"))
    parts = [about["before"], first.ids, about["between"], second.ids, about["after"]]
    pair = tokenizer.encode("the question", "a context")
    assert sum(parts, []) == pair.ids
    assert [kind for part, kind in zip(parts, about["types"]) for _ in part] == pair.type_ids
    assert about["cls_id"] == pair.ids[0]
    assert about["pad_id"] == tokenizer.token_to_id("[PAD]" if family is bert else "<pad>")
    assert about["vocabulary_size"] == max(tokenizer.get_vocab().values()) + 1


def test_special_tokens_are_those_of_the_configuration(tmp_path):
    directory, tokenizer = families.save(bert(), tmp_path)
    (directory / "tokenizer_config.json").write_text(json.dumps({"pad_token": {"content": "[MASK]"}, "cls_token": "[SEP]"}))
    about = json.loads(run_program(directory).stdout)
    assert about["pad_id"] == tokenizer.token_to_id("[MASK]")
    assert about["cls_id"] == tokenizer.token_to_id("[SEP]")


def test_added_tokens_next_to_each_other(tmp_path):
    tokenizer = families.changed(bert())
    tokenizer.add_tokens([AddedToken("ab", rstrip=True), AddedToken("abc", lstrip=True), AddedToken(" x", normalized=False)])
    check(tokenizer, tmp_path, ["ab abc ab  abc xab x x", "abcab  ababc", " x x  abc", "ABC  AB x"])


BERT_SETTINGS = {
    "uncased": {"do_lower_case": True},
    "cased": {"do_lower_case": False},
    "accents": {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
    "none": {},
}


@pytest.mark.parametrize("settings", BERT_SETTINGS.values(), ids=BERT_SETTINGS)
def test_vocab_txt(settings, tmp_path):
    from transformers import BertTokenizerFast

    shutil.copy(minilm() / "vocab.txt", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    compare(tmp_path, BertTokenizerFast.from_pretrained(tmp_path).backend_tokenizer, texts.HARD)


@pytest.mark.parametrize("settings", list(BERT_SETTINGS.values())[:3], ids=list(BERT_SETTINGS)[:3])
def test_settings_beside_a_tokenizer_json(settings, tmp_path):
    from transformers import BertTokenizerFast

    families.save(bert(), tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    compare(tmp_path, BertTokenizerFast.from_pretrained(tmp_path).backend_tokenizer, texts.HARD)


@pytest.mark.parametrize("settings", [{}, {"add_prefix_space": True}], ids=["plain", "prefix"])
def test_vocab_json(settings, tmp_path):
    from transformers import RobertaTokenizerFast

    tokenizer = families.changed(roberta())
    tokenizer.model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    compare(tmp_path, RobertaTokenizerFast.from_pretrained(tmp_path).backend_tokenizer, texts.HARD)
    assert json.loads(run_program(tmp_path).stdout)["between"] == 2 * [tokenizer.token_to_id("</s>")]
