// What stands in /metrics, line by line where others depend on it.
#include "metrics/exposition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "metrics/module_presence.h"

namespace graft {
namespace {

std::vector<std::string> lines_with(const std::string& text, const std::string& begin) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(begin)) found.push_back(line);
  }
  return found;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

class ExpositionTest : public testing::Test {
 protected:
  ExpositionTest() {
    facts_.model_name = "base-model";
    facts_.unix_time_s = 1790000000;
    facts_.max_modules = 200;
  }
  std::string text() const { return exposition(serving_, http_, facts_); }

  ServingCounters serving_;
  HttpCounters http_;
  ExpositionFacts facts_;
};

// A router takes one series per family, whatever modules there are.
TEST_F(ExpositionTest, TheFamiliesOfTheModelServerProtocol) {
  facts_.modules = {{"a", "0123", 1, 0.5}, {"team/b", "4567", 2, 0.5}};
  const ModulePresence waiting({&serving_.modules().series_of("team/b")});
  ModulePresence running({&serving_.modules().series_of("a")});
  running.run();
  const ModulePresence base({&serving_.modules().series_of(ModuleTable::kBaseName)});
  ServingCounters::set(serving_.n_running, 3);
  ServingCounters::set(serving_.n_waiting, 7);
  ServingCounters::set(serving_.n_cells, 4096);
  ServingCounters::set(serving_.n_free_cells, 768);
  ServingCounters::set(serving_.n_idle_cells, 256);
  const std::string text = this->text();
  EXPECT_EQ(joined(lines_with(text, "vllm:num_requests_")),
            "vllm:num_requests_running{model_name=\"base-model\"} 3\n"
            "vllm:num_requests_waiting{model_name=\"base-model\"} 7\n");
  EXPECT_EQ(joined(lines_with(text, "vllm:kv_cache_usage_perc")),
            "vllm:kv_cache_usage_perc{model_name=\"base-model\"} 0.75\n");
  EXPECT_EQ(joined(lines_with(text, "vllm:lora_requests_info")),
            "vllm:lora_requests_info{max_lora=\"200\",running_lora_adapters=\"a,team/b\","
            "waiting_lora_adapters=\"team/b\"} 1790000000\n");
  EXPECT_EQ(joined(lines_with(text, "vllm:cache_config_info")),
            "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"256\"} 1\n");
  EXPECT_TRUE(lines_with(text, "vllm:gpu_").empty());
  facts_.old_gpu_names = true;
  EXPECT_EQ(joined(lines_with(this->text(), "vllm:gpu_cache")),
            "vllm:gpu_cache_usage_perc{model_name=\"base-model\"} 0.75\n");
  EXPECT_EQ(lines_with(this->text(), "vllm:gpu_prefix_cache_").size(), 2U);
}

TEST_F(ExpositionTest, HistogramsAreCumulativeInBaseUnits) {
  serving_.record_token({true, 3000}, {});
  serving_.record_token({true, 30000}, {});
  serving_.record_token({true, 9'000'000'000}, {});
  const auto lines = lines_with(text(), "vllm:time_to_first_token_seconds");
  ASSERT_EQ(lines.size(), 22U + 3U);
  const std::string all = joined(lines);
  const std::string name = "vllm:time_to_first_token_seconds";
  const std::string label = "{model_name=\"base-model\"";
  for (const std::string& line :
       {name + "_count" + label + "} 3", name + "_bucket" + label + ",le=\"0.001\"} 0",
        name + "_bucket" + label + ",le=\"0.04\"} 2", name + "_bucket" + label + ",le=\"0.1\"} 2",
        name + "_bucket" + label + ",le=\"2560\"} 2",
        name + "_bucket" + label + ",le=\"+Inf\"} 3"}) {
    EXPECT_NE(all.find(line + "\n"), std::string::npos) << line << " is not in\n" << all;
  }
  const std::string sum = name + "_sum" + label + "} ";
  const std::size_t at = all.find(sum);
  ASSERT_NE(at, std::string::npos) << all;
  EXPECT_NEAR(std::strtod(all.c_str() + at + sum.size(), nullptr), 9000.033, 1e-9);
}

TEST_F(ExpositionTest, RequestsByReason) {
  RequestRecord request;
  serving_.record_end(request, {});
  request.outcome = RequestRecord::Outcome::kLength;
  serving_.record_end(request, {});
  serving_.record_end(request, {});
  request.outcome = RequestRecord::Outcome::kCancelled;
  serving_.record_end(request, {});
  EXPECT_EQ(joined(lines_with(text(), "vllm:request_success_total")),
            "vllm:request_success_total{model_name=\"base-model\",finished_reason=\"stop\"} 1\n"
            "vllm:request_success_total{model_name=\"base-model\",finished_reason=\"length\"} 2\n"
            "vllm:request_success_total{model_name=\"base-model\",finished_reason=\"abort\"} 1\n");
  EXPECT_EQ(lines_with(text(), "graft_requests_total{").size(), 4U);
}

TEST_F(ExpositionTest, ModulesHaveSeriesOfTheirOwnUntilThereAreTooMany) {
  for (int i = 0; i < 500; ++i) {
    const std::vector<ModuleSeries*> series = {
        &serving_.modules().series_of("m" + std::to_string(i))};
    serving_.record_token({false, 1000}, series);
    facts_.modules.push_back({"m" + std::to_string(i), "ab", 10, 0.25});
  }
  const std::string text = this->text();
  EXPECT_NE(text.find("graft_module_tokens_total{module=\"m7\",kind=\"generated\"} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find("graft_module_tokens_total{module=\"other\",kind=\"generated\"} 300\n"),
            std::string::npos);
  EXPECT_EQ(lines_with(text, "graft_module_errors_total{").size(), ModuleTable::kMaxNames + 1);
  EXPECT_EQ(lines_with(text, "graft_module_resident_bytes{").size(), ModuleTable::kMaxNames + 1);
  EXPECT_NE(text.find("graft_module_resident_bytes{module=\"other\"} 3000\n"), std::string::npos);
  const std::string info = joined(lines_with(text, "vllm:lora_requests_info"));
  EXPECT_EQ(std::count(info.begin(), info.end(), ','), 2 + 199) << info;
}

TEST_F(ExpositionTest, AnswersByStatus) {
  http_.count(200);
  http_.count(200);
  http_.count(429);
  http_.count(418);
  EXPECT_EQ(joined(lines_with(text(), "graft_http_answers_total{")),
            "graft_http_answers_total{status=\"200\"} 2\n"
            "graft_http_answers_total{status=\"429\"} 1\n"
            "graft_http_answers_total{status=\"other\"} 1\n");
}

// Every family has its two comment lines, and none appears twice.
TEST_F(ExpositionTest, FamiliesAreDescribedOnce) {
  facts_.old_gpu_names = true;
  serving_.modules().series_of("a");
  facts_.modules = {{"a", "0123", 1, 0.5}};
  const std::string text = this->text();
  std::vector<std::string> help;
  for (const std::string& line : lines_with(text, "# HELP ")) {
    help.push_back(line.substr(7, line.find(' ', 7) - 7));
  }
  const std::size_t n_families = help.size();
  EXPECT_EQ(lines_with(text, "# TYPE ").size(), n_families);
  std::sort(help.begin(), help.end());
  EXPECT_EQ(std::unique(help.begin(), help.end()) - help.begin(),
            static_cast<std::ptrdiff_t>(n_families));
  EXPECT_GT(n_families, 50U);
  EXPECT_EQ(text.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace graft
