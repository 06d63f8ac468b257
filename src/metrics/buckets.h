// Bounds of the histograms. Those of latencies and token counts are vLLM's, so that dashboards made
// for it read ours; the ones by module are coarser, because there may be two hundred modules.
#pragma once

#include <array>
#include <cstdint>

namespace graft {

// Microseconds.
inline constexpr std::array<std::int64_t, 11> kStepTimeBoundsUs = {
    1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, 5000000};
inline constexpr std::array<std::int64_t, 11> kPrepareTimeBoundsUs = {
    100, 200, 300, 500, 1000, 2000, 5000, 10000, 50000, 200000, 1000000};
inline constexpr std::array<std::int64_t, 22> kFirstTokenBoundsUs = {
    1000,     5000,     10000,    20000,     40000,     60000,     80000,   100000,
    250000,   500000,   750000,   1000000,   2500000,   5000000,   7500000, 10000000,
    20000000, 40000000, 80000000, 160000000, 640000000, 2560000000};
inline constexpr std::array<std::int64_t, 22> kInterTokenBoundsUs = {
    2500,    5000,     10000,    25000,    50000,    75000,    100000,  150000,
    200000,  300000,   400000,   500000,   750000,   1000000,  2500000, 5000000,
    7500000, 10000000, 20000000, 40000000, 80000000, 160000000};
inline constexpr std::array<std::int64_t, 21> kRequestTimeBoundsUs = {
    300000,   500000,    800000,    1000000,   1500000,   2000000,    2500000,
    5000000,  10000000,  15000000,  20000000,  30000000,  40000000,   50000000,
    60000000, 120000000, 240000000, 480000000, 960000000, 1920000000, 7680000000};
inline constexpr std::array<std::int64_t, 9> kModuleTimeBoundsUs = {
    5000, 10000, 20000, 50000, 100000, 250000, 1000000, 5000000, 30000000};

// Tokens.
inline constexpr std::array<std::int64_t, 18> kRequestTokensBounds = {
    1,    2,    5,    10,    20,    50,    100,    200,    500,
    1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
inline constexpr std::array<std::int64_t, 13> kStepTokensBounds = {
    1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

}  // namespace graft
