#include "trireme/ccl/bootstrap/pmi_client.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "trireme/ccl/bootstrap/sha256.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

namespace {

constexpr size_t kMaxLineBytes = 64 * 1024;
// Values are hexadecimal; the first part begins with the number of parts and a dot.
constexpr size_t kMaxParts = 999;
constexpr size_t kPartsPrefixChars = 4;

}  // namespace

PmiReply parse_pmi_reply(std::string_view line) {
  PmiReply reply;
  while (!line.empty()) {
    const size_t end = std::min(line.find_first_of(" \n"), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    if (const size_t equals = word.find('='); equals != std::string_view::npos)
      reply.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  if (!reply.contains("cmd")) throw wire::Malformed("a PMI reply without a command");
  return reply;
}

int pmi_number(const PmiReply& reply, std::string_view key) {
  auto at = reply.find(key);
  if (at == reply.end()) throw wire::Malformed(str("a PMI reply without ", key));
  const std::string& text = at->second;
  int value = -1;
  auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0) {
    throw wire::Malformed(str("a PMI reply with ", key, "=", wire::printable(text)));
  }
  return value;
}

std::string pmi_key(const std::string& key, size_t part) {
  const Digest digest = sha256(key);
  return str("trireme-", wire::to_hex(std::span(digest).first<16>()), "-", part);
}

PmiClient::PmiClient(UniqueFd channel, int rank, int size, Deadline deadline)
    : channel_(std::move(channel)), rank_(rank), size_(size) {
  start(deadline);
}

PmiClient::PmiClient(UniqueFd channel, const std::string& id, Deadline deadline) : channel_(std::move(channel)) {
  introduce(id, deadline);
  start(deadline);
}

// The manager answers with its acknowledgement and then, in words that differ between versions, with size and rank.
void PmiClient::introduce(const std::string& id, Deadline deadline) {
  send_line("cmd=initack pmiid=" + id, deadline);
  while (rank_ < 0 || size_ == 0) {
    const PmiReply reply = receive(deadline);
    if (reply.contains("rank")) rank_ = pmi_number(reply, "rank");
    if (reply.contains("size")) size_ = pmi_number(reply, "size");
  }
  if (rank_ >= size_) throw wire::Malformed(str("PMI says rank ", rank_, " of ", size_));
}

void PmiClient::start(Deadline deadline) {
  ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
  const PmiReply maxes = ask("cmd=get_maxes", "maxes", deadline);
  // One less than the manager says: some count the terminating zero. A line must hold command and key as well.
  const size_t limit = static_cast<size_t>(std::min<int>(pmi_number(maxes, "vallen_max"), kMaxLineBytes / 2));
  if (limit < 64)
    throw IoError(str("the process manager takes values of at most ", limit, " characters; at least 64 are needed"));
  max_value_chars_ = limit - 1;
  const PmiReply name = ask("cmd=get_my_kvsname", "my_kvsname", deadline);
  auto at = name.find("kvsname");
  if (at == name.end()) throw wire::Malformed("a PMI reply without kvsname");
  kvs_ = at->second;
}

void PmiClient::put(const std::string& key, const std::string& value, Deadline deadline) {
  const std::string hex = wire::to_hex(value);
  const size_t part_chars = max_value_chars_ - kPartsPrefixChars;
  const size_t parts = std::max<size_t>(1, (hex.size() + part_chars - 1) / part_chars);
  if (parts > kMaxParts)
    throw InvalidArgument(str("a value of ", value.size(), " bytes is too long for the process manager"));
  for (size_t part = 0; part < parts; ++part) {
    const std::string text = (part == 0 ? str(parts, '.') : "") + hex.substr(part * part_chars, part_chars);
    ask(str("cmd=put kvsname=", kvs_, " key=", pmi_key(key, part), " value=", text), "put_result", deadline);
  }
}

std::string PmiClient::get(const std::string& key, Deadline deadline) {
  std::optional<std::string> first = get_part(key, 0, deadline);
  if (!first) return "";
  size_t parts = 0;
  auto [dot, error] = std::from_chars(first->data(), first->data() + first->size(), parts);
  if (error != std::errc() || dot == first->data() + first->size() || *dot != '.' || parts < 1 || parts > kMaxParts) {
    throw wire::Malformed("a PMI value that is not ours");
  }
  std::string hex = first->substr(static_cast<size_t>(dot + 1 - first->data()));
  for (size_t part = 1; part < parts; ++part) {
    std::optional<std::string> more = get_part(key, part, deadline);
    if (!more) throw wire::Malformed(str("part ", part, " of a PMI value is missing"));
    hex += *more;
  }
  return wire::from_hex(hex);
}

std::optional<std::string> PmiClient::get_part(const std::string& key, size_t part, Deadline deadline) {
  send_line(str("cmd=get kvsname=", kvs_, " key=", pmi_key(key, part)), deadline);
  const PmiReply reply = receive(deadline);
  // A key that is not there is an error to PMI, in words that differ between versions: a reply without a value.
  auto at = reply.find("value");
  auto rc = reply.find("rc");
  if (at == reply.end() || (rc != reply.end() && rc->second != "0")) return std::nullopt;
  return at->second;
}

void PmiClient::barrier(Deadline deadline) { ask("cmd=barrier_in", "barrier_out", deadline); }

void PmiClient::finalize(Deadline deadline) { ask("cmd=finalize", "finalize_ack", deadline); }

PmiReply PmiClient::ask(const std::string& command, std::string_view expected, Deadline deadline) {
  send_line(command, deadline);
  PmiReply reply = receive(deadline);
  // What is left of the introduction: the manager sends more than size and rank.
  while (reply.at("cmd") == "set" || reply.at("cmd") == "initack") reply = receive(deadline);
  auto rc = reply.find("rc");
  if (reply.at("cmd") != expected || (rc != reply.end() && rc->second != "0")) {
    auto message = reply.find("msg");
    throw IoError(str("the process manager answered '", command.substr(0, 60), "' with ", wire::printable(reply.at("cmd")),
                      message == reply.end() ? "" : ": " + wire::printable(message->second)));
  }
  return reply;
}

void PmiClient::send_line(const std::string& line, Deadline deadline) { send_all(channel_.get(), line + "\n", deadline); }

PmiReply PmiClient::receive(Deadline deadline) {
  size_t end;
  while ((end = input_.find('\n')) == std::string::npos) {
    if (input_.size() > kMaxLineBytes) throw wire::Malformed("a PMI reply without end");
    if (!wait_ready(channel_.get(), POLLIN, deadline))
      throw Timeout("no answer from the process manager in time; are all processes running?");
    std::array<char, 4096> buffer;
    input_.append(buffer.data(), recv_some(channel_.get(), buffer.data(), buffer.size()));
  }
  const std::string line = input_.substr(0, end);
  input_.erase(0, end + 1);
  return parse_pmi_reply(line);
}

}  // namespace trireme::ccl
