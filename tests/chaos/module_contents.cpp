#include "chaos/module_contents.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <span>

#include "modules/store/load_module.h"

namespace graft {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kGgufF32 = 0;

format_test::Bytes as_gguf(const Adapter& adapter) {
  format_test::GgufWriter writer;
  writer.add_adapter_keys(adapter.architecture, 0);  // 0: every term's scale is 1
  for (const LoraTerm& term : adapter.terms) {
    const std::string& name = term.site.tensor;
    writer.add_tensor(name + ".lora_a", {term.n_in, term.rank}, kGgufF32, term.a.bytes);
    writer.add_tensor(name + ".lora_b", {term.rank, term.n_out}, kGgufF32, term.b.bytes);
  }
  return writer.finish();
}

}  // namespace

void ModuleContents::add_random(const RandomAdapterOptions& options) {
  const std::string path = "random-" + std::to_string(options.seed) + ".gguf";
  directory_.write(path, as_gguf(*make_random_adapter(base_, options)));
  add(path);
}

void ModuleContents::add_copy(const std::string& directory) {
  const std::string path = fs::path(directory).filename().string();
  fs::copy(directory, fs::path(root()) / path);
  add(path);
}

void ModuleContents::add(const std::string& path) {
  auto version = load_module({"alone", root() + "/" + path}, base_, Precision::kFile);
  ASSERT_TRUE(version) << version.error().message;
  contents_.push_back({path, *version});
}

void ModuleContents::add_broken() {
  const auto put = [&](const std::string& name, std::span<const std::byte> bytes) {
    directory_.write(name, bytes);
    broken_.push_back(name);
  };
  const auto whole = as_gguf(*make_random_adapter(base_, {.seed = 90, .rank = 2}));
  put("cut.gguf", std::span(whole).first(whole.size() / 2));
  auto noise = whole;
  for (std::size_t i = 8; i < noise.size(); ++i) noise[i] = static_cast<std::byte>(i * i * 31);
  put("noise.gguf", noise);
  BaseModel other = base_;
  for (auto& [name, tensor] : other.tensors) tensor.ne[0] *= 2;
  put("misfit.gguf", as_gguf(*make_random_adapter(other, {.seed = 91, .rank = 2})));
  put("wild.gguf",
      as_gguf(*make_random_adapter(base_, {.seed = 92, .rank = 1, .strength = 1e37F})));
}

std::shared_ptr<const ModuleVersion> ModuleContents::find(const std::string& digest) const {
  for (const Content& content : contents_) {
    if (content.version->digest() == digest) return content.version;
  }
  return nullptr;
}

}  // namespace graft
