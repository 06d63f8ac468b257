#include "modules/formats/read_adapter.h"

#include <gtest/gtest.h>

#include "modules/formats/factors.h"
#include "modules/formats/format_test_support.h"

namespace graft {
namespace {

using format_test::BaseShape;
using format_test::Bytes;
using format_test::GgufWriter;
using format_test::make_base;
using format_test::SafetensorsWriter;
using format_test::TemporaryDirectory;

constexpr const char* kConfig =
    R"({"peft_type":"LORA","r":2,"lora_alpha":4,"base_model_name_or_path":"org/base"})";

Bytes peft_weights() {
  return SafetensorsWriter().add_lora("model.layers.0.mlp.up_proj", 2, 16, 24).finish();
}

Bytes gguf_weights() {
  GgufWriter writer;
  writer.add_adapter_keys("llama", 8).add_string("general.base_model.0.name", "Base");
  writer.add_f32_tensor("blk.0.ffn_up.weight.lora_a", {16, 2});
  writer.add_f32_tensor("blk.0.ffn_up.weight.lora_b", {2, 24});
  return writer.finish();
}

void write_peft(const TemporaryDirectory& directory, const std::string& prefix = "") {
  directory.write(prefix + "adapter_config.json", kConfig);
  directory.write(prefix + "adapter_model.safetensors", peft_weights());
}

std::string refusal(const std::string& path) {
  const auto adapter = read_adapter(path, make_base({}));
  return adapter ? "accepted" : adapter.error().message;
}

TEST(ReadAdapter, PeftDirectoryAndNamedSubDirectory) {
  const TemporaryDirectory plain;
  write_peft(plain);
  const auto adapter = read_adapter(plain.path(), make_base({}));
  ASSERT_TRUE(adapter) << adapter.error().message;
  EXPECT_EQ((*adapter)->report.base_name, "org/base");
  EXPECT_EQ((*adapter)->digest.size(), 64U);

  const TemporaryDirectory named;
  write_peft(named, "my_adapter/");
  named.write("README.md", "text");
  const auto inner = read_adapter(named.path(), make_base({}));
  ASSERT_TRUE(inner) << inner.error().message;
  EXPECT_EQ((*inner)->digest, (*adapter)->digest);
  write_peft(named, "other/");
  EXPECT_NE(refusal(named.path()).find("holds 2 adapters; name one of them"), std::string::npos);
}

TEST(ReadAdapter, GgufFileUnderAnyName) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("a.gguf", gguf_weights());
  const auto adapter = read_adapter(path, make_base({}));
  ASSERT_TRUE(adapter) << adapter.error().message;
  const auto renamed = read_adapter(directory.write("b", gguf_weights()), make_base({}));
  ASSERT_TRUE(renamed);
  EXPECT_EQ((*renamed)->digest, (*adapter)->digest);
}

TEST(ReadAdapter, DigestCoversConfigAndWeights) {
  const TemporaryDirectory directory;
  write_peft(directory);
  const std::string first = (*read_adapter(directory.path(), make_base({})))->digest;
  directory.write("adapter_config.json", std::string(kConfig) + " ");
  const std::string other_config = (*read_adapter(directory.path(), make_base({})))->digest;
  EXPECT_NE(first, other_config);
  directory.write("adapter_config.json", kConfig);
  EXPECT_EQ((*read_adapter(directory.path(), make_base({})))->digest, first);
  directory.write("adapter_model.safetensors",
                  SafetensorsWriter().add_lora("model.layers.1.mlp.up_proj", 2, 16, 24).finish());
  EXPECT_NE((*read_adapter(directory.path(), make_base({})))->digest, first);
}

TEST(ReadAdapter, PicklesAreRefusedByContentWithTheWayOut) {
  const std::string zip = std::string("PK\x03\x04", 4) + std::string(40, 'x');
  const std::string pickle = "\x80\x02}q";
  const TemporaryDirectory directory;
  for (const std::string& content : {zip, pickle}) {
    for (const char* name : {"adapter_model.bin", "adapter.pt", "x.safetensors", "y.gguf"}) {
      EXPECT_NE(refusal(directory.write(name, content)).find("safe_serialization=True"),
                std::string::npos)
          << name;
    }
  }
  const TemporaryDirectory old;
  old.write("adapter_config.json", kConfig);
  old.write("adapter_model.bin", zip);
  EXPECT_NE(refusal(old.path()).find("safe_serialization=True"), std::string::npos);
  old.write("adapter_model.safetensors", zip);
  EXPECT_NE(refusal(old.path()).find("safe_serialization=True"), std::string::npos);
}

TEST(ReadAdapter, OtherFilesAreNamed) {
  EXPECT_NE(refusal("/nonexistent/adapter").find("does not exist"), std::string::npos);
  const TemporaryDirectory directory;
  EXPECT_NE(refusal(directory.path()).find("has no adapter_config.json"), std::string::npos);
  EXPECT_NE(refusal(directory.write("w.safetensors", peft_weights()))
                .find("the scale is in adapter_config.json"),
            std::string::npos);
  EXPECT_NE(refusal(directory.write("notes.txt", "hello")).find("neither a GGUF file"),
            std::string::npos);
  EXPECT_NE(refusal(directory.write("empty", "")).find("neither a GGUF file"), std::string::npos);
  EXPECT_NE(refusal("/dev/zero").find("not a regular file"), std::string::npos);

  const TemporaryDirectory mlx;
  mlx.write("adapters.safetensors", peft_weights());
  EXPECT_NE(refusal(mlx.path()).find("MLX LoRA is not supported yet"), std::string::npos);
  mlx.write("adapter_config.json", R"({"fine_tune_type":"lora"})");
  EXPECT_NE(refusal(mlx.path()).find("MLX LoRA is not supported yet"), std::string::npos);

  const TemporaryDirectory no_weights;
  no_weights.write("adapter_config.json", kConfig);
  EXPECT_NE(refusal(no_weights.path()).find("has no adapter_model.safetensors"), std::string::npos);
  no_weights.write("adapter_model.safetensors", std::string(40, '\0'));
  EXPECT_NE(refusal(no_weights.path()).find("not a safetensors file"), std::string::npos);
}

TEST(InspectAdapter, DescribesBothFormats) {
  const TemporaryDirectory directory;
  write_peft(directory);
  const auto peft = inspect_adapter(directory.path());
  ASSERT_TRUE(peft) << peft.error().message;
  EXPECT_EQ(peft->format, "PEFT LoRA (safetensors)");
  EXPECT_EQ(peft->base_name, "org/base");
  EXPECT_EQ(peft->ranks, std::vector<std::int64_t>{2});
  EXPECT_EQ(peft->alpha, 4.0);
  EXPECT_EQ(peft->targets, std::vector<std::string>{"up_proj"});
  EXPECT_EQ(peft->tensors.size(), 2U);
  EXPECT_EQ(peft->refusal, "");
  EXPECT_EQ(peft->digest, (*read_adapter(directory.path(), make_base({})))->digest);

  const auto gguf = inspect_adapter(directory.write("a.gguf", gguf_weights()));
  ASSERT_TRUE(gguf);
  EXPECT_EQ(gguf->format, "GGUF LoRA");
  EXPECT_EQ(gguf->architecture, "llama");
  EXPECT_EQ(gguf->base_name, "Base");
  EXPECT_EQ(gguf->ranks, std::vector<std::int64_t>{2});
  EXPECT_EQ(gguf->targets, std::vector<std::string>{"ffn_up"});
  EXPECT_EQ(gguf->tensors[0].shape, (std::vector<std::int64_t>{2, 16}));
}

TEST(InspectAdapter, SaysWhyServingWouldRefuse) {
  const TemporaryDirectory directory;
  directory.write("adapter_config.json", R"({"peft_type":"LORA","use_dora":true})");
  directory.write("adapter_model.safetensors", peft_weights());
  EXPECT_EQ(inspect_adapter(directory.path())->refusal, "DoRA is not supported yet");
  directory.write("adapter_config.json", R"({"peft_type":"IA3"})");
  EXPECT_EQ(inspect_adapter(directory.path())->refusal, "IA3 is not supported yet");
  GgufWriter vector;
  vector.add_string("general.architecture", "controlvector");
  vector.add_f32_tensor("direction.1", {16});
  EXPECT_EQ(inspect_adapter(directory.write("v.gguf", vector.finish()))->refusal,
            "control vectors are not supported yet");
}

// ---- files that PEFT itself has written (tests/golden) ----

std::string golden(const std::string& name) {
  return std::string(GRAFT_SOURCE_DIR) + "/tests/golden/adapters/" + name;
}

BaseShape golden_shape(const std::string& architecture) {
  BaseShape shape;
  shape.architecture = architecture;
  shape.n_embd = 64;
  shape.n_heads = 4;
  shape.n_heads_kv = 2;
  shape.head_dim = architecture.starts_with("qwen3") ? 32 : 16;
  shape.n_layers = architecture == "gemma3" ? 3 : 2;
  shape.n_ff = architecture == "qwen3moe" ? 32 : 128;
  shape.n_experts = architecture == "qwen3moe" ? 4 : 0;
  shape.n_vocab = 320;
  shape.fused = architecture == "phi3";
  shape.tied_head = false;
  return shape;
}

TEST(ReadAdapter, EveryGoldenAdapterBindsWhole) {
  const std::vector<std::pair<std::string, std::size_t>> cases = {{"gemma3_embed", 1},
                                                                  {"gemma3_linear", 21},
                                                                  {"llama_bias", 14},
                                                                  {"llama_embed", 1},
                                                                  {"llama_head", 1},
                                                                  {"llama_linear", 14},
                                                                  {"llama_linear.gguf", 14},
                                                                  {"llama_one_site", 1},
                                                                  {"llama_patterns", 14},
                                                                  {"llama_qk", 4},
                                                                  {"llama_qk.gguf", 4},
                                                                  {"llama_rslora", 6},
                                                                  {"llama_rslora_patterns", 8},
                                                                  {"llama_tied_all", 16},
                                                                  {"phi3_linear", 8},
                                                                  {"qwen2_linear", 14},
                                                                  {"qwen3_linear", 14},
                                                                  {"qwen3moe_attention", 8},
                                                                  {"qwen3moe_experts", 8}};
  for (const auto& [name, n_terms] : cases) {
    const BaseModel base = make_base(golden_shape(name.substr(0, name.find('_'))));
    const auto adapter = read_adapter(golden(name), base);
    ASSERT_TRUE(adapter) << name << ": " << adapter.error().message;
    EXPECT_EQ((*adapter)->terms.size(), n_terms) << name;
    const LoadReport& report = (*adapter)->report;
    EXPECT_EQ(report.bound.size() + report.ignored.size(),
              static_cast<std::size_t>(report.n_tensors))
        << name;
  }
}

TEST(ReadAdapter, PeftAndGgufOfOneAdapterGiveTheSameTerms) {
  const BaseModel base = make_base(golden_shape("llama"));
  const auto peft = read_adapter(golden("llama_linear"), base);
  const auto gguf = read_adapter(golden("llama_linear.gguf"), base);
  ASSERT_TRUE(peft && gguf);
  std::size_t n_equal = 0;
  for (const LoraTerm& x : (*peft)->terms) {
    for (const LoraTerm& y : (*gguf)->terms) {
      if (!(x.site == y.site)) continue;
      EXPECT_EQ(x.scale, y.scale) << x.site.tensor;
      EXPECT_EQ(to_floats(x.a), to_floats(y.a)) << x.site.tensor;
      EXPECT_EQ(to_floats(x.b), to_floats(y.b)) << x.site.tensor;
      ++n_equal;
    }
  }
  EXPECT_EQ(n_equal, 14U);
}

TEST(ReadAdapter, GoldenPatternsGiveTheirScales) {
  const BaseModel base = make_base(golden_shape("llama"));
  const auto adapter = read_adapter(golden("llama_patterns"), base);
  ASSERT_TRUE(adapter);
  for (const LoraTerm& term : (*adapter)->terms) {
    const std::string& name = term.site.tensor;
    const double alpha = name.ends_with("ffn_down.weight") ? 16
                         : name == "blk.0.attn_k.weight"   ? 1
                         : name.ends_with("attn_v.weight") ? 3
                                                           : 8;
    EXPECT_EQ(term.scale, static_cast<float>(alpha / static_cast<double>(term.rank))) << name;
  }
  for (const std::string& note : (*adapter)->report.notes) {
    EXPECT_EQ(note.find("another rank"), std::string::npos) << note;
  }
}

}  // namespace
}  // namespace graft
