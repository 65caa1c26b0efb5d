// What every rank tells all others, as plain data of one size.
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/ccl/comm/communicator.h"

namespace trireme::ccl {

// Collective: `mine` of every rank, in rank order.
template <class Card>
std::vector<Card> exchange_cards(Communicator& communicator, const Card& mine) {
  static_assert(std::is_trivially_copyable_v<Card>);
  std::vector<Card> cards(static_cast<size_t>(communicator.size()));
  Operation op;
  op.kind = OpKind::allgather;
  op.count = sizeof mine;
  op.send_buffer = &mine;
  op.caller_waits = true;
  for (Card& card : cards) op.recv_blocks.push_back({&card, sizeof card});
  communicator.submit(std::move(op)).wait();
  return cards;
}

}  // namespace trireme::ccl
