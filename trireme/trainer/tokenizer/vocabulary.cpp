#include "trireme/trainer/tokenizer/vocabulary.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::trainer {

Vocabulary::Vocabulary(const TokenList& tokens, const std::string& where) {
  ids_.reserve(tokens.size());
  tokens_.reserve(tokens.size());
  for (const auto& [token, id] : tokens) {
    // One less than the highest number: the size is the highest id plus one.
    if (id < 0 || id >= std::numeric_limits<int32_t>::max()) {
      throw InvalidArgument(str(where, ": token \"", token, "\" has the id ", id, ", which is no 32-bit number"));
    }
    const auto [added, is_new] = ids_.emplace(token, static_cast<int32_t>(id));
    if (!is_new) throw InvalidArgument(str(where, ": token \"", token, "\" is there twice"));
    const auto [other, is_free] = tokens_.emplace(added->second, added->first);
    if (!is_free) {
      throw InvalidArgument(str(where, ": tokens \"", other->second, "\" and \"", token, "\" share the id ", id));
    }
    highest_id_ = std::max(highest_id_, added->second);
  }
}

}  // namespace trireme::trainer
