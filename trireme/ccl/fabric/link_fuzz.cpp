// Arbitrary bytes as what a peer sends on a link: whatever they are, the link takes them as messages or throws; it reads and writes nothing
// outside of what was posted.
#include <algorithm>
#include <cstring>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/ccl/fabric/messenger.h"

namespace trireme::ccl {
namespace {

class ScriptedStream final : public Stream {
 public:
  ScriptedStream(const uint8_t* data, size_t bytes) : data_(data), left_(bytes) {}
  size_t write(std::span<const iovec> pieces) override {
    size_t total = 0;
    for (const iovec& piece : pieces) total += piece.iov_len;
    return total;
  }
  size_t read(std::span<const iovec> pieces) override {
    size_t bytes = std::min(pieces[0].iov_len, left_);
    std::memcpy(pieces[0].iov_base, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return bytes;
  }
  int fd() const override { return -1; }

 private:
  const uint8_t* data_;
  size_t left_;
};

}  // namespace
}  // namespace trireme::ccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace trireme::ccl;
  Engine engine;
  Messenger messenger(engine, 0, 2);
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(std::make_unique<ScriptedStream>(data, bytes));
  messenger.add_link(1, std::move(streams), 64, nullptr, nullptr);
  std::byte room[256], large[512] = {};
  Transfer receives[3], send;
  for (int i = 0; i < 3; ++i) {
    receives[i].peer = i == 2 ? kAnySource : 1;
    receives[i].tag = static_cast<uint64_t>(i);
    receives[i].any_tag = i == 2;
    receives[i].data = room;
    receives[i].bytes = sizeof room;
    receives[i].exact = i == 0;
    messenger.receive(receives[i]);
  }
  send.peer = 1;
  send.data = large;
  send.bytes = sizeof large;
  messenger.send(send);
  messenger.set_current(3, Signature{});
  try {
    for (int round = 0; round < 4; ++round) messenger.progress();
  } catch (const trireme::Error&) {
  }
  return 0;
}
