#include "trireme/trainer/tokenizer/pipeline.h"

#include <limits>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

// A text grows while it is rewritten, U+FDFA to 18 characters; positions are 32-bit numbers.
constexpr size_t kMaxTextBytes = size_t{16} << 20;

}  // namespace

Pipeline::Pipeline(const TokenizerJson& json) {
  const JsonPlace root = json.root();
  if (root.has("version") && root["version"].string() != "1.0") root["version"].refuse("only version 1.0 is known");
  if (root.has("normalizer")) normalizer_ = make_normalizer(root["normalizer"]);
  if (root.has("pre_tokenizer")) pre_tokenizer_ = make_pre_tokenizer(root["pre_tokenizer"]);
  model_ = make_model(root["model"], json.tokens);
  const Json none = Json::array();
  added_ = std::make_unique<AddedTokens>(
      root.has("added_tokens") ? root["added_tokens"] : JsonPlace(none, root.where() + ".added_tokens"), *model_,
      normalizer_.get());
  if (root.has("post_processor")) post_processor_ = make_post_processor(root["post_processor"]);
}

std::optional<int32_t> Pipeline::find(std::string_view token) const {
  const std::optional<int32_t> added = added_->find(token);
  return added ? added : model_->find(token);
}

std::string_view Pipeline::token(int32_t id) const {
  const std::optional<std::string_view> added = added_->token(id);
  return added ? *added : model_->token(id);
}

Encoding Pipeline::encode(std::string_view text) const {
  if (text.size() > kMaxTextBytes) throw InvalidArgument(str("a text of ", text.size(), " bytes is too long to be encoded"));
  check_utf8(text, "the text");
  Encoding encoding;
  if (text.empty()) return encoding;
  Pieces pieces{align(text, 0), {{0, static_cast<uint32_t>(text.size()), 0, -1}}};
  added_->cut_from_given(pieces);
  normalize(pieces);
  added_->cut_from_normalized(pieces);
  if (pre_tokenizer_ != nullptr) pre_tokenizer_->apply(pieces);

  std::vector<Token> tokens;
  for (const Piece& piece : pieces.list) {
    tokens.clear();
    const std::string_view word = pieces.of(piece);
    if (piece.id >= 0)
      tokens.push_back({piece.id, 0, piece.end - piece.begin});
    else
      model_->tokenize(word, tokens);
    for (const Token& token : tokens) {
      Encoding::Span span{pieces.text.spans[piece.begin + token.begin].begin,
                          pieces.text.spans[piece.begin + token.end - 1].end};
      for (const bool add_prefix_space : post_processor_.trims) {
        trim_span(text, span, piece.id >= 0 ? word : model_->written(token, word), encoding.ids.size(), add_prefix_space);
      }
      encoding.ids.push_back(token.id);
      encoding.spans.push_back(span);
    }
  }
  return encoding;
}

void Pipeline::normalize(Pieces& pieces) const {
  if (normalizer_ == nullptr) return;
  if (pieces.list.size() == 1 && pieces.list[0].id < 0) {  // the usual case, without a copy
    normalizer_->apply(pieces.text);
    pieces.list[0].end = static_cast<uint32_t>(pieces.text.text.size());
    if (pieces.text.text.empty()) pieces.list.clear();
    return;
  }
  change_pieces(pieces, [&](AlignedText& text, uint32_t) { normalizer_->apply(text); });
}

}  // namespace trireme::trainer
