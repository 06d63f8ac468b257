// ChatTemplate: chat messages and tools -> the prompt of one model, and how it writes its answer.
//
// The template comes with the model and is analysed once. The prompt remembers which parts came
// from the request: control tokens written there ("<|im_end|>") stay plain text unless the server
// allows them. A template that knows no tools gets a generic text that lists them
// (generic_tools.h); tools are never left out in silence. Immutable after creation: any thread may
// render.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/request.h"
#include "text/answer_format.h"
#include "text/vocabulary.h"

struct llama_model;

namespace graft {

inline constexpr int kMaxMessagesDepth = 64;

struct RenderOptions {
  bool add_generation_prompt = true;
  // The last message is the beginning of the answer: the prompt ends with its content. Then
  // add_generation_prompt has no effect.
  bool continue_final_message = false;
};

enum class ToolChoice { kNone, kAuto, kRequired };

// JSON texts as the API takes them, after its checks; "" is absent.
struct ChatRequest {
  std::string messages_json;
  std::string tools_json;  // {"type":"function","function":{"name",...}}; not shown with kNone
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string named_tool;  // the only one that may be called, or ""; then kRequired
  bool parallel_tool_calls = true;
  std::string template_kwargs_json;  // an object; which keys: template_kwargs.h
  RenderOptions options;
};

struct PromptPart {
  std::string text;
  bool from_request = false;
};

struct RenderedPrompt {
  std::vector<PromptPart> parts;  // neighbours may both be from the request
  // Not empty where the parts could not be told apart: all that came from the request.
  std::string request_text = {};

  std::string text() const;
};

struct RenderedChat {
  RenderedPrompt prompt;
  std::shared_ptr<const AnswerFormat> format;  // null: the answer is free text
};

// Tokens of a rendered prompt; bos() first if the model wants it and the template did not write it.
// The whole prompt is tokenised at once, as in training. Only where the text of a control token
// touches a part that came from the request, that part is tokenised by itself, as plain text; with
// `allow_special_in_input`, never. Fails if the prompt is too long, or if the parts are not known
// and the request holds the text of a control token.
Result<std::vector<TokenId>> tokenize(const Vocabulary& vocabulary, const RenderedPrompt& prompt,
                                      bool allow_special_in_input,
                                      std::optional<OwnedMemo> memo = {});

struct AnalysedTemplate;  // llama.cpp's parsed program and analysis

class ChatTemplate {
 public:
  // kNotSupported if the model has no chat template, or one that cannot be used.
  static Result<std::unique_ptr<ChatTemplate>> create(const llama_model* model);
  // The same from a template's source, for tests and for a template given on the command line.
  static Result<std::unique_ptr<ChatTemplate>> create_from_source(const std::string& source,
                                                                  const std::string& bos_token,
                                                                  const std::string& eos_token);
  ~ChatTemplate();

  // Messages have string roles and string contents or arrays of text parts. What the template
  // itself refuses (an order of roles, an unknown role) is kInvalidArgument with its words; so are
  // tools whose schemas give no grammar, and keys that no request may set.
  Result<RenderedChat> render(const ChatRequest& request) const;
  // A chat without tools.
  Result<RenderedPrompt> render(const std::string& messages_json,
                                const RenderOptions& options) const;

  // Whether the template writes tool definitions itself.
  bool supports_tools() const;

 private:
  explicit ChatTemplate(std::unique_ptr<const AnalysedTemplate> analysed);
  const AnalysedTemplate& for_tools() const;

  std::unique_ptr<const AnalysedTemplate> analysed_;
  std::unique_ptr<const AnalysedTemplate> tool_use_;  // a second template for chats with tools
};

}  // namespace graft
