#include "trireme/trainer/safetensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/trainer/json/json.h"

namespace trireme::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string length_bytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> 8 * i);
  return bytes;
}

std::string file_of(const std::string& header, const std::string& data = "") {
  return length_bytes(header.size()) + header + data;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

SafetensorsContent parse(const std::string& file) { return parse_safetensors(bytes_of(file), "x.safetensors"); }

void expect_refused(const std::string& file, const std::string& why) {
  EXPECT_THAT([&] { parse(file); }, ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("x.safetensors: "), HasSubstr(why))))
      << file;
}

class Directory : public testing::Test {
 protected:
  Directory() : path_(testing::TempDir() + str("safetensors_test.", ::getpid())) {
    std::filesystem::create_directory(path_);
  }
  ~Directory() override { std::filesystem::remove_all(path_); }

  void put(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

  std::filesystem::path path_;
};

TEST(Safetensors, TensorsAndMetadataAreRead) {
  const std::string file = file_of(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7],"more":1},)"
                                   R"("__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                   R"("none":{"dtype":"I64","shape":[2,0],"data_offsets":[7,7]}}  )",
                                   "1234abc");
  const SafetensorsContent content = parse(file);
  ASSERT_EQ(content.entries.size(), 3u);
  const auto& [a, b, none] = std::tie(content.entries[0], content.entries[1], content.entries[2]);
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, Dtype::f32);
  EXPECT_TRUE(a.shape.empty());
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(static_cast<char>(b.data[2]), 'c');
  EXPECT_THAT(none.shape, ElementsAre(2, 0));
  EXPECT_TRUE(none.data.empty());
  EXPECT_EQ(content.metadata.at("format"), "pt");
  EXPECT_TRUE(parse(file_of("{}")).entries.empty());
}

TEST(Safetensors, HeadersThatAreNoneAreRefused) {
  expect_refused("", "has 0 bytes, too few");
  expect_refused("1234567", "has 7 bytes, too few");
  expect_refused(length_bytes(3) + "{}", "announces a header of 3 bytes but has 10 in all");
  expect_refused(length_bytes(100'000'001) + "{}", "announces a header of 100000001 bytes: not a safetensors file");
  expect_refused(length_bytes(UINT64_MAX) + "{}", "not a safetensors file");
  expect_refused(file_of(""), "not a JSON object");
  expect_refused(file_of("[]"), "not a JSON object");
  expect_refused(file_of("{\"a\":"), "not JSON");
  expect_refused(file_of("{\"a\":1e999}"), "not JSON");
  expect_refused(file_of("{\"\xff\":1}"), "not JSON");
  expect_refused(file_of(std::string("{}\0 hidden", 10)), "zero byte");
  expect_refused(
      file_of(
          R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
      "has the key \"a\" twice");
  expect_refused(file_of(R"({"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}})"),
                 "has the key \"dtype\" twice");
  expect_refused(file_of(R"({"__metadata__":{"k":"1","k":"2"}})"), "has the key \"k\" twice");
}

TEST(Safetensors, WrongTypesAreRefused) {
  expect_refused(file_of(R"({"__metadata__":[]})"), "__metadata__ is not an object");
  expect_refused(file_of(R"({"__metadata__":{"format":1}})"), "\"format\" is not a string");
  expect_refused(file_of(R"({"a":1})"), "tensor \"a\": is not an object");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[]}})"), "tensor \"a\": has no data_offsets");
  expect_refused(file_of(R"({"a":{"dtype":8,"shape":[],"data_offsets":[0,1]}})", "1"), "dtype is not a string");
  expect_refused(file_of(R"({"a":{"dtype":"F31","shape":[],"data_offsets":[0,1]}})", "1"), "dtype \"F31\" is not known");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", "1"), "shape is not an array");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "1"), "shape [-1] has an extent");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "1"), "shape [1.0] has an extent");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", "1"),
                 "has an extent");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "1"), "not two whole numbers");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", "1"), "not two whole numbers");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":"01"}})", "1"), "not two whole numbers");
}

TEST(Safetensors, RangesThatDoNotFitAreRefused) {
  const auto u8 = [](const char* name, int extent, int begin, int end) {
    return str("\"", name, "\":{\"dtype\":\"U8\",\"shape\":[", extent, "],\"data_offsets\":[", begin, ",", end, "]}");
  };
  expect_refused(file_of("{" + u8("a", 2, 0, 1) + "}", "1"),
                 "tensor \"a\": U8 of shape [2] takes 2 bytes, but its data_offsets span 1");
  expect_refused(file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "1"), "does not end on a byte");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1]}})", "1"), "overflows");
  expect_refused(file_of(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})"), "overflows");
  expect_refused(file_of("{" + u8("a", 1, 1, 0) + "}", "1"), "end before they begin");
  expect_refused(file_of("{" + u8("a", 2, 0, 2) + "}", "1"), "lie beyond the file's 1 bytes of data; it was cut short");
  expect_refused(file_of("{" + u8("a", 2, 0, 2) + "," + u8("b", 2, 1, 3) + "}", "123"),
                 "tensor \"b\": its data overlap those of \"a\"");
  expect_refused(file_of("{" + u8("a", 1, 0, 1) + "," + u8("b", 1, 2, 3) + "}", "123"),
                 "before its data lie 1 bytes that are nobody's");
  expect_refused(file_of("{" + u8("a", 1, 0, 1) + "}", "12"), "after the last tensor lie 1 bytes");
}

TEST(Safetensors, NamesOfTypesGoBothWays) {
  for (int value = 0; value <= static_cast<int>(Dtype::u64); ++value) {
    const Dtype dtype = static_cast<Dtype>(value);
    EXPECT_EQ(find_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_name(Dtype::bf16), "BF16");
  EXPECT_EQ(dtype_bits(Dtype::bf16), 16u);
  EXPECT_EQ(dtype_name(Dtype::u64), "U64");
  EXPECT_EQ(find_dtype("f32"), std::nullopt);
}

TEST_F(Directory, WhatIsWrittenIsReadBack) {
  const std::array<float, 4> weights = {1, 2, 3, 4};
  const std::string flags(1 << 20, '\1');
  const std::vector<TensorEntry> entries = {
      {"flags", Dtype::boolean, {1 << 20}, bytes_of(flags)},
      {"z \"quoted\" \n \u00fc", Dtype::f32, {2, 2}, std::as_bytes(std::span(weights))},
      {"empty", Dtype::f32, {0}, {}},
  };
  write_safetensors(path_ / "x", entries, {{"format", "pt"}, {"a", "b"}});
  const SafetensorsFile file(path_ / "x");
  ASSERT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.entries()[0].name, "empty");
  const TensorEntry& read = file.entries()[1];
  EXPECT_EQ(read.name, entries[1].name);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(read.data.data()) % 8, 0u);
  EXPECT_THAT(read.shape, ElementsAre(2, 2));
  EXPECT_EQ(std::memcmp(read.data.data(), weights.data(), sizeof weights), 0);
  EXPECT_EQ(std::memcmp(file.entries()[2].data.data(), flags.data(), flags.size()), 0);
  EXPECT_EQ(file.metadata().at("format"), "pt");

  // A file may be replaced while it is mapped.
  write_safetensors(path_ / "x", {}, {});
  EXPECT_EQ(std::memcmp(read.data.data(), weights.data(), sizeof weights), 0);
  EXPECT_EQ(read_file(path_ / "x"), file_of("{}      "));
}

TEST_F(Directory, EntriesThatContradictThemselvesAreNotWritten) {
  const auto write = [&](std::vector<TensorEntry> entries) { write_safetensors(path_ / "x", entries, {}); };
  EXPECT_THAT(
      [&] {
        write({{"a", Dtype::f32, {1}, bytes_of("123")}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("tensor \"a\": its 3 bytes do not fit its shape and F32")));
  EXPECT_THAT(
      [&] {
        write({{"a", Dtype::u8, {-1}, bytes_of("123")}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("do not fit")));
  EXPECT_THAT(
      [&] {
        write({{"a", Dtype::u8, {0}, {}}, {"a", Dtype::i8, {0}, {}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("two tensors are named \"a\"")));
  EXPECT_THAT(
      [&] {
        write({{"__metadata__", Dtype::u8, {0}, {}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("cannot be named")));
  EXPECT_THAT([&] { write({{"\xff", Dtype::u8, {0}, {}}}); }, ThrowsMessage<InvalidArgument>(HasSubstr("not UTF-8")));
  EXPECT_TRUE(std::filesystem::is_empty(path_));
}

TEST_F(Directory, FilesThatCannotBeMappedAreNamed) {
  EXPECT_THAT([&] { SafetensorsFile(path_ / "x"); }, ThrowsMessage<IoError>(HasSubstr("/x: No such file")));
  EXPECT_THAT([&] { SafetensorsFile{path_}; }, ThrowsMessage<IoError>(HasSubstr("is not a file")));
  put("x", "");
  EXPECT_THAT([&] { SafetensorsFile(path_ / "x"); }, ThrowsMessage<InvalidArgument>(HasSubstr("/x: has 0 bytes")));
}

TEST_F(Directory, AModelIsOneFileOrShards) {
  const std::string one = "1", two = "2";
  write_safetensors(path_ / "s1.safetensors", {{"a", Dtype::u8, {1}, bytes_of(one)}, {"unlisted", Dtype::u8, {0}, {}}}, {});
  write_safetensors(path_ / "s2.safetensors", {{"b", Dtype::u8, {1}, bytes_of(two)}}, {});
  put("model.safetensors.index.json", R"({"metadata":{}, "weight_map":{"b":"s2.safetensors","a":"s1.safetensors"}})");
  {
    const SafetensorsModel model(path_);
    EXPECT_THAT(model.names(), ElementsAre("a", "b"));
    EXPECT_EQ(static_cast<char>(model.find("b")->data[0]), '2');
    EXPECT_EQ(model.find("unlisted"), nullptr);
    EXPECT_EQ(model.file_of("b"), path_ / "s2.safetensors");
  }
  write_safetensors(path_ / "model.safetensors", {{"c", Dtype::u8, {1}, bytes_of(one)}}, {});
  const SafetensorsModel model(path_);
  EXPECT_THAT(model.names(), ElementsAre("c"));
  EXPECT_EQ(model.find("a"), nullptr);
  EXPECT_EQ(model.file_of("c"), path_ / "model.safetensors");
}

TEST_F(Directory, AModelWhoseFilesDoNotFitIsRefused) {
  const auto expect = [&](const std::string& why) {
    EXPECT_THAT([&] { SafetensorsModel{path_}; }, ThrowsMessage<InvalidArgument>(HasSubstr(why)));
  };
  expect("has neither model.safetensors nor model.safetensors.index.json");
  put("pytorch_model.bin", "");
  expect("save_pretrained('" + path_.string() + "-safetensors', safe_serialization=True)");
  write_safetensors(path_ / "s1.safetensors", {}, {});
  const auto put_index = [&](const std::string& text) { put("model.safetensors.index.json", text); };
  put_index(R"({"weight_map":{"a":"s2.safetensors"}})");
  expect("index.json: names s2.safetensors, which is missing");
  put_index(R"({"weight_map":{"a":"s1.safetensors"}})");
  expect("says that tensor \"a\" is in s1.safetensors, but it is not");
  put_index(R"({"weight_map":{"a":"../s1.safetensors"}})");
  expect("\"../s1.safetensors\" is not the name of a file beside the index");
  put_index(R"({"weight_map":{"a":1}})");
  expect("weight_map[\"a\"]: a string is wanted");
  put_index(R"({})");
  expect("\"weight_map\" is missing");
  put("s1.safetensors", "torn");
  put_index(R"({"weight_map":{"a":"s1.safetensors"}})");
  expect("s1.safetensors: has 4 bytes");
}

}  // namespace
}  // namespace trireme::trainer
