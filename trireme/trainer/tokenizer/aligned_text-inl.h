// The templates of aligned_text.h. A character keeps its span whatever happens to its neighbours, so both write in one pass.
#pragma once

#include "trireme/trainer/tokenizer/utf8.h"

namespace trireme::trainer {

template <class Keep>
void filter(AlignedText& text, const Keep& keep) {
  size_t kept = 0;
  for (size_t i = 0; i < text.text.size();) {
    const uint32_t bytes = character_bytes(text.text[i]);
    if (keep(character_at(text.text, i))) {
      if (kept != i) {
        for (uint32_t j = 0; j < bytes; ++j) {
          text.text[kept + j] = text.text[i + j];
          text.spans[kept + j] = text.spans[i + j];
        }
      }
      kept += bytes;
    }
    i += bytes;
  }
  text.text.resize(kept);
  text.spans.resize(kept);
}

template <class Map>
void map(AlignedText& text, const Map& map) {
  AlignedText out;
  out.text.reserve(text.text.size());
  out.spans.reserve(text.text.size());
  for (size_t i = 0; i < text.text.size(); i += character_bytes(text.text[i])) {
    out.spans.insert(out.spans.end(), append_character(out.text, map(character_at(text.text, i))), text.spans[i]);
  }
  text = std::move(out);
}

}  // namespace trireme::trainer
