// ChatTemplate: chat messages -> the prompt text and tokens of one model.
//
// The template comes with the model and is analysed once. The prompt remembers which parts came
// from the request: control tokens written there ("<|im_end|>") stay plain text unless the server
// allows them. Immutable after creation: any thread may render.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/request.h"
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

struct PromptPart {
  std::string text;
  bool from_request = false;
};

struct RenderedPrompt {
  std::vector<PromptPart> parts;  // neighbours may both be from the request

  std::string text() const;
};

// Tokens of a rendered prompt; bos() first if the model wants it and the template did not write it.
// The whole prompt is tokenised at once, as in training. Only where the text of a control token
// touches a part that came from the request, that part is tokenised by itself, as plain text; with
// `allow_special_in_input`, never. Fails if the prompt is too long.
Result<std::vector<TokenId>> tokenize(const Vocabulary& vocabulary, const RenderedPrompt& prompt,
                                      bool allow_special_in_input);

class ChatTemplate {
 public:
  // kNotSupported if the model has no chat template, or one that cannot be used.
  static Result<std::unique_ptr<ChatTemplate>> create(const llama_model* model);
  // The same from a template's source, for tests and for a template given on the command line.
  static Result<std::unique_ptr<ChatTemplate>> create_from_source(const std::string& source,
                                                                  const std::string& bos_token,
                                                                  const std::string& eos_token);
  ~ChatTemplate();

  // `messages_json` is the `messages` array of a chat request, after the API's checks: roles are
  // strings, contents strings or arrays of text parts. What the template itself refuses (an order
  // of roles, an unknown role) is kInvalidArgument with its words.
  Result<RenderedPrompt> render(const std::string& messages_json,
                                const RenderOptions& options) const;

  // Whether the template writes tool definitions itself.
  bool supports_tools() const;

 private:
  struct Analysed;  // llama.cpp's parsed program and capabilities

  explicit ChatTemplate(std::unique_ptr<Analysed> analysed);

  std::unique_ptr<Analysed> analysed_;
};

}  // namespace graft
