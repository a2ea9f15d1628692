// Bank conflicts of the sequence's kernels, from the kernels' own index arithmetic: this file
// includes their source to reach it.
#include "banks.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "csrc/cuda/persistent.cu"

namespace cuda_shim {
namespace {

using lltm::cuda::compute_t;
constexpr int kWarp = 32, kBanks = 32, kBankBytes = 4;

// Passes over the banks that a warp's access takes, beyond those that its width takes anyway: a
// pass serves 128 bytes, so lanes of 16 bytes go in groups of 8, and each bank gives one word.
int64_t conflicts(const std::vector<int64_t>& addresses, int bytes) {
  const size_t group = std::min<size_t>(kWarp, kBanks * kBankBytes / bytes);
  int64_t extra = 0;
  for (size_t begin = 0; begin < addresses.size(); begin += group) {
    std::map<int64_t, std::set<int64_t>> words;  // by bank
    for (size_t i = begin; i < std::min(begin + group, addresses.size()); ++i) {
      for (int64_t byte = 0; byte < bytes; byte += kBankBytes) {
        const int64_t word = (addresses[i] + byte) / kBankBytes;
        words[word % kBanks].insert(word);
      }
    }
    size_t passes = 0;
    for (const auto& [bank, distinct] : words) passes = std::max(passes, distinct.size());
    extra += static_cast<int64_t>(passes) - 1;
  }
  return extra;
}

template <class Address>
int64_t of_warp(int bytes, const Address& address) {
  std::vector<int64_t> addresses;
  for (int lane = 0; lane < kWarp; ++lane) addresses.push_back(address(lane));
  return conflicts(addresses, bytes);
}

// A warp reads a staged vector for its dot products, and writes it there in packs.
template <class T, int K>
int64_t of_kernel() {
  using V = compute_t<T>;
  constexpr int kWidth = K * kWarp, kAccess = lltm::cuda::kAccess<V>;
  constexpr int kBytes = kAccess * static_cast<int>(sizeof(V));
  int64_t found = 0;
  for (int i = 0; i < K; i += kAccess) {
    found += of_warp(kBytes, [&](int lane) {
      return int64_t{lltm::cuda::position_of_lane<V>(i, lane)} * static_cast<int>(sizeof(V));
    });
  }
  constexpr int kPack = lltm::cuda::kVector<T>;
  for (int pack = 0; pack + kWarp <= kWidth / kPack; pack += kWarp) {
    for (int first = 0; first < kPack; first += kAccess) {
      found += of_warp(kBytes, [&](int lane) {
        const int k = (pack + lane) * kPack + first;
        return int64_t{lltm::cuda::position_of<T>(k, kWidth)} * static_cast<int>(sizeof(V));
      });
    }
  }
  return found;
}

// Whether the two maps between elements and positions are each other's inverse, onto the vector.
template <class T, int K>
bool is_permutation() {
  constexpr int kWidth = K * kWarp;
  std::set<int> seen;
  for (int k = 0; k < kWidth; ++k) {
    const int position = lltm::cuda::position_of<T>(k, kWidth);
    if (lltm::cuda::element_at<T>(position, kWidth) != k) return false;
    seen.insert(position);
  }
  return seen.size() == kWidth && *seen.begin() == 0 && *seen.rbegin() == kWidth - 1;
}

template <class T>
int64_t of_type() {
  if (!is_permutation<T, 4>() || !is_permutation<T, 8>() || !is_permutation<T, 16>()) return -1;
  return of_kernel<T, 4>() + of_kernel<T, 8>() + of_kernel<T, 16>();
}

}  // namespace

int64_t bank_conflicts(const std::string& dtype) {
  if (dtype == "float32") return of_type<float>() + of_kernel<float, 32>();
  if (dtype == "float64") return of_type<double>();
  if (dtype == "bfloat16") {
    return of_type<lltm::cuda::BFloat16>() + of_kernel<lltm::cuda::BFloat16, 32>();
  }
  if (dtype == "float16") return of_type<lltm::cuda::Half>() + of_kernel<lltm::cuda::Half, 32>();
  // Every lane in the same bank, to show that conflicts are seen.
  return of_warp(4, [](int lane) { return int64_t{lane} * kBanks * kBankBytes; });
}

}  // namespace cuda_shim
