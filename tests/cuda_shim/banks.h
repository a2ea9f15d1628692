#pragma once

#include <cstdint>
#include <string>

namespace cuda_shim {

// Passes over the banks of shared memory, beyond the least, that a warp of the sequence's kernels
// takes to read and to write its operands; -1 where an operand's layout is no permutation. Of any
// other name than a dtype's: of an access that is all conflicts, 31.
int64_t bank_conflicts(const std::string& dtype);

}  // namespace cuda_shim
