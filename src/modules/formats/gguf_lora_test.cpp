#include "modules/formats/gguf_lora.h"

#include <gtest/gtest.h>

#include <cmath>

#include "modules/formats/factors.h"
#include "modules/formats/format_test_support.h"

namespace graft {
namespace {

using format_test::append_value;
using format_test::BaseShape;
using format_test::Bytes;
using format_test::counting_floats;
using format_test::GgufWriter;
using format_test::make_base;

Result<Adapter> bind_adapter(const GgufWriter& writer, const BaseModel& base) {
  const Bytes bytes = writer.finish();
  GRAFT_ASSIGN_OR_RETURN(const GgufFile file, read_gguf(bytes, "x"));
  return bind_gguf_lora(file, base);
}

std::string refusal(const GgufWriter& writer, const BaseModel& base) {
  const auto adapter = bind_adapter(writer, base);
  return adapter ? "accepted" : adapter.error().message;
}

GgufWriter lora_file(float alpha = 8) {
  GgufWriter writer;
  writer.add_adapter_keys("llama", alpha);
  return writer;
}

void add_pair(GgufWriter& writer, const std::string& tensor, const std::vector<std::int64_t>& a,
              const std::vector<std::int64_t>& b) {
  writer.add_f32_tensor(tensor + ".lora_a", a).add_f32_tensor(tensor + ".lora_b", b, 1000);
}

TEST(GgufLora, BindsALinearWeightAsItIs) {
  GgufWriter writer = lora_file();
  add_pair(writer, "blk.0.attn_q.weight", {16, 2}, {2, 16});
  const auto adapter = bind_adapter(writer, make_base({}));
  ASSERT_TRUE(adapter) << adapter.error().message;
  const LoraTerm& term = adapter->terms[0];
  EXPECT_EQ(term.site, (SiteKey{SiteOp::kMatMul, "blk.0.attn_q.weight"}));
  EXPECT_EQ(term.n_in, 16);
  EXPECT_EQ(term.n_out, 16);
  EXPECT_EQ(term.rank, 2);
  EXPECT_EQ(term.scale, 4.0F);
  EXPECT_EQ(term.a.n_rows, 2);
  EXPECT_EQ(term.a.bytes, counting_floats(32));
  EXPECT_EQ(term.b.bytes, counting_floats(32, 1000));  // the converter has permuted already
  EXPECT_EQ(adapter->report.bound.size(), 2U);
  EXPECT_EQ(adapter->report.n_tensors, 2);
  EXPECT_EQ(adapter->report.format, "GGUF LoRA");
}

TEST(GgufLora, ScaleWithoutAlphaIsOne) {
  GgufWriter zero = lora_file(0);
  add_pair(zero, "blk.0.ffn_up.weight", {16, 4}, {4, 24});
  EXPECT_EQ(bind_adapter(zero, make_base({}))->terms[0].scale, 1.0F);
  GgufWriter absent;
  absent.add_string("general.type", "adapter").add_string("adapter.type", "lora");
  absent.add_string("general.architecture", "llama");
  add_pair(absent, "blk.0.ffn_up.weight", {16, 4}, {4, 24});
  EXPECT_EQ(bind_adapter(absent, make_base({}))->terms[0].scale, 1.0F);
}

TEST(GgufLora, EachTensorHasItsOwnRank) {
  GgufWriter writer = lora_file(8);
  add_pair(writer, "blk.0.ffn_up.weight", {16, 4}, {4, 24});
  add_pair(writer, "blk.1.ffn_up.weight", {16, 1}, {1, 24});
  const auto adapter = bind_adapter(writer, make_base({}));
  ASSERT_TRUE(adapter);
  EXPECT_EQ(adapter->terms[0].scale, 2.0F);
  EXPECT_EQ(adapter->terms[1].scale, 8.0F);
  EXPECT_EQ(adapter->report.max_rank, 4);
}

TEST(GgufLora, EmbeddingAndHead) {
  GgufWriter writer = lora_file();
  add_pair(writer, "token_embd.weight", {2, 20}, {2, 16});
  add_pair(writer, "output.weight", {16, 2}, {2, 20});
  const auto adapter = bind_adapter(writer, make_base({}));
  ASSERT_TRUE(adapter) << adapter.error().message;
  ASSERT_EQ(adapter->terms.size(), 2U);
  const LoraTerm& head = adapter->terms[0];
  EXPECT_EQ(head.site, (SiteKey{SiteOp::kMatMul, "token_embd.weight"}));
  EXPECT_EQ(head.n_out, 20);
  const LoraTerm& table = adapter->terms[1];
  EXPECT_EQ(table.site, (SiteKey{SiteOp::kGetRows, "token_embd.weight"}));
  EXPECT_EQ(table.n_in, 20);
  EXPECT_EQ(table.n_out, 16);
  EXPECT_EQ(table.a.n_rows, 20);
  EXPECT_EQ(table.a.n_cols, 2);
}

TEST(GgufLora, ExpertsNeedTheCountOfTheBase) {
  BaseShape shape;
  shape.n_experts = 3;
  const BaseModel base = make_base(shape);
  GgufWriter writer = lora_file();
  add_pair(writer, "blk.0.ffn_up_exps.weight", {16, 2, 3}, {2, 24, 3});
  const auto adapter = bind_adapter(writer, base);
  ASSERT_TRUE(adapter) << adapter.error().message;
  const LoraTerm& term = adapter->terms[0];
  EXPECT_EQ(static_cast<int>(term.site.op), static_cast<int>(SiteOp::kMatMulId));
  EXPECT_EQ(term.n_experts, 3);
  EXPECT_EQ(term.a.n_rows, 6);
  EXPECT_EQ(term.b.n_rows, 72);
  for (const std::int64_t n_experts : {1, 2, 4}) {
    GgufWriter wrong = lora_file();
    add_pair(wrong, "blk.0.ffn_up_exps.weight", {16, 2, n_experts}, {2, 24, n_experts});
    EXPECT_NE(refusal(wrong, base).find("needs {16, 2, 3}"), std::string::npos);
  }
  GgufWriter flat = lora_file();
  add_pair(flat, "blk.0.attn_q.weight", {16, 2, 3}, {2, 16, 3});
  EXPECT_NE(refusal(flat, base).find("another model"), std::string::npos);
}

TEST(GgufLora, Q8FactorsAreDequantised) {
  Bytes row;
  append_value<std::uint16_t>(row, 0x3C00);  // 1
  for (int i = 0; i < 32; ++i) append_value(row, static_cast<std::int8_t>(i - 16));
  BaseShape shape;
  shape.n_embd = 32;
  GgufWriter writer = lora_file();
  writer.add_tensor("blk.0.ffn_up.weight.lora_a", {32, 1}, 8, row);
  writer.add_tensor("blk.0.ffn_up.weight.lora_b", {1, 24}, 30, Bytes(48));
  const auto adapter = bind_adapter(writer, make_base(shape));
  ASSERT_TRUE(adapter) << adapter.error().message;
  EXPECT_EQ(static_cast<int>(adapter->terms[0].a.type), static_cast<int>(FactorType::kF32));
  EXPECT_EQ(to_floats(adapter->terms[0].a)[3], -13.0F);
  EXPECT_EQ(static_cast<int>(adapter->terms[0].b.type), static_cast<int>(FactorType::kBF16));
}

TEST(GgufLora, NormsAreReportedAsIgnored) {
  GgufWriter writer = lora_file();
  add_pair(writer, "blk.0.ffn_up.weight", {16, 4}, {4, 24});
  writer.add_f32_tensor("blk.0.attn_norm.weight", {16});
  const auto adapter = bind_adapter(writer, make_base({}));
  ASSERT_TRUE(adapter);
  ASSERT_EQ(adapter->report.ignored.size(), 1U);
  EXPECT_NE(adapter->report.ignored[0].find("blk.0.attn_norm.weight"), std::string::npos);
}

TEST(GgufLora, RefusesPairsThatDoNotFit) {
  const BaseModel base = make_base({});
  GgufWriter half = lora_file();
  half.add_f32_tensor("blk.0.ffn_up.weight.lora_a", {16, 4});
  EXPECT_NE(refusal(half, base).find("has no counterpart .lora_b"), std::string::npos);
  const auto refused = [&](const std::string& tensor, const std::vector<std::int64_t>& a,
                           const std::vector<std::int64_t>& b) {
    GgufWriter writer = lora_file();
    add_pair(writer, tensor, a, b);
    return refusal(writer, base);
  };
  EXPECT_NE(refused("blk.0.ffn_up.weight", {17, 4}, {4, 24}).find("needs {16, 4}"),
            std::string::npos);
  EXPECT_NE(refused("blk.0.ffn_up.weight", {16, 4}, {4, 23}).find("needs {r, 24}"),
            std::string::npos);
  EXPECT_NE(refused("blk.0.ffn_up.weight", {16, 4}, {3, 24}).find("needs {16, 3}"),
            std::string::npos);
  EXPECT_NE(refused("blk.7.ffn_up.weight", {16, 4}, {4, 24}).find("the base does not have"),
            std::string::npos);
  EXPECT_NE(refused("blk.0.attn_norm.weight", {16, 4}, {4, 1}).find("takes no low-rank factors"),
            std::string::npos);
  EXPECT_NE(refused("token_embd.weight", {16, 2}, {2, 20}).find("needs {2, 20}"),
            std::string::npos);
  GgufWriter unknown = lora_file();
  unknown.add_f32_tensor("blk.0.ffn_up.weight", {16});
  EXPECT_NE(refusal(unknown, base).find("is not part of a LoRA adapter"), std::string::npos);
  EXPECT_NE(refusal(lora_file(), base).find("would do nothing"), std::string::npos);
}

TEST(GgufLora, RefusesOtherKindsOfFilesByName) {
  const BaseModel base = make_base({});
  GgufWriter vector;
  vector.add_string("general.architecture", "controlvector");
  vector.add_f32_tensor("direction.1", {16});
  EXPECT_EQ(refusal(vector, base), "control vectors are not supported yet");
  GgufWriter untyped;
  untyped.add_string("general.architecture", "llama");
  EXPECT_NE(refusal(untyped, base).find("general.type is ''"), std::string::npos);
  GgufWriter other;
  other.add_string("general.type", "adapter").add_string("adapter.type", "ia3");
  EXPECT_EQ(refusal(other, base), "adapters of type 'ia3' are not supported yet");
  GgufWriter alora = lora_file();
  alora.add_u32_array("adapter.alora.invocation_tokens", {1, 2});
  EXPECT_EQ(refusal(alora, base), "aLoRA (activated LoRA) is not supported yet");
  GgufWriter arch;
  arch.add_adapter_keys("qwen2", 8);
  add_pair(arch, "blk.0.ffn_up.weight", {16, 4}, {4, 24});
  EXPECT_NE(refusal(arch, base).find("made for the architecture 'qwen2', the base is 'llama'"),
            std::string::npos);
  GgufWriter alpha = lora_file(HUGE_VALF);
  EXPECT_NE(refusal(alpha, base).find("alpha is not a finite number"), std::string::npos);
}

}  // namespace
}  // namespace graft
