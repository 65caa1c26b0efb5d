// How the ranks of a host move large private buffers.
//
// Which way is the fastest depends on the processor, on where the ranks' cores lie and on the kernel, and it changes while a job runs where a virtual
// machine's cores are moved: writing into memory that another core has just read took 68 us a MiB in one minute and 500 in the next. So it
// is measured, on the operations themselves; see docs/decisions/2026-11-17-the-way-is-measured.md.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "trireme/ccl/operation.h"

namespace trireme::ccl {

enum class Way : uint32_t {
  direct,  // out of and into each other's memory, by the kernel
  slots,   // through slots in shared memory
  past,    // the same, but results go around the caches
  around,  // the same, and what is written into a slot too
};
inline constexpr int kWays = 4;

// Less than this fits the caches of any processor, and `past` them is not tried.
inline constexpr size_t kPastCachesBytes = 512 * 1024;

// From here on the inputs and outputs of two ranks do not fit a share of the last-level cache either, and all sizes are alike.
inline constexpr size_t kFarBeyondCaches = 16 << 20;

// Through slots, where nothing is measured.
inline Way unmeasured_way(size_t bytes) { return bytes < 2 * kPastCachesBytes ? Way::slots : Way::past; }

// Belongs to one communicator, and is asked by the first rank of a host for all of them. Not for several threads.
class WayChooser {
 public:
  // `only`: TRIREME_NODE_WAY. `measures` is false where ranks have to share cores: what a way takes there says nothing of the next time.
  WayChooser(std::optional<Way> only, bool measures) : only_(only), measures_(measures) {}

  // For the next operation of that kind and size. Trials of what is not the best take about a twentieth of the time.
  Way choose(OpKind kind, bool in_place, size_t bytes, bool direct_is_possible);
  // For the other ranks: what the first one said the last time, of operations that they begin before they can read what it says this time.
  Way told(OpKind kind, size_t bytes) { return static_cast<Way>(std::max(row_of(kind, false, bytes).best, static_cast<int>(Way::slots))); }
  void tell(OpKind kind, size_t bytes, Way way) { row_of(kind, false, bytes).best = static_cast<int>(way); }
  // Whether operations may begin with a copy; not where everything is to be direct.
  bool may_go_early() const { return only_ != Way::direct; }
  // Whether took() wants to hear of the operation that was chosen for last: of short ones, for which looking at the clock is not free, not always.
  bool wants_time() const { return wants_time_; }
  // What choose() said for that operation has taken so long.
  void took(OpKind kind, bool in_place, size_t bytes, Way way, std::chrono::nanoseconds time);

 private:
  static constexpr uint32_t kMostCounted = 16;
  struct Estimate {
    double cost = 0;     // picoseconds a byte; 0: not tried yet
    uint32_t last = 0;   // the call that was the last sample
    uint32_t again = 0;  // after so many trials' calls it is tried again
    uint32_t count = 0;  // of `recent`, the costs that `cost` does not know yet
    std::array<double, kMostCounted> recent;
    std::chrono::nanoseconds time{};  // theirs
    void settle();
  };
  struct Row {
    uint32_t calls = 0;
    int best = 0;
    int trial = 0;  // of this way, while trial_calls are left of it
    uint32_t trial_calls = 0;
    std::array<Estimate, kWays> ways;
  };
  // Sizes that differ by less than a factor of two share a row, and all that are far larger than caches.
  Row& row_of(OpKind kind, bool in_place, size_t bytes);
  static Way begin_trial(Row& row, int way, size_t bytes);

  std::optional<Way> only_;
  bool measures_;
  bool wants_time_ = false;
  // By kind, placement and size; small operations cannot wait for a search.
  static constexpr size_t kSizes = std::bit_width(kFarBeyondCaches) + 1;
  std::array<std::unique_ptr<Row>, kOpKinds * 2 * kSizes> rows_;
};

// TRIREME_NODE_WAY; none for auto.
std::optional<Way> way_by_hand();

}  // namespace trireme::ccl
