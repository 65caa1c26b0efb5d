#include "trireme/ccl/bootstrap/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trireme/ccl/bootstrap/wire.h"

namespace trireme::ccl {
namespace {

std::string hex(const Digest& digest) { return wire::to_hex(digest); }

std::string hmac_hex(const std::string& key, const std::string& message) {
  return hex(hmac_sha256({reinterpret_cast<const uint8_t*>(key.data()), key.size()}, message));
}

// NIST, FIPS 180-4 examples and the CAVP short messages.
TEST(Sha256, NistVectors) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheSameDigestAsTheWhole) {
  // Around the places where the padding needs another block.
  for (size_t bytes : {54, 55, 56, 57, 63, 64, 65, 119, 120, 128}) {
    const std::string message(bytes, 'x');
    Sha256 pieces;
    for (size_t i = 0; i < bytes; i += 7) pieces.update(message.data() + i, std::min<size_t>(7, bytes - i));
    EXPECT_EQ(pieces.finish(), sha256(message)) << bytes;
  }
}

// RFC 4231, cases 1-4, 6 and 7 (5 truncates the output).
TEST(HmacSha256, Rfc4231Vectors) {
  EXPECT_EQ(hmac_hex(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac_hex("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_hex(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hmac_hex(wire::from_hex("0102030405060708090a0b0c0d0e0f10111213141516171819"), std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hmac_hex(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(
      hmac_hex(
          std::string(131, '\xaa'),
          "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed "
          "before being used by the HMAC algorithm."),
      "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(EqualInConstantTime, ComparesLengthAndEveryByte) {
  const std::vector<uint8_t> a = {1, 2, 3}, b = {1, 2, 4}, c = {1, 2};
  EXPECT_TRUE(equal_in_constant_time(a, a));
  EXPECT_FALSE(equal_in_constant_time(a, b));
  EXPECT_FALSE(equal_in_constant_time(a, c));
  EXPECT_TRUE(equal_in_constant_time({}, {}));
}

}  // namespace
}  // namespace trireme::ccl
