"""The trainer's tokenizers give the ids and the offsets of Hugging Face's tokenizers package, from the same files."""

import functools
import json
import random
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
    tokenizer.add_special_tokens(["[CLS]"])  # and nothing to pad with, which nobody needs
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
    assert about["vocabulary_size"] == max(tokenizer.get_vocab().values()) + 1


def test_scores_are_those_that_are_read(tmp_path):
    """Ways of the same tokens in another order, between which the last bits of their scores decide."""
    generator = random.Random(1)
    document = json.loads(xlm_roberta().to_str())
    document["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    letters = [chr(0x4E00 + number) for number in range(2000)]
    for letter in letters:
        scale = generator.choice([1, 1, 1, 1e-7, 1e5, 1e17, 1e-300, 1e-310])
        document["model"]["vocab"] += [[letter, -generator.uniform(9, 10) * scale], [2 * letter, -generator.uniform(2, 4) * scale]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    compare(tmp_path, load(tmp_path / "tokenizer.json"), [letter * generator.choice([7, 9, 11, 13]) for letter in letters])


def test_special_tokens_are_those_of_the_configuration(tmp_path):
    directory, tokenizer = families.save(bert(), tmp_path)
    for named, token in (({"content": "[MASK]"}, "[MASK]"), ("[SEP]", "[SEP]")):
        (directory / "tokenizer_config.json").write_text(json.dumps({"cls_token": named}))
        assert json.loads(run_program(directory).stdout)["cls_id"] == tokenizer.token_to_id(token)


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


def compare_as_transformers_reads_it(directory, model_type, settings, lines=texts.HARD):
    """With a config.json of the model type beside the tokenizer; `settings` of None are no tokenizer_config.json."""
    from transformers import AutoTokenizer

    (directory / "config.json").write_text(json.dumps({"model_type": model_type}))
    if settings is not None:
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = AutoTokenizer.from_pretrained(directory)
    compare(directory, theirs.backend_tokenizer, lines)
    return theirs


BESIDE_BERT = BERT_SETTINGS | {
    "nothing": None,
    "accents alone": {"strip_accents": False},
    "chinese alone": {"tokenize_chinese_chars": False},
    "as it is": {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False, "strip_accents": True},
    "of another model": {"tokenizer_class": "ElectraTokenizer", "strip_accents": True},
}


@pytest.mark.parametrize("settings", BESIDE_BERT.values(), ids=BESIDE_BERT)
@pytest.mark.parametrize("normalizer", ["uncased", "cased", "not cleaned"])
def test_settings_beside_a_tokenizer_json(settings, normalizer, tmp_path):
    options = {"uncased": {}, "cased": {"lowercase": False, "strip_accents": False}, "not cleaned": {"clean_text": False, "handle_chinese_chars": False}}
    families.save(families.changed(bert(), normalizer=normalizers.BertNormalizer(**options[normalizer])), tmp_path)
    compare_as_transformers_reads_it(tmp_path, "bert", settings)


@pytest.mark.parametrize("model_type", ["distilbert", "electra", "roberta", "xlm-roberta"])
def test_the_model_names_the_tokenizer(model_type, tmp_path):
    """A cased tokenizer.json without settings: BERT's descendants lower its case, the others do not."""
    families.save(families.changed(bert(), normalizer=normalizers.BertNormalizer(lowercase=False)), tmp_path)
    # The others' <s> and <mask>, which the vocabulary lacks, transformers would add to it.
    compare_as_transformers_reads_it(tmp_path, model_type, None, [text for text in texts.HARD if "<" not in text])


BESIDE_ROBERTA = {
    "nothing": None,
    "none": {},
    "prefix": {"add_prefix_space": True},
    "untrimmed": {"trim_offsets": False},
    "both": {"add_prefix_space": True, "trim_offsets": False},
    "as it is": {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": True, "trim_offsets": False},
}


@pytest.mark.parametrize("settings", BESIDE_ROBERTA.values(), ids=BESIDE_ROBERTA)
@pytest.mark.parametrize("family", [roberta, xlm_roberta], ids=lambda family: family.__name__)
def test_settings_of_roberta(settings, family, tmp_path):
    families.save(family(), tmp_path)
    compare_as_transformers_reads_it(tmp_path, family.__name__.replace("_", "-"), settings)


@pytest.mark.parametrize("settings", BESIDE_ROBERTA.values(), ids=BESIDE_ROBERTA)
def test_settings_against_those_of_a_tokenizer_json(settings, tmp_path):
    families.save(families.roberta(add_prefix_space=True, trim_offsets=False), tmp_path / "roberta")
    compare_as_transformers_reads_it(tmp_path / "roberta", "roberta", settings)
    parts = {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True), "post_processor": processors.ByteLevel(trim_offsets=False)}
    families.save(families.changed(roberta(), **parts), tmp_path / "bytes")
    compare_as_transformers_reads_it(tmp_path / "bytes", "roberta", settings)


def test_a_tokenizer_json_that_nothing_names_a_class_for(tmp_path):
    """transformers refuses such a directory."""
    families.save(families.changed(bert(), normalizer=normalizers.BertNormalizer(lowercase=False)), tmp_path)
    compare(tmp_path, load(tmp_path / "tokenizer.json"), texts.HARD)


# Tokens that are added beside a vocabulary or a tokenizer.json.

ADDED = ["ADDED", "<S>", "Caf\u00e9", "Word"]
OF_ADDED = [" ".join(ADDED), "xADDEDy", "added cafe\u0301 Sword <s><S>", *texts.HARD]


def test_tokens_that_python_added(tmp_path):
    """Its slow tokenizers keep them in tokenizer_config.json and in added_tokens.json."""
    from transformers import BertTokenizer

    slow = BertTokenizer(str(minilm() / "vocab.txt"))
    slow.add_tokens([ADDED[0], AddedToken(ADDED[3], single_word=True, normalized=False)])
    slow.add_special_tokens({"additional_special_tokens": [ADDED[1], ADDED[2]]})
    slow.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (tmp_path / "added_tokens.json").exists() and not (tmp_path / "tokenizer.json").exists()
    theirs = compare_as_transformers_reads_it(tmp_path, "bert", settings, OF_ADDED)
    about = json.loads(run_program(tmp_path).stdout)
    assert about["vocabulary_size"] == len(theirs) > 30522 and "added_tokens.json" in about["files"]


def write_added_tokens(directory, tokens, special):
    (directory / "added_tokens.json").write_text(json.dumps(tokens))
    (directory / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": special, "cls_token": "[CLS]"}))


@pytest.mark.parametrize("special", [[], ADDED[1:3], [{"content": ADDED[1], "lstrip": False, "rstrip": False, "normalized": False, "single_word": False}]])
def test_tokens_of_an_old_added_tokens_json(special, tmp_path):
    (tmp_path / "vocabulary").mkdir()
    shutil.copy(minilm() / "vocab.txt", tmp_path / "vocabulary")
    families.save(bert(), tmp_path / "json")
    for directory in tmp_path / "vocabulary", tmp_path / "json":
        write_added_tokens(directory, {token: 30525 - number for number, token in enumerate(ADDED)}, special)
        theirs = compare_as_transformers_reads_it(directory, "bert", None, OF_ADDED)
        assert json.loads(run_program(directory).stdout)["vocabulary_size"] == len(theirs) == 30522 + len(ADDED)


def test_added_tokens_that_a_tokenizer_json_has_too(tmp_path):
    """By the number: its own flags count, unless tokenizer_config.json has others."""
    tokenizer = families.changed(bert())
    tokenizer.add_tokens([AddedToken(ADDED[0], normalized=False, single_word=True), AddedToken(ADDED[1], special=True)])
    families.save(tokenizer, tmp_path)
    write_added_tokens(tmp_path, {ADDED[0]: 30522, ADDED[1]: 30523, ADDED[2]: 30524}, [])
    compare_as_transformers_reads_it(tmp_path, "bert", {"do_lower_case": True}, OF_ADDED)
    flags = {"content": ADDED[0], "lstrip": True, "rstrip": True, "normalized": True, "single_word": False, "special": False}
    compare_as_transformers_reads_it(tmp_path, "bert", {"added_tokens_decoder": {"30522": flags}}, OF_ADDED)


def test_special_tokens_beside_a_vocabulary_keep_their_flags(tmp_path):
    shutil.copy(minilm() / "vocab.txt", tmp_path)
    mask = {"content": "[MASK]", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    compare_as_transformers_reads_it(tmp_path, "bert", {"added_tokens_decoder": {"103": mask}}, ["a  [MASK] b", *texts.HARD])


def test_special_tokens_of_two_files(tmp_path):
    """special_tokens_map.json counts more, unless tokenizer_config.json has all tokens."""
    families.save(bert(), tmp_path)
    write_added_tokens(tmp_path, {}, [])
    for settings in {"cls_token": "[SEP]"}, {"cls_token": "[SEP]", "added_tokens_decoder": {}}:
        theirs = compare_as_transformers_reads_it(tmp_path, "bert", settings)
        assert json.loads(run_program(tmp_path).stdout)["cls_id"] == theirs.cls_token_id


@pytest.mark.parametrize(
    "file, content, said",
    [
        ("added_tokens.json", '{"x": "y"}', 'added_tokens.json: token "x": a whole number is wanted, not string'),
        ("added_tokens.json", "[]", "added_tokens.json: an object is wanted, not array"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {"content": "y"}}}', "tokenizer_config.json.added_tokens_decoder.x: a token's id is wanted"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"1": {}}}', 'tokenizer_config.json.added_tokens_decoder.1: "content" is missing'),
    ],
)
def test_added_tokens_that_are_none(file, content, said, tmp_path):
    families.save(bert(), tmp_path)
    (tmp_path / file).write_text(content)
    ended = run_program(tmp_path)
    assert ended.returncode == 1 and said in ended.stderr.decode()


@pytest.mark.parametrize("settings", [{}, {"add_prefix_space": True}], ids=["plain", "prefix"])
def test_vocab_json(settings, tmp_path):
    from transformers import RobertaTokenizerFast

    tokenizer = families.changed(roberta())
    tokenizer.model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    compare(tmp_path, RobertaTokenizerFast.from_pretrained(tmp_path).backend_tokenizer, texts.HARD)
    assert json.loads(run_program(tmp_path).stdout)["between"] == 2 * [tokenizer.token_to_id("</s>")]


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({}, True),
        ({"tokenizer_class": "DistilBertTokenizer"}, False),
        ({"tokenizer_class": "DistilBertTokenizer", "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}, True),
        ({"model_input_names": ["input_ids", "attention_mask"]}, False),
    ],
)
def test_token_types_are_given_where_transformers_gives_them(settings, given, tmp_path):
    transformers = pytest.importorskip("transformers")
    directory, _ = families.save(bert(), tmp_path)
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **settings}))
    assert ("token_type_ids" in transformers.AutoTokenizer.from_pretrained(directory)("a", "b")) == given
    assert json.loads(run_program(directory).stdout)["types"] == ([0, 0, 0, 1, 1] if given else [0] * 5)


def test_context_before_question_is_refused(tmp_path):
    directory, _ = families.save(bert(), tmp_path)
    (directory / "tokenizer_config.json").write_text(json.dumps({"padding_side": "left"}))
    done = run_program(directory)
    assert done.returncode != 0 and b"tokenizer_config.json.padding_side: run_qa.py puts the context before the question" in done.stderr
