// SHA-256 over pieces of bytes (FIPS 180-4, computed by OpenSSL). Used for content digests.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace graft {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  // 64 lower-case hexadecimal digits. Requires: called once, last.
  std::string finish_hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace graft
