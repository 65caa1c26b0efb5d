// A switch with delay and loss: passes Ethernet frames between interfaces, each after the same time, some not at all.
//
//   cluster_link_relay DELAY_MS LOSS_PERCENT SEED INTERFACE...
//
// Prints "ready" once it hears every interface and runs until it is killed. An interface that vanishes is forgotten. It
// never drops on its own account except where the interface's own queue is full, as a real switch does. Senders must have
// checksum and segmentation offload off: frames are passed as they are.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unordered_map>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kReceiveBufferBytes = 64 << 20;  // half a second at 1 Gbit/s: a busy machine must not turn into loss
constexpr int kFramesPerTurn = 64;             // then the other ports and what has become due have their turn
constexpr std::size_t kMaxFrameBytes = 65536;

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

int open_port(const std::string& interface) {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("packet socket");
  const int on = 1;
  // Frames that we send leave by the same interfaces that we listen on.
  if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) < 0) fail("PACKET_IGNORE_OUTGOING");
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBufferBytes, sizeof kReceiveBufferBytes) < 0)
    fail("SO_RCVBUFFORCE");

  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (address.sll_ifindex == 0) fail("interface " + interface);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) fail("bind to " + interface);
  return fd;
}

// Owns one packet socket per port, for the life of the process. One thread.
class LinkRelay {
 public:
  LinkRelay(Clock::duration delay, double loss, std::uint64_t seed, std::span<char*> interfaces)
      : delay_(delay), lost_(loss), random_(seed) {
    for (const char* interface : interfaces) ports_.push_back({open_port(interface), POLLIN, 0});
  }

  [[noreturn]] void run() {
    while (true) {
      wait();
      for (std::size_t port = 0; port < ports_.size(); ++port) {
        if (ports_[port].revents != 0) receive(port);
      }
      deliver_due();
    }
  }

 private:
  struct Frame {
    Clock::time_point due;
    std::size_t port;
    std::vector<std::byte> bytes;
  };

  // Until a frame arrives or the first in the queue is due.
  void wait() {
    timespec timeout{};
    if (!queue_.empty()) {
      const auto left = std::max(queue_.front().due - Clock::now(), Clock::duration::zero());
      const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
      timeout = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    }
    if (ppoll(ports_.data(), ports_.size(), queue_.empty() ? nullptr : &timeout, nullptr) < 0) fail("ppoll");
  }

  void receive(std::size_t port) {
    for (int i = 0; i < kFramesPerTurn; ++i) {
      const ssize_t size = recv(ports_[port].fd, buffer_.data(), buffer_.size(), 0);
      if (size < 0) {
        if (errno == ENETDOWN || errno == ENXIO || errno == ENODEV) return forget(port);
        if (errno == EAGAIN || errno == EINTR) return;
        fail("receive");
      }
      if (size >= ETH_HLEN) route(port, std::span(buffer_).first(static_cast<std::size_t>(size)));
    }
  }

  // Learns where the sender is, as a switch does, and floods what it does not know.
  void route(std::size_t from, std::span<const std::byte> frame) {
    port_of_[address_key(frame.subspan(ETH_ALEN))] = from;
    const bool group = (frame[0] & std::byte{1}) != std::byte{0};
    const auto known = group ? port_of_.end() : port_of_.find(address_key(frame));
    if (known != port_of_.end()) {
      if (known->second != from) enqueue(known->second, frame);
      return;
    }
    for (std::size_t to = 0; to < ports_.size(); ++to) {
      if (to != from) enqueue(to, frame);
    }
  }

  // The delay is the same for all, so the queue is in order of due time by itself and no frame overtakes another.
  void enqueue(std::size_t to, std::span<const std::byte> frame) {
    if (!lost_(random_)) queue_.push_back({Clock::now() + delay_, to, {frame.begin(), frame.end()}});
  }

  void deliver_due() {
    const auto now = Clock::now();
    while (!queue_.empty() && queue_.front().due <= now) {
      send_frame(queue_.front());
      queue_.pop_front();
    }
  }

  void send_frame(const Frame& frame) {
    const int fd = ports_[frame.port].fd;
    if (fd < 0 || send(fd, frame.bytes.data(), frame.bytes.size(), 0) >= 0) return;
    if (errno == ENETDOWN || errno == ENXIO || errno == ENODEV) return forget(frame.port);
    if (errno == ENOBUFS || errno == EAGAIN) return;  // the interface's queue is full
    fail("send of a frame of " + std::to_string(frame.bytes.size()) + " bytes (are the sender's offloads off?)");
  }

  // poll ignores a negative descriptor, and the other ports keep their numbers.
  void forget(std::size_t port) {
    if (ports_[port].fd >= 0) close(ports_[port].fd);
    ports_[port].fd = -1;
  }

  static std::uint64_t address_key(std::span<const std::byte> address) {
    std::uint64_t key = 0;
    std::memcpy(&key, address.data(), ETH_ALEN);
    return key;
  }

  const Clock::duration delay_;
  std::bernoulli_distribution lost_;
  std::mt19937_64 random_;
  std::vector<pollfd> ports_;
  std::unordered_map<std::uint64_t, std::size_t> port_of_;
  std::deque<Frame> queue_;
  std::array<std::byte, kMaxFrameBytes> buffer_;
};

double number_in(const char* text, double max, const char* name) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= 0 && value <= max)) {
    throw std::invalid_argument(std::string(name) + " must be 0 to " + std::to_string(max) + ", not '" + text + "'");
  }
  return value;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) throw std::invalid_argument("usage: cluster_link_relay DELAY_MS LOSS_PERCENT SEED INTERFACE...");
  const std::chrono::duration<double, std::milli> delay(number_in(argv[1], 1e6, "DELAY_MS"));
  const double loss = number_in(argv[2], 100, "LOSS_PERCENT") / 100;
  const auto seed = std::strtoull(argv[3], nullptr, 10);
  LinkRelay relay(std::chrono::duration_cast<Clock::duration>(delay), loss, seed, std::span(argv + 4, argc - 4));
  std::puts("ready");
  std::fflush(stdout);
  relay.run();
} catch (const std::exception& error) {
  std::fprintf(stderr, "cluster_link_relay: %s\n", error.what());
  return 1;
}
