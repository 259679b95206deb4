// What is proven about a decay, and that it is said.
// RUN: plum-opt %s --pass-pipeline='builtin.module(assoc.layer(assoc-normalize))' -split-input-file -verify-diagnostics | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>
// -5 sigmoid(x): bounded.
// CHECK-LABEL: assoc.layer @bounded
// CHECK: assoc.step %S decay log(%{{.*}}) in <-5.0{{0*}}e+00, 0.0{{0*}}e+00>
assoc.layer @bounded args [#assoc.arg<input "x">, #assoc.arg<state "S">] outputs [] {
^bb0(%x: f32, %S: !S):
  %one = arith.constant 1.0 : f32
  %five = arith.constant -5.0 : f32
  %minus = arith.negf %x : f32
  %e = math.exp %minus : f32
  %d = arith.addf %e, %one : f32
  %s = arith.divf %one, %d : f32
  %a = arith.mulf %s, %five : f32
  // expected-remark @below {{log decay of 'the state' lies in [-5, 0]: bounded, a sub-block of 16 tokens may be factored through one anchor}}
  %S1 = assoc.gate %S by log %a : !S
  assoc.yield %S1 : !S
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
// -exp(x): never positive, but without a lower bound.
// CHECK-LABEL: assoc.layer @unbounded
// CHECK: decay log(%{{.*}}) in <-inf, 0.0{{0*}}e+00>
assoc.layer @unbounded args [#assoc.arg<input "x">, #assoc.arg<state "S">] outputs [] {
^bb0(%x: vector<8xf32>, %S: !S):
  %e = math.exp %x : vector<8xf32>
  %a = arith.negf %e : vector<8xf32>
  // expected-remark @below {{log decay of 'the state' lies in [-inf, 0]: unbounded, factors within a sub-block are formed only as products that never exceed 1}}
  %S1 = assoc.decay %S by log %a : !S
  assoc.yield %S1 : !S
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
// An input as it is: taken at its word.
// CHECK-LABEL: assoc.layer @plain_input
// CHECK: decay log(%{{.*}}) in <-inf, 0.0{{0*}}e+00, assumed>
assoc.layer @plain_input args [#assoc.arg<input "a">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: bf16, %S: !S):
  %wide = arith.extf %a : bf16 to f32
  %row = vector.broadcast %wide : f32 to vector<8xf32>
  // expected-remark @below {{lies in [-inf, 0] (an input used as a log decay is taken to be <= 0; 'plum check' verifies it): unbounded}}
  %S1 = assoc.decay %S by log %row : !S
  assoc.yield %S1 : !S
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
// A factor given itself, between 0 and 1.
// CHECK-LABEL: assoc.layer @linear
// CHECK: decay linear(%{{.*}}) in <0.0{{0*}}e+00, 5.0{{0*}}e-01>
assoc.layer @linear args [#assoc.arg<input "x">, #assoc.arg<state "S">] outputs [] {
^bb0(%x: f32, %S: !S):
  %half = arith.constant 0.5 : f32
  %zero = arith.constant 0.0 : f32
  %low = arith.maximumf %x, %zero : f32
  %a = arith.minimumf %low, %half : f32
  // expected-remark @below {{decay of 'the state' lies in [0, 0.5]: factors are used as they are, without a logarithm}}
  %S1 = assoc.gate %S by linear %a : !S
  assoc.yield %S1 : !S
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
// exp(x) with x > 0 grows: allowed, and said.
// CHECK-LABEL: assoc.layer @growing
// CHECK: decay log(%{{.*}}) in <0.0{{0*}}e+00, inf>
assoc.layer @growing args [#assoc.arg<input "x">, #assoc.arg<state "S">] outputs [] {
^bb0(%x: f32, %S: !S):
  %a = math.exp %x : f32
  // expected-remark @below {{log decay of 'the state' lies in [0, inf]: it may grow, nothing is assumed}}
  %S1 = assoc.gate %S by log %a : !S
  assoc.yield %S1 : !S
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
// A plain input is taken to be <= 0 only as a logarithm.
// CHECK-LABEL: assoc.layer @plain_linear_input
// CHECK: decay linear(%a : f32) in <-inf, inf>
assoc.layer @plain_linear_input args [#assoc.arg<input "a">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: f32, %S: !S):
  // expected-remark @below {{decay of 'the state' lies in [-inf, inf]: it may grow, nothing is assumed}}
  %S1 = assoc.gate %S by linear %a : !S
  assoc.yield %S1 : !S
}
