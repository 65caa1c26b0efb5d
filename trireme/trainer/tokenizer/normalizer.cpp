#include "trireme/trainer/tokenizer/normalizer.h"

#include "trireme/base/error.h"
#include "trireme/trainer/tokenizer/bert_normalizer.h"
#include "trireme/trainer/tokenizer/nesting.h"

namespace trireme::trainer {

std::unique_ptr<Normalizer> make_normalizer(const JsonPlace& place) {
  const std::string& type = place["type"].string();
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(place);
  place.refuse(str("the normalizer \"", type, "\" is not supported"));
}

}  // namespace trireme::trainer
