#include "trireme/trainer/tokenizer/model.h"

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/word_piece.h"

namespace trireme::trainer {

std::unique_ptr<Model> make_model(const JsonPlace& place, const TokenList& tokens) {
  const std::string& type = place["type"].string();
  if (type == "WordPiece") return std::make_unique<WordPiece>(place, tokens);
  place.refuse(str("the model \"", type, "\" is not supported"));
}

}  // namespace trireme::trainer
