#include "modules/formats/peft_lora.h"

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
using format_test::floats_as_bytes;
using format_test::make_base;
using format_test::SafetensorsWriter;

constexpr const char* kQ = "model.layers.0.self_attn.q_proj";
constexpr const char* kUp = "model.layers.0.mlp.up_proj";

Result<Adapter> bind_adapter(const SafetensorsWriter& writer, const BaseModel& base,
                             const std::string& fields = R"("r":2,"lora_alpha":4)") {
  GRAFT_ASSIGN_OR_RETURN(const PeftConfig config,
                         parse_peft_config(R"({"peft_type":"LORA",)" + fields + "}"));
  const Bytes bytes = writer.finish();
  GRAFT_ASSIGN_OR_RETURN(const SafetensorsFile file, read_safetensors(bytes, "x"));
  return bind_peft_lora(config, file, base);
}

std::string refusal(const SafetensorsWriter& writer, const BaseModel& base,
                    const std::string& fields = R"("r":2)") {
  const auto adapter = bind_adapter(writer, base, fields);
  return adapter ? "accepted" : adapter.error().message;
}

const LoraTerm* find_term(const Adapter& adapter, SiteOp op, const std::string& tensor) {
  for (const LoraTerm& term : adapter.terms) {
    if (term.site == SiteKey{op, tensor}) return &term;
  }
  return nullptr;
}

bool has_note(const Adapter& adapter, const std::string& words) {
  for (const std::string& note : adapter.report.notes) {
    if (note.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(PeftLora, BindsALinearModule) {
  SafetensorsWriter writer;
  writer.add_lora(kUp, 2, 16, 24);
  const auto adapter = bind_adapter(writer, make_base({}));
  ASSERT_TRUE(adapter) << adapter.error().message;
  ASSERT_EQ(adapter->terms.size(), 1U);
  const LoraTerm& term = adapter->terms[0];
  EXPECT_EQ(term.site, (SiteKey{SiteOp::kMatMul, "blk.0.ffn_up.weight"}));
  EXPECT_EQ(term.n_in, 16);
  EXPECT_EQ(term.n_out, 24);
  EXPECT_EQ(term.rank, 2);
  EXPECT_EQ(term.out_offset, 0);
  EXPECT_EQ(term.n_experts, 1);
  EXPECT_EQ(term.scale, 2.0F);
  EXPECT_EQ(term.a.bytes, counting_floats(32));
  EXPECT_EQ(term.b.bytes, counting_floats(48, 1000));
  EXPECT_TRUE(term.bias.empty());
  EXPECT_EQ(adapter->architecture, "llama");
  EXPECT_EQ(adapter->report.n_tensors, 2);
  EXPECT_EQ(adapter->report.max_rank, 2);
  ASSERT_EQ(adapter->report.bound.size(), 2U);
  EXPECT_EQ(adapter->report.bound[0],
            "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight -> "
            "MUL_MAT blk.0.ffn_up.weight");
  EXPECT_EQ(adapter->factor_bytes(), 80U * 4U);
}

TEST(PeftLora, LlamaQueryRowsAreReordered) {
  SafetensorsWriter writer;
  writer.add_lora(kQ, 1, 16, 16);
  writer.add_f32(std::string("base_model.model.") + kQ + ".lora_B.bias", {16});
  const auto adapter = bind_adapter(writer, make_base({}), R"("r":1,"lora_bias":true)");
  ASSERT_TRUE(adapter) << adapter.error().message;
  // Two heads of 8: rows 0 4 1 5 2 6 3 7 of each.
  const std::vector<float> rows = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
  EXPECT_EQ(adapter->terms[0].bias, rows);
  std::vector<float> b = rows;
  for (float& value : b) value += 1000;
  EXPECT_EQ(to_floats(adapter->terms[0].b), b);
  EXPECT_EQ(adapter->terms[0].a.bytes, counting_floats(16));

  BaseShape qwen;
  qwen.architecture = "qwen2";
  const auto plain = bind_adapter(writer, make_base(qwen), R"("r":1,"lora_bias":true)");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->terms[0].b.bytes, counting_floats(16, 1000));
  EXPECT_EQ(plain->terms[0].bias[1], 1.0F);
}

TEST(PeftLora, LlamaKeyRowsAreReorderedByKeyHeads) {
  BaseShape shape;
  shape.n_heads = 4;
  shape.n_heads_kv = 2;
  shape.head_dim = 4;
  SafetensorsWriter writer;
  writer.add_lora("model.layers.0.self_attn.k_proj", 1, 16, 8);
  const auto adapter = bind_adapter(writer, make_base(shape));
  ASSERT_TRUE(adapter);
  EXPECT_EQ(to_floats(adapter->terms[0].b),
            (std::vector<float>{1000, 1002, 1001, 1003, 1004, 1006, 1005, 1007}));
}

TEST(PeftLora, RanksComeFromTheTensorsAndScalesFromThePatterns) {
  SafetensorsWriter writer;
  writer.add_lora(kQ, 4, 16, 16).add_lora(kUp, 2, 16, 24);
  const auto adapter = bind_adapter(
      writer, make_base({}),
      R"("r":8,"lora_alpha":8,"alpha_pattern":{"q_proj":32},"rank_pattern":{"q_proj":4})");
  ASSERT_TRUE(adapter);
  EXPECT_EQ(find_term(*adapter, SiteOp::kMatMul, "blk.0.attn_q.weight")->scale, 8.0F);
  EXPECT_EQ(find_term(*adapter, SiteOp::kMatMul, "blk.0.ffn_up.weight")->scale, 4.0F);
  EXPECT_TRUE(has_note(*adapter, "1 modules have another rank"));
  EXPECT_EQ(adapter->report.max_rank, 4);
}

TEST(PeftLora, RsLora) {
  SafetensorsWriter writer;
  writer.add_lora(kUp, 4, 16, 24);
  const auto adapter =
      bind_adapter(writer, make_base({}), R"("r":4,"lora_alpha":6,"use_rslora":true)");
  ASSERT_TRUE(adapter);
  EXPECT_EQ(adapter->terms[0].scale, 3.0F);
  EXPECT_TRUE(has_note(*adapter, "rsLoRA"));
}

TEST(PeftLora, SplitModulesOnAFusedBase) {
  BaseShape shape;
  shape.architecture = "phi3";
  shape.fused = true;
  SafetensorsWriter writer;
  writer.add_lora("model.layers.0.self_attn.v_proj", 2, 16, 8).add_lora(kUp, 2, 16, 24);
  const auto adapter = bind_adapter(writer, make_base(shape));
  ASSERT_TRUE(adapter) << adapter.error().message;
  const LoraTerm* v = find_term(*adapter, SiteOp::kMatMul, "blk.0.attn_qkv.weight");
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(v->out_offset, 24);
  EXPECT_EQ(v->n_out, 8);
  EXPECT_EQ(v->b.bytes, counting_floats(16, 1000));
  EXPECT_EQ(find_term(*adapter, SiteOp::kMatMul, "blk.0.ffn_up.weight")->out_offset, 24);
}

TEST(PeftLora, FusedModuleOnASplitBaseSharesAAndSlicesB) {
  SafetensorsWriter writer;
  writer.add_lora("model.layers.0.self_attn.qkv_proj", 1, 16, 32);
  writer.add_lora("model.layers.0.mlp.gate_up_proj", 1, 16, 48);
  const auto adapter = bind_adapter(writer, make_base({}));
  ASSERT_TRUE(adapter) << adapter.error().message;
  ASSERT_EQ(adapter->terms.size(), 5U);
  for (const LoraTerm& term : adapter->terms) EXPECT_EQ(term.a.bytes, counting_floats(16));
  const LoraTerm* k = find_term(*adapter, SiteOp::kMatMul, "blk.0.attn_k.weight");
  EXPECT_EQ(to_floats(k->b), (std::vector<float>{1016, 1020, 1017, 1021, 1018, 1022, 1019, 1023}));
  EXPECT_EQ(find_term(*adapter, SiteOp::kMatMul, "blk.0.attn_v.weight")->b.bytes,
            counting_floats(8, 1024));
  EXPECT_EQ(find_term(*adapter, SiteOp::kMatMul, "blk.0.ffn_gate.weight")->b.bytes,
            counting_floats(24, 1000));
  EXPECT_EQ(find_term(*adapter, SiteOp::kMatMul, "blk.0.ffn_up.weight")->b.bytes,
            counting_floats(24, 1024));
}

TEST(PeftLora, HeadOfATiedAndAnUntiedModel) {
  SafetensorsWriter writer;
  writer.add_lora("lm_head", 2, 16, 20);
  const auto tied = bind_adapter(writer, make_base({}));
  ASSERT_TRUE(tied);
  EXPECT_NE(find_term(*tied, SiteOp::kMatMul, "token_embd.weight"), nullptr);
  BaseShape shape;
  shape.tied_head = false;
  const auto untied = bind_adapter(writer, make_base(shape));
  ASSERT_TRUE(untied);
  EXPECT_NE(find_term(*untied, SiteOp::kMatMul, "output.weight"), nullptr);
}

SafetensorsWriter embedding_adapter() {
  SafetensorsWriter writer;
  const std::string prefix = "base_model.model.model.embed_tokens.";
  writer.add_f32(prefix + "lora_embedding_A", {2, 20});
  writer.add_f32(prefix + "lora_embedding_B", {16, 2}, 1000);
  return writer;
}

TEST(PeftLora, EmbeddingIsOneRowPerToken) {
  const auto adapter = bind_adapter(embedding_adapter(), make_base({}));
  ASSERT_TRUE(adapter) << adapter.error().message;
  ASSERT_EQ(adapter->terms.size(), 1U);
  const LoraTerm& term = adapter->terms[0];
  EXPECT_EQ(term.site, (SiteKey{SiteOp::kGetRows, "token_embd.weight"}));
  EXPECT_EQ(term.n_in, 20);
  EXPECT_EQ(term.n_out, 16);
  EXPECT_EQ(term.a.n_rows, 20);
  EXPECT_EQ(term.a.n_cols, 2);
  EXPECT_EQ(to_floats(term.a)[1], 20.0F);  // row of token 0: A[0][0], A[1][0]
  EXPECT_EQ(to_floats(term.a)[2], 1.0F);
  EXPECT_EQ(term.b.bytes, counting_floats(32, 1000));
}

TEST(PeftLora, EnsureWeightTyingAdaptsTheHeadByTheTransposedFactors) {
  const std::string fields = R"("r":2,"lora_alpha":4,"ensure_weight_tying":true)";
  const auto adapter = bind_adapter(embedding_adapter(), make_base({}), fields);
  ASSERT_TRUE(adapter);
  ASSERT_EQ(adapter->terms.size(), 2U);
  const LoraTerm* head = find_term(*adapter, SiteOp::kMatMul, "token_embd.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->n_in, 16);
  EXPECT_EQ(head->n_out, 20);
  EXPECT_EQ(head->scale, 2.0F);
  EXPECT_EQ(head->a.n_rows, 2);
  EXPECT_EQ(to_floats(head->a)[1], 1002.0F);  // B[1][0]
  EXPECT_EQ(head->b.bytes, adapter->terms[0].a.bytes);
  // Factors of its own, or a head of its own, leave nothing to tie.
  SafetensorsWriter both = embedding_adapter();
  both.add_lora("lm_head", 2, 16, 20);
  EXPECT_EQ(bind_adapter(both, make_base({}), fields)->terms.size(), 2U);
  BaseShape untied;
  untied.tied_head = false;
  EXPECT_EQ(bind_adapter(embedding_adapter(), make_base(untied), fields)->terms.size(), 1U);
}

TEST(PeftLora, CopiesOfTheBaseAreIgnoredAndReplacementsRefused) {
  SafetensorsWriter copies = embedding_adapter();
  copies.add("base_model.model.model.embed_tokens.base_layer.weight", "F16", {20, 16}, Bytes(640));
  copies.add("base_model.model.lm_head.weight", "F16", {20, 16}, Bytes(640));
  const auto adapter = bind_adapter(copies, make_base({}));
  ASSERT_TRUE(adapter) << adapter.error().message;
  EXPECT_EQ(adapter->report.ignored.size(), 2U);
  EXPECT_EQ(adapter->report.n_tensors, 4);

  SafetensorsWriter resized = embedding_adapter();
  resized.add("base_model.model.model.embed_tokens.base_layer.weight", "F16", {21, 16}, Bytes(672));
  EXPECT_NE(refusal(resized, make_base({})).find("resized vocabulary"), std::string::npos);
  SafetensorsWriter replaced;
  replaced.add_lora(kUp, 2, 16, 24);
  replaced.add("base_model.model.lm_head.weight", "F16", {20, 16}, Bytes(640));
  EXPECT_NE(refusal(replaced, make_base({})).find("replaces a weight of the base"),
            std::string::npos);
  SafetensorsWriter norm;
  norm.add_lora(kUp, 2, 16, 24);
  norm.add_f32("base_model.model.model.norm.weight", {16});
  EXPECT_NE(refusal(norm, make_base({})).find("'base_model.model.model.norm.weight' replaces"),
            std::string::npos);
  SafetensorsWriter bias;
  bias.add_lora(kUp, 2, 16, 24);
  bias.add_f32(std::string("base_model.model.") + kUp + ".bias", {24});
  EXPECT_NE(refusal(bias, make_base({})).find("replaces"), std::string::npos);
}

TEST(PeftLora, Gemma3KnowsMoreTokensThanItsConvertedTable) {
  SafetensorsWriter writer;
  writer.add_lora("lm_head", 1, 16, 22);
  BaseShape shape;
  shape.architecture = "gemma3";
  const auto adapter = bind_adapter(writer, make_base(shape));
  ASSERT_TRUE(adapter) << adapter.error().message;
  EXPECT_EQ(adapter->terms[0].n_out, 20);
  EXPECT_EQ(adapter->terms[0].b.bytes, counting_floats(20, 1000));
  EXPECT_TRUE(has_note(*adapter, "more tokens than the base"));
  EXPECT_NE(refusal(writer, make_base({})).find("has shape [22, 1]"), std::string::npos);
}

TEST(PeftLora, EmbeddingTrainedByOldPeftOnGemmaIsFlagged) {
  BaseShape shape;
  shape.architecture = "gemma3";
  EXPECT_TRUE(has_note(*bind_adapter(embedding_adapter(), make_base(shape)), "before 0.18"));
  EXPECT_FALSE(has_note(
      *bind_adapter(embedding_adapter(), make_base(shape), R"("r":2,"peft_version":"0.18.1")"),
      "before 0.18"));
}

BaseModel moe_base() {
  BaseShape shape;
  shape.architecture = "qwen3moe";
  shape.n_experts = 3;
  return make_base(shape);
}

TEST(PeftLora, ExpertsAreStacked) {
  SafetensorsWriter writer;
  const std::string experts = "model.layers.0.mlp.experts.";
  writer.add_lora(experts + "2.down_proj", 1, 24, 16).add_lora(experts + "0.down_proj", 1, 24, 16);
  writer.add_lora("model.layers.0.mlp.gate", 1, 16, 3);
  const auto adapter = bind_adapter(writer, moe_base(), R"("r":1,"lora_alpha":3)");
  ASSERT_TRUE(adapter) << adapter.error().message;
  ASSERT_EQ(adapter->terms.size(), 2U);
  const LoraTerm* down = find_term(*adapter, SiteOp::kMatMulId, "blk.0.ffn_down_exps.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->n_experts, 3);
  EXPECT_EQ(down->scale, 3.0F);
  EXPECT_EQ(down->a.n_rows, 3);
  EXPECT_EQ(down->b.n_rows, 48);
  const std::vector<float> a = to_floats(down->a);
  EXPECT_EQ(a[5], 5.0F);           // expert 0
  EXPECT_EQ(a[24 + 5], 0.0F);      // expert 1 is not in the file
  EXPECT_EQ(a[2 * 24 + 5], 5.0F);  // expert 2
  const std::vector<float> b = to_floats(down->b);
  EXPECT_EQ(b[1], 1001.0F);
  EXPECT_EQ(b[16 + 1], 0.0F);
  EXPECT_EQ(b[32 + 1], 1001.0F);
  EXPECT_TRUE(has_note(*adapter, "2 of 3 experts are adapted"));
  EXPECT_NE(find_term(*adapter, SiteOp::kMatMul, "blk.0.ffn_gate_inp.weight"), nullptr);
}

TEST(PeftLora, ExpertsOfDifferentRanksArePaddedAndTheirScalesFolded) {
  SafetensorsWriter writer;
  const std::string experts = "model.layers.0.mlp.experts.";
  writer.add_lora(experts + "0.up_proj", 1, 16, 24).add_lora(experts + "1.up_proj", 2, 16, 24);
  const auto adapter = bind_adapter(writer, moe_base(), R"("r":1,"lora_alpha":4)");
  ASSERT_TRUE(adapter) << adapter.error().message;
  const LoraTerm& up = adapter->terms[0];
  EXPECT_EQ(up.rank, 2);
  EXPECT_EQ(up.scale, 1.0F);
  const std::vector<float> b = to_floats(up.b);
  EXPECT_EQ(b[0], 4000.0F);  // expert 0: scale 4, row 0 = {1000, padding}
  EXPECT_EQ(b[1], 0.0F);
  EXPECT_EQ(b[48], 2000.0F);  // expert 1: scale 2
  EXPECT_EQ(b[49], 2002.0F);
  const std::vector<float> a = to_floats(up.a);
  EXPECT_EQ(a[16], 0.0F);        // padding row of expert 0
  EXPECT_EQ(a[32 + 17], 17.0F);  // second row of expert 1
}

TEST(PeftLora, ExpertsBeyondTheBaseAreRefused) {
  SafetensorsWriter writer;
  writer.add_lora("model.layers.0.mlp.experts.3.up_proj", 1, 16, 24);
  EXPECT_NE(refusal(writer, moe_base()).find("expert 3 does not exist: the base has 3 experts"),
            std::string::npos);
  SafetensorsWriter twice;
  twice.add_lora("model.layers.0.mlp.experts.1.up_proj", 1, 16, 24);
  twice.add_lora("model.layers.0.mlp.experts.1.w3", 1, 16, 24);
  EXPECT_NE(refusal(twice, moe_base()).find("two modules"), std::string::npos);
  SafetensorsWriter fused;
  fused.add_f32("base_model.model.model.layers.0.mlp.experts.lora_A.weight", {6, 16});
  fused.add_f32("base_model.model.model.layers.0.mlp.experts.lora_B.weight", {24, 6});
  EXPECT_NE(refusal(fused, moe_base()).find("target_parameters"), std::string::npos);
  SafetensorsWriter nested;
  nested.add_f32("base_model.model.model.layers.0.mlp.experts.base_layer.lora_A.weight", {6, 16});
  EXPECT_NE(refusal(nested, moe_base()).find("target_parameters"), std::string::npos);
}

TEST(PeftLora, UnmatchedTensorsAreNamed) {
  SafetensorsWriter writer;
  writer.add_lora(kUp, 2, 16, 24).add_lora("transformer.h.0.attn.c_attn", 2, 16, 48);
  const std::string message = refusal(writer, make_base({}));
  EXPECT_NE(message.find("1 modules match nothing"), std::string::npos) << message;
  EXPECT_NE(message.find("transformer.h.0.attn.c_attn.lora_A.weight"), std::string::npos);
  SafetensorsWriter layers;
  for (int layer = 2; layer < 10; ++layer) {
    layers.add_lora("model.layers." + std::to_string(layer) + ".mlp.up_proj", 2, 16, 24);
  }
  const std::string many = refusal(layers, make_base({}));
  EXPECT_NE(many.find("8 modules"), std::string::npos);
  EXPECT_NE(many.find("; ..."), std::string::npos);
}

TEST(PeftLora, VisionTensorsAreCountedAndAloneRefused) {
  const std::string vision = "vision_tower.layers.0.q_proj";
  SafetensorsWriter writer;
  writer.add_lora(vision, 2, 8, 8);
  EXPECT_NE(refusal(writer, make_base({})).find("vision or audio tower only (2 tensors)"),
            std::string::npos);
  writer.add_lora(kUp, 2, 16, 24);
  const auto adapter = bind_adapter(writer, make_base({}));
  ASSERT_TRUE(adapter);
  EXPECT_EQ(adapter->report.ignored.size(), 2U);
  EXPECT_TRUE(has_note(*adapter, "2 tensors of a vision"));
}

TEST(PeftLora, WrongShapesNameTheTensorAndTheBase) {
  const auto refused = [](std::int64_t n_in, std::int64_t n_out) {
    SafetensorsWriter writer;
    writer.add_lora(kUp, 2, n_in, n_out);
    return refusal(writer, make_base({}));
  };
  EXPECT_EQ(refused(16, 24), "accepted");
  EXPECT_NE(refused(17, 24).find("lora_A.weight' has shape [2, 17]; blk.0.ffn_up.weight of this "
                                 "base needs [r, 16]. Was the adapter trained on another model?"),
            std::string::npos);
  EXPECT_NE(refused(16, 23).find("lora_B.weight' has shape [23, 2]"), std::string::npos);
  EXPECT_NE(refused(24, 16).find("another model"), std::string::npos);
}

TEST(PeftLora, PairsThatDoNotFitAreRefused) {
  const std::string name = std::string("base_model.model.") + kUp;
  const BaseModel base = make_base({});
  SafetensorsWriter half;
  half.add_f32(name + ".lora_A.weight", {2, 16});
  EXPECT_NE(refusal(half, base).find("lora_B is missing"), std::string::npos);
  SafetensorsWriter other_half;
  other_half.add_f32(name + ".lora_B.weight", {24, 2});
  EXPECT_NE(refusal(other_half, base).find("lora_A is missing"), std::string::npos);
  SafetensorsWriter ranks;
  ranks.add_f32(name + ".lora_A.weight", {2, 16}).add_f32(name + ".lora_B.weight", {24, 3});
  EXPECT_NE(refusal(ranks, base).find("different ranks"), std::string::npos);
  SafetensorsWriter twice;
  twice.add_lora(kUp, 2, 16, 24).add_f32(std::string(kUp) + ".lora_A.weight", {2, 16});
  EXPECT_NE(refusal(twice, base).find("are both for module"), std::string::npos);
  SafetensorsWriter flat;
  flat.add_f32(name + ".lora_A.weight", {32}).add_f32(name + ".lora_B.weight", {24, 2});
  EXPECT_NE(refusal(flat, base).find("expected 2 dimensions"), std::string::npos);
  SafetensorsWriter bias;
  bias.add_lora(kUp, 2, 16, 24).add_f32(name + ".lora_B.bias", {23});
  EXPECT_NE(refusal(bias, base).find("23 values for 24 outputs"), std::string::npos);
  SafetensorsWriter mixed = embedding_adapter();
  mixed.add_f32("base_model.model.model.embed_tokens.lora_A.weight", {2, 20});
  EXPECT_NE(refusal(mixed, base).find("linear layer and of an embedding"), std::string::npos);
  SafetensorsWriter kind;
  kind.add_lora("model.embed_tokens", 2, 20, 16);
  EXPECT_NE(refusal(kind, base).find("is not of the kind"), std::string::npos);
  SafetensorsWriter both;
  both.add_lora(kQ, 1, 16, 16).add_lora("model.layers.0.self_attn.qkv_proj", 1, 16, 32);
  EXPECT_NE(refusal(both, base).find("two modules of the file write"), std::string::npos);
}

TEST(PeftLora, ValuesAndTypes) {
  const std::string name = std::string("base_model.model.") + kUp;
  std::vector<float> values(32, 1.0F);
  values[7] = std::nanf("");
  SafetensorsWriter nan;
  nan.add(name + ".lora_A.weight", "F32", {2, 16}, floats_as_bytes(values));
  nan.add_f32(name + ".lora_B.weight", {24, 2});
  EXPECT_NE(refusal(nan, make_base({})).find("lora_A.weight' holds values that are not finite"),
            std::string::npos);
  SafetensorsWriter wide;
  wide.add(name + ".lora_A.weight", "F64", {2, 16}, Bytes(256));
  wide.add_f32(name + ".lora_B.weight", {24, 2});
  EXPECT_NE(refusal(wide, make_base({})).find("has the dtype F64"), std::string::npos);
  SafetensorsWriter half;
  half.add(name + ".lora_A.weight", "BF16", {2, 16}, Bytes(64));
  half.add(name + ".lora_B.weight", "F16", {24, 2}, Bytes(96));
  const auto adapter = bind_adapter(half, make_base({}));
  ASSERT_TRUE(adapter);
  EXPECT_EQ(static_cast<int>(adapter->terms[0].a.type), static_cast<int>(FactorType::kBF16));
  EXPECT_EQ(static_cast<int>(adapter->terms[0].b.type), static_cast<int>(FactorType::kF16));
}

TEST(PeftLora, TensorsOfOtherMethodsAreRefusedWhateverTheConfigSays) {
  const auto refused = [](const std::string& suffix) {
    SafetensorsWriter writer;
    writer.add_lora(kUp, 2, 16, 24);
    writer.add_f32(std::string("base_model.model.") + kUp + suffix, {24});
    return refusal(writer, make_base({}));
  };
  EXPECT_NE(refused(".lora_magnitude_vector").find("DoRA is not supported yet"), std::string::npos);
  EXPECT_NE(refused(".lora_E").find("AdaLoRA"), std::string::npos);
  EXPECT_NE(refused(".something").find("not part of a LoRA adapter"), std::string::npos);
  SafetensorsWriter mlx;
  mlx.add_f32("model.layers.0.mlp.up_proj.lora_a", {16, 2});
  EXPECT_NE(refusal(mlx, make_base({})).find("MLX LoRA"), std::string::npos);
  SafetensorsWriter nothing;
  nothing.add_f32("base_model.model.lm_head.weight", {20, 16});
  EXPECT_NE(refusal(nothing, make_base({})).find("would do nothing"), std::string::npos);
}

TEST(PeftLora, ConfigAndArchitectureAreCheckedFirst) {
  SafetensorsWriter writer;
  writer.add_lora(kUp, 2, 16, 24);
  EXPECT_EQ(refusal(writer, make_base({}), R"("use_dora":true)"), "DoRA is not supported yet");
  BaseModel base = make_base({});
  base.modules_supported = false;
  base.architecture = "rwkv7";
  EXPECT_NE(refusal(writer, base).find("'rwkv7'"), std::string::npos);
}

TEST(PeftLora, WrapperPrefixesAndTextTowersBind) {
  for (const char* prefix : {"", "base_model.model._orig_mod.", "module.base_model.model."}) {
    SafetensorsWriter writer;
    const std::string name = std::string(prefix) + "model.language_model.layers.0.mlp.up_proj";
    writer.add_f32(name + ".lora_A.default.weight", {2, 16});
    writer.add_f32(name + ".lora_B.default.weight", {24, 2});
    EXPECT_EQ(refusal(writer, make_base({})), "accepted") << prefix;
  }
}

}  // namespace
}  // namespace graft
