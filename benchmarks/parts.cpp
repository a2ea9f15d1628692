// The parts of a sequence's forward and backward pass in float32 on one thread, each to be timed by
// itself: the very functions that the ops call.
#include "host/steps_backward.h"
#include "host/steps_forward.h"

namespace {

struct OneThread {
  struct Tensor {};

  template <class Body>
  static void parallel_for(int64_t items, int64_t, const Body& body) {
    if (items > 0) body(0, items);
  }
};

}  // namespace

using lltm::cpu::gate_items;
using lltm::cpu::kernels;

extern "C" {

// As benchmarks/parts.py lays it out; shapes as in SequenceForward and SequenceBackward.
struct Problem {
  int64_t steps, batch, features, state;
  const float *input, *weights, *bias, *h0, *c0, *grad_output;
  float *gates, *output, *cells, *c_n;
  float *d_z, *d_input, *d_weights, *d_bias;
};
}

namespace {

lltm::SequenceSizes sizes(const Problem& of) {
  lltm::SequenceSizes found{};
  found.steps = of.steps;
  found.cell.batch = of.batch;
  found.cell.features = of.features;
  found.cell.state = of.state;
  return found;
}

lltm::SequenceForward<float> forward(const Problem& of) {
  lltm::SequenceForward<float> args{sizes(of), {1.0}};
  args.input = of.input;
  args.weights = {of.weights, args.sizes.cell};
  args.bias = of.bias;
  args.first[0] = of.h0;
  args.first[1] = of.c0;
  args.in_place = !lltm::steps_multiply_input<float>(args.sizes.cell);
  if (args.in_place) args.projected = of.gates;
  args.chunk = of.steps;
  args.output = of.output;
  args.last[0] = of.output + (of.steps - 1) * of.batch * of.state;
  args.last[1] = of.c_n;
  args.states = of.cells;
  args.saved = of.gates;
  return args;
}

lltm::SequenceBackward<float> backward(const Problem& of) {
  lltm::SequenceBackward<float> args{sizes(of), {1.0}};
  args.weights = of.weights;
  args.first[0] = of.h0;
  args.first[1] = of.c0;
  args.output = of.output;
  args.states = of.cells;
  args.saved = of.gates;
  args.grad_output = of.grad_output;
  args.d_z[0] = of.d_z;
  return args;
}

}  // namespace

extern "C" {

int steps_multiply_input(const Problem& of) {
  return lltm::steps_multiply_input<float>(sizes(of).cell);
}

void projection(const Problem& of) { lltm::project_inputs<OneThread>(forward(of), 0); }

void forward_steps(const Problem& of) {
  const lltm::SequenceForward<float> args = forward(of);
  lltm::ForwardSteps<float, lltm::ForwardProduct<OneThread, float>>(args).run(0, of.steps);
}

void backward_steps(const Problem& of) { lltm::sequence_steps_backward<OneThread>(backward(of)); }

void input_gradient(const Problem& of) {
  const auto weights = lltm::dense(of.weights, 3 * of.state, of.state + of.features);
  lltm::multiply<OneThread>(lltm::dense(of.d_input, of.steps * of.batch, of.features),
                            lltm::dense<const float>(of.d_z, of.steps * of.batch, 3 * of.state),
                            weights.column_range(of.state, of.features));
}

void weight_gradient(const Problem& of) {
  lltm::weight_gradient<OneThread, float>(
      {sizes(of), {of.d_z}, of.h0, of.output, of.input, {}, of.d_weights});
}

void bias_gradient(const Problem& of) {
  lltm::column_sum<OneThread, float>({of.steps * of.batch, 3 * of.state, of.d_z, of.d_bias});
}

// The gates of all steps without a product, a step at a time: a part of forward_steps.
void forward_gates(const Problem& of) {
  const int64_t plane = of.batch * of.state;
  for (int64_t t = 0; t < of.steps; ++t) {
    lltm::cpu::GatesForward<float> step{of.batch, of.state, {1.0}};
    step.z = of.gates + 3 * t * plane;
    step.z_stride = 3 * of.state;
    step.old_state[0] = of.h0;
    step.old_state[1] = t ? of.cells + (t - 1) * plane : of.c0;
    step.new_state[0] = of.output + t * plane;
    step.new_state[1] = of.cells + t * plane;
    step.saved = of.gates + 3 * t * plane;
    kernels().f32.gates_forward(step, 0, gate_items(of.batch, of.state));
  }
}

// Likewise of backward_steps.
void backward_gates(const Problem& of) {
  const int64_t plane = of.batch * of.state;
  for (int64_t t = of.steps - 1; t >= 0; --t) {
    lltm::cpu::GatesBackward<float> step{of.batch, of.state, {1.0}};
    step.saved = of.gates + 3 * t * plane;
    step.new_state[1] = of.cells + t * plane;
    step.grad_h = step.grad_state[0] = of.grad_output + t * plane;
    step.d_z[0] = of.d_z + 3 * t * plane;
    kernels().f32.gates_backward(step, 0, gate_items(of.batch, of.state));
  }
}
}
