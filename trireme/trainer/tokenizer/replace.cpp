#include "trireme/trainer/tokenizer/replace.h"

#include <algorithm>
#include <tuple>

#include "trireme/base/error.h"

namespace trireme::trainer {

Replace::Replace(const JsonPlace& place) : content_(place["content"].string()) {
  const JsonPlace pattern = place["pattern"];
  if (pattern.has("String")) {
    wanted_ = pattern["String"].string();
    if (wanted_.empty()) pattern.refuse("the string is empty");
    return;
  }
  const std::string& expression = pattern["Regex"].string();
  if (expression != " {2,}") {
    pattern.refuse(str("the regular expression \"", expression, "\" is not supported: only \" {2,}\" is"));
  }
}

std::pair<size_t, size_t> Replace::next(std::string_view text, size_t from) const {
  const size_t begin = std::min(text.find(wanted_.empty() ? "  " : wanted_, from), text.size());
  if (begin == text.size()) return {begin, begin};
  if (!wanted_.empty()) return {begin, begin + wanted_.size()};
  return {begin, std::min(text.find_first_not_of(' ', begin), text.size())};
}

void Replace::apply(AlignedText& text) const {
  AlignedText out;
  size_t done = 0;
  for (auto [begin, end] = next(text.text, 0); begin < end; std::tie(begin, end) = next(text.text, end)) {
    append_range(out, text, done, begin);
    append_replacement(out, content_, text.spans[end - 1]);
    done = end;
  }
  if (done == 0) return;
  append_range(out, text, done, text.text.size());
  text = std::move(out);
}

}  // namespace trireme::trainer
