// Strangers that connect to a listener of ours, for tests: garbage, silence, huge lengths, wrong secrets, half of a hello.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/control.h"
#include "trireme/ccl/bootstrap/handshake.h"
#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/socket.h"

namespace trireme::ccl {

// What strangers do, one connection each.
class Strangers {
 public:
  // `claim` is what they make believe.
  Strangers(uint16_t port, const Claim& claim) : port_(port), claim_(claim) {}

  void connect(int i) {
    try {
      UniqueFd fd = connect_to("127.0.0.1", port_, soon());
      act(fd.get(), i % 6);
      // Most close at once; every fourth is held half-open, the oldest of them let go after a while.
      if (i % 4 != 0) return;
      held_.push_back(std::move(fd));
      if (held_.size() > 300) held_.erase(held_.begin());
    } catch (const Error&) {  // turned away: just as well
    }
  }

 private:
  void act(int fd, int how) {
    switch (how) {
      case 0:  // connects and is silent or closes
        return;
      case 1:
        return send_all(fd, "GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nUser-Agent: none\r\n\r\n", soon());
      case 2:  // one byte, then nothing
        return send_all(fd, "T", soon());
      case 3:  // huge lengths
        return send_all(fd, std::string(1000, '\xff'), soon());
      case 4:  // our protocol with another secret, up to the proof
        return send_all(
            fd, ClientHandshake(random<Secret>(), claim_, random<Nonce>()).hello() + std::string(kProofBytes, 'x'), soon());
      default:  // a hello that stops in the middle
        return send_all(fd, ClientHandshake(random<Secret>(), claim_, random<Nonce>()).hello().substr(0, 20), soon());
    }
  }

  static Deadline soon() { return Deadline::after(std::chrono::milliseconds(200)); }

  const uint16_t port_;
  const Claim claim_;
  std::vector<UniqueFd> held_;
};

}  // namespace trireme::ccl
