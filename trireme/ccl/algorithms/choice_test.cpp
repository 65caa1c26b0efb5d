#include "trireme/ccl/algorithms/choice.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/ccl/algorithms/op_context.h"

namespace trireme::ccl {
namespace {

TEST(Choice, ReadsClauses) {
  auto ranges = parse_algorithms("CCL_ALLREDUCE", "ring:0-8192;hierarchical:8193-max");
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].algorithm, Algorithm::ring);
  EXPECT_EQ(ranges[0].last_bytes, 8192u);
  EXPECT_EQ(ranges[1].last_bytes, SIZE_MAX);
  EXPECT_EQ(parse_algorithms("CCL_ALLREDUCE", "rabenseifner")[0].algorithm, Algorithm::hierarchical);
  EXPECT_TRUE(parse_algorithms("CCL_ALLREDUCE", "").empty());
}

TEST(Choice, SaysWhatIsWrong) {
  for (const char* text : {"rinng", "ring:5", "ring:9-3", "ring:a-b", "ring:1-2-3"}) {
    try {
      parse_algorithms("CCL_ALLREDUCE", text);
      ADD_FAILURE() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("CCL_ALLREDUCE"), std::string::npos);
    }
  }
}

TEST(Choice, TheLastClauseThatCoversTheSizeWins) {
  setenv("CCL_ALLREDUCE", "ring;hierarchical:100-200", 1);
  const AlgorithmChoices choices;
  unsetenv("CCL_ALLREDUCE");
  EXPECT_EQ(choices.of(OpKind::allreduce, 50), Algorithm::ring);
  EXPECT_EQ(choices.of(OpKind::allreduce, 150), Algorithm::hierarchical);
  EXPECT_EQ(choices.of(OpKind::broadcast, 150), Algorithm::automatic);
  EXPECT_TRUE(choices.concern(OpKind::allreduce));
  EXPECT_FALSE(choices.concern(OpKind::broadcast));
  EXPECT_EQ(AlgorithmChoices().of(OpKind::allreduce, 50), Algorithm::automatic);
}

TEST(Parts, CoverEverythingOnceOnCacheLines) {
  for (size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{1000}, size_t{1048577}}) {
    for (int parts : {1, 2, 3, 7, 64}) {
      size_t at = 0;
      for (int i = 0; i < parts; ++i) {
        Range range = part_of(count, 4, parts, i);
        EXPECT_EQ(range.begin, at);
        EXPECT_TRUE(range.begin == count || range.begin % 16 == 0);
        at = range.end;
      }
      EXPECT_EQ(at, count);
    }
  }
}

}  // namespace
}  // namespace trireme::ccl
