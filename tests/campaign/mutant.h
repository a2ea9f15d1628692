// Which mutant a process runs, and which it has reached. Included before every C++ source of the
// campaign's build, whose mutants are chosen by the number in LLTM_MUTANT; LLTM_REACHED names a file
// with a byte for each, 1 once it was reached.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace lltm_mutants {

constexpr int kMost = 4096;

inline unsigned char* map_reached() {
  static unsigned char unread[kMost];
  const char* path = std::getenv("LLTM_REACHED");
  const int file = path ? ::open(path, O_RDWR) : -1;
  if (file < 0) return unread;
  void* mapped = ::mmap(nullptr, kMost, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return mapped == MAP_FAILED ? unread : static_cast<unsigned char*>(mapped);
}

inline int read_active() {
  const char* number = std::getenv("LLTM_MUTANT");
  return number ? std::atoi(number) : -1;
}

inline unsigned char* const reached = map_reached();
inline const int active = read_active();

}  // namespace lltm_mutants

#define LLTM_MUTANT(number) \
  (lltm_mutants::reached[number] = 1, lltm_mutants::active == (number))
