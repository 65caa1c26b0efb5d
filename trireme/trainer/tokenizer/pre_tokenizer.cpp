#include "trireme/trainer/tokenizer/pre_tokenizer.h"

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/characters.h"
#include "trireme/trainer/tokenizer/nesting.h"

namespace trireme::trainer {
namespace {

// At white space, which goes, and around each punctuation character.
class BertPreTokenizer final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    cut_pieces(pieces, [](std::string_view text, const auto& emit) {
      size_t begin = 0;
      for (size_t i = 0; i < text.size();) {
        const char32_t character = character_at(text, i);
        const size_t next = i + character_bytes(text[i]);
        if (is_white_space(character)) {
          emit(begin, i);
          begin = next;
        } else if (is_bert_punctuation(character)) {
          emit(begin, i);
          emit(i, next);
          begin = next;
        }
        i = next;
      }
      emit(begin, text.size());
    });
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonPlace& place) {
  const std::string& type = place["type"].string();
  if (type == "BertPreTokenizer") return std::make_unique<BertPreTokenizer>();
  place.refuse(str("the pre-tokenizer \"", type, "\" is not supported"));
}

}  // namespace trireme::trainer
