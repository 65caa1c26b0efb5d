"""Texts to tokenize: every code point, what is known to be hard, and SQuAD where it is there."""

import functools
import json
import pathlib

from .tokens import REPOSITORY

SQUAD = REPOSITORY.parent / "shared" / "squad"
PER_TEXT = 128


@functools.cache
def code_points(step_beyond: int = 1) -> list[str]:
    """Each code point but the surrogates, alone between spaces and between letters. What lies beyond plane 1 is Chinese, private or not
    assigned, but for U+E0000 to U+E0FFF: it is walked in steps of step_beyond."""
    points = [*range(0xD800), *range(0xE000, 0x20000), *range(0x20000, 0xE0000, step_beyond), *range(0xE0000, 0xE1000)]
    points += range(0xE1000, 0x110000, step_beyond)
    groups = [points[i : i + PER_TEXT] for i in range(0, len(points), PER_TEXT)]
    return ["".join(f"{chr(point)} a{chr(point)}b " for point in group) for group in groups]


HARD = [
    "",
    " ",
    "\n",
    "   two  spaces   ",
    "\t\r\n\v\f\x1c\x85\u2028\u2029 a\x00b\x07c\x7fd\ufffde\u00ade",
    "no\u00a0break\u202fspace\u2007s\u3000wide\u200bzero\ufeffbom\u2060joiner",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family, \U0001f3f3\ufe0f\u200d\U0001f308 flag, \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 \U0001f44d\U0001f3fd",
    "e\u0301 \u0065\u0323\u0307 q\u0307\u0323 \u1e9b\u0323 \u0344\u0345\u0308 a\u0300\u0315\u05ae\u0300b \u0f73\u0f71\u0f72",
    "\u0301 starts with a mark, \u0301\u0301\u0301, Z\u0351\u036b\u0343\u036a\u0302a\u0321\u031b\u031el\u0330\u032f\u0353go",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00 \u1100\u1161\u1161\u11a8 \uac00\u11a8\u11a8 \ua960\ud7b0",
    "\ufb01\ufb03 \ufb05 \ufdfa \ufdfb \u2460\u00bd\u2126\u212b\u00c5 \u3392 \uff21\uff22\uff23 \u0132 \u01c4 \u2f00",
    "\u4e2d\u6587\u5b57 and \u65e5\u672c\u8a9e\u304b\u306a\u30ab\u30ca \U00020000\U0002f800 \ufa0e\uf900x\u4e00y\u9fff\U0002b820\U0002b920",
    "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd \u0627\u0644\u0633\u0644\u0627\u0645\u064f \u202eRTL\u202c \u0640\u0640",
    "\u0130stanbul \u0131 \u1e9e \u00df \u03a3\u03a3 \u039f\u0394\u039f\u03a3 \u01c5 \u2c2f \U00010400 \u13a0\uab70",
    "don't can't I'll we've they're it's I'm he'd 's 'S 'T 'lls ''s 'r 've'd",
    "3.14 1,000,000 1st 2nd x2 4ever \u0663\u0664 \u2167 \u00b2 \u0967\u0968 a1b2c3 \u4e00\u4e8c",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \u00a1\u00bf\u2014\u2026\u201cq\u201d\u3001\u3002\uff01\u00a7\u00b6\u20ac\u00a3+\u00d7\u2212",
    "\u0915\u094d\u0937\u0924\u094d\u0930\u093f \u0e01\u0e33\u0e33 \u0b95\u0bcd\u0bb7\u0bc1 \u1012\u1039\u1013 \u0995\u09cd\u200d\u09af",
    "\U000e0100\ufe0f\ufe0e \U000e0041 \U0010fffd \ue000 \u0378 \U000e01f0 \U0003fffe \uffff \ufdd0",
    "x" * 99 + " " + "x" * 100 + " " + "x" * 101 + " " + "\u00e9" * 100 + " " + "e\u0301" * 60 + " " + "\u4e00" * 150,
    "a" * 5000 + "b" * 5000,
    "supercalifragilisticexpialidocious antidisestablishmentarianism \u00dcberraschung na\u00efve caf\u00e9 C\u0327a",
    "word" + " " * 300 + "word" + "\n" * 50 + "end ",
    "  leading", "trailing  ", " \u00a0 mixed \t \u3000 ", "\u3000", "\u2581under \u2581 line\u2581\u2581x", "a \u2581b",
    "[CLS] question [SEP]text[SEP] [MASK][MASK] [PAD] [UNK] [cls] [ MASK ] [MASK",
    "<s>question</s></s> text <mask>  <mask> <pad><unk> <S> < s > a<mask>b <mask>\n\u3000<mask> <mask",
    "plainADDED ADDED addedx  ADDED  \u00c0dded STRIP  STRIP STRIPx Word Words Sword word\u0301 _Word Word\u200d caf\u00e9 Caf\u00c9 cafe\u0301",
]  # fmt: skip


def squad_files() -> list[pathlib.Path]:
    return sorted(SQUAD.glob("*.json"))


@functools.cache
def squad_texts() -> list[str]:
    """Every context once and every question."""
    texts = []
    for path in squad_files():
        for article in json.loads(path.read_text())["data"]:
            for paragraph in article["paragraphs"]:
                texts.append(paragraph["context"])
                texts += [question["question"] for question in paragraph["qas"]]
    return texts
