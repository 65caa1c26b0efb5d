#include "trireme/ccl/bootstrap/connect.h"

#include <algorithm>
#include <thread>

#include "trireme/base/env.h"
#include "trireme/ccl/bootstrap/handshake.h"
#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/socket.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

namespace {

// How long a listener may take for its first word. One that drops us under load closes the connection and is tried again at once; this bounds the
// time lost to a stranger that accepts and says nothing.
constexpr std::chrono::milliseconds kFirstWordTimeout{3000};
// And then to show that it knows the secret. It takes our answer as the end of it: whoever gives up after that leaves it with a connection that nobody
// has, so this covers seven losses of its word in a row.
constexpr std::chrono::milliseconds kProofTimeout{30000};

Note receive_note(int fd, Deadline deadline) {
  const NoteHeader header = decode_note_header(recv_string(fd, kNoteHeaderBytes, deadline));
  return {header.accepted, recv_string(fd, header.text_bytes, deadline)};
}

void prove(int fd, const Secret& secret, const Claim& claim, Deadline deadline) {
  const Deadline first_deadline = Deadline::earlier(deadline, Deadline::after(kFirstWordTimeout));
  ClientHandshake handshake(secret, claim, random<Nonce>());
  send_all(fd, handshake.hello(), first_deadline);
  const std::string challenge = recv_string(fd, kChallengeBytes, first_deadline);
  const Deadline proof_deadline = Deadline::earlier(deadline, Deadline::after(kProofTimeout));
  send_all(fd, handshake.answer(challenge), proof_deadline);
  handshake.check_server(receive_note(fd, proof_deadline));
  // From here on it is our job's listener, and its owner may take the time it needs.
  const Note verdict = receive_note(fd, deadline);
  if (!verdict.accepted) throw Refused(wire::printable(verdict.text));
}

UniqueFd connect_and_prove(const std::string& address, uint16_t port, const Secret& secret, const Claim& claim,
                           Deadline connect_deadline, Deadline deadline) {
  UniqueFd fd = connect_to(address, port, connect_deadline);
  tune_connection(fd.get(), env::duration("TRIREME_PEER_TIMEOUT_MS"));
  try {
    prove(fd.get(), secret, claim, deadline);
  } catch (const Refused& error) {
    throw Refused(str(address, " port ", port, " refused: ", error.what()));
  } catch (const Error& error) {
    throw IoError(str(address, " port ", port, ": ", error.what()));
  }
  return fd;
}

}  // namespace

Attempt try_connect_proved(const std::vector<std::string>& addresses, uint16_t port, const Secret& secret,
                           const Claim& claim, std::chrono::milliseconds patience, Deadline deadline) {
  std::string reasons;
  for (const std::string& address : addresses) {
    const Deadline connect_deadline = Deadline::earlier(deadline, Deadline::after(patience));
    try {
      return {connect_and_prove(address, port, secret, claim, connect_deadline, deadline), "", false};
    } catch (const Refused& refusal) {
      return {UniqueFd(), refusal.what(), true};
    } catch (const Error& error) {
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  return {UniqueFd(), reasons, false};
}

UniqueFd connect_proved(const std::vector<std::string>& addresses, uint16_t port, const Secret& secret, const Claim& claim,
                        Deadline deadline) {
  std::chrono::milliseconds patience{250}, pause{5};
  for (;;) {
    Attempt attempt = try_connect_proved(addresses, port, secret, claim, patience, deadline);
    if (attempt.connection) return std::move(attempt.connection);
    if (attempt.refused) throw IoError(str("rank ", claim.rank, ": ", attempt.reason));
    if (deadline.passed()) throw Timeout(str("rank ", claim.rank, ": not connected in time: ", attempt.reason));
    std::this_thread::sleep_for(pause);
    // A distant host may need longer than the first rounds allow.
    patience = std::min(2 * patience, std::chrono::milliseconds(4000));
    pause = std::min(2 * pause, std::chrono::milliseconds(100));
  }
}

}  // namespace trireme::ccl
