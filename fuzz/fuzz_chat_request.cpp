// The bodies of chat, completions, messages and responses: any bytes give a valid call or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "api/dialects.h"
#include "api/generation_call.h"
#include "api/json_text.h"

namespace {

graft::api::ModelFacts facts() {
  graft::api::ModelFacts made;
  made.n_context_tokens = 4096;
  made.n_vocab = 50000;
  return made;
}

void require(bool condition) {
  if (!condition) std::abort();
}

// What api/ promises the layers below.
void check(const graft::api::GenerationCall& call, const graft::api::ModelFacts& model) {
  const graft::SamplingParams& sampling = call.sampling;
  require(sampling.temperature >= 0 && sampling.temperature <= 10);
  require(sampling.top_p > 0 && sampling.top_p <= 1);
  require(sampling.min_p >= 0 && sampling.min_p <= 1);
  require(sampling.repetition_penalty > 0);
  require(call.n_choices >= 1 && call.n_choices <= 16);
  require(call.stop.max_tokens == -1 || call.stop.max_tokens >= 1);
  for (const auto& [id, bias] : sampling.logit_bias) {
    require(id >= 0 && id < model.n_vocab && bias >= -100 && bias <= 100);
  }
  for (const graft::TokenId id : sampling.allowed_tokens) require(id >= 0 && id < model.n_vocab);
  for (const auto& word : call.bad_words) require(!word.empty());
  for (const auto& text : call.stop.strings) {
    require(!text.empty() && text.find('\0') == std::string::npos);
  }
  for (const auto& prompt : call.prompts) {
    if (const auto* tokens = std::get_if<std::vector<graft::TokenId>>(&prompt)) {
      for (const graft::TokenId id : *tokens) require(id >= 0 && id < model.n_vocab);
    } else {
      require(graft::api::is_valid_utf8(std::get<std::string>(prompt)));
    }
  }
  if (call.chat) require(graft::api::is_valid_utf8(call.chat->messages_json));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(bytes), size);
  const graft::api::ModelFacts model = facts();
  if (const auto call = graft::api::parse_chat_call(body, model)) check(*call, model);
  if (const auto call = graft::api::parse_completions_call(body, model)) check(*call, model);
  if (const auto call = graft::api::parse_messages_call(body, model)) check(*call, model);
  if (const auto call = graft::api::parse_count_tokens_call(body, model)) check(*call, model);
  if (const auto made = graft::api::parse_responses_call(body, model)) {
    check(made->call, model);
    for (const std::string& text : {made->echo.metadata, made->echo.tools}) {
      require(graft::api::is_valid_utf8(text));
    }
  }
  return 0;
}
