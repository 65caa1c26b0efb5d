// The worlds on which collectives are tested: ranks x wirings.
#pragma once

#include <ostream>
#include <vector>

#include "trireme/ccl/comm/test_world.h"

namespace trireme::ccl {

struct World {
  int ranks;
  Wiring wiring;
};

inline std::ostream& operator<<(std::ostream& out, const World& world) { return out << world.ranks << "_" << name_of(world.wiring); }

class OnWorlds : public testing::TestWithParam<World> {
 protected:
  void run(const std::function<void(Communicator&)>& body) { on_world(GetParam().ranks, GetParam().wiring, body); }
};

inline Operation make(OpKind kind, size_t count) {
  Operation op;
  op.kind = kind;
  op.type = DataType::float32;
  op.count = count;
  return op;
}

inline std::vector<World> worlds() {
  std::vector<World> list;
  for (int ranks : {1, 2, 3, 4, 7}) {
    list.push_back({ranks, Wiring::threads});
    if (ranks > 1) list.push_back({ranks, Wiring::staged});
  }
  for (int ranks : {1, 2, 4}) list.push_back({ranks, Wiring::processes});
  for (int ranks : {2, 3}) list.push_back({ranks, Wiring::slots});
  list.push_back({2, Wiring::measured});
  for (int ranks : {2, 3, 4}) list.push_back({ranks, Wiring::all_apart});
  for (int ranks : {3, 4, 7}) list.push_back({ranks, Wiring::two_hosts});
  for (int ranks : {3, 5}) list.push_back({ranks, Wiring::uneven_hosts});
  return list;
}

}  // namespace trireme::ccl
