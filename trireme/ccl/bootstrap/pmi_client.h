// The PMI-1 wire protocol, as a client: one line of "key=value" words out, one line back.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/deadline.h"
#include "trireme/ccl/bootstrap/forked_child.h"

namespace trireme::ccl {

// A reply's words by key; words without '=' are left out. Throws wire::Malformed for a reply without a command.
using PmiReply = std::map<std::string, std::string, std::less<>>;
PmiReply parse_pmi_reply(std::string_view line);

// Whole numbers of a reply. Throws wire::Malformed when there is none or it is negative.
int pmi_number(const PmiReply& reply, std::string_view key);

// A key that every process manager takes: PMI allows few characters and as few as 64 of them.
std::string pmi_key(const std::string& key, size_t part);

// Owns the channel. One thread at a time. Every call blocks until the manager answers or the deadline passes; after an
// exception the channel is of no further use.
class PmiClient {
 public:
  // PMI_FD's form: rank and size come from PMI_RANK and PMI_SIZE.
  PmiClient(UniqueFd channel, int rank, int size, Deadline deadline);
  // PMI_PORT's form: the manager knows them by PMI_ID.
  PmiClient(UniqueFd channel, const std::string& id, Deadline deadline);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // False in a forked child, which must not speak on its parent's channel.
  bool usable() const { return static_cast<bool>(channel_); }

  // Bytes under any key, cut into as many parts as the manager's limits ask for. Visible to the others after the next
  // barrier.
  void put(const std::string& key, const std::string& value, Deadline deadline);
  // "" when nobody has put it.
  std::string get(const std::string& key, Deadline deadline);
  void barrier(Deadline deadline);
  // Without it mpirun takes the end of this process for a crash.
  void finalize(Deadline deadline);

 private:
  void introduce(const std::string& id, Deadline deadline);
  void start(Deadline deadline);
  PmiReply ask(const std::string& command, std::string_view expected, Deadline deadline);
  void send_line(const std::string& line, Deadline deadline);
  PmiReply receive(Deadline deadline);
  std::optional<std::string> get_part(const std::string& key, size_t part, Deadline deadline);

  ProcessFd channel_;
  int rank_ = -1;
  int size_ = 0;
  std::string kvs_;
  size_t max_value_chars_ = 0;
  std::string input_;  // received, not yet a whole line
};

}  // namespace trireme::ccl
