// The proof that opens every connection, as state machines over bytes: no socket, no clock, no randomness of their own.
//
//   client -> server   hello      magic, version, claim, client nonce
//   server -> client   challenge  magic, version, server nonce
//   client -> server   proof      HMAC(secret, "client" | hello | challenge)
//   server -> client   note       accepted: HMAC(secret, "server" | hello | challenge); or refused: why
//   server -> client   note       the verdict on the claim, once the caller of AuthListener has decided
//
// The secret never travels. Both nonces are fresh, so neither side can replay an earlier connection, and the two labels keep
// one side from reflecting the other's proof. What the client sends has a fixed size: there is no length for a stranger to
// lie about.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/ccl/bootstrap/control.h"

namespace trireme::ccl {

using Nonce = std::array<uint8_t, 16>;

inline constexpr size_t kHelloBytes = 4 + 2 + 16 + 4 + 4 + 4 + 16;
inline constexpr size_t kChallengeBytes = 4 + 2 + 16;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kNoteHeaderBytes = 1 + 2;
inline constexpr size_t kMaxNoteBytes = 512;

// A listener that has proved itself said no: trying the same again is of no use.
class Refused : public IoError {
 public:
  using IoError::IoError;
};

struct Note {
  bool accepted = false;
  std::string text;  // the server's proof, or the reason of a refusal
};

struct NoteHeader {
  bool accepted = false;
  size_t text_bytes = 0;
};

std::string encode_note(const Note& note);
// kNoteHeaderBytes in. Throws wire::Malformed for a text of more than kMaxNoteBytes.
NoteHeader decode_note_header(std::string_view header);

class ServerHandshake {
 public:
  enum class State { hello, proof, proved, refused };

  ServerHandshake(const JobId& job, const Secret& secret, uint32_t size, const Nonce& nonce);

  State state() const { return state_; }
  // How many bytes the next step takes; 0 when there is none.
  size_t wants() const;
  // Exactly wants() bytes. Returns what to send. Throws wire::Malformed for bytes of another protocol.
  std::string step(std::string_view bytes);
  const Claim& claim() const { return claim_; }

 private:
  std::string on_hello(std::string_view hello);
  std::string on_proof(std::string_view proof);
  std::string objection_to_claim() const;

  const JobId job_;
  const Secret secret_;
  const uint32_t size_;
  const Nonce nonce_;
  State state_ = State::hello;
  Claim claim_;
  std::string transcript_;
};

class ClientHandshake {
 public:
  ClientHandshake(const Secret& secret, const Claim& claim, const Nonce& nonce);

  const std::string& hello() const { return hello_; }
  // kChallengeBytes in, the proof out. Throws wire::Malformed.
  std::string answer(std::string_view challenge);
  // The server's first note. Throws IoError when the server says no or does not know the secret.
  void check_server(const Note& note) const;

 private:
  const Secret secret_;
  const std::string hello_;
  std::string transcript_;
};

}  // namespace trireme::ccl
