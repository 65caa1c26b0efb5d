#include "trireme/ccl/fabric/link_frame.h"

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {
namespace {

uint64_t max_bytes(uint8_t kind) {
  switch (kind) {
    case LinkFrame::eager:
      return kMaxEagerBytes;
    case LinkFrame::offer:
      return UINT64_MAX / 2;
    case LinkFrame::data:
      return kMaxDataFrameBytes;
    case LinkFrame::credit:
      return kEagerWindowBytes;
    default:
      return 0;
  }
}

}  // namespace

void check_frame(const LinkFrame& frame) {
  if (frame.magic != LinkFrame::kMagic) throw wire::Malformed("bytes that are not a frame");
  if (frame.kind < LinkFrame::eager || frame.kind > LinkFrame::credit) {
    throw wire::Malformed(str("a frame of unknown kind ", static_cast<int>(frame.kind)));
  }
  if (frame.bytes > max_bytes(frame.kind)) {
    throw wire::Malformed(str("a frame of kind ", static_cast<int>(frame.kind), " that claims ", frame.bytes, " bytes"));
  }
  const Signature& signature = frame.signature;
  if (signature.kind >= kOpKinds || signature.type >= kDataTypes || signature.reduction >= kReductions) {
    throw wire::Malformed("a frame of an unknown operation");
  }
}

}  // namespace trireme::ccl
