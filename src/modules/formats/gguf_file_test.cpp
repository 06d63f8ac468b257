#include "modules/formats/gguf_file.h"

#include <gtest/gtest.h>

#include "modules/formats/format_test_support.h"

namespace graft {
namespace {

using format_test::Bytes;
using format_test::GgufWriter;
using format_test::RawGguf;

std::string refusal(const Bytes& file) {
  const auto result = read_gguf(file, "x");
  return result ? "accepted" : result.error().message;
}

bool refused_with(const Bytes& file, const std::string& expected) {
  const std::string message = refusal(file);
  EXPECT_NE(message.find(expected), std::string::npos) << message;
  return message != "accepted";
}

RawGguf one_tensor(const std::vector<std::uint64_t>& dims, std::uint32_t type,
                   std::uint64_t offset) {
  RawGguf file(1, 0);
  file.text("t").u32(static_cast<std::uint32_t>(dims.size()));
  for (const std::uint64_t n : dims) file.u64(n);
  file.u32(type).u64(offset);
  return file;
}

TEST(GgufFile, ReadsKeysAndTensorsOfBothVersions) {
  GgufWriter writer;
  writer.add_string("general.architecture", "llama").add_f32("a", 2.5F).add_u32("n", 7);
  writer.add_u32_array("list", {1, 2, 3});
  writer.add_f32_tensor("first", {3, 2}, 1).add_f32_tensor("second", {5});
  for (const std::uint32_t version : {2U, 3U}) {
    const Bytes bytes = writer.finish(version);
    const auto file = read_gguf(bytes, "x");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->version, version);
    EXPECT_EQ(file->string_or_empty("general.architecture"), "llama");
    EXPECT_EQ(file->string_or_empty("a"), "");
    EXPECT_EQ(std::get<double>(file->find("a")->value), 2.5);
    EXPECT_EQ(std::get<std::uint64_t>(file->find("n")->value), 7U);
    EXPECT_EQ(std::get<GgufArray>(file->find("list")->value).n_elements, 3U);
    EXPECT_EQ(file->find("absent"), nullptr);
    ASSERT_EQ(file->tensors.size(), 2U);
    EXPECT_EQ(file->tensors[0].ne, (std::array<std::int64_t, 4>{3, 2, 1, 1}));
    EXPECT_EQ(file->tensors[1].offset, 32U);
    float value = 0;
    std::memcpy(&value, file->tensors[0].bytes.data() + 20, 4);
    EXPECT_EQ(value, 6.0F);
  }
}

TEST(GgufFile, RefusesOtherFilesAndVersions) {
  EXPECT_TRUE(refused_with(Bytes(3), "not a GGUF file"));
  EXPECT_TRUE(refused_with(Bytes(100), "not a GGUF file"));
  const GgufWriter empty;
  EXPECT_TRUE(refused_with(empty.finish(1), "version 1"));
  EXPECT_TRUE(refused_with(empty.finish(4), "version 4"));
  EXPECT_TRUE(refused_with(empty.finish(0x03000000), "big-endian"));
  GgufWriter model;
  model.add_string("general.type", "model");
  EXPECT_TRUE(refused_with(model.finish(), "a model, not an adapter"));
}

TEST(GgufFile, RefusesHostileCountsAndLengths) {
  const std::uint64_t huge = ~std::uint64_t{0};
  EXPECT_TRUE(refused_with(RawGguf(huge, 0).finish(), "the limits for an adapter"));
  EXPECT_TRUE(refused_with(RawGguf(0, huge).finish(), "the limits for an adapter"));
  EXPECT_TRUE(refused_with(RawGguf(0, 1).u64(huge).finish(), "no valid name"));
  EXPECT_TRUE(refused_with(RawGguf(0, 1).text("").u32(4).u32(0).finish(), "no valid name"));
  EXPECT_TRUE(refused_with(RawGguf(0, 1).text(std::string("a\0b", 3)).u32(4).u32(0).finish(),
                           "no valid name"));
  EXPECT_TRUE(refused_with(RawGguf(0, 1).text("k").u32(13).finish(), "no valid value"));
  EXPECT_TRUE(refused_with(RawGguf(0, 1).text("k").u32(8).u64(huge).finish(), "no valid value"));
  // Arrays: too many elements, strings, arrays of arrays, unknown elements.
  EXPECT_TRUE(
      refused_with(RawGguf(0, 1).text("k").u32(9).u32(4).u64(huge).finish(), "no valid value"));
  EXPECT_TRUE(
      refused_with(RawGguf(0, 1).text("k").u32(9).u32(8).u64(huge).finish(), "no valid value"));
  EXPECT_TRUE(refused_with(RawGguf(0, 1).text("k").u32(9).u32(8).u64(1).u64(huge).finish(),
                           "no valid value"));
  EXPECT_TRUE(
      refused_with(RawGguf(0, 1).text("k").u32(9).u32(9).u64(1).finish(), "no valid value"));
  EXPECT_TRUE(
      refused_with(RawGguf(0, 1).text("k").u32(9).u32(77).u64(0).finish(), "no valid value"));
}

TEST(GgufFile, RefusesDuplicates) {
  GgufWriter keys;
  keys.add_u32("k", 1).add_u32("k", 1);
  EXPECT_TRUE(refused_with(keys.finish(), "the key 'k' stands twice"));
  GgufWriter tensors;
  tensors.add_f32_tensor("t", {1}).add_f32_tensor("t", {1});
  EXPECT_TRUE(refused_with(tensors.finish(), "the tensor 't' stands twice"));
}

TEST(GgufFile, RefusesBrokenTensors) {
  EXPECT_EQ(refusal(one_tensor({4, 4}, 0, 0).finish()), "accepted");
  EXPECT_TRUE(refused_with(one_tensor({}, 0, 0).finish(), "1 to 4 dimensions"));
  EXPECT_TRUE(refused_with(one_tensor({1, 1, 1, 1, 1}, 0, 0).finish(), "1 to 4 dimensions"));
  EXPECT_TRUE(refused_with(one_tensor({4, 0}, 0, 0).finish(), "no elements"));
  EXPECT_TRUE(refused_with(one_tensor({1U << 31, 1U << 31, 4}, 0, 0).finish(), "too large"));
  EXPECT_TRUE(refused_with(one_tensor({~std::uint64_t{0}}, 0, 0).finish(), "too large"));
  EXPECT_TRUE(refused_with(one_tensor({32}, 2, 0).finish(), "has the type Q4_0"));
  EXPECT_TRUE(refused_with(one_tensor({32}, 12, 0).finish(), "has the type Q4_K"));
  EXPECT_TRUE(refused_with(one_tensor({32}, 0xFFFFFFFF, 0).finish(), "number 4294967295"));
  EXPECT_TRUE(refused_with(one_tensor({33}, 8, 0).finish(), "not a multiple of 32"));
  EXPECT_TRUE(refused_with(one_tensor({4}, 0, 32).finish(), "expected 0"));
  EXPECT_TRUE(refused_with(one_tensor({4}, 0, ~std::uint64_t{0}).finish(), "expected 0"));
  EXPECT_TRUE(refused_with(one_tensor({1U << 20}, 0, 0).finish(), "outside the file"));
  RawGguf long_name(1, 0);
  long_name.text(std::string(64, 'n')).u32(1).u64(1).u32(0).u64(0);
  EXPECT_TRUE(refused_with(long_name.finish(), "no valid name"));
}

TEST(GgufFile, RefusesStrangeAlignments) {
  for (const std::uint32_t alignment : {0U, 3U, 1U << 17, ~0U}) {
    GgufWriter writer;
    writer.add_u32("general.alignment", alignment);
    EXPECT_TRUE(refused_with(writer.finish(), "power of two"));
  }
  GgufWriter text;
  text.add_string("general.alignment", "32");
  EXPECT_TRUE(refused_with(text.finish(), "power of two"));
  GgufWriter fine;
  fine.add_u32("general.alignment", 32).add_f32_tensor("t", {1});
  EXPECT_EQ(refusal(fine.finish()), "accepted");
}

TEST(GgufFile, SurvivesTruncationAtEveryByte) {
  GgufWriter writer;
  writer.add_adapter_keys("llama", 8).add_u32_array("list", {1, 2});
  writer.add_f32_tensor("t.lora_a", {8, 2}).add_f32_tensor("t.lora_b", {2, 8});
  const Bytes file = writer.finish();
  for (std::size_t n = 0; n < file.size(); ++n) {
    EXPECT_FALSE(read_gguf(std::span(file).first(n), "x")) << n;
  }
}

}  // namespace
}  // namespace graft
