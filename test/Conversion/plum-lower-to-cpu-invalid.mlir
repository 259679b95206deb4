// What the lowering cannot take is said at the op.
// RUN: plum-opt %s --plum-lower-to-cpu -split-input-file -verify-diagnostics

!S = !assoc.state<8, 4, kv, f32, f32>
assoc.layer @not_normal args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs [] {
^bb0(%k: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  // expected-error @below {{'assoc.add' op is not in normal form}}
  %S1 = assoc.add %S, %k, %v : !S
  assoc.yield %S1 : !S
}

// -----

!T = !assoc.state<8, 4, vk, f32, f32>
// expected-error @below {{'assoc.layer' op expects states in layout kv, got '!assoc.state<8, 4, vk, f32, f32>'}}
assoc.layer @transposed args [#assoc.arg<input "q">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<8xf32>, %S: !T):
  %o = assoc.read %S at %q : !T
  assoc.yield %o, %S : vector<4xf32>, !T
}
