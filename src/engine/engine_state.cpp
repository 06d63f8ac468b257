// Cells as bytes, for the warm tier of the prefix cache, through llama_state_seq_get/set_data and
// the scratch sequence, the only one below n_seq_max that never computes (a blob saved from a
// number above cannot be read back).
//
// libllama chooses the cells of restored positions and does not say which. But the state of a
// sequence lists its positions in the order of its cells, before any tensor, so a buffer that ends
// there gets that list alone; the mask of the next step says which cells they are.
#include <llama.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/llama_log.h"

namespace graft {

namespace {

constexpr std::size_t kHeadBytes = 16;  // magic, sequence, streams, cells: 4 bytes each
constexpr std::size_t kCellBytes = 12;  // position, count of sequences (1), sequence

std::int32_t read_i32(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  std::int32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The types whose kernels compute a row by itself (design 2b; README).
bool is_invariant_type(std::string_view type) {
  static constexpr std::array<std::string_view, 4> kTypes = {"q4_0", "q4_1", "q5_0", "q8_0"};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

}  // namespace

bool Engine::is_batch_invariant() const {
  if (model_.device() != nullptr || !options_.attention || !grafter_->attention_notes().empty()) {
    return false;
  }
  if (options_.deterministic) return true;
  const auto& types = model_.facts().matrices_by_type;
  return std::all_of(types.begin(), types.end(),
                     [](const auto& entry) { return is_invariant_type(entry.first); });
}

double Engine::bytes_per_cell() const { return kv_bytes_per_cell(model_.base(), options_.kv_type); }

std::string Engine::execution_name() const {
  std::string name = options_.kv_type == KvType::kF32    ? "f32"
                     : options_.kv_type == KvType::kQ8_0 ? "q8_0"
                                                         : "f16";
  name += options_.attention ? "+attention" : "";
  name += options_.deterministic ? "+deterministic" : "";
  name += model_.device() != nullptr ? "+device" : "";
  return name;
}

bool Engine::can_restore() const {
  return model_.device() == nullptr && options_.attention && grafter_->attention_notes().empty() &&
         !model_.facts().has_sliding_window;
}

Result<std::vector<std::byte>> Engine::save_cells(std::int32_t sequence, std::int32_t begin,
                                                  std::int32_t end) {
  GRAFT_CHECK(begin >= 0 && begin < end && end <= cells_.length(sequence));
  llama_memory_t memory = llama_get_memory(context_.get());
  const std::int32_t scratch = scratch_sequence();
  llama_memory_seq_cp(memory, sequence, scratch, begin, end);
  std::vector<std::byte> bytes(llama_state_seq_get_size(context_.get(), scratch));
  const std::size_t n_written = llama_state_seq_get_data(
      context_.get(), reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size(), scratch);
  llama_memory_seq_rm(memory, scratch, -1, -1);
  if (bytes.empty() || n_written != bytes.size()) {
    return internal_error("llama.cpp cannot save cells: " + take_llama_error());
  }
  return bytes;
}

Status Engine::restore_cells(std::int32_t sequence, std::span<const std::byte> bytes,
                             std::int32_t n_tokens) {
  GRAFT_CHECK(ids_.contains(sequence) && n_tokens > 0);
  if (n_tokens > cells_.n_free()) {
    return Error{ErrorCode::kResourceExhausted, "no free cells to restore into", {}};
  }
  llama_memory_t memory = llama_get_memory(context_.get());
  const std::int32_t scratch = scratch_sequence();
  const std::int32_t begin = cells_.length(sequence);
  const std::size_t n_read = llama_state_seq_set_data(
      context_.get(), reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), scratch);
  const bool is_right = n_read == bytes.size() &&
                        llama_memory_seq_pos_min(memory, scratch) == begin &&
                        llama_memory_seq_pos_max(memory, scratch) == begin + n_tokens - 1;
  if (is_right) llama_memory_seq_cp(memory, scratch, sequence, begin, begin + n_tokens);
  llama_memory_seq_rm(memory, scratch, -1, -1);
  if (!is_right) {
    return Error{ErrorCode::kDataCorrupt, "saved cells do not continue the sequence", {}};
  }
  cells_.extend(sequence, n_tokens);
  return {};
}

Result<std::vector<std::int32_t>> Engine::positions_by_cell(std::int32_t sequence) const {
  const auto n_tokens = static_cast<std::size_t>(cells_.length(sequence));
  std::vector<std::uint8_t> bytes(kHeadBytes + n_tokens * kCellBytes);
  {
    const LlamaLogSilence silence;  // the call ends with an error: its buffer ends
    llama_state_seq_get_data(context_.get(), bytes.data(), bytes.size(), sequence);
  }
  if (read_i32(bytes, kHeadBytes - 4) != static_cast<std::int32_t>(n_tokens)) {
    return internal_error("llama.cpp lists another number of cells than the sequence has");
  }
  std::vector<std::int32_t> positions(n_tokens);
  std::vector<bool> seen(n_tokens, false);
  for (std::size_t i = 0; i < n_tokens; ++i) {
    const std::int32_t position = read_i32(bytes, kHeadBytes + i * kCellBytes);
    const bool is_new = position >= 0 && static_cast<std::size_t>(position) < n_tokens &&
                        !seen[static_cast<std::size_t>(position)];
    if (!is_new) return internal_error("llama.cpp's list of cells has unexpected positions");
    seen[static_cast<std::size_t>(position)] = true;
    positions[i] = position;
  }
  return positions;
}

Status Engine::finish_restore(std::int32_t sequence) {
  GRAFT_ASSIGN_OR_RETURN(auto positions, positions_by_cell(sequence));
  grafter_->supply_positions(sequence, std::move(positions));
  return {};
}

}  // namespace graft
