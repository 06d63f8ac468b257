// RandomRequests: what clients ask, the same for the same seed: the base, one module by name, by
// name and digest or at a scale, two modules at weights; prompts with common beginnings; lengths;
// and when the client goes away. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/request.h"
#include "modules/store/registry_snapshot.h"

namespace graft {

struct RandomRequestOptions {
  std::vector<std::string> names;  // of modules that may be there; at least two
  std::vector<float> scales = {1, 0.5F, -1, -0.25F, 2, 0};
  std::uint32_t seed = 1;
  std::uint32_t n_vocab = 2;
  // Prompts: the first half or more of a stem, and up to eight tokens.
  std::size_t n_prompts = 30;
  std::size_t n_stems = 4;
  std::size_t max_stem_tokens = 48;
  std::int32_t max_tokens = 24;
};

struct RandomRequest {
  enum class Leaves {
    kNever,
    kCancels,  // names the request to the loop
    kRefuses,  // its sink takes no more events
  };
  GenerationRequest request;  // without an id
  std::string model;
  std::vector<ModuleChoice> choices;
  Leaves leaves = Leaves::kNever;
  std::int32_t after_tokens = 0;  // 0 = at once
};

class RandomRequests {
 public:
  // Equal options but for the seed ask for the same prompts.
  explicit RandomRequests(RandomRequestOptions options);

  // `now` is where digests are read, for use in a later request.
  RandomRequest next(const RegistrySnapshot& now);

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  std::string any_name();  // now and then one that never is there
  float any_scale() { return options_.scales[below(options_.scales.size())]; }
  void make_prompts();
  void choose_modules(RandomRequest& made);

  const RandomRequestOptions options_;
  std::vector<std::vector<TokenId>> prompts_;
  std::string pinned_;  // name@digest as it was a while ago
  std::mt19937 random_;
};

}  // namespace graft
