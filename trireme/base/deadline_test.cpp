#include "trireme/base/deadline.h"

#include <gtest/gtest.h>

#include <limits>

namespace trireme {
namespace {

using std::chrono::milliseconds;

TEST(Deadline, NeverDoesNotPass) {
  EXPECT_TRUE(Deadline::never().is_never());
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_EQ(Deadline::never().left_ms(250), 250);
  EXPECT_TRUE(Deadline::after(milliseconds::max()).is_never());
}

TEST(Deadline, ZeroHasPassed) {
  EXPECT_TRUE(Deadline::after(milliseconds(0)).passed());
  EXPECT_EQ(Deadline::after(milliseconds(-5)).left_ms(100), 0);
}

TEST(Deadline, WhatIsLeftIsCappedAndRoundedUp) {
  Deadline deadline = Deadline::after(milliseconds(60000));
  EXPECT_FALSE(deadline.passed());
  EXPECT_EQ(deadline.left_ms(10), 10);
  int left = deadline.left_ms(std::numeric_limits<int>::max());
  EXPECT_LE(left, 60000);
  EXPECT_GT(left, 50000);
}

TEST(Deadline, TheEarlierOfTwo) {
  Deadline soon = Deadline::after(milliseconds(0));
  EXPECT_TRUE(Deadline::earlier(soon, Deadline::never()).passed());
  EXPECT_TRUE(Deadline::earlier(Deadline::never(), soon).passed());
}

// Python's longest time, among others: longer than the clock can count.
TEST(Deadline, BeyondTheClockIsNever) {
  for (milliseconds timeout : {milliseconds::max(), milliseconds(86'399'999'999'999'999), milliseconds(9'223'372'036'854)}) {
    EXPECT_TRUE(Deadline::after(timeout).is_never()) << timeout.count();
  }
}

}  // namespace
}  // namespace trireme
