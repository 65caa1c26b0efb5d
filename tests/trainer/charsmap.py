"""A charsmap as SentencePiece compiles it into its models: rules of NFKC, in a double array of the library darts-clone."""

import base64
import struct
import unicodedata

HAS_LEAF, IS_LEAF = 1 << 8, 1 << 31


def rules() -> dict[str, str]:
    """What NFKC does to a code point and to the pairs that compose, white space to a space, and control characters to nothing."""
    table = {}
    for point in [*range(0xA0, 0xAC00), *range(0xF900, 0x20000), *range(0x2F800, 0x2FA20)]:
        character = chr(point)
        composed, decomposed = unicodedata.normalize("NFKC", character), unicodedata.normalize("NFD", character)
        if composed != character:
            table[character] = composed
        if decomposed not in (character, composed) and unicodedata.normalize("NFC", decomposed) == character:
            table[decomposed] = composed
    table |= {chr(point): "" for point in [*range(1, 9), 11, *range(14, 32), 0x7F, 0x8F, 0x9F]}
    table |= {character: " " for character in "\t\n\f\r\u1680\u200b\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd"}
    return table | {"\r\n": " "}


class DoubleArray:
    def __init__(self, values: dict[bytes, int]):
        tree: dict = {}
        for key, value in values.items():
            node = tree
            for label in key:
                node = node.setdefault(label, {})
            node["value"] = value
        self.units, self.free, self.end, self.bases = {0: 0}, 1, 0, set()
        self.place(0, tree)

    def place(self, at: int, node: dict) -> None:
        """Finds room for the children of the node at `at`: a base to which each label is added without carry."""
        labels = [label for label in node if label != "value"] + ([0] if "value" in node else [])
        while self.free in self.units:
            self.free += 1
        # Most fit into the first gaps. Where one does not, a new block is begun and the gaps before it are given up.
        for gap in range(self.free, self.free + 300):
            base = gap ^ labels[0]
            if base not in self.bases and not any(base ^ label in self.units for label in labels):
                break
        else:
            base = self.free = self.end // 256 * 256 + 256
        self.bases.add(base)
        self.units[at] |= (at ^ base) << 10
        for label in labels:
            self.units[base ^ label] = label
            self.end = max(self.end, base ^ label)
        if "value" in node:
            self.units[at] |= HAS_LEAF
            self.units[base] = node["value"] | IS_LEAF
        for label in labels:
            if label:
                self.place(base ^ label, node[label])

    def to_bytes(self) -> bytes:
        size = self.end // 256 * 256 + 256
        return struct.pack(f"<{size}I", *(self.units.get(i, 0) for i in range(size)))


def charsmap() -> str:
    """In base64, as a tokenizer.json has it."""
    replacements, values = b"", {}
    for key, replacement in rules().items():
        values[key.encode()] = len(replacements)
        replacements += replacement.encode() + b"\0"
    trie = DoubleArray(values).to_bytes()
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + replacements).decode()
