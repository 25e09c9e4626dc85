// SHA-256 (FIPS 180-4), for names and checksums of cache entries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace maco::runtime {

class Sha256 {
 public:
  void add(std::string_view bytes);
  /// Adds the length too, so that ("ab", "c") and ("a", "bc") differ.
  void add_field(std::string_view bytes);
  /// The 32 bytes of the hash. Nothing may be added afterwards.
  std::string digest();
  /// The same as 64 hex digits.
  std::string hex();

 private:
  void block(const uint8_t* data);
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> rest_{};
  uint64_t length_ = 0;
};

}  // namespace maco::runtime
