#include "base/secret.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <span>
#include <vector>

#include "base/check.h"
#include "base/sha256.h"

namespace graft {

std::string random_hex(std::size_t n_bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::vector<unsigned char> bytes(n_bytes);
  GRAFT_CHECK(RAND_bytes(bytes.data(), static_cast<int>(n_bytes)) == 1);
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.finish_hex();
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace graft
