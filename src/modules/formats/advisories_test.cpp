// Faults that were published for readers of GGUF files: each test names the advisory whose file it
// repeats here, for adapters, which come from outside.
#include <gtest/gtest.h>

#include <limits>

#include "modules/formats/format_test_support.h"
#include "modules/formats/gguf_file.h"
#include "modules/formats/read_adapter.h"

namespace graft {
namespace {

using format_test::Bytes;
using format_test::RawGguf;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

RawGguf tensor(RawGguf file, const std::string& name, const std::vector<std::uint64_t>& dims,
               std::uint32_t type, std::uint64_t offset) {
  file.text(name).u32(static_cast<std::uint32_t>(dims.size()));
  for (const std::uint64_t n : dims) file.u64(n);
  return file.u32(type).u64(offset);
}

// One tensor of these dimensions and offset, and `n_data_bytes` behind the header.
Bytes one_tensor(const std::vector<std::uint64_t>& dims, std::uint32_t type, std::uint64_t offset,
                 std::size_t n_data_bytes) {
  Bytes bytes = tensor(RawGguf(1, 0), "t", dims, type, offset).finish(0);
  bytes.resize((bytes.size() + 31) / 32 * 32 + n_data_bytes);
  return bytes;
}

bool is_refused(const Bytes& bytes) { return !read_gguf(bytes, "x"); }

// CVE-2025-53630 (ggml): the sizes of tensors, added up, overflowed; the sum passed for small.
// CVE-2026-27940: the first fix could be passed by, through the padding of one size.
TEST(GgufAdvisories, Cve202553630AndCve202627940SizesThatOverflow) {
  const std::uint64_t half = std::uint64_t{1} << 63;
  for (const std::vector<std::uint64_t>& dims :
       {std::vector<std::uint64_t>{half, 2},
        {half - 1},
        {kHuge - 31},
        {kHuge / 4 + 1},
        {std::uint64_t{1} << 32, std::uint64_t{1} << 32},
        {std::uint64_t{1} << 31, std::uint64_t{1} << 31, 4, 1},
        {(std::uint64_t{1} << 62) - 8}}) {
    for (const std::uint32_t type : {0U, 1U, 8U}) {
      EXPECT_TRUE(is_refused(one_tensor(dims, type, 0, 4096)));
    }
  }
  // Two whose sizes, padded, add up to a small number.
  const std::uint64_t n = (std::uint64_t{1} << 61) - 1;
  const RawGguf first = tensor(RawGguf(2, 0), "t0", {n}, 0, 0);
  EXPECT_TRUE(is_refused(tensor(first, "t1", {n}, 0, half).finish()));
}

// CVE-2024-21802 and its siblings (ggml): counts and lengths in the header were taken for true.
TEST(GgufAdvisories, Cve202421802CountsAndLengthsOfTheHeader) {
  EXPECT_TRUE(is_refused(RawGguf(kHuge, 0).finish()));
  EXPECT_TRUE(is_refused(RawGguf(0, kHuge).finish()));
  EXPECT_TRUE(is_refused(RawGguf(kHuge / 128, kHuge / 128).finish()));
  EXPECT_TRUE(is_refused(RawGguf(0, 1).u64(kHuge).finish()));  // a name's length, plus one, is 0
  EXPECT_TRUE(is_refused(RawGguf(0, 1).text("k").u32(8).u64(kHuge).finish()));
  for (const std::uint64_t n : {kHuge, kHuge / 8 + 1, std::uint64_t{1} << 61}) {
    for (const std::uint32_t element : {0U, 4U, 8U, 12U}) {
      EXPECT_TRUE(is_refused(RawGguf(0, 1).text("k").u32(9).u32(element).u64(n).finish()));
    }
  }
  EXPECT_TRUE(is_refused(one_tensor({1, 1, 1, 1, 1, 1, 1, 1}, 0, 0, 4096)));
  EXPECT_TRUE(is_refused(RawGguf(1, 0).text("t").u32(~0U).finish()));
}

// CVE-2026-7482 (Ollama): a tensor that reaches beyond the file was read all the same, and gave
// away memory of others.
TEST(GgufAdvisories, Cve20267482TensorsBeyondTheFile) {
  EXPECT_FALSE(is_refused(one_tensor({32}, 0, 0, 128)));
  EXPECT_TRUE(is_refused(one_tensor({33}, 0, 0, 128)));
  EXPECT_TRUE(is_refused(one_tensor({32}, 0, 0, 127)));
  EXPECT_TRUE(is_refused(one_tensor({32}, 0, 32, 128)));
  EXPECT_TRUE(is_refused(one_tensor({32}, 0, kHuge - 15, 4096)));
  EXPECT_TRUE(is_refused(one_tensor({32}, 0, std::uint64_t{1} << 63, 4096)));
  EXPECT_TRUE(is_refused(one_tensor({32}, 8, 0, 33)));
}

// CVE-2025-62164 (vLLM) and its kind: pickled tensors run code. They are refused by content,
// whatever the file is called.
TEST(AdapterAdvisories, Cve202562164PickleIsRefused) {
  const BaseModel base = format_test::make_base({});
  const std::string zip("PK\x03\x04\x00\x00\x08\x08", 8);
  const std::string pickle("\x80\x02}q\x00.", 6);
  for (const auto& [name, content] : {std::pair<std::string, std::string>{"adapter_model.bin", zip},
                                      {"adapter_model.pt", pickle},
                                      {"adapter_model.safetensors", pickle + std::string(64, '\0')},
                                      {"adapter.gguf", zip + std::string(64, '\0')}}) {
    const format_test::TemporaryDirectory one;
    one.write(
        "adapter_config.json",
        std::string(R"({"peft_type":"LORA","r":1,"lora_alpha":1,"target_modules":["q_proj"]})"));
    const std::string path = one.write(name, content);
    EXPECT_FALSE(read_adapter(one.path(), base)) << name;
    EXPECT_FALSE(read_adapter(path, base)) << name;
  }
}

}  // namespace
}  // namespace graft
