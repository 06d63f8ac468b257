// `graft module inspect`: what an adapter's files say about themselves.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/loading.h"
#include "cli/run.h"
#include "modules/formats/read_adapter.h"

namespace graft::cli {
namespace {

using Json = nlohmann::ordered_json;

// The scale that alpha and rank give, or 0 when ranks or alphas differ.
double common_scale(const AdapterSummary& summary) {
  if (summary.ranks.size() != 1 || summary.ranks.front() <= 0) return 0;
  const auto rank = static_cast<double>(summary.ranks.front());
  if (summary.alpha <= 0) return summary.architecture.empty() ? 0 : 1;
  return summary.alpha / (summary.use_rslora ? std::sqrt(rank) : rank);
}

Json to_json(const AdapterSummary& summary, const std::string& path) {
  Json tensors = Json::array();
  for (const TensorSummary& tensor : summary.tensors) {
    tensors.push_back({{"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}});
  }
  const double scale = common_scale(summary);
  return {{"path", path},
          {"format", summary.format},
          {"base_name", summary.base_name},
          {"architecture", summary.architecture},
          {"ranks", summary.ranks},
          {"alpha", summary.alpha},
          {"use_rslora", summary.use_rslora},
          {"scale", scale > 0 ? Json(scale) : Json(nullptr)},
          {"targets", summary.targets},
          {"n_bytes", summary.n_bytes},
          {"digest", summary.digest},
          {"refusal", summary.refusal.empty() ? Json(nullptr) : Json(summary.refusal)},
          {"tensors", tensors}};
}

template <typename T>
std::string joined(const std::vector<T>& values, const char* between) {
  std::string out;
  for (const T& value : values) {
    if (!out.empty()) out += between;
    if constexpr (std::is_arithmetic_v<T>) {
      out += std::to_string(value);
    } else {
      out += value;
    }
  }
  return out;
}

void print_field(const char* name, const std::string& value) {
  if (!value.empty()) std::printf("%-13s %s\n", name, value.c_str());
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

void print_text(const AdapterSummary& summary) {
  print_field("format", summary.format);
  print_field("trained on", summary.base_name);
  print_field("architecture", summary.architecture);
  print_field("rank", joined(summary.ranks, ", "));
  if (summary.alpha > 0) print_field("alpha", number(summary.alpha));
  if (const double scale = common_scale(summary); scale > 0) {
    print_field("scale", number(scale) + (summary.use_rslora ? " (rsLoRA)" : ""));
  }
  print_field("targets", joined(summary.targets, ", "));
  print_field("bytes", std::to_string(summary.n_bytes));
  print_field("digest", summary.digest);
  print_field("can be served",
              summary.refusal.empty() ? "on a base that it fits" : "no: " + summary.refusal);
  std::printf("tensors       %zu\n", summary.tensors.size());
  for (const TensorSummary& tensor : summary.tensors) {
    std::printf("  %-5s %-14s %s\n", tensor.type.c_str(),
                ("[" + joined(tensor.shape, ", ") + "]").c_str(), tensor.name.c_str());
  }
}

}  // namespace

int run(const InspectCommand& command) {
  const auto summary = inspect_adapter(command.path);
  if (!summary) {
    Error error = summary.error();
    if (error.message.find(command.path) == std::string::npos) {
      error.message = command.path + ": " + error.message;
    }
    return report(error);
  }
  if (command.json) {
    // Names come from the file and need not be UTF-8.
    std::cout << to_json(*summary, command.path).dump(2, ' ', false, Json::error_handler_t::replace)
              << "\n";
  } else {
    print_text(*summary);
  }
  return kExitOk;
}

}  // namespace graft::cli
