#include "trireme/trainer/tokenizer/metaspace.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::trainer {

Metaspace::Metaspace(const JsonPlace& place)
    : replacement_(place["replacement"].string()), split_(place.boolean_or("split", true)) {
  if (count_characters(replacement_) != 1) place["replacement"].refuse("one character is wanted");
  const std::string scheme = place.string_or("prepend_scheme", "always");
  if (scheme == "first")
    prepend_ = Prepend::first;
  else if (scheme == "never")
    prepend_ = Prepend::never;
  else if (scheme != "always")
    place["prepend_scheme"].refuse(str("\"", scheme, "\" is none of first, never and always"));
  // The older field may only agree; "str_rep" says nothing new.
  if (!place.boolean_or("add_prefix_space", true) && prepend_ != Prepend::never) {
    place["add_prefix_space"].refuse("false needs the prepend_scheme \"never\"");
  }
}

void Metaspace::apply(Pieces& pieces) const {
  change_pieces(pieces, [&](AlignedText& text, uint32_t origin) {
    AlignedText out;
    out.text.reserve(text.text.size() * 2);
    out.spans.reserve(text.text.size() * 2);
    for (size_t begin = 0; begin < text.text.size();) {
      const size_t space = std::min(text.text.find(' ', begin), text.text.size());
      append_range(out, text, begin, space);
      if (space < text.text.size()) append_replacement(out, replacement_, text.spans[space]);
      begin = space + 1;
    }
    const bool wanted = prepend_ == Prepend::always || (prepend_ == Prepend::first && origin == 0);
    if (wanted && !out.text.starts_with(replacement_)) prepend(out, replacement_);
    text = std::move(out);
  });
  if (!split_) return;
  cut_pieces(pieces, [&](std::string_view text, const auto& emit) {
    for (size_t begin = 0, end; begin < text.size(); begin = end) {
      end = std::min(text.find(replacement_, begin + 1), text.size());
      emit(begin, end);
    }
  });
}

}  // namespace trireme::trainer
