#include "modules/formats/hf_names.h"

#include <gtest/gtest.h>

namespace graft {
namespace {

struct Expected {
  std::string name;
  std::string module;
  HfPart part;
};

TEST(HfNames, TakesEveryPrefixAndWrapperApart) {
  const std::string q = "model.layers.0.self_attn.q_proj";
  const std::vector<Expected> cases = {
      {"base_model.model." + q + ".lora_A.weight", q, HfPart::kLoraA},
      {"base_model.model." + q + ".lora_B.weight", q, HfPart::kLoraB},
      {"base_model.model." + q + ".lora_B.bias", q, HfPart::kLoraBBias},
      {"base_model.model." + q + ".lora_A.default.weight", q, HfPart::kLoraA},
      {"base_model.model." + q + ".lora_B.my_name.bias", q, HfPart::kLoraBBias},
      {q + ".lora_A.weight", q, HfPart::kLoraA},
      {"module.base_model.model." + q + ".lora_A.weight", q, HfPart::kLoraA},
      {"base_model.model.base_model.model." + q + ".lora_A.weight", q, HfPart::kLoraA},
      {"_orig_mod.base_model.model." + q + ".lora_A.weight", q, HfPart::kLoraA},
      {"base_model.model._orig_mod." + q + ".lora_A.weight", q, HfPart::kLoraA},
      {"_fsdp_wrapped_module.base_model.model.model.layers.0._checkpoint_wrapped_module."
       "self_attn.q_proj.lora_A.weight",
       q, HfPart::kLoraA},
      {"base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight", q,
       HfPart::kLoraA},
      {"base_model.model.language_model.model.layers.0.self_attn.q_proj.lora_A.weight", q,
       HfPart::kLoraA},
      {"base_model.model.text_model.layers.0.self_attn.q_proj.lora_A.weight", q, HfPart::kLoraA},
      {"base_model.model.layers.0.self_attn.q_proj.lora_A.weight", q, HfPart::kLoraA},
      {"base_model.model.lm_head.lora_A.weight", "lm_head", HfPart::kLoraA},
      {"base_model.model.language_model.lm_head.lora_A.weight", "lm_head", HfPart::kLoraA},
      {"base_model.model.model.embed_tokens.lora_embedding_A", "model.embed_tokens",
       HfPart::kEmbeddingA},
      {"base_model.model.model.embed_tokens.lora_embedding_B.default", "model.embed_tokens",
       HfPart::kEmbeddingB},
      {"base_model.model.model.embed_tokens.base_layer.weight", "model.embed_tokens",
       HfPart::kBaseCopy},
      {"base_model.model.lm_head.weight", "lm_head", HfPart::kPlain},
      {"base_model.model." + q + ".bias", q, HfPart::kPlain}};
  for (const Expected& expected : cases) {
    const HfTensorName name = parse_hf_tensor_name(expected.name);
    EXPECT_EQ(name.module, expected.module) << expected.name;
    EXPECT_EQ(static_cast<int>(name.part), static_cast<int>(expected.part)) << expected.name;
    EXPECT_FALSE(name.is_vision);
  }
}

TEST(HfNames, PatternsSeeThePathWithoutTheRenamingOfTheTextModel) {
  const HfTensorName name = parse_hf_tensor_name(
      "base_model.model.model.language_model.layers.0.mlp.up_proj.lora_A.weight");
  EXPECT_EQ(name.peft_module, "model.language_model.layers.0.mlp.up_proj");
  EXPECT_EQ(name.module, "model.layers.0.mlp.up_proj");
}

TEST(HfNames, OtherMethodsAreRecognised) {
  const std::string prefix = "base_model.model.model.layers.0.mlp.up_proj.";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"lora_magnitude_vector", "DoRA"},
      {"lora_magnitude_vector.default.weight", "DoRA"},
      {"lora_E", "AdaLoRA"},
      {"lora_a", "MLX LoRA"},
      {"ia3_l", "IA3"},
      {"vera_lambda_b", "VeRA"},
      {"hada_w1_a", "LoHa"},
      {"lokr_w1", "LoKr"},
      {"oft_R.weight", "OFT"},
      {"miss_block", "MiSS"},
      {"token_adapter.trainable_tokens_delta", "trainable tokens"}};
  for (const auto& [suffix, method] : cases) {
    const HfTensorName name = parse_hf_tensor_name(prefix + suffix);
    EXPECT_EQ(static_cast<int>(name.part), static_cast<int>(HfPart::kOther)) << suffix;
    EXPECT_EQ(name.note, method) << suffix;
  }
  EXPECT_EQ(parse_hf_tensor_name("prompt_embeddings").note, "a prompt method");
}

TEST(HfNames, TowersOfOtherSensesAreMarked) {
  for (const char* name : {"base_model.model.model.vision_tower.layers.0.q_proj.lora_A.weight",
                           "base_model.model.visual.blocks.0.attn.qkv.lora_A.weight",
                           "base_model.model.model.multi_modal_projector.linear.lora_B.weight",
                           "base_model.model.audio_tower.layers.0.fc1.lora_A.weight"}) {
    EXPECT_TRUE(parse_hf_tensor_name(name).is_vision) << name;
  }
}

TEST(HfNames, NonsenseIsOtherAndNeverACrash) {
  for (const char* name : {"", ".", "..", "weight", ".weight", "lora_A", "lora_A.weight",
                           "base_model.model.", "module.module.", "a.lora_A.b.c.weight"}) {
    const HfTensorName parsed = parse_hf_tensor_name(name);
    EXPECT_LE(parsed.module.size(), 32U) << name;
  }
  EXPECT_EQ(static_cast<int>(parse_hf_tensor_name("a.lora_A.b.c.weight").part),
            static_cast<int>(HfPart::kPlain));
}

}  // namespace
}  // namespace graft
