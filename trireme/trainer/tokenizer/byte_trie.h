// Strings by their bytes, to find those that begin a text.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::trainer {

// Threads may share one. Of equal strings the first counts; the empty one never matches.
class ByteTrie {
 public:
  ByteTrie() { first_.fill(-1); }
  // Values are not negative.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> strings);

  bool empty() const { return nodes_.empty(); }

  // Calls found(bytes, value) for each string that begins `text`, the shortest first.
  template <class Found>
  void each_prefix(std::string_view text, const Found& found) const {
    int32_t node = text.empty() ? -1 : first_[static_cast<uint8_t>(text[0])];
    for (size_t bytes = 1; node >= 0; ++bytes) {
      if (nodes_[static_cast<size_t>(node)].value >= 0) found(bytes, nodes_[static_cast<size_t>(node)].value);
      node = bytes < text.size() ? child(nodes_[static_cast<size_t>(node)], static_cast<uint8_t>(text[bytes])) : -1;
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;  // one after the other, by ascending label
    uint8_t label = 0;
    int32_t value = -1;
  };

  int32_t child(const Node& node, uint8_t label) const {
    uint32_t begin = node.first_child, end = begin + node.children;
    while (begin < end) {
      const uint32_t middle = begin + (end - begin) / 2;
      if (nodes_[middle].label == label) return static_cast<int32_t>(middle);
      if (nodes_[middle].label < label)
        begin = middle + 1;
      else
        end = middle;
    }
    return -1;
  }

  std::array<int32_t, 256> first_;
  std::vector<Node> nodes_;
};

}  // namespace trireme::trainer
