#include "trireme/trainer/tokenizer/tokenizer_json.h"

#include <limits>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

using Event = Json::parse_event_t;

// Takes the entries of one object out of a document while it is parsed. Depths count the objects and arrays around a key.
class Entries {
 public:
  Entries(std::string where, int depth, TokenList& tokens) : where_(std::move(where)), depth_(depth), tokens_(tokens) {}

  // False: the document is to forget it.
  bool keep(int depth, Event event, Json& value) {
    if (depth != depth_) return true;
    if (event == Event::key) token_ = value.get<std::string>();
    if (event == Event::object_start || event == Event::array_start) refuse("an object or an array");
    if (event == Event::value) {
      if (!value.is_number_integer()) refuse(value.type_name());
      if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max())
        refuse("one above 2^63");
      tokens_.emplace_back(std::move(token_), value.get<int64_t>());
    }
    return event != Event::key && event != Event::value;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidArgument(str(where_, ": token \"", token_, "\": a whole number is wanted, not ", what));
  }

  std::string where_;
  int depth_;
  TokenList& tokens_;
  std::string token_;
};

// Lets the Entries of model.vocab have what is theirs.
class ModelVocabulary {
 public:
  ModelVocabulary(const std::string& source, TokenList& tokens) : entries_(source + ".model.vocab", 3, tokens) {}

  bool keep(int depth, Event event, Json& value) {
    if (event == Event::key && depth <= 2) {
      const std::string& key = value.get_ref<const std::string&>();
      if (depth == 1) in_model_ = key == "model";
      is_next_ = depth == 2 && in_model_ && key == "vocab";
      inside_ = false;
      return true;
    }
    if (event == Event::object_start && depth == 2) inside_ = is_next_;  // Unigram's is an array, and stays
    return !inside_ || entries_.keep(depth, event, value);
  }

 private:
  Entries entries_;
  bool in_model_ = false, is_next_ = false, inside_ = false;
};

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& source) {
  TokenizerJson read{source, {}, {}};
  ModelVocabulary vocabulary(source, read.tokens);
  read.document =
      parse_json(text, source, [&](int depth, Event event, Json& value) { return vocabulary.keep(depth, event, value); });
  return read;
}

TokenList parse_vocabulary_json(std::string_view text, const std::string& source) {
  TokenList tokens;
  Entries entries(source, 1, tokens);
  const Json rest =
      parse_json(text, source, [&](int depth, Event event, Json& value) { return entries.keep(depth, event, value); });
  JsonPlace(rest, source).object();
  return tokens;
}

}  // namespace trireme::trainer
