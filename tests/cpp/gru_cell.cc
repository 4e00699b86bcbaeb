// Defines the tests' view of GRUBlockCell and its gradient: tensors, reference,
// engine call.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/cpp/identity.h"
#include "tests/cpp/op.h"

namespace blockrnn::test {
namespace {

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int) {
    const int64_t k = d.input + d.units;
    return {{"x", d.batch * d.input},
            {"h_prev", d.batch * d.units},
            {"w_ru", k * 2 * d.units, Fill::kWeight},
            {"w_c", k * d.units, Fill::kWeight},
            {"b_ru", 2 * d.units},
            {"b_c", d.units}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int) {
    const int64_t n = d.batch * d.units;
    return {{"r", n}, {"u", n}, {"c", n}, {"h", n}};
  }

  static int64_t Reduction(const Dims& d) { return d.input + d.units; }

  // r, u from [x, h_prev] · w_ru + b_ru; c from [x, h_prev ∘ r] · w_c + b_c;
  // h = u ∘ h_prev + (1 − u) ∘ c.
  static std::vector<Tensor> Reference(const Dims& d, int, Activations act,
                                       const std::vector<Tensor>& in) {
    const Tensor &x = in[0], &h_prev = in[1], &w_ru = in[2], &w_c = in[3];
    const Tensor &b_ru = in[4], &b_c = in[5];
    const int64_t input = d.input;
    const int64_t units = d.units;
    Tensor r(h_prev.size()), u(h_prev.size()), c(h_prev.size());
    Tensor h(h_prev.size());
    for (int64_t b = 0; b < d.batch; ++b) {
      for (int64_t j = 0; j < 2 * units; ++j) {
        Sum bar;
        for (int64_t k = 0; k < input; ++k) {
          bar.AddProduct(x[b * input + k], w_ru[k * 2 * units + j]);
        }
        for (int64_t k = 0; k < units; ++k) {
          bar.AddProduct(h_prev[b * units + k],
                         w_ru[(input + k) * 2 * units + j]);
        }
        bar.Add(b_ru[j]);
        const Real gate = act.Gate(bar.Total());
        (j < units ? r[b * units + j] : u[b * units + j - units]) = gate;
      }
      for (int64_t j = 0; j < units; ++j) {
        Sum bar;
        for (int64_t k = 0; k < input; ++k) {
          bar.AddProduct(x[b * input + k], w_c[k * units + j]);
        }
        for (int64_t k = 0; k < units; ++k) {
          bar.AddProduct(h_prev[b * units + k] * r[b * units + k],
                         w_c[(input + k) * units + j]);
        }
        bar.Add(b_c[j]);
        const int64_t n = b * units + j;
        c[n] = act.Candidate(bar.Total());
        h[n] = u[n] * h_prev[n] + (Real(1) - u[n]) * c[n];
      }
    }
    return {r, u, c, h};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    Arguments<T> tensors(call);
    GruCellForwardArgs<T> args;
    args.dims = {call.dims.batch, call.dims.input, call.dims.units};
    args.x = tensors.In();
    args.h_prev = tensors.In();
    args.w_ru = tensors.In();
    args.w_c = tensors.In();
    args.b_ru = tensors.In();
    args.b_c = tensors.In();
    args.r = tensors.Out();
    args.u = tensors.Out();
    args.c = tensors.Out();
    args.h = tensors.Out();
    return RunForward<T>(call, args);
  }
};

struct Backward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int) {
    const int64_t k = d.input + d.units;
    const int64_t n = d.batch * d.units;
    return {{"h_prev", n},
            {"w_ru", k * 2 * d.units, Fill::kWeight},
            {"w_c", k * d.units, Fill::kWeight},
            {"r", n, Fill::kGate},
            {"u", n, Fill::kGate},
            {"c", n},
            {"d_h", n}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int) {
    const int64_t n = d.batch * d.units;
    return {{"d_x", d.batch * d.input},
            {"d_h_prev", n},
            {"d_c_bar", n},
            {"d_r_bar_u_bar", 2 * n}};
  }

  // d_x sums H terms of d_c_bar · w_cᵀ and 2H of d_r_bar_u_bar · w_ruᵀ.
  static int64_t Reduction(const Dims& d) { return 3 * d.units; }

  static std::vector<Tensor> Reference(const Dims& d, int, Activations,
                                       const std::vector<Tensor>& in) {
    const Tensor &h_prev = in[0], &w_ru = in[1], &w_c = in[2], &r = in[3];
    const Tensor &u = in[4], &c = in[5], &d_h = in[6];
    const int64_t input = d.input;
    const int64_t units = d.units;
    Tensor d_x(d.batch * input), d_h_prev(h_prev.size());
    Tensor d_c_bar(h_prev.size()), d_ru_bar(2 * h_prev.size());
    Tensor d_hr(units);
    for (int64_t b = 0; b < d.batch; ++b) {
      for (int64_t j = 0; j < units; ++j) {
        const int64_t n = b * units + j;
        const Real keep = Real(1) - u[n];
        d_c_bar[n] = d_h[n] * keep * (Real(1) - c[n] * c[n]);
        d_ru_bar[b * 2 * units + units + j] =
            d_h[n] * (h_prev[n] - c[n]) * u[n] * keep;
      }
      for (int64_t k = 0; k < units; ++k) {
        Sum sum;
        for (int64_t j = 0; j < units; ++j) {
          sum.AddProduct(d_c_bar[b * units + j], w_c[(input + k) * units + j]);
        }
        const int64_t n = b * units + k;
        d_hr[k] = sum.Total();
        d_ru_bar[b * 2 * units + k] =
            d_hr[k] * h_prev[n] * r[n] * (Real(1) - r[n]);
      }
      for (int64_t k = 0; k < input + units; ++k) {
        Sum sum;
        for (int64_t j = 0; j < 2 * units; ++j) {
          sum.AddProduct(d_ru_bar[b * 2 * units + j], w_ru[k * 2 * units + j]);
        }
        if (k < input) {
          for (int64_t j = 0; j < units; ++j) {
            sum.AddProduct(d_c_bar[b * units + j], w_c[k * units + j]);
          }
          d_x[b * input + k] = sum.Total();
        } else {
          const int64_t n = b * units + k - input;
          sum.AddProduct(d_hr[k - input], r[n]);
          sum.AddProduct(d_h[n], u[n]);
          d_h_prev[n] = sum.Total();
        }
      }
    }
    return {d_x, d_h_prev, d_c_bar, d_ru_bar};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    Arguments<T> tensors(call);
    GruCellBackwardArgs<T> args;
    args.dims = {call.dims.batch, call.dims.input, call.dims.units};
    args.h_prev = tensors.In();
    args.w_ru = tensors.In();
    args.w_c = tensors.In();
    args.r = tensors.In();
    args.u = tensors.In();
    args.c = tensors.In();
    args.d_h = tensors.In();
    args.d_x = tensors.Out();
    args.d_h_prev = tensors.Out();
    args.d_c_bar = tensors.Out();
    args.d_r_bar_u_bar = tensors.Out();
    return Functions(static_cast<T*>(nullptr)).Run(args, *call.host);
  }
};

// The backward reads activations as given, so it has an identity form as it is.
const bool kForward =
    AddOp({"GRUBlockCell", false, true, 1, &Forward::Inputs, &Forward::Outputs,
           &Forward::Reduction, &Forward::Reference, &CallWithType<Forward>});
const bool kBackward = AddOp(
    {"GRUBlockCellGrad", true, true, 1, &Backward::Inputs, &Backward::Outputs,
     &Backward::Reduction, &Backward::Reference, &CallWithType<Backward>});

}  // namespace
}  // namespace blockrnn::test
