#include "modules/formats/tensor_names.h"

#include <gtest/gtest.h>

#include "modules/formats/format_test_support.h"

namespace graft {
namespace {

using format_test::BaseShape;
using format_test::make_base;

// "MUL_MAT blk.0.attn_q.weight @0 rows 0+16 heads 2; ..."
std::string sites_of(const std::string& module, const BaseModel& base) {
  const auto sites = find_module_sites(module, base);
  if (!sites) return "error: " + sites.error().message;
  std::string text = std::to_string(sites->n_in) + "->" + std::to_string(sites->n_out);
  for (const SiteSlice& slice : sites->slices) {
    text += "; " + std::string(to_string(slice.site.op)) + " " + slice.site.tensor + " @" +
            std::to_string(slice.out_offset) + " rows " + std::to_string(slice.row_begin) + "+" +
            std::to_string(slice.n_out);
    if (slice.n_rope_heads > 0) text += " heads " + std::to_string(slice.n_rope_heads);
  }
  if (sites->expert.has_value()) text += "; expert " + std::to_string(*sites->expert);
  return text;
}

TEST(TensorNames, LlamaReordersQueryAndKeyRows) {
  const BaseModel base = make_base({});
  EXPECT_EQ(sites_of("model.layers.0.self_attn.q_proj", base),
            "16->16; MUL_MAT blk.0.attn_q.weight @0 rows 0+16 heads 2");
  EXPECT_EQ(sites_of("model.layers.1.self_attn.k_proj", base),
            "16->8; MUL_MAT blk.1.attn_k.weight @0 rows 0+8 heads 1");
  EXPECT_EQ(sites_of("model.layers.1.self_attn.v_proj", base),
            "16->8; MUL_MAT blk.1.attn_v.weight @0 rows 0+8");
  EXPECT_EQ(sites_of("model.layers.1.self_attn.o_proj", base),
            "16->16; MUL_MAT blk.1.attn_output.weight @0 rows 0+16");
  EXPECT_EQ(sites_of("model.layers.0.mlp.gate_proj", base),
            "16->24; MUL_MAT blk.0.ffn_gate.weight @0 rows 0+24");
  EXPECT_EQ(sites_of("model.layers.0.mlp.up_proj", base),
            "16->24; MUL_MAT blk.0.ffn_up.weight @0 rows 0+24");
  EXPECT_EQ(sites_of("model.layers.0.mlp.down_proj", base),
            "24->16; MUL_MAT blk.0.ffn_down.weight @0 rows 0+16");
}

TEST(TensorNames, HalfSplitRopeKeepsItsRows) {
  for (const char* architecture : {"qwen2", "qwen3", "gemma3", "phi3", "qwen3moe"}) {
    BaseShape shape;
    shape.architecture = architecture;
    EXPECT_EQ(sites_of("model.layers.0.self_attn.q_proj", make_base(shape)),
              "16->16; MUL_MAT blk.0.attn_q.weight @0 rows 0+16")
        << architecture;
  }
}

TEST(TensorNames, FusedBaseTakesFusedAndSingleModules) {
  BaseShape shape;
  shape.architecture = "phi3";
  shape.fused = true;
  const BaseModel base = make_base(shape);
  EXPECT_EQ(sites_of("model.layers.0.self_attn.qkv_proj", base),
            "16->32; MUL_MAT blk.0.attn_qkv.weight @0 rows 0+32");
  EXPECT_EQ(sites_of("model.layers.0.self_attn.q_proj", base),
            "16->16; MUL_MAT blk.0.attn_qkv.weight @0 rows 0+16");
  EXPECT_EQ(sites_of("model.layers.0.self_attn.k_proj", base),
            "16->8; MUL_MAT blk.0.attn_qkv.weight @16 rows 0+8");
  EXPECT_EQ(sites_of("model.layers.0.self_attn.v_proj", base),
            "16->8; MUL_MAT blk.0.attn_qkv.weight @24 rows 0+8");
  EXPECT_EQ(sites_of("model.layers.0.mlp.gate_up_proj", base),
            "16->48; MUL_MAT blk.0.ffn_up.weight @0 rows 0+48");
  EXPECT_EQ(sites_of("model.layers.0.mlp.gate_proj", base),
            "16->24; MUL_MAT blk.0.ffn_up.weight @0 rows 0+24");
  EXPECT_EQ(sites_of("model.layers.0.mlp.up_proj", base),
            "16->24; MUL_MAT blk.0.ffn_up.weight @24 rows 0+24");
}

TEST(TensorNames, SplitBaseTakesFusedModules) {
  const BaseModel base = make_base({});
  EXPECT_EQ(sites_of("model.layers.0.self_attn.qkv_proj", base),
            "16->32; MUL_MAT blk.0.attn_q.weight @0 rows 0+16 heads 2; "
            "MUL_MAT blk.0.attn_k.weight @0 rows 16+8 heads 1; "
            "MUL_MAT blk.0.attn_v.weight @0 rows 24+8");
  EXPECT_EQ(sites_of("model.layers.0.mlp.gate_up_proj", base),
            "16->48; MUL_MAT blk.0.ffn_gate.weight @0 rows 0+24; "
            "MUL_MAT blk.0.ffn_up.weight @0 rows 24+24");
}

TEST(TensorNames, ExpertsAndRouter) {
  BaseShape shape;
  shape.architecture = "qwen3moe";
  shape.n_experts = 4;
  const BaseModel base = make_base(shape);
  EXPECT_EQ(sites_of("model.layers.0.mlp.experts.3.gate_proj", base),
            "16->24; MUL_MAT_ID blk.0.ffn_gate_exps.weight @0 rows 0+24; expert 3");
  EXPECT_EQ(sites_of("model.layers.0.block_sparse_moe.experts.0.w3", base),
            "16->24; MUL_MAT_ID blk.0.ffn_up_exps.weight @0 rows 0+24; expert 0");
  EXPECT_EQ(sites_of("model.layers.0.mlp.experts.0.w2", base),
            "24->16; MUL_MAT_ID blk.0.ffn_down_exps.weight @0 rows 0+16; expert 0");
  EXPECT_EQ(sites_of("model.layers.0.mlp.gate", base),
            "16->4; MUL_MAT blk.0.ffn_gate_inp.weight @0 rows 0+4");
  EXPECT_NE(sites_of("model.layers.0.mlp.experts.4.w2", base).find("the base has 4 experts"),
            std::string::npos);
  EXPECT_NE(sites_of("model.layers.0.mlp.gate_proj", base).find("has no blk.0.ffn_gate.weight"),
            std::string::npos);
}

TEST(TensorNames, ExpertCountOfTheWeightMustBeThatOfTheBase) {
  BaseShape shape;
  shape.n_experts = 4;
  BaseModel base = make_base(shape);
  base.tensors["blk.0.ffn_down_exps.weight"].ne[2] = 2;
  EXPECT_NE(sites_of("model.layers.0.mlp.experts.3.down_proj", base).find("error"),
            std::string::npos);
}

TEST(TensorNames, TiedAndSeparateHeads) {
  EXPECT_EQ(sites_of("lm_head", make_base({})), "16->20; MUL_MAT token_embd.weight @0 rows 0+20");
  BaseShape shape;
  shape.tied_head = false;
  EXPECT_EQ(sites_of("lm_head", make_base(shape)), "16->20; MUL_MAT output.weight @0 rows 0+20");
  EXPECT_EQ(sites_of("model.embed_tokens", make_base(shape)),
            "20->16; GET_ROWS token_embd.weight @0 rows 0+16");
}

TEST(TensorNames, NamesThatDoNotExist) {
  const BaseModel base = make_base({});
  for (const char* module :
       {"", "model.layers", "model.layers.", "model.layers.x.mlp.up_proj",
        "model.layers.-1.mlp.up_proj", "model.layers.00.mlp.up_proj",
        "model.layers.99999999999999999999.mlp.up_proj", "model.layers.0.mlp.fc1",
        "model.layers.0.input_layernorm", "model.norm", "transformer.h.0.attn.c_attn"}) {
    EXPECT_NE(sites_of(module, base).find("no module of this name"), std::string::npos) << module;
  }
  EXPECT_NE(sites_of("model.layers.2.mlp.up_proj", base).find("the base has 2 layers"),
            std::string::npos);
  EXPECT_NE(sites_of("model.layers.0.mlp.experts.0.w1", base).find("no experts"),
            std::string::npos);
}

TEST(TensorNames, ABaseThatContradictsItselfIsAnErrorNotACrash) {
  BaseModel base = make_base({});
  base.n_heads = 3;  // 16 rows are not a multiple of 2 * 3
  EXPECT_NE(sites_of("model.layers.0.self_attn.q_proj", base).find("error"), std::string::npos);
  BaseShape shape;
  shape.fused = true;
  base = make_base(shape);
  base.n_heads = 7;
  EXPECT_NE(sites_of("model.layers.0.self_attn.v_proj", base).find("its heads make"),
            std::string::npos);
}

TEST(TensorNames, OnlyLinearWeightsAreAdaptable) {
  const BaseModel base = make_base({});
  EXPECT_EQ(adaptable_op("blk.0.attn_q.weight", base), SiteOp::kMatMul);
  EXPECT_EQ(adaptable_op("token_embd.weight", base), SiteOp::kGetRows);
  EXPECT_FALSE(adaptable_op("blk.0.attn_norm.weight", base));
  EXPECT_FALSE(adaptable_op("blk.9.attn_q.weight", base));
  EXPECT_FALSE(adaptable_op("output.weight", base));
}

TEST(TensorNames, UnprovenArchitecturesAreRefusedByName) {
  BaseModel base = make_base({});
  EXPECT_TRUE(check_architecture(base));
  base.architecture = "mamba";
  base.modules_supported = false;
  const Status status = check_architecture(base);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kNotSupported);
  EXPECT_NE(status.error().message.find("'mamba'"), std::string::npos);
  EXPECT_NE(status.error().message.find("qwen3moe"), std::string::npos);
}

}  // namespace
}  // namespace graft
