#include "trireme/trainer/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "trireme/base/error.h"

namespace trireme::trainer {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Json, ParseErrorsNameFileLineAndColumn) {
  EXPECT_THAT([] { parse_json("{\n \"a\": [1,\n}", "x.json"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("x.json: line 3, column 1: ")));
  EXPECT_THAT([] { parse_json("{\n]", "x.json", nullptr, 5); },
              ThrowsMessage<InvalidArgument>(HasSubstr("x.json: line 6, column 1: ")));
  EXPECT_THAT([] { parse_json("", "x.json"); }, ThrowsMessage<InvalidArgument>(HasSubstr("x.json: line 1")));
  EXPECT_THAT([] { parse_json("[1e999]", "x.json"); }, ThrowsMessage<InvalidArgument>(HasSubstr("x.json: ")));
}

TEST(Json, NumbersThatDoNotFitAreRefused) {
  EXPECT_THAT([] { parse_json("[1e999]", "x.json"); },
              ThrowsMessage<InvalidArgument>("x.json: number overflow parsing '1e999'"));
}

TEST(Json, WhatPythonWritesForNoNumberIsNull) {
  EXPECT_EQ(parse_python_json(R"([NaN, -Infinity, {"NaN": "a \" Infinity"}, Infinity])", "x").dump(),
            R"([null,null,{"NaN":"a \" Infinity"},null])");
}

TEST(Json, FilesThatCannotBeReadAreNamed) {
  EXPECT_THAT([] { read_json("/nowhere/x.json"); }, ThrowsMessage<IoError>(HasSubstr("/nowhere/x.json: No such file")));
  EXPECT_THAT([] { read_json("/"); }, ThrowsMessage<IoError>(HasSubstr("is a directory")));
}

// As `trireme ask --context_file /dev/stdin` or <(...) gives it: it has no size.
TEST(Json, APipeIsReadLikeAFile) {
  const std::string content(100'000, 'x');
  FILE* pipe = ::popen("head -c 100000 /dev/zero | tr '\\0' x", "r");
  ASSERT_NE(pipe, nullptr);
  EXPECT_EQ(read_file(str("/proc/self/fd/", ::fileno(pipe))), content);
  ::pclose(pipe);
  EXPECT_EQ(read_file("/dev/null"), "");
  EXPECT_THAT([] { read_file("/"); }, ThrowsMessage<IoError>(HasSubstr("cannot read /: Is a directory")));
}

TEST(Json, ValuesKnowWhereTheyStand) {
  const Json document = parse_json(R"({"data": [{"n": 3}, {"n": "three"}], "nothing": null})", "x.json");
  const JsonPlace place(document, "x.json");
  EXPECT_EQ(place["data"].at(0)["n"].integer(), 3);
  EXPECT_THAT([&] { place["data"].at(1)["n"].integer(); },
              ThrowsMessage<InvalidArgument>("x.json.data[1].n: a whole number is wanted, not string"));
  EXPECT_THAT([&] { place["data"].at(2); }, ThrowsMessage<InvalidArgument>("x.json.data: has no element 2"));
  EXPECT_THAT([&] { place["other"]; }, ThrowsMessage<InvalidArgument>("x.json: \"other\" is missing"));
  EXPECT_FALSE(place.has("nothing"));
  EXPECT_EQ(place.integer_or("nothing", 7), 7);
}

TEST(PythonJson, FloatsAsReprWritesThem) {
  EXPECT_EQ(python_repr(0), "0.0");
  EXPECT_EQ(python_repr(-0.0), "-0.0");
  EXPECT_EQ(python_repr(1), "1.0");
  EXPECT_EQ(python_repr(0.1), "0.1");
  EXPECT_EQ(python_repr(0.1f), "0.10000000149011612");
  EXPECT_EQ(python_repr(1e-4), "0.0001");
  EXPECT_EQ(python_repr(1e-5), "1e-05");
  EXPECT_EQ(python_repr(-1.25e-7), "-1.25e-07");
  EXPECT_EQ(python_repr(123456789012345680), "1.2345678901234568e+17");
  EXPECT_EQ(python_repr(1e15), "1000000000000000.0");
  EXPECT_EQ(python_repr(1e16), "1e+16");
  EXPECT_EQ(python_repr(-1234567890.0625), "-1234567890.0625");
  EXPECT_EQ(python_repr(-2.2250738585072014e-308), "-2.2250738585072014e-308");
  EXPECT_EQ(python_repr(std::nan("")), "nan");
  EXPECT_EQ(python_repr(-HUGE_VAL), "-inf");
}

}  // namespace
}  // namespace trireme::trainer
