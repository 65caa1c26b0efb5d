// A tokenizer.json, read. Its vocabulary is kept apart: as an object of Json it would take seconds to read.
#pragma once

#include "trireme/trainer/json/json.h"
#include "trireme/trainer/tokenizer/vocabulary.h"

namespace trireme::trainer {

struct TokenizerJson {
  std::string source;  // the file's name
  Json document;       // where "model"."vocab" was an object, it is empty
  TokenList tokens;    // what was in it

  JsonPlace root() const { return {document, source}; }
};

// InvalidArgument says what is wrong in `source`, and where.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& source);

// A vocab.json: an object of tokens and their ids.
TokenList parse_vocabulary_json(std::string_view text, const std::string& source);

}  // namespace trireme::trainer
