#include "trireme/trainer/tokenizer/aligned_text.h"

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

// A tokenizer.json can ask for any number of replacements that each make the text longer.
constexpr size_t kMaxBytes = size_t{64} << 20;

void check_growth(const AlignedText& text, size_t more) {
  if (text.text.size() + more > kMaxBytes) throw InvalidArgument("the normalizer makes more than 64 MB out of a text");
}

}  // namespace

AlignedText align(std::string_view text, uint32_t origin) {
  AlignedText aligned{std::string(text), {}};
  aligned.spans.resize(text.size());
  for (uint32_t i = 0; i < text.size();) {
    const uint32_t bytes = character_bytes(text[i]);
    for (uint32_t j = 0; j < bytes; ++j) aligned.spans[i + j] = {origin + i, origin + i + bytes};
    i += bytes;
  }
  return aligned;
}

void rewrite(AlignedText& text, std::span<const Change> changes, size_t skip) {
  if (text.text.empty()) return;
  AlignedText out;
  out.text.reserve(text.text.size() + text.text.size() / 4);
  out.spans.reserve(out.text.capacity());
  size_t at = 0;
  const auto next = [&] {
    if (at < text.text.size()) at += character_bytes(text.text[at]);
  };
  for (; skip > 0; --skip) next();
  for (const Change& change : changes) {
    // New characters take what stands before them. Nothing stands before the first; no normalizer begins with a new one.
    const size_t from = change.change > 0 && at > 0 ? at - 1 : std::min(at, text.text.size() - 1);
    const Encoding::Span span = text.spans[from];
    for (int32_t consumed = change.change; consumed <= 0; ++consumed) next();
    out.spans.insert(out.spans.end(), append_character(out.text, change.character), span);
  }
  text = std::move(out);
}

void prepend(AlignedText& text, std::string_view prefix) {
  if (text.text.empty()) return;
  check_growth(text, prefix.size());
  text.text.insert(0, prefix);
  text.spans.insert(text.spans.begin(), prefix.size(), text.spans.front());
}

void append_replacement(AlignedText& out, std::string_view content, Encoding::Span span) {
  check_growth(out, content.size());
  out.text.append(content);
  out.spans.insert(out.spans.end(), content.size(), span);
}

void append_range(AlignedText& out, const AlignedText& from, size_t begin, size_t end) {
  out.text.append(from.text, begin, end - begin);
  out.spans.insert(out.spans.end(), from.spans.begin() + static_cast<ptrdiff_t>(begin),
                   from.spans.begin() + static_cast<ptrdiff_t>(end));
}

}  // namespace trireme::trainer
