#include <sys/mman.h>
#include <unistd.h>

#include "tests/inputs/target.h"

namespace maco::inputs {

MemoryFile::MemoryFile(const uint8_t* data, size_t size)
    : descriptor_(memfd_create("input", MFD_CLOEXEC)),
      path_("/proc/self/fd/" + std::to_string(descriptor_)) {
  require(descriptor_ >= 0, "no file in memory could be made");
  for (size_t done = 0; done < size;) {
    const ssize_t n = write(descriptor_, data + done, size - done);
    require(n > 0, "a file in memory could not be written");
    done += static_cast<size_t>(n);
  }
}
MemoryFile::~MemoryFile() { close(descriptor_); }

}  // namespace maco::inputs
