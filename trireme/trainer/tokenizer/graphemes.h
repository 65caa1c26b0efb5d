// Extended grapheme clusters (Unicode annex 29): what a reader takes for one character.
#pragma once

#include <cstddef>
#include <string_view>

namespace trireme::trainer {

// Where the cluster ends that begins at `begin`.
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace trireme::trainer
