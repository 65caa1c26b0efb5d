#include "trireme/trainer/tokenizer/byte_trie.h"

#include <algorithm>
#include <deque>

namespace trireme::trainer {
namespace {

// The strings [begin, end) of the sorted list share their first `depth` bytes, which lead to `node`.
struct Open {
  size_t begin, end, depth;
  int64_t node;  // -1, the root
};

}  // namespace

// Level by level, so that the children of a node come to lie together.
ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> strings) {
  first_.fill(-1);
  std::stable_sort(strings.begin(), strings.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::deque<Open> open{{0, strings.size(), 0, -1}};
  for (; !open.empty(); open.pop_front()) {
    auto [begin, end, depth, parent] = open.front();
    bool ends_here = false;
    for (; begin < end && strings[begin].first.size() == depth; ++begin) {
      if (parent >= 0 && !ends_here) nodes_[static_cast<size_t>(parent)].value = strings[begin].second;
      ends_here = true;
    }
    if (parent >= 0) nodes_[static_cast<size_t>(parent)].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const auto label = static_cast<uint8_t>(strings[begin].first[depth]);
      size_t next = begin;
      while (next < end && static_cast<uint8_t>(strings[next].first[depth]) == label) ++next;
      if (parent >= 0)
        ++nodes_[static_cast<size_t>(parent)].children;
      else
        first_[label] = static_cast<int32_t>(nodes_.size());
      open.push_back({begin, next, depth + 1, static_cast<int64_t>(nodes_.size())});
      nodes_.push_back({0, 0, label, -1});
      begin = next;
    }
  }
}

}  // namespace trireme::trainer
