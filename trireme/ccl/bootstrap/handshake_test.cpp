// The proof, as bytes.
#include "trireme/ccl/bootstrap/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/ccl/bootstrap/random.h"
#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {
namespace {

using State = ServerHandshake::State;
using ::testing::HasSubstr;

Note decode_note(std::string_view& bytes) {
  const NoteHeader header = decode_note_header(bytes.substr(0, kNoteHeaderBytes));
  Note note{header.accepted, std::string(bytes.substr(kNoteHeaderBytes, header.text_bytes))};
  bytes.remove_prefix(kNoteHeaderBytes + header.text_bytes);
  return note;
}

class Handshake : public ::testing::Test {
 protected:
  ServerHandshake server() const { return {job_, secret_, 4, random<Nonce>()}; }
  ClientHandshake client(const Secret& secret) const { return {secret, claim_, random<Nonce>()}; }

  // The refusal that a proved client with this claim gets.
  std::string objection_to(const Claim& claim) const {
    ServerHandshake server = this->server();
    ClientHandshake client(secret_, claim, random<Nonce>());
    const std::string reply = server.step(client.answer(server.step(client.hello())));
    EXPECT_EQ(server.state(), State::refused);
    std::string_view rest = reply;
    client.check_server(decode_note(rest));
    const Note verdict = decode_note(rest);
    EXPECT_FALSE(verdict.accepted);
    return verdict.text;
  }

  const JobId job_ = random<JobId>();
  const Secret secret_ = random<Secret>();
  const Claim claim_{job_, 4, 3, 7};
};

TEST_F(Handshake, BothSidesProveThemselves) {
  ServerHandshake server = this->server();
  ClientHandshake client = this->client(secret_);
  EXPECT_EQ(server.wants(), kHelloBytes);
  const std::string challenge = server.step(client.hello());
  EXPECT_EQ(challenge.size(), kChallengeBytes);
  EXPECT_EQ(server.wants(), kProofBytes);
  const std::string reply = server.step(client.answer(challenge));
  EXPECT_EQ(server.state(), State::proved);
  EXPECT_EQ(server.wants(), 0u);
  EXPECT_EQ(server.claim().rank, 3u);
  EXPECT_EQ(server.claim().stream, 7u);
  std::string_view rest = reply;
  EXPECT_NO_THROW(client.check_server(decode_note(rest)));
  EXPECT_TRUE(rest.empty());
}

TEST_F(Handshake, TheSecretIsNotInWhatTravels) {
  ServerHandshake server = this->server();
  ClientHandshake client = this->client(secret_);
  const std::string challenge = server.step(client.hello());
  const std::string proof = client.answer(challenge);
  const std::string all = client.hello() + challenge + proof + server.step(proof);
  EXPECT_EQ(all.find(std::string(reinterpret_cast<const char*>(secret_.data()), 8)), std::string::npos);
}

TEST_F(Handshake, AWrongSecretIsRefused) {
  ServerHandshake server = this->server();
  ClientHandshake client = this->client(random<Secret>());
  const std::string reply = server.step(client.answer(server.step(client.hello())));
  EXPECT_EQ(server.state(), State::refused);
  std::string_view rest = reply;
  EXPECT_THROW(client.check_server(decode_note(rest)), IoError);
}

TEST_F(Handshake, AListenerWithoutTheSecretIsNotBelieved) {
  ServerHandshake impostor(job_, random<Secret>(), 4, random<Nonce>());
  ClientHandshake client = this->client(secret_);
  client.answer(impostor.step(client.hello()));
  EXPECT_THROW(client.check_server({true, std::string(32, '\0')}), IoError);
  EXPECT_THROW(client.check_server({true, ""}), IoError);
}

TEST_F(Handshake, AClientsOwnProofReflectedIsNotBelieved) {
  ServerHandshake server = this->server();
  ClientHandshake client = this->client(secret_);
  const std::string proof = client.answer(server.step(client.hello()));
  EXPECT_THROW(client.check_server({true, proof}), IoError);
}

TEST_F(Handshake, WrongClaimsAreRefusedWithTheReason) {
  EXPECT_THAT(objection_to({random<JobId>(), 4, 3, 0}), HasSubstr("another job"));
  EXPECT_THAT(objection_to({job_, 5, 3, 0}), HasSubstr("this job has 4 ranks, not 5"));
  EXPECT_THAT(objection_to({job_, 4, 4, 0}), HasSubstr("there is no rank 4"));
}

TEST_F(Handshake, AReplayedConnectionIsRefused) {
  ServerHandshake first = server(), second = server();
  ClientHandshake client = this->client(secret_);
  const std::string proof = client.answer(first.step(client.hello()));
  second.step(client.hello());
  second.step(proof);
  EXPECT_EQ(second.state(), State::refused);
}

TEST_F(Handshake, AChangedClaimSpoilsTheProof) {
  ServerHandshake server = this->server();
  ClientHandshake client = this->client(secret_);
  std::string hello = client.hello();
  hello[26] ^= 1;  // the rank
  server.step(client.answer(server.step(hello)));
  EXPECT_EQ(server.state(), State::refused);
}

TEST_F(Handshake, AnotherProtocolIsMalformed) {
  EXPECT_THROW(server().step(std::string(kHelloBytes, 'G')), wire::Malformed);
  std::string newer = client(secret_).hello();
  newer[4] = 9;
  EXPECT_THROW(server().step(newer), wire::Malformed);
  EXPECT_THROW(client(secret_).answer(std::string(kChallengeBytes, '\0')), wire::Malformed);
}

TEST_F(Handshake, TruncatedMessagesAreMalformed) {
  ServerHandshake server = this->server();
  ClientHandshake client = this->client(secret_);
  const std::string challenge = server.step(client.hello());
  EXPECT_THROW(client.answer(challenge.substr(0, kChallengeBytes - 1)), wire::Malformed);
  EXPECT_THROW(decode_note_header("\x01"), wire::Malformed);
}

TEST_F(Handshake, ANoteLongerThanAllowedIsMalformed) {
  EXPECT_THROW(decode_note_header(std::string_view("\x01\x01\x02", 3)), wire::Malformed);  // 513 bytes
  EXPECT_THROW(decode_note_header(std::string_view("\x02\x00\x00", 3)), wire::Malformed);
  EXPECT_EQ(encode_note({false, std::string(2000, 'x')}).size(), kNoteHeaderBytes + kMaxNoteBytes);
}

}  // namespace
}  // namespace trireme::ccl
