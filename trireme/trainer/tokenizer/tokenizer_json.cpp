#include "trireme/trainer/tokenizer/tokenizer_json.h"

#include <limits>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

using Event = Json::parse_event_t;

// Takes the entries of model.vocab out of the document while it is parsed. The depth of a key counts the objects and arrays
// around it.
class VocabularyReader {
 public:
  VocabularyReader(const std::string& source, TokenList& tokens) : source_(source), tokens_(tokens) {}

  bool operator()(int depth, Event event, Json& value) {
    if (event == Event::key) return keep_key(depth, value.get_ref<const std::string&>());
    if (event == Event::object_start && depth == 2) in_vocabulary_ = at_vocabulary_;  // Unigram's is an array
    if (!in_vocabulary_ || depth != 3) return true;
    if (event == Event::object_start || event == Event::array_start) refuse("an object or an array");
    if (event != Event::value) return true;
    if (!value.is_number_integer()) refuse(value.type_name());
    if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) refuse("one above 2^63");
    tokens_.emplace_back(std::move(token_), value.get<int64_t>());
    return false;
  }

 private:
  bool keep_key(int depth, const std::string& key) {
    if (depth == 1) in_model_ = key == "model";
    if (depth <= 2) {
      at_vocabulary_ = depth == 2 && in_model_ && key == "vocab";
      in_vocabulary_ = false;
    }
    if (depth != 3 || !in_vocabulary_) return true;
    token_ = key;
    return false;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidArgument(str(source_, ".model.vocab: token \"", token_, "\": a whole number is wanted, not ", what));
  }

  const std::string& source_;
  TokenList& tokens_;
  std::string token_;
  bool in_model_ = false, at_vocabulary_ = false, in_vocabulary_ = false;
};

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& source) {
  TokenizerJson read{source, {}, {}};
  VocabularyReader reader(read.source, read.tokens);
  read.document = parse_json(text, source, std::ref(reader));
  return read;
}

}  // namespace trireme::trainer
