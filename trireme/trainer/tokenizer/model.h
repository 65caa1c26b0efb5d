// The "model" of a tokenizer.json: turns a word into tokens.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/trainer/json/json.h"
#include "trireme/trainer/tokenizer/vocabulary.h"

namespace trireme::trainer {

struct Token {
  int32_t id = 0;
  uint32_t begin = 0, end = 0;  // bytes of the word
};

// Threads may share one.
class Model {
 public:
  virtual ~Model() = default;

  // Appends the tokens of a word that is not empty. InvalidArgument if it has something unknown and the model no token for
  // that.
  virtual void tokenize(std::string_view word, std::vector<Token>& tokens) const = 0;
  virtual std::optional<int32_t> find(std::string_view token) const = 0;
  // Of an id that tokenize() or find() gave.
  virtual std::string_view token(int32_t id) const = 0;
  virtual size_t size() const = 0;
  virtual int32_t highest_id() const = 0;
  // How the token is written, for the processors that look at the spaces in it.
  virtual std::string_view written(const Token& found, std::string_view word) const { return token(found.id); }
};

// One that is a vocabulary and rules of how to use it.
class VocabularyModel : public Model {
 public:
  std::optional<int32_t> find(std::string_view token) const final { return vocabulary_.find(token); }
  std::string_view token(int32_t id) const final { return vocabulary_.token(id); }
  size_t size() const final { return vocabulary_.size(); }
  int32_t highest_id() const final { return vocabulary_.highest_id(); }

 protected:
  VocabularyModel(const JsonPlace& place, const TokenList& tokens)
      : where_(place.where()), vocabulary_(tokens, where_ + ".vocab") {}

  std::string where_;
  Vocabulary vocabulary_;
};

// `tokens` is what stood in the object "vocab" of the model, if it was one (see tokenizer_json.h).
std::unique_ptr<Model> make_model(const JsonPlace& place, const TokenList& tokens);

}  // namespace trireme::trainer
