#include "trireme/trainer/tokenizer/model.h"

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/bpe.h"
#include "trireme/trainer/tokenizer/unigram.h"
#include "trireme/trainer/tokenizer/word_piece.h"

namespace trireme::trainer {
namespace {

// Files of the library's first versions have no type.
std::string type_of(const JsonPlace& place) {
  if (place.has("type")) return place["type"].string();
  return place.has("merges") ? "BPE" : place.has("continuing_subword_prefix") ? "WordPiece" : "Unigram";
}

}  // namespace

std::unique_ptr<Model> make_model(const JsonPlace& place, const TokenList& tokens) {
  const std::string type = type_of(place);
  if (type == "WordPiece") return std::make_unique<WordPiece>(place, tokens);
  if (type == "BPE") return std::make_unique<Bpe>(place, tokens);
  if (type == "Unigram") return std::make_unique<Unigram>(place);
  place.refuse(str("the model \"", type, "\" is not supported: WordPiece, BPE and Unigram are"));
}

}  // namespace trireme::trainer
