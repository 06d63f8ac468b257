// `graft chat`: a conversation, or one answer, in this terminal.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/text_prompt_builder.h"
#include "cli/answer_queue.h"
#include "cli/loading.h"
#include "cli/run.h"
#include "cli/stop_signal.h"
#include "scheduler/loop.h"
#include "text/chat_template.h"

namespace graft::cli {
namespace {

using Json = nlohmann::json;

class Conversation {
 public:
  Conversation(const ChatCommand& command, LoadedModel& loaded, const ChatTemplate* chat_template)
      : command_(command),
        loaded_(loaded),
        has_template_(chat_template != nullptr),
        prompts_(loaded.model->vocabulary(), chat_template, false),
        loop_(*loaded.engine, {}) {
    for (std::size_t i = 0; i < loaded.modules.size(); ++i) {
      const float scale = command.model.modules[i].scale;
      if (scale != 0) attachments_.attachments.push_back({loaded.modules[i], scale, 0});
    }
    reset();
  }

  void reset() {
    messages_ = Json::array();
    if (!command_.system.empty()) {
      messages_.push_back({{"role", "system"}, {"content", command_.system}});
    }
  }

  // Prints the answer as it comes. After an error the conversation is as it was before.
  Status ask(const std::string& text);

 private:
  Result<std::string> answer_to(const std::string& text);
  Result<std::vector<TokenId>> make_prompt(const std::string& text);
  Result<std::string> print_answer(AnswerQueue& answer, RequestId id);
  void print_shape(const Finished& finished) const;

  const ChatCommand& command_;
  LoadedModel& loaded_;
  const bool has_template_;
  const api::TextPromptBuilder prompts_;
  Loop loop_;
  AttachmentSet attachments_;
  Json messages_;
  RequestId next_id_ = 1;
};

// A model without a template continues the text instead of answering it.
Result<std::vector<TokenId>> Conversation::make_prompt(const std::string& text) {
  if (!has_template_) return prompts_.from_text(text);
  messages_.push_back({{"role", "user"}, {"content", text}});
  api::ChatPrompt prompt;
  // What a terminal sends need not be UTF-8.
  prompt.messages_json = messages_.dump(-1, ' ', false, Json::error_handler_t::replace);
  return prompts_.from_messages(prompt);
}

Status Conversation::ask(const std::string& text) {
  const Json before = messages_;
  auto said = answer_to(text);
  if (!said) {
    messages_ = before;
    return std::move(said).error();
  }
  messages_.push_back({{"role", "assistant"}, {"content", std::move(*said)}});
  return {};
}

Result<std::string> Conversation::answer_to(const std::string& text) {
  GRAFT_ASSIGN_OR_RETURN(auto tokens, make_prompt(text));
  GenerationRequest request;
  request.id = next_id_++;
  request.prompt = std::move(tokens);
  request.sampling = command_.sampling;
  request.stop = command_.stop;
  auto answer = std::make_shared<AnswerQueue>(
      static_cast<std::size_t>(loaded_.engine->max_sequence_tokens()) + 16);
  const RequestId id = request.id;
  GRAFT_RETURN_IF_ERROR(loop_.submit({std::move(request), attachments_, answer}));
  return print_answer(*answer, id);
}

Result<std::string> Conversation::print_answer(AnswerQueue& answer, RequestId id) {
  std::string said;
  const auto print = [&said](const std::string& text) {
    said += text;
    std::cout << text << std::flush;
  };
  while (auto entry = answer.next()) {
    if (stop_requested()) loop_.cancel(id);
    if (const auto* token = std::get_if<TokenOutput>(&entry->event)) print(token->text);
    if (auto* failed = std::get_if<Failed>(&entry->event)) {
      std::cout << std::endl;
      return std::move(failed->error);
    }
    if (const auto* finished = std::get_if<Finished>(&entry->event)) {
      print(finished->text);
      std::cout << std::endl;
      print_shape(*finished);
      break;
    }
  }
  return said;
}

void Conversation::print_shape(const Finished& finished) const {
  std::string modules;
  for (const Attachment& attachment : attachments_.attachments) {
    char scale[32];
    std::snprintf(scale, sizeof scale, "*%.4g", static_cast<double>(attachment.scale));
    modules +=
        " " + attachment.module->name + "@" + attachment.module->digest().substr(0, 12) + scale;
  }
  const double seconds = finished.timings.decode_ms / 1000;
  std::fprintf(stderr, "[modules:%s  %d + %d tokens, %.1f tokens/s%s]\n",
               modules.empty() ? " none" : modules.c_str(), finished.n_prompt_tokens,
               finished.n_generated_tokens,
               seconds > 0 ? (finished.n_generated_tokens - 1) / seconds : 0.0,
               finished.reason == FinishReason::kLength ? ", cut at the limit" : "");
}

int converse(Conversation& conversation) {
  const bool is_terminal = isatty(STDIN_FILENO) == 1;
  std::string line;
  while (!stop_requested()) {
    if (is_terminal) std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, line) || line == "/quit") break;
    if (line == "/reset") {
      conversation.reset();
      continue;
    }
    if (line.empty()) continue;
    // A text that is too long for the rest of the context, say: the user may go on.
    if (const Status answered = conversation.ask(line); !answered) report(answered.error());
  }
  if (is_terminal) std::cerr << "\n";
  return kExitOk;
}

}  // namespace

int run(const ChatCommand& command) {
  auto loaded = load(command.model);
  if (!loaded) return report(loaded.error());
  auto chat_template = ChatTemplate::create(loaded->model->handle());
  if (!chat_template) {
    std::fprintf(stderr, "graft: %s; the model continues the text as it is\n",
                 chat_template.error().message.c_str());
  }
  Conversation conversation(command, *loaded, chat_template ? chat_template->get() : nullptr);
  if (command.prompt.empty()) return converse(conversation);
  const Status answered = conversation.ask(command.prompt);
  return answered ? kExitOk : report(answered.error());
}

}  // namespace graft::cli
