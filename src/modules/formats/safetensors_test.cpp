#include "modules/formats/safetensors.h"

#include <gtest/gtest.h>

#include "modules/formats/format_test_support.h"

namespace graft {
namespace {

using format_test::Bytes;
using format_test::safetensors_from_header;
using format_test::SafetensorsWriter;

std::string refusal(const Bytes& file) {
  const auto result = read_safetensors(file, "x");
  return result ? "accepted" : result.error().message;
}

std::string refusal(const std::string& header, std::size_t n_data_bytes) {
  return refusal(safetensors_from_header(header, Bytes(n_data_bytes)));
}

TEST(Safetensors, ReadsNamesTypesShapesAndBytes) {
  const Bytes file =
      SafetensorsWriter().add_f32("w", {2, 3}, 5).add("half", "BF16", {4}, Bytes(8)).finish();
  const auto result = read_safetensors(file, "x");
  ASSERT_TRUE(result);
  ASSERT_EQ(result->tensors.size(), 2U);
  const SafetensorsTensor& w = result->tensors[0];
  EXPECT_EQ(w.name, "w");
  EXPECT_EQ(w.dtype, "F32");
  EXPECT_EQ(w.shape, (std::vector<std::int64_t>{2, 3}));
  ASSERT_EQ(w.bytes.size(), 24U);
  float last = 0;
  std::memcpy(&last, w.bytes.data() + 20, 4);
  EXPECT_EQ(last, 10.0F);
  EXPECT_EQ(result->tensors[1].bytes.size(), 8U);
}

TEST(Safetensors, AcceptsMetadataPaddingAndAnyOrderOfNames) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"z":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
      R"("a":{"dtype":"U8","shape":[],"data_offsets":[1,2]}}     )";
  const auto result = read_safetensors(safetensors_from_header(header, Bytes(2)), "x");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->metadata.at("format"), "pt");
  EXPECT_EQ(result->tensors[0].name, "z");
  EXPECT_EQ(result->tensors[1].name, "a");
}

TEST(Safetensors, RefusesDamagedContainers) {
  EXPECT_NE(refusal(Bytes(7)).find("shorter than 8"), std::string::npos);
  Bytes huge(16, std::byte{0xFF});
  EXPECT_NE(refusal(huge).find("over the limit"), std::string::npos);
  Bytes cut = SafetensorsWriter().add_f32("w", {2}).finish();
  cut.resize(20);
  EXPECT_NE(refusal(cut).find("cut off"), std::string::npos);
  EXPECT_NE(refusal("[]", 0).find("not an object"), std::string::npos);
  EXPECT_NE(refusal("", 0).find("not an object"), std::string::npos);
  EXPECT_NE(refusal("{\"a\":", 0).find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"\xff\":1}", 0).find("not valid JSON"), std::string::npos);
}

TEST(Safetensors, RefusesEveryBrokenEntry) {
  const auto entry = [](const std::string& body) { return refusal("{\"w\":{" + body + "}}", 4); };
  const std::string ok = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  EXPECT_EQ(entry(ok), "accepted");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("shape":[1],"data_offsets":[0,4])", "no dtype"},
      {R"("dtype":7,"shape":[1],"data_offsets":[0,4])", "no dtype"},
      {R"("dtype":"F33","shape":[1],"data_offsets":[0,4])", "unknown dtype 'F33'"},
      {R"("dtype":"F32","data_offsets":[0,4])", "no shape"},
      {R"("dtype":"F32","shape":"1","data_offsets":[0,4])", "no shape"},
      {R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", "malformed shape"},
      {R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])", "malformed shape"},
      {R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])", "too large"},
      {R"("dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4])", "overflows"},
      {R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])", "9 dimensions"},
      {R"("dtype":"F32","shape":[1])", "no valid data_offsets"},
      {R"("dtype":"F32","shape":[1],"data_offsets":[0])", "no valid data_offsets"},
      {R"("dtype":"F32","shape":[1],"data_offsets":[0,-4])", "no valid data_offsets"},
      {R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", "outside the file"},
      {R"("dtype":"F32","shape":[1],"data_offsets":[0,8])", "outside the file"},
      {R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", "its shape needs 8"},
      {ok + R"(,"shape":[1])", "stands twice"},
      {R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4],"x":[[[[1]]]])", "nested deeper"}};
  for (const auto& [body, expected] : cases) {
    EXPECT_NE(entry(body).find(expected), std::string::npos) << body << " gave " << entry(body);
  }
  EXPECT_NE(refusal(R"({"w":4})", 0).find("not described"), std::string::npos);
  EXPECT_NE(refusal(R"({"":{}})", 0).find("name has 0 bytes"), std::string::npos);
  EXPECT_NE(refusal(R"({"__metadata__":{"a":1}})", 0).find("not a string"), std::string::npos);
}

TEST(Safetensors, RefusesGapsOverlapsAndBytesThatNobodyOwns) {
  const auto two = [](const std::string& first, const std::string& second, std::size_t n) {
    return refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                       R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                   n);
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "accepted");
  EXPECT_NE(two("[0,4]", "[2,6]", 8).find("expected 4"), std::string::npos);
  EXPECT_NE(two("[0,4]", "[0,4]", 4).find("expected 4"), std::string::npos);
  EXPECT_NE(two("[0,4]", "[5,9]", 9).find("expected 4"), std::string::npos);
  EXPECT_NE(two("[1,5]", "[5,9]", 9).find("expected 0"), std::string::npos);
  EXPECT_NE(two("[0,4]", "[4,8]", 9).find("belong to no tensor"), std::string::npos);
  EXPECT_NE(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                    R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                    2)
                .find("stands twice"),
            std::string::npos);
}

TEST(Safetensors, EmptyTensorsNameTheWayOut) {
  EXPECT_NE(refusal(R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0)
                .find("gather the ZeRO-3 shards and save again"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"__metadata__":{"format":"pt"}})", 0).find("gather the ZeRO-3 shards"),
            std::string::npos);
}

TEST(Safetensors, SurvivesTruncationAtEveryByte) {
  const Bytes file = SafetensorsWriter().add_f32("w", {2, 2}).add_f32("v", {3}).finish();
  for (std::size_t n = 0; n < file.size(); ++n) {
    EXPECT_FALSE(read_safetensors(std::span(file).first(n), "x")) << n;
  }
}

}  // namespace
}  // namespace graft
