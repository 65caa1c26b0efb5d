#include "trireme/ccl/bootstrap/handshake.h"

#include <algorithm>
#include <span>

#include "trireme/ccl/bootstrap/sha256.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {

namespace {

constexpr uint32_t kMagic = 0x4d495254;  // "TRIM"
constexpr uint16_t kVersion = 1;

void write_opening(wire::Writer& out) {
  out.integer(kMagic);
  out.integer(kVersion);
}

void read_opening(wire::Reader& in) {
  if (in.integer<uint32_t>() != kMagic) throw wire::Malformed("the peer does not speak our protocol");
  const auto version = in.integer<uint16_t>();
  if (version != kVersion)
    throw wire::Malformed(str("the peer speaks version ", version, " of our protocol, we speak ", kVersion));
}

std::string encode_hello(const Claim& claim, const Nonce& nonce) {
  wire::Writer out;
  write_opening(out);
  out.raw(claim.job);
  out.integer(claim.size);
  out.integer(claim.rank);
  out.integer(claim.stream);
  out.raw(nonce);
  return out.take();
}

Claim decode_hello(std::string_view hello) {
  wire::Reader in(hello);
  read_opening(in);
  Claim claim;
  claim.job = in.array<16>();
  claim.size = in.integer<uint32_t>();
  claim.rank = in.integer<uint32_t>();
  claim.stream = in.integer<uint32_t>();
  in.raw(sizeof(Nonce));
  in.expect_end();
  return claim;
}

Digest prove(const Secret& secret, std::string_view side, std::string_view transcript) {
  return hmac_sha256(secret, str(side, transcript));
}

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string_view as_text(const Digest& digest) { return {reinterpret_cast<const char*>(digest.data()), digest.size()}; }

}  // namespace

std::string encode_note(const Note& note) {
  const std::string_view text = std::string_view(note.text).substr(0, kMaxNoteBytes);
  wire::Writer out;
  out.integer(static_cast<uint8_t>(note.accepted));
  out.integer(static_cast<uint16_t>(text.size()));
  out.raw(text);
  return out.take();
}

NoteHeader decode_note_header(std::string_view header) {
  wire::Reader in(header);
  const auto flag = in.integer<uint8_t>();
  const size_t bytes = in.integer<uint16_t>();
  in.expect_end();
  if (flag > 1 || bytes > kMaxNoteBytes) throw wire::Malformed("a verdict that is none");
  return {flag == 1, bytes};
}

ServerHandshake::ServerHandshake(const JobId& job, const Secret& secret, uint32_t size, const Nonce& nonce)
    : job_(job), secret_(secret), size_(size), nonce_(nonce) {}

size_t ServerHandshake::wants() const {
  return state_ == State::hello ? kHelloBytes : state_ == State::proof ? kProofBytes : 0;
}

std::string ServerHandshake::step(std::string_view bytes) {
  TRIREME_ENFORCE(bytes.size() == wants(), bytes.size(), " bytes");
  return state_ == State::hello ? on_hello(bytes) : on_proof(bytes);
}

std::string ServerHandshake::on_hello(std::string_view hello) {
  claim_ = decode_hello(hello);
  wire::Writer challenge;
  write_opening(challenge);
  challenge.raw(nonce_);
  transcript_ = str(hello, challenge.bytes());
  state_ = State::proof;
  return challenge.take();
}

// The proof is judged before the claim: only those who know the secret learn what the claim lacks, and they learn it from a
// listener that has proved itself too.
std::string ServerHandshake::on_proof(std::string_view proof) {
  if (!equal_in_constant_time(as_bytes(proof), prove(secret_, "client", transcript_))) {
    state_ = State::refused;
    return encode_note({false, "wrong secret"});
  }
  const std::string own_proof = encode_note({true, std::string(as_text(prove(secret_, "server", transcript_)))});
  const std::string objection = objection_to_claim();
  state_ = objection.empty() ? State::proved : State::refused;
  return objection.empty() ? own_proof : own_proof + encode_note({false, objection});
}

std::string ServerHandshake::objection_to_claim() const {
  if (claim_.job != job_) return "this is another job";
  if (claim_.size != size_) return str("this job has ", size_, " ranks, not ", claim_.size);
  if (claim_.rank >= size_) return str("there is no rank ", claim_.rank, " in a job of ", size_);
  return "";
}

ClientHandshake::ClientHandshake(const Secret& secret, const Claim& claim, const Nonce& nonce)
    : secret_(secret), hello_(encode_hello(claim, nonce)) {}

std::string ClientHandshake::answer(std::string_view challenge) {
  wire::Reader in(challenge);
  read_opening(in);
  in.raw(sizeof(Nonce));
  in.expect_end();
  transcript_ = str(hello_, challenge);
  return std::string(as_text(prove(secret_, "client", transcript_)));
}

void ClientHandshake::check_server(const Note& note) const {
  if (!note.accepted) throw IoError("refused: " + wire::printable(note.text));
  if (!equal_in_constant_time(as_bytes(note.text), prove(secret_, "server", transcript_))) {
    throw IoError("the listener does not know this job's secret");
  }
}

}  // namespace trireme::ccl
