// FactorMatrix from the bytes of a file, and the few rearrangements that names and layouts demand:
// rows taken out, rows permuted per head, the matrix turned, experts stacked. Values keep their
// type wherever they are only moved. Pure functions; any thread.
//
// "Requires" conditions are established by the readers' shape checks before the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "modules/adapter.h"

namespace graft {

// Copies n_rows * n_cols values. Errors: kDataCorrupt, naming `name`, when one is not finite.
// Requires: `bytes` has exactly that many values of `type`.
Result<FactorMatrix> make_factor(FactorType type, std::int64_t n_rows, std::int64_t n_cols,
                                 std::span<const std::byte> bytes, const std::string& name);

// The same from ggml's Q8_0 blocks (f16 scale, 32 int8), exactly, as f32.
// Requires: n_cols is a multiple of 32, and `bytes` has n_rows * n_cols / 32 blocks of 34 bytes.
Result<FactorMatrix> make_factor_from_q8_0(std::int64_t n_rows, std::int64_t n_cols,
                                           std::span<const std::byte> bytes,
                                           const std::string& name);

// Rows begin .. begin + n_rows. Requires: they exist.
FactorMatrix slice_rows(const FactorMatrix& matrix, std::int64_t begin, std::int64_t n_rows);

FactorMatrix transpose(const FactorMatrix& matrix);

// The order of Q and K rows that llama.cpp's converter gives to models with interleaved RoPE: in
// each of n_heads blocks of size hd, new row 2b + a is old row a * hd / 2 + b.
// Returns for every new row its old row. Requires: n_rows is a multiple of 2 * n_heads.
std::vector<std::int64_t> interleaved_rope_order(std::int64_t n_rows, std::int64_t n_heads);

// New row i is old row order[i]. Requires: every entry is an existing row.
FactorMatrix permute_rows(const FactorMatrix& matrix, const std::vector<std::int64_t>& order);

// Every value times `factor`, as f32.
FactorMatrix scale_to_f32(const FactorMatrix& matrix, float factor);

// The values as f32, row-major.
std::vector<float> to_floats(const FactorMatrix& matrix);

}  // namespace graft
