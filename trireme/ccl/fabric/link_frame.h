// The frames that travel on a link between two ranks: a header of fixed size, then the payload.
//
//   eager   tag, payload                          small messages, sent at once
//   offer   tag, bytes, id [, address]            "I have this for you": large messages wait until the receiver is ready
//   accept  id of the sender, id of the receiver  "send it"
//   data    id of the receiver, offset, payload   the bytes, on any of the link's streams
//   taken   id of the sender                      "I have read it out of your memory": answers an offer with an address
//   sent    id of the receiver                    "my side of the fabric has done with it": after a message that went by a bulk lane
//   leave                                         an orderly end, on each stream: what follows is the end of the stream
//   call    tag, signature                        "this is what I wait for you in": the receiver compares it with what it called
//   credit  bytes                                 "so much of your eager point-to-point messages has been taken": kEagerWindowBytes
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "trireme/ccl/signature.h"

namespace trireme::ccl {

// As it lies on the wire: every rank of a job runs the same architecture.
struct LinkFrame {
  enum Kind : uint8_t { eager = 1, offer, accept, data, taken, sent, leave, call, credit };
  static constexpr uint32_t kMagic = 0x33524954;  // "TIR3": changes with the format

  uint32_t magic = kMagic;
  uint8_t kind = eager;
  uint8_t unused[3] = {};
  uint64_t tag = 0;
  uint64_t bytes = 0;  // of the payload that follows; of the whole message in an offer; of those taken in a credit
  uint64_t sender_id = 0;
  uint64_t receiver_id = 0;
  uint64_t offset = 0;   // of data in the message
  uint64_t address = 0;  // of an offer: where the receiver may read it
  uint32_t region = 0;
  uint32_t readable = 0;  // of an offer: read it there; else ask for it
  Signature signature;    // of the collective that this belongs to
};
static_assert(std::endian::native == std::endian::little && std::is_trivially_copyable_v<LinkFrame> && sizeof(LinkFrame) == 88);

inline constexpr uint64_t kMaxEagerBytes = 1 << 20;
inline constexpr uint64_t kMaxDataFrameBytes = 256 << 10;  // short frames pass between two of these
// Of a rank's point-to-point messages this much may lie at the receiver before it asks for them; what is beyond is offered. So they never
// keep the link from being read, which collectives share.
inline constexpr uint64_t kEagerWindowBytes = 4 << 20;

// Throws wire::Malformed for a kind, a length or a field that no rank of ours sends. Allocates nothing.
void check_frame(const LinkFrame& frame);

}  // namespace trireme::ccl
