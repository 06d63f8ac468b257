// One row of factor values between f32 and the resident types, and its inverse. Used when an
// adapter is packed; kernels have vector code of their own. Pure functions, any thread.
//
// A block of q8_0 is 32 int8, then their scale as bf16, which widens to f32 by one mask where
// ggml's f16 needs a conversion. Every scale is exact as f16 too, so the block can become ggml's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "modules/residency/resident_adapter.h"

namespace graft {

// Writes resident_row_bytes(type, values.size()) bytes. f32 to f16 and bf16 round to nearest even;
// for q8_0 each block's scale is rounded so that its largest value is not clipped.
void encode_row(ResidentType type, std::span<const float> values, std::byte* row);

// The inverse, value for value what the kernels compute with.
void decode_row(ResidentType type, const std::byte* row, std::span<float> values);

// Value `index` of a row.
float decode_value(ResidentType type, const std::byte* row, std::int64_t index);

}  // namespace graft
