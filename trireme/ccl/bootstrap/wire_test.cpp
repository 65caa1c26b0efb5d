#include "trireme/ccl/bootstrap/wire.h"

#include <gtest/gtest.h>

#include "trireme/ccl/bootstrap/frame.h"

namespace trireme::ccl {
namespace {

using wire::Malformed;
using wire::Reader;
using wire::Writer;

TEST(Wire, WhatIsWrittenIsRead) {
  Writer out;
  out.integer(uint8_t{0xfe});
  out.integer(uint16_t{0x1234});
  out.integer(uint32_t{0xdeadbeef});
  out.integer(uint64_t{0x0123456789abcdef});
  out.string("text");
  out.raw(std::array<uint8_t, 2>{7, 8});
  Reader in(out.bytes());
  EXPECT_EQ(in.integer<uint8_t>(), 0xfe);
  EXPECT_EQ(in.integer<uint16_t>(), 0x1234);
  EXPECT_EQ(in.integer<uint32_t>(), 0xdeadbeef);
  EXPECT_EQ(in.integer<uint64_t>(), 0x0123456789abcdef);
  EXPECT_EQ(in.string(4), "text");
  EXPECT_EQ(in.array<2>(), (std::array<uint8_t, 2>{7, 8}));
  EXPECT_NO_THROW(in.expect_end());
}

TEST(Wire, IntegersAreLittleEndian) {
  Writer out;
  out.integer(uint32_t{0x01020304});
  EXPECT_EQ(out.bytes(), "\x04\x03\x02\x01");
}

TEST(Wire, NothingIsReadPastTheEnd) {
  EXPECT_THROW(Reader("").integer<uint8_t>(), Malformed);
  EXPECT_THROW(Reader("abc").integer<uint32_t>(), Malformed);
  EXPECT_THROW(Reader("abc").raw(4), Malformed);
  EXPECT_THROW(Reader("abc").array<4>(), Malformed);
  EXPECT_THROW(Reader("abc").expect_end(), Malformed);
}

TEST(Wire, ALengthIsHeldAgainstTheMaximumAndTheBytesThatAreThere) {
  Writer out;
  out.string("12345");
  EXPECT_THROW(Reader(out.bytes()).string(4), Malformed);
  EXPECT_EQ(Reader(out.bytes()).string(5), "12345");
  EXPECT_THROW(Reader(out.bytes().substr(0, 8)).string(5), Malformed);
  EXPECT_THROW(Reader("\xff\xff\xff\xff").string(SIZE_MAX), Malformed);
}

TEST(Wire, Hexadecimal) {
  EXPECT_EQ(wire::to_hex(std::string_view("\x00\x9f\xff", 3)), "009fff");
  EXPECT_EQ(wire::from_hex("009fff"), std::string("\x00\x9f\xff", 3));
  EXPECT_THROW(wire::from_hex("abc"), Malformed);
  EXPECT_THROW(wire::from_hex("xy"), Malformed);
}

TEST(Wire, PrintableHidesControlCharacters) { EXPECT_EQ(wire::printable("a\n\x1b[31m\xff", 5), "a??[3"); }

// Feeds `bytes` in pieces and returns the frames.
std::vector<Frame> assemble(FrameAssembler& assembler, std::string_view bytes, size_t piece) {
  std::vector<Frame> frames;
  while (!bytes.empty()) {
    size_t take = std::min({piece, assembler.missing(), bytes.size()});
    bytes.copy(assembler.space(), take);
    bytes.remove_prefix(take);
    if (auto frame = assembler.filled(take)) frames.push_back(std::move(*frame));
  }
  return frames;
}

TEST(Frame, ComesTogetherFromAnyPieces) {
  const std::string bytes = encode_frame(1, "first") + encode_frame(2, "") + encode_frame(3, std::string(100, 'x'));
  for (size_t piece : {1, 2, 3, 5, 7, 1000}) {
    FrameAssembler assembler(100);
    auto frames = assemble(assembler, bytes, piece);
    ASSERT_EQ(frames.size(), 3u) << piece;
    EXPECT_EQ(frames[0].payload, "first");
    EXPECT_EQ(frames[1].kind, 2);
    EXPECT_EQ(frames[1].payload, "");
    EXPECT_EQ(frames[2].payload, std::string(100, 'x'));
  }
}

TEST(Frame, AHugeLengthIsRefusedBeforeAnythingIsAllocated) {
  FrameAssembler assembler(100);
  EXPECT_THROW(assemble(assembler, std::string_view("\x01\xff\xff\xff\xff", 5), 5), Malformed);
  FrameAssembler exact(100);
  EXPECT_THROW(assemble(exact, encode_frame(1, std::string(101, 'x')), 1000), Malformed);
}

}  // namespace
}  // namespace trireme::ccl
