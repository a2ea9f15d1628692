// A functor's Math for numbers that carry a bound of the error of what the kernels compute for
// them: the rules of bounds.py, element by element.
#include <algorithm>
#include <cmath>
#include <limits>

#define LLTM_HOST_DEVICE inline

// Half an ulp of 1 in the type that is computed in, its smallest number, and the halves of an ulp
// that an elementary function may be off by.
static double unit, smallest, maths;

struct Bounded {
  double value = 0, error = 0;
  Bounded() = default;
  Bounded(double value, double error = 0) : value(value), error(error) {}
};

struct Mask {
  bool value, sure;
};

inline Bounded rounded(double value, double error, double units = 1) {
  return {value, error + units * (unit * (std::fabs(value) + error) + smallest)};
}
inline Bounded operator-(Bounded a) { return {-a.value, a.error}; }
inline Bounded operator+(Bounded a, Bounded b) {
  return rounded(a.value + b.value, a.error + b.error);
}
inline Bounded operator-(Bounded a, Bounded b) { return a + -b; }
inline Bounded operator*(Bounded a, Bounded b) {
  const double carried = std::fabs(a.value) * b.error + a.error * std::fabs(b.value);
  return rounded(a.value * b.value, carried + a.error * b.error);
}
inline Bounded operator/(Bounded a, Bounded b) {
  const double quotient = a.value / b.value, left = std::fabs(b.value) - b.error;
  const double carried = a.error + std::fabs(quotient) * b.error;
  return rounded(quotient, left > 0 ? carried / left : std::numeric_limits<double>::infinity());
}

inline Mask compared(bool value, Bounded a, Bounded b) {
  const double error = a.error + b.error;
  return {value, error == 0 || std::fabs(a.value - b.value) > error};
}
inline Mask operator>(Bounded a, Bounded b) { return compared(a.value > b.value, a, b); }
inline Mask operator<(Bounded a, Bounded b) { return compared(a.value < b.value, a, b); }
inline Mask operator<=(Bounded a, Bounded b) { return compared(a.value <= b.value, a, b); }
inline Mask operator==(Bounded a, Bounded b) { return compared(a.value == b.value, a, b); }

// A function that does not fall.
template <class Function>
Bounded through(Bounded x, Function function) {
  const double value = function(x.value);
  const double below = value - function(x.value - x.error);
  const double above = function(x.value + x.error) - value;
  return rounded(value, std::max(below, above), maths);
}

struct BoundedMath {
  struct Elu {
    Bounded value, derivative;
  };
  static Bounded select(Mask mask, Bounded a, Bounded b) {
    Bounded chosen = mask.value ? a : b;
    const Bounded other = mask.value ? b : a;
    if (!mask.sure) {
      chosen.error = std::max(chosen.error, std::fabs(other.value - chosen.value) + other.error);
    }
    return chosen;
  }
  static Bounded sigmoid(Bounded x) {
    return through(x, [](double v) { return 1 / (1 + std::exp(-v)); });
  }
  static Bounded tanh(Bounded x) {
    return through(x, [](double v) { return std::tanh(v); });
  }
  static Bounded exp(Bounded x) {
    return through(x, [](double v) { return std::exp(v); });
  }
  static Bounded log_sigmoid(Bounded x) {
    return through(x, [](double v) { return std::fmin(v, 0) - std::log1p(std::exp(-std::fabs(v))); });
  }
  static Bounded elu(Bounded x, double alpha) {
    return through(x, [=](double v) { return v > 0 ? v : alpha * std::expm1(v); });
  }
  static Elu elu_with_derivative(Bounded x, double alpha) {
    const Bounded falling{std::min(x.value, 0.0), x.error};
    const Bounded slope = Bounded(alpha) * exp(falling);
    return {elu(x, alpha), select(x > Bounded(0), Bounded(1), slope)};
  }
  static Bounded maximum(Bounded a, Bounded b) {
    return {std::max(a.value, b.value), std::max(a.error, b.error)};
  }
};
