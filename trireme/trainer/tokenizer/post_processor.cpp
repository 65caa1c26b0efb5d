#include "trireme/trainer/tokenizer/post_processor.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/characters.h"
#include "trireme/trainer/tokenizer/nesting.h"
#include "trireme/trainer/tokenizer/utf8.h"

namespace trireme::trainer {
namespace {

constexpr char32_t kByteLevelSpace = 0x120;  // "Ġ"

int32_t read_id(const JsonPlace& place) {
  const int64_t id = place.integer();
  if (id < 0 || id >= std::numeric_limits<int32_t>::max()) place.refuse(str(id, " is no token's id"));
  return static_cast<int32_t>(id);
}

// ["[SEP]", 102]
int32_t read_pair(const JsonPlace& place) {
  place.at(0).string();
  return read_id(place.at(1));
}

bool is_space(char32_t character) { return character == kByteLevelSpace || is_white_space(character); }

class Reader {
 public:
  PostProcessor processor;

  void read(const JsonPlace& place, const Nesting& nesting) {
    const std::string& type = place["type"].string();
    if (type == "Sequence") {
      const JsonPlace parts = place["processors"];
      for (size_t i = 0; i < parts.size(); ++i) read(parts.at(i), nesting.inside(parts));
    } else if (type == "BertProcessing") {
      set(place, {{read_pair(place["cls"])}, {read_pair(place["sep"])}, {read_pair(place["sep"])}, 0, 0, 0, 1, 1});
    } else if (type == "RobertaProcessing") {
      const int32_t cls = read_pair(place["cls"]), sep = read_pair(place["sep"]);
      if (place["trim_offsets"].boolean()) processor.trims.push_back(place["add_prefix_space"].boolean());
      set(place, {{cls}, {sep, sep}, {sep}, 0, 0, 0, 0, 0});
    } else if (type == "ByteLevel") {
      if (place["trim_offsets"].boolean()) processor.trims.push_back(place["add_prefix_space"].boolean());
    } else if (type == "TemplateProcessing") {
      set(place, read_template(place));
    } else {
      place.refuse(str("the post-processor \"", type, "\" is not supported: Sequence, BertProcessing, RobertaProcessing, ",
                       "ByteLevel and TemplateProcessing are"));
    }
  }

 private:
  void set(const JsonPlace& place, PairTemplate pair) {
    if (has_pair_) place.refuse("a second post-processor that adds tokens");
    has_pair_ = true;
    processor.pair = std::move(pair);
  }

  // "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, ...]
  static PairTemplate read_template(const JsonPlace& place) {
    PairTemplate pair;
    std::vector<int32_t>* const parts[] = {&pair.before, &pair.between, &pair.after};
    int32_t* const part_types[] = {&pair.before_type, &pair.between_type, &pair.after_type};
    int32_t* const text_types[] = {&pair.first_type, &pair.second_type};
    size_t texts = 0;
    const JsonPlace pieces = place["pair"];
    for (size_t i = 0; i < pieces.size(); ++i) {
      const JsonPlace piece = pieces.at(i);
      if (piece.has("Sequence")) {
        const std::string& id = piece["Sequence"]["id"].string();
        if (texts == 2 || id != (texts == 0 ? "A" : "B")) piece.refuse("the pair must have A once and then B once");
        *text_types[texts++] = read_id(piece["Sequence"]["type_id"]);
        continue;
      }
      const JsonPlace special = piece["SpecialToken"];
      const int32_t type = read_id(special["type_id"]);
      if (!parts[texts]->empty() && *part_types[texts] != type) special.refuse("neighbours with different type_ids");
      *part_types[texts] = type;
      const JsonPlace ids = place["special_tokens"][special["id"].string()]["ids"];
      for (size_t j = 0; j < ids.size(); ++j) parts[texts]->push_back(read_id(ids.at(j)));
    }
    if (texts != 2) pieces.refuse("the pair must have A once and then B once");
    return pair;
  }

  bool has_pair_ = false;
};

}  // namespace

PostProcessor make_post_processor(const JsonPlace& place) {
  Reader reader;
  reader.read(place, Nesting());
  return std::move(reader.processor);
}

void trim_span(std::string_view text, Encoding::Span& span, std::string_view written, size_t index, bool add_prefix_space) {
  size_t leading = 0, trailing = 0;
  for (size_t i = 0; i < written.size() && is_space(character_at(written, i)); i += character_bytes(written[i])) ++leading;
  for (size_t i = written.size(); i > 0; ++trailing) {
    i = character_before(written, i);
    if (!is_space(character_at(written, i))) break;
  }
  // A single space before the first token is the one that was added: it stands for nothing.
  if (leading == 1 && add_prefix_space && (index == 0 || span.begin == 0)) leading = 0;
  for (; leading > 0 && span.begin < span.end; --leading) span.begin += character_bytes(text[span.begin]);
  size_t end = span.end;
  for (; trailing > 0 && end > 0; --trailing) end = character_before(text, end);
  if (trailing == 0) span.end = std::max(static_cast<uint32_t>(end), span.begin);
}

}  // namespace trireme::trainer
