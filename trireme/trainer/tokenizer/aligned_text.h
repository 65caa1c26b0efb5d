// A text that is being rewritten, and for each of its bytes the bytes of the original that it stands for.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/trainer/tokenizer/tokenizer.h"

namespace trireme::trainer {

struct AlignedText {
  std::string text;
  std::vector<Encoding::Span> spans;  // one per byte of text
};

// One character of a rewritten text. `change` counts as Hugging Face's NormalizedString::transform does: 0, it stands for
// the next character of the old text; > 0, it is new and shares the span of what stands before it in the old text; < 0, it
// stands for the next character and swallows -change more.
struct Change {
  char32_t character;
  int32_t change;
};

// `text`, each character aligned with itself; the first at `origin`.
AlignedText align(std::string_view text, uint32_t origin);

// Replaces the whole of `text` after its first `skip` characters were dropped.
void rewrite(AlignedText& text, std::span<const Change> changes, size_t skip = 0);

// Drops the characters that `keep` refuses.
template <class Keep>
void filter(AlignedText& text, const Keep& keep);

// Puts map(character) in the place of each.
template <class Map>
void map(AlignedText& text, const Map& map);

// Puts `prefix` before a text that is not empty; it shares the first character's span.
void prepend(AlignedText& text, std::string_view prefix);

// Replaces the bytes [begin, end) of `text` while `out` is built from left to right: all of `content` gets the span of the
// last replaced byte, as Hugging Face has it.
void append_replacement(AlignedText& out, std::string_view content, Encoding::Span span);

void append_range(AlignedText& out, const AlignedText& from, size_t begin, size_t end);

}  // namespace trireme::trainer

#include "trireme/trainer/tokenizer/aligned_text-inl.h"
