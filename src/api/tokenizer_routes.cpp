// /tokenize, /detokenize and /apply-template. Two dialects share the first two: vLLM's `prompt` or
// `messages`, and llama-server's `content`.
#include <cstddef>
#include <optional>
#include <utility>

#include "api/fields.h"
#include "api/generation_routes.h"
#include "api/json_text.h"
#include "api/parse_common.h"
#include "api/routes.h"
#include "router/resolve.h"

namespace graft::api {
namespace {

bool flag(const Json& body, const char* name, bool otherwise) {
  const Json* value = find_field(body, name);
  return value == nullptr ? otherwise : value->get<bool>();
}

HttpResponse json_answer(std::string body) {
  HttpResponse response;
  response.headers = {{"content-type", "application/json"}};
  response.body = std::move(body);
  return response;
}

// vLLM's answer.
std::string counted_answer(const std::vector<TokenId>& tokens, const ServiceParts& parts,
                           bool with_texts) {
  std::string out = R"({"count":)" + std::to_string(tokens.size()) + R"(,"max_model_len":)" +
                    std::to_string(parts.facts.n_context_tokens) + R"(,"tokens":)" +
                    token_array(tokens) + R"(,"token_strs":)";
  if (!with_texts) return out + "null}";
  out.push_back('[');
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_json_string(out, parts.prompts.detokenize({&tokens[i], 1}));
  }
  return out + "]}";
}

// llama-server's: ids, or ids with their text. What is not whole UTF-8 is a list of bytes.
std::string pieces_answer(const std::vector<TokenId>& tokens, const PromptBuilder& prompts) {
  std::string out = R"({"tokens":[)";
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    out += (i > 0 ? R"(,{"id":)" : R"({"id":)") + std::to_string(tokens[i]) + R"(,"piece":)";
    const std::string piece = prompts.detokenize({&tokens[i], 1});
    if (is_valid_utf8(piece)) {
      append_json_string(out, piece);
    } else {
      const std::vector<TokenId> bytes(
          reinterpret_cast<const unsigned char*>(piece.data()),
          reinterpret_cast<const unsigned char*>(piece.data()) + piece.size());
      out += token_array(bytes);
    }
    out.push_back('}');
  }
  return out + "]}";
}

// A model that does not exist is an error here too; modules share the base's tokenizer.
Status check_model(const Json& body, const RegistrySnapshot& registry) {
  const Json* model = find_field(body, "model");
  if (model == nullptr) return {};
  const auto resolution = resolve(registry, model->get<std::string>(), {});
  return resolution ? Status() : Status(resolution.error());
}

Result<std::vector<TokenId>> tokenize_messages(const Json& body, const ServiceParts& parts) {
  Json chat = body;
  for (const char* name : {"prompt", "content", "model"}) chat.erase(name);
  chat.erase("add_special_tokens");  // the template writes them
  GRAFT_ASSIGN_OR_RETURN(const GenerationCall call, read_chat_call(chat, chat.dump(), parts.facts));
  return parts.prompts.from_messages(*call.chat);
}

Result<std::string> tokenize_body(const Json& body, const ServiceParts& parts) {
  if (const Json* content = find_field(body, "content")) {
    GRAFT_ASSIGN_OR_RETURN(
        const auto tokens,
        parts.prompts.tokenize(content->get<std::string>(),
                               {.add_special = flag(body, "add_special", false),
                                .parse_special = flag(body, "parse_special", true)}));
    if (flag(body, "with_pieces", false)) return pieces_answer(tokens, parts.prompts);
    return R"({"tokens":)" + token_array(tokens) + "}";
  }
  std::vector<TokenId> tokens;
  if (find_field(body, "messages") != nullptr) {
    GRAFT_ASSIGN_OR_RETURN(tokens, tokenize_messages(body, parts));
  } else if (const Json* prompt = find_field(body, "prompt")) {
    GRAFT_ASSIGN_OR_RETURN(
        tokens, parts.prompts.tokenize(prompt->get<std::string>(),
                                       {.add_special = flag(body, "add_special_tokens", true)}));
  } else {
    return invalid_argument("One of 'prompt', 'messages' and 'content' must be given.", "prompt");
  }
  return counted_answer(tokens, parts, flag(body, "return_token_strs", false));
}

Result<std::string> detokenize_body(const Json& body, const ServiceParts& parts) {
  const Json* list = find_field(body, "tokens");
  if (list == nullptr) return invalid_argument("'tokens' is missing.", "tokens");
  std::vector<TokenId> tokens;
  tokens.reserve(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    GRAFT_ASSIGN_OR_RETURN(const TokenId token, read_token_id((*list)[i], parts.facts,
                                                              "tokens[" + std::to_string(i) + "]"));
    tokens.push_back(token);
  }
  const std::string text = json_string(parts.prompts.detokenize(tokens));
  return R"({"prompt":)" + text + R"(,"content":)" + text + "}";
}

using BodyFunction = Result<std::string> (*)(const Json&, const ServiceParts&);

Answer answer_body(const RouteCall& route, Endpoint endpoint, BodyFunction function) {
  if (auto refused = refuse_media_type(route.request)) return std::move(*refused);
  const ServiceParts& parts = route.service.parts();
  const auto body = parse_request_json(route.request.body);
  if (!body) return error_response(body.error());
  if (const Status checked = check_fields(*body, endpoint); !checked) {
    return error_response(checked.error());
  }
  if (const Status known = check_model(*body, *route.registry()); !known) {
    return error_response(known.error());
  }
  auto answer = function(*body, parts);
  if (!answer) return error_response(answer.error());
  return json_answer(std::move(*answer));
}

}  // namespace

Answer answer_tokenize(const RouteCall& route) {
  return answer_body(route, Endpoint::kTokenize, tokenize_body);
}

Answer answer_detokenize(const RouteCall& route) {
  return answer_body(route, Endpoint::kDetokenize, detokenize_body);
}

// vLLM's: what a client needs to use the server as its tokenizer.
Answer answer_tokenizer_info(const RouteCall& route) {
  const ModelFacts& facts = route.service.parts().facts;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? std::string("null") : json_string(text);
  };
  return json_answer(R"({"bos_token":)" + text_or_null(facts.bos_token) + R"(,"eos_token":)" +
                     text_or_null(facts.eos_token) + R"(,"pad_token":null,"chat_template":)" +
                     text_or_null(facts.chat_template) + R"(,"model_max_length":)" +
                     std::to_string(facts.n_context_tokens) + "}");
}

Answer answer_apply_template(const RouteCall& route) {
  if (auto refused = refuse_media_type(route.request)) return std::move(*refused);
  const ServiceParts& parts = route.service.parts();
  const auto call = parse_chat_call(route.request.body, parts.facts);
  if (!call) return error_response(call.error());
  const auto text = parts.prompts.render(*call->chat);
  if (!text) return error_response(text.error());
  return json_answer(R"({"prompt":)" + json_string(*text) + "}");
}

}  // namespace graft::api
