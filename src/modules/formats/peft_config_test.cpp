#include "modules/formats/peft_config.h"

#include <gtest/gtest.h>

#include <cmath>

namespace graft {
namespace {

// What serving would say: "" when it would go on.
std::string refusal(const std::string& json) {
  const auto config = parse_peft_config(json);
  if (!config) return config.error().message;
  const Status supported = check_supported(*config);
  return supported ? "" : supported.error().message;
}

std::string lora_with(const std::string& field) { return R"({"peft_type":"LORA",)" + field + "}"; }

double scale(const std::string& json, const std::string& module, std::int64_t rank) {
  const auto config = parse_peft_config(json);
  EXPECT_TRUE(config) << json;
  const auto rule = PeftScaleRule::create(*config);
  EXPECT_TRUE(rule);
  return rule->scale(module, rank);
}

TEST(PeftConfig, MissingKeysHavePeftDefaults) {
  const auto config = parse_peft_config(R"({"peft_type":"LORA","target_modules":["v","q"]})");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->r, 8);
  EXPECT_EQ(config->lora_alpha, 8.0);
  EXPECT_FALSE(config->use_rslora);
  EXPECT_EQ(config->target_modules, (std::vector<std::string>{"q", "v"}));
  EXPECT_TRUE(check_supported(*config));
}

TEST(PeftConfig, ReadsAWholeModernFile) {
  const std::string json = R"({
    "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
    "auto_mapping": {"base_model_class": "X", "parent_library": "Y"},
    "base_model_name_or_path": "unsloth/model-bnb-4bit", "bias": "none", "corda_config": null,
    "ensure_weight_tying": false, "eva_config": null, "exclude_modules": null,
    "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true,
    "layer_replication": null, "layers_pattern": null, "layers_to_transform": null,
    "loftq_config": {}, "lora_alpha": 32, "lora_bias": false, "lora_dropout": 0.05,
    "megatron_config": null, "megatron_core": "megatron.core", "modules_to_save": null,
    "peft_type": "LORA", "peft_version": "0.18.1", "qalora_group_size": 16, "r": 16,
    "rank_pattern": {}, "revision": null, "target_modules": "all-linear",
    "target_parameters": [], "task_type": "SEQ_2_SEQ_LM", "trainable_token_indices": null,
    "use_dora": false, "use_qalora": false, "use_rslora": false})";
  const auto config = parse_peft_config(json);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(check_supported(*config)) << check_supported(*config).error().message;
  EXPECT_EQ(config->r, 16);
  EXPECT_EQ(config->lora_alpha, 32.0);
  EXPECT_EQ(config->base_model_name, "unsloth/model-bnb-4bit");
  EXPECT_EQ(config->peft_version, "0.18.1");
}

TEST(PeftConfig, LegacyFilesOf2023AreAccepted) {
  EXPECT_EQ(refusal(lora_with(R"("enable_lora":null,"merge_weights":false,"r":8)")), "");
  EXPECT_NE(refusal(lora_with(R"("enable_lora":[true,false,true])")).find("enable_lora"),
            std::string::npos);
}

TEST(PeftConfig, EveryOtherMethodIsRefusedByName) {
  EXPECT_EQ(refusal(R"({"peft_type":"ADALORA","rank_pattern":{"a":[true,false]}})"),
            "AdaLoRA is not supported yet");
  EXPECT_EQ(refusal(R"({"peft_type":"IA3"})"), "IA3 is not supported yet");
  EXPECT_EQ(refusal(R"({"peft_type":"MISS","init_weights":"bat","r":64})"),
            "MiSS is not supported yet");
  EXPECT_EQ(refusal(R"({"peft_type":"PREFIX_TUNING","token_dim":3072})"),
            "prefix tuning is not supported yet");
  EXPECT_EQ(refusal(R"({"peft_type":"NEW_THING"})"),
            "the PEFT method 'NEW_THING' is not supported yet");
}

TEST(PeftConfig, EveryUnsupportedFeatureIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("use_dora":true)", "DoRA is not supported yet"},
      {R"("alora_invocation_tokens":[1,2])", "aLoRA"},
      {R"("layer_replication":[[0,4],[2,6]])", "layer replication"},
      {R"("modules_to_save":["lm_head"])", "modules_to_save: lm_head"},
      {R"("modules_to_save":["score"],"task_type":"SEQ_CLS")", "classifier"},
      {R"("trainable_token_indices":{"embed_tokens":[1]})", "trainable tokens"},
      {R"("target_parameters":["mlp.experts.gate_up_proj"])", "target_parameters"},
      {R"("use_qalora":true)", "QALoRA"},
      {R"("use_bdlora":{"nblocks":2})", "BD-LoRA"},
      {R"("kasa_config":{"a":1})", "KaSA"},
      {R"("arrow_config":{"top_k":1})", "Arrow"},
      {R"("bias":"all")", "trained biases (bias = \"all\")"},
      {R"("bias":"lora_only")", "trained biases"},
      {R"("init_lora_weights":"pissa")", "'pissa' is not supported"},
      {R"("init_lora_weights":"pissa_niter_16")", "'pissa_niter_16'"},
      {R"("init_lora_weights":"olora")", "'olora'"},
      {R"("init_lora_weights":"corda")", "'corda'"},
      {R"("init_lora_weights":"loftq")", "'loftq'"},
      {R"("init_lora_weights":"lora_ga")", "'lora_ga'"},
      {R"("brand_new_switch":true)", "'brand_new_switch' is not known here"},
      {R"("brand_new_switch":{"a":1})", "'brand_new_switch' is not known here"}};
  for (const auto& [field, expected] : cases) {
    EXPECT_NE(refusal(lora_with(field)).find(expected), std::string::npos)
        << field << " gave " << refusal(lora_with(field));
  }
  EXPECT_NE(refusal(lora_with(R"("use_dora":true,"bias":"all","use_qalora":true)")).find("2 more"),
            std::string::npos);
}

TEST(PeftConfig, UnknownKeysThatAskForNothingAreIgnored) {
  for (const char* value : {"null", "false", "0", "0.0", "\"\"", "[]", "{}"}) {
    EXPECT_EQ(refusal(lora_with(std::string("\"brand_new_switch\":") + value)), "") << value;
  }
  for (const char* value : {"\"gaussian\"", "\"eva\"", "\"orthogonal\"", "true", "false"}) {
    EXPECT_EQ(refusal(lora_with(std::string("\"init_lora_weights\":") + value)), "") << value;
  }
}

TEST(PeftConfig, OtherFilesAreNamed) {
  EXPECT_NE(refusal(R"({"base_model":"x"})").find("no peft_type"), std::string::npos);
  EXPECT_NE(refusal(R"({"fine_tune_type":"lora","lora_parameters":{"rank":8}})").find("MLX"),
            std::string::npos);
  EXPECT_NE(refusal("[]").find("not an object"), std::string::npos);
  EXPECT_NE(refusal("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal(R"({"peft_type":"LORA","r":1,"r":2})").find("stands twice"), std::string::npos);
  std::string deep(100, '[');
  EXPECT_NE(refusal(R"({"peft_type":"LORA","x":)" + deep).find("nested deeper"), std::string::npos);
}

TEST(PeftConfig, WrongTypesAndValuesAreRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("r":0)", "'r' must be"},
      {R"("r":-1)", "'r' must be"},
      {R"("r":"8")", "'r' must be"},
      {R"("r":8.5)", "'r' must be"},
      {R"("r":99999999999)", "'r' must be"},
      {R"("lora_alpha":0)", "'lora_alpha' must be"},
      {R"("lora_alpha":1e300)", "'lora_alpha' must be"},
      {R"("lora_alpha":true)", "'lora_alpha' must be"},
      {R"("use_rslora":1)", "'use_rslora' must be"},
      {R"("rank_pattern":{"a":0})", "'rank_pattern' must be"},
      {R"("rank_pattern":[1])", "'rank_pattern' must be"},
      {R"("alpha_pattern":{"a":"x"})", "'alpha_pattern' must be"},
      {R"("target_modules":7)", "'target_modules' must be"},
      {R"("target_modules":[7])", "'target_modules' must be"}};
  for (const auto& [field, expected] : cases) {
    EXPECT_NE(refusal(lora_with(field)).find(expected), std::string::npos)
        << field << " gave " << refusal(lora_with(field));
  }
  EXPECT_NE(refusal(R"({"peft_type":7})").find("'peft_type' must be"), std::string::npos);
}

TEST(PeftScale, AlphaOverRankAndRsLora) {
  EXPECT_DOUBLE_EQ(scale(lora_with(R"("lora_alpha":32,"r":16)"), "m", 16), 2.0);
  // The rank of the tensors counts, not the config's.
  EXPECT_DOUBLE_EQ(scale(lora_with(R"("lora_alpha":32,"r":16)"), "m", 4), 8.0);
  EXPECT_DOUBLE_EQ(scale(lora_with(R"("lora_alpha":32,"use_rslora":true)"), "m", 16), 8.0);
  // Missing alpha means 8, not r.
  EXPECT_DOUBLE_EQ(scale(lora_with(R"("r":64)"), "m", 64), 0.125);
}

TEST(PeftScale, PatternsMatchTheEndOfThePathAndTheFirstOneCounts) {
  const std::string json = lora_with(
      R"("lora_alpha":8,"alpha_pattern":{"^model.layers.0.self_attn.k_proj":1,"layers.0.self_attn.q_proj":16,)"
      R"x("q_proj":24,".*\\.layers\\.3\\..*(v_proj|o_proj)":40})x");
  EXPECT_DOUBLE_EQ(scale(json, "model.layers.0.self_attn.q_proj", 1), 16);
  EXPECT_DOUBLE_EQ(scale(json, "model.layers.1.self_attn.q_proj", 1), 24);
  EXPECT_DOUBLE_EQ(scale(json, "q_proj", 1), 24);
  EXPECT_DOUBLE_EQ(scale(json, "model.layers.1.self_attn.xq_proj", 1), 8);  // a whole segment
  EXPECT_DOUBLE_EQ(scale(json, "model.layers.0.self_attn.q_proj.x", 1), 8);
  EXPECT_DOUBLE_EQ(scale(json, "model.layers.0.self_attn.k_proj", 1), 1);
  EXPECT_DOUBLE_EQ(scale(json, "x.model.layers.0.self_attn.k_proj", 1), 8);
  EXPECT_DOUBLE_EQ(scale(json, "model.layers.3.self_attn.o_proj", 1), 40);
  EXPECT_DOUBLE_EQ(scale(json, "model.layers.13.self_attn.o_proj", 1), 8);
}

TEST(PeftScale, OrderOfThePatternsIsThatOfTheFile) {
  const std::string json = lora_with(R"("alpha_pattern":{"z_proj":1,".*_proj":2,"a_proj":3})");
  EXPECT_DOUBLE_EQ(scale(json, "a_proj", 1), 2);
  EXPECT_DOUBLE_EQ(scale(json, "z_proj", 1), 1);
}

TEST(PeftScale, RankPatternAnnouncesRanks) {
  const auto config = parse_peft_config(lora_with(R"("r":4,"rank_pattern":{"up_proj":2})"));
  ASSERT_TRUE(config);
  const auto rule = PeftScaleRule::create(*config);
  ASSERT_TRUE(rule);
  EXPECT_EQ(rule->announced_rank("model.layers.0.mlp.up_proj"), 2);
  EXPECT_EQ(rule->announced_rank("model.layers.0.mlp.down_proj"), 4);
}

TEST(PeftScale, PatternsBeyondLinearTimeAreRefused) {
  for (const char* pattern : {"(a)\\\\1", "(?=a)a", "(", "a{1,100000}"}) {
    const auto config =
        parse_peft_config(lora_with(std::string("\"alpha_pattern\":{\"") + pattern + "\":1}"));
    ASSERT_TRUE(config) << pattern;
    const auto rule = PeftScaleRule::create(*config);
    ASSERT_FALSE(rule) << pattern;
    EXPECT_NE(rule.error().message.find("alpha_pattern"), std::string::npos);
  }
}

}  // namespace
}  // namespace graft
