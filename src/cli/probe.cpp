// `graft module probe`: how far an adapter moves a model's logits, and how strong it is where.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "cli/compute_logits.h"
#include "cli/loading.h"
#include "cli/run.h"
#include "cli/site_norms.h"
#include "cli/statistics.h"
#include "modules/formats/read_adapter.h"

namespace graft::cli {
namespace {

std::vector<std::string> default_prompts() {
  return {"The capital of France is", "Once upon a time there was a small",
          "def add(a, b):\n    return", "Question: What is the moon?\nAnswer:"};
}

std::string first_line(const std::string& text) {
  std::string line = text.substr(0, std::min<std::size_t>(text.find('\n'), 34));
  return line.size() < text.size() ? line + "..." : line;
}

struct PromptEffect {
  std::size_t n_rows = 0;
  std::size_t n_top_changed = 0;
  LogitDistance total;  // max of max_abs; means of the others
};

Result<PromptEffect> measure(Engine& engine, const std::string& text,
                             const PlannedAttachment& attachment) {
  GRAFT_ASSIGN_OR_RETURN(const auto tokens,
                         engine.model().vocabulary().tokenize(text, {.add_special = true}));
  if (tokens.empty()) return invalid_argument("--prompt: a text has at least one token");
  LogitOptions options;
  options.n_outputs = engine.max_sequences();
  GRAFT_ASSIGN_OR_RETURN(const auto base, compute_logits(engine, tokens, options));
  options.modules = {attachment};
  GRAFT_ASSIGN_OR_RETURN(const auto moved, compute_logits(engine, tokens, options));
  PromptEffect effect;
  effect.n_rows = base.size();
  const auto n = static_cast<double>(base.size());
  for (std::size_t i = 0; i < base.size(); ++i) {
    const LogitDistance distance = logit_distance(base[i], moved[i]);
    effect.total.max_abs = std::max(effect.total.max_abs, distance.max_abs);
    effect.total.mean_abs += distance.mean_abs / n;
    effect.total.kl += distance.kl / n;
    effect.n_top_changed += distance.same_top ? 0U : 1U;
  }
  return effect;
}

// Sites of one kind ("attn_q.weight") over all layers.
void print_norms(const std::vector<SiteNorm>& norms, bool every_site) {
  struct Kind {
    std::vector<double> updates;
    const SiteNorm* strongest = nullptr;
  };
  std::map<std::string, Kind> kinds;
  for (const SiteNorm& norm : norms) {
    std::string name = norm.site;
    if (const std::size_t at = name.find("blk."); at != std::string::npos) {
      name.erase(at, name.find('.', at + 4) + 1 - at);
    }
    Kind& kind = kinds[name];
    kind.updates.push_back(norm.update);
    if (kind.strongest == nullptr || norm.update > kind.strongest->update) kind.strongest = &norm;
  }
  std::printf("\nnorm of scale * B A      sites     median        max  strongest\n");
  for (const auto& [name, kind] : kinds) {
    std::printf("%-26s %3zu %10.4g %10.4g  %s\n", name.c_str(), kind.updates.size(),
                quantile(kind.updates, 0.5), kind.strongest->update, kind.strongest->site.c_str());
  }
  if (!every_site) return;
  std::printf("\n%-44s %10s %10s %10s %8s\n", "site", "norm", "of A", "of B", "scale");
  for (const SiteNorm& norm : norms) {
    std::printf("%-44s %10.4g %10.4g %10.4g %8.4g\n", norm.site.c_str(), norm.update, norm.a,
                norm.b, static_cast<double>(norm.scale));
  }
}

void print_explanation(const std::vector<SiteNorm>& norms, const ProbeCommand& command,
                       const Adapter& adapter, const PromptEffect& total) {
  std::vector<std::string> lines = explain_no_effect(norms, command.scale);
  const double strongest =
      std::max_element(norms.begin(), norms.end(), [](const SiteNorm& a, const SiteNorm& b) {
        return a.update < b.update;
      })->update;
  if (total.total.max_abs == 0 && command.scale != 0 && strongest > 0) {
    lines.push_back(
        "its factors are not zero, yet no logit of these texts changed; texts that "
        "reach the sites it acts on may (an embedding adapter needs its tokens)");
  }
  if (total.total.kl > 5) {
    lines.push_back(
        "the answers change beyond recognition: it may have been trained on another "
        "base of this shape" +
        (adapter.report.base_name.empty()
             ? std::string()
             : ", or not: its files name '" + adapter.report.base_name + "'"));
  }
  if (total.total.max_abs == 0) {
    std::printf("\nThe adapter has no effect on these texts.\n");
  } else if (total.n_top_changed == 0) {
    std::printf("\nThe adapter moves the logits; the likeliest token stays everywhere.\n");
  }
  for (const std::string& line : lines) std::printf("- %s\n", line.c_str());
}

Status probe(const ProbeCommand& command, LoadedModel& loaded) {
  const ModuleVersion& module = *loaded.modules.front();
  // The resident copy may be packed; the norms are those of the file.
  GRAFT_ASSIGN_OR_RETURN(const auto adapter, read_adapter(module.path, loaded.model->base()));
  std::printf("%s on %s\n%s, rank %lld, %zu terms, digest %s\n", module.path.c_str(),
              loaded.model->facts().description.c_str(), adapter->report.format.c_str(),
              static_cast<long long>(adapter->report.max_rank), adapter->terms.size(),
              module.digest().c_str());
  if (!adapter->report.base_name.empty()) {
    std::printf("trained on %s\n", adapter->report.base_name.c_str());
  }
  for (const std::string& note : adapter->report.notes) std::printf("note: %s\n", note.c_str());

  std::printf("\n%-38s %5s %10s %10s %10s %12s\n", "text", "rows", "max |d|", "mean |d|", "KL",
              "top changed");
  PromptEffect total;
  const auto prompts = command.prompts.empty() ? default_prompts() : command.prompts;
  for (const std::string& prompt : prompts) {
    GRAFT_ASSIGN_OR_RETURN(
        const PromptEffect effect,
        measure(*loaded.engine, prompt, {module.resident.get(), command.scale, 0}));
    std::printf("%-38s %5zu %10.4g %10.4g %10.4g %12zu\n", first_line(prompt).c_str(),
                effect.n_rows, effect.total.max_abs, effect.total.mean_abs, effect.total.kl,
                effect.n_top_changed);
    total.total.max_abs = std::max(total.total.max_abs, effect.total.max_abs);
    total.total.kl = std::max(total.total.kl, effect.total.kl);
    total.n_top_changed += effect.n_top_changed;
  }
  const std::vector<SiteNorm> norms = site_norms(*adapter);
  print_norms(norms, command.every_site);
  print_explanation(norms, command, *adapter, total);
  return {};
}

}  // namespace

int run(const ProbeCommand& command) {
  auto loaded = load(command.model);
  if (!loaded) return report(loaded.error());
  const Status probed = probe(command, *loaded);
  return probed ? kExitOk : report(probed.error());
}

}  // namespace graft::cli
