#include "api/id_source.h"

namespace graft::api {
namespace {

void append_hex(std::string& out, std::uint64_t value, int n_digits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (int i = n_digits - 1; i >= 0; --i) out.push_back(kDigits[(value >> (4 * i)) & 15]);
}

}  // namespace

IdSource::IdSource() {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device()};
  random_.seed(seed);
}

std::string IdSource::next_text(const std::string& prefix) {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  {
    MutexLock lock(mutex_);
    high = random_();
    low = random_();
  }
  std::string text = prefix;
  append_hex(text, high, 16);
  append_hex(text, low, 8);
  return text;
}

}  // namespace graft::api
