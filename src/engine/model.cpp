#include "engine/model.h"

#include <llama.h>

#include <array>
#include <exception>
#include <utility>

#include "engine/gguf_header.h"
#include "engine/llama_log.h"
#include "grafting/grafter.h"

namespace graft {

namespace {

struct Progress {
  const std::function<bool(float)>& report;
  bool cancelled = false;
};

bool on_llama_progress(float fraction, void* user_data) {
  auto& progress = *static_cast<Progress*>(user_data);
  if (progress.report && !progress.report(fraction)) progress.cancelled = true;
  return !progress.cancelled;
}

llama_model* load_weights(const GgufHeader& header, const ModelOptions& options,
                          Progress& progress) {
  llama_model_params params = llama_model_default_params();
  params.progress_callback = on_llama_progress;
  params.progress_callback_user_data = &progress;
  params.load_mode = options.use_mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
  params.use_extra_bufts = options.use_extra_buffers;
  // Without a list libllama would take every GPU that ggml knows, past the grafting device.
  std::array<ggml_backend_dev_t, 2> devices = {options.device, nullptr};
  params.devices = devices.data();
  try {
    return llama_model_load_from_file(header.paths.front().c_str(), params);
  } catch (const std::exception&) {
    return nullptr;  // what it was about is in libllama's log
  }
}

std::optional<Pooling> pooling_of(const llama_model* model, const std::string& architecture) {
  std::array<char, 16> text = {};
  const std::string key = architecture + ".pooling_type";
  if (llama_model_meta_val_str(model, key.c_str(), text.data(), text.size()) < 0) {
    return Pooling::kMean;
  }
  const std::string value = text.data();
  const auto is = [&](enum llama_pooling_type type) { return value == std::to_string(type); };
  if (is(LLAMA_POOLING_TYPE_NONE) || is(LLAMA_POOLING_TYPE_MEAN)) return Pooling::kMean;
  if (is(LLAMA_POOLING_TYPE_LAST)) return Pooling::kLast;
  return std::nullopt;
}

}  // namespace

void Model::Free::operator()(llama_model* model) const { llama_model_free(model); }

Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::load(const ModelOptions& options) {
  route_llama_log();
  register_grafting_device();
  GRAFT_ASSIGN_OR_RETURN(GgufHeader header, read_gguf_header(options.path));

  std::unique_ptr<Model> model(new Model());
  Progress progress{options.on_progress};
  take_llama_error();
  model->model_.reset(load_weights(header, options, progress));
  if (progress.cancelled) return Error{ErrorCode::kCancelled, "loading was cancelled", {}};
  if (model->model_ == nullptr) {
    return Error{ErrorCode::kDataCorrupt,
                 options.path + ": llama.cpp cannot load it: " + take_llama_error(),
                 {}};
  }
  GRAFT_RETURN_IF_ERROR(model->check_supported());
  GRAFT_ASSIGN_OR_RETURN(model->vocabulary_,
                         Vocabulary::create(llama_model_get_vocab(model->handle())));
  model->base_ = std::move(header.base);
  model->device_ = options.device;
  model->facts_.matrices_by_type = std::move(header.matrices_by_type);
  model->complete_base();
  model->read_facts(options.path);
  return model;
}

Status Model::check_supported() const {
  const auto refuse = [](const char* what) {
    return Error{ErrorCode::kNotSupported, std::string(what) + " models are not supported", {}};
  };
  if (!llama_model_has_decoder(handle()) || llama_model_has_encoder(handle())) {
    return refuse("encoder");
  }
  // Their memory splits a batch by sequence, so rows would not be tokens of the plan.
  if (llama_model_is_recurrent(handle())) return refuse("recurrent");
  if (llama_model_is_hybrid(handle())) return refuse("hybrid recurrent");
  if (llama_model_is_diffusion(handle())) return refuse("diffusion");
  if (llama_vocab_n_tokens(llama_model_get_vocab(handle())) == 0) {
    return Error{ErrorCode::kNotSupported, "the model has no vocabulary", {}};
  }
  return {};
}

// libllama knows the dimensions also where a file gives one per layer; the first layer counts here.
void Model::complete_base() {
  base_.n_vocab = vocabulary_->size();
  base_.n_layers = llama_model_n_layer(handle());
  base_.n_embd = llama_model_n_embd(handle());
  base_.n_heads = llama_model_n_head(handle());
  base_.n_heads_kv = llama_model_n_head_kv(handle());
  const std::int64_t head_dim = base_.n_heads > 0 ? base_.n_embd / base_.n_heads : 0;
  if (base_.head_dim_k == 0) base_.head_dim_k = head_dim;
  if (base_.head_dim_v == 0) base_.head_dim_v = head_dim;
}

void Model::read_facts(const std::string& path) {
  std::array<char, 256> description = {};
  llama_model_desc(handle(), description.data(), description.size());
  facts_.path = path;
  facts_.description = description.data();
  const char* chat_template = llama_model_chat_template(handle(), nullptr);
  facts_.chat_template = chat_template != nullptr ? chat_template : "";
  facts_.weight_bytes = llama_model_size(handle());
  facts_.n_parameters = llama_model_n_params(handle());
  facts_.n_ctx_train = llama_model_n_ctx_train(handle());
  facts_.pooling = pooling_of(handle(), base_.architecture);
  facts_.has_sliding_window = llama_model_n_swa(handle()) > 0;
}

}  // namespace graft
