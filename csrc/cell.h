// The cell that this library computes: a functor, which kernels and host functions are templates
// over or take their sizes from.
//
// Its header (LLTM_CELL_HEADER, the struct's name in LLTM_CELL; lltm_cell.inc unless named) holds
// one struct template over Math, what happens to one element once its pre-activations are known:
//
//   template <class Math>
//   struct Name {
//     static constexpr int kStates;    // h first
//     static constexpr int kGates;     // the rows of weights by S
//     static constexpr bool kSplit;    // whether the input's and the recurrent share of the
//                                      // pre-activations come apart instead of added
//     static constexpr int kPre;       // pre-activations: kGates, or twice that, the input's first
//     static constexpr int kSaved;     // what forward keeps for backward beside the states
//     static constexpr int kScalars;   // parameters such as alpha
//     static constexpr bool kDirect;   // whether the old h reaches the new states other than by
//                                      // the product; if not, d_state[0] is not read
//     template <class V> struct Forward { V state[kStates]; V saved[kSaved]; };
//     template <class V> struct Backward { V d_z[kPre]; V d_state[kStates]; };  // of old states
//     forward(z, state, scalars), backward(saved, old_state, new_state, grad_state, scalars)
//   };
//
// V is float or double on a GPU and a SIMD vector on a CPU. Math has sigmoid, tanh, elu,
// elu_with_derivative, exp, expm1, log, log1p, softplus, log_sigmoid, sqrt, abs, maximum and
// minimum for it; a comparison gives a mask for select(mask, a, b). The text includes nothing and
// opens no namespace: it is read here for its constants and again by each kernel set, for that
// set's processors.
//
// What depends on the cell is in an inline namespace of its name, so that a library can have
// several (build_support/cells.py), each compiled from the same files.
#pragma once

#if defined(__CUDACC__)
#define LLTM_HOST_DEVICE __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define LLTM_HOST_DEVICE inline __attribute__((always_inline))
#else
#define LLTM_HOST_DEVICE inline
#endif

#if !defined(LLTM_CELL)
#define LLTM_CELL LltmCell
#endif

namespace lltm {
inline namespace LLTM_CELL {
namespace described {
#include "cell_functor.inc"
}  // namespace described

struct NoMath;

// For its constants alone.
using Cell = described::LLTM_CELL<NoMath>;

static_assert(Cell::kStates > 0 && Cell::kGates > 0, "a cell has a hidden state and gates");
static_assert(Cell::kPre == (Cell::kSplit ? 2 : 1) * Cell::kGates, "a share has all gates");

// An array has one element at least. No function, which device code could not call.
template <int Count>
constexpr int kRoom = Count > 0 ? Count : 1;

constexpr int kShares = Cell::kPre / Cell::kGates;
constexpr int kRecurrentShare = kShares - 1;  // the input's is 0
// The first state whose gradient does not come from the product alone.
constexpr int kFirstPassed = Cell::kDirect ? 0 : 1;

// A struct and not std::array, which device code cannot read.
struct Scalars {
  double values[kRoom<Cell::kScalars>];
};

}  // namespace LLTM_CELL
}  // namespace lltm
