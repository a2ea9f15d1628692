// A functor's Math for one double, so that its text can be tested without a kernel.
#include <cmath>

#define LLTM_HOST_DEVICE inline

struct ScalarMath {
  struct Elu {
    double value, derivative;
  };
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double tanh(double x) { return std::tanh(x); }
  static double elu(double x, double alpha) { return x > 0 ? x : alpha * std::expm1(x); }
  static Elu elu_with_derivative(double x, double alpha) {
    return {elu(x, alpha), x > 0 ? 1 : alpha * std::exp(x)};
  }
  static double exp(double x) { return std::exp(x); }
  static double log(double x) { return std::log(x); }
  static double expm1(double x) { return std::expm1(x); }
  static double log1p(double x) { return std::log1p(x); }
  static double softplus(double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }
  static double log_sigmoid(double x) { return -softplus(-x); }
  static double sqrt(double x) { return std::sqrt(x); }
  static double abs(double x) { return std::fabs(x); }
  static double maximum(double a, double b) { return a != a || a > b ? a : b; }
  static double minimum(double a, double b) { return a != a || a < b ? a : b; }
  static double select(bool mask, double a, double b) { return mask ? a : b; }
};
