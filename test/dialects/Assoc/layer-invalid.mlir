// Each numbered constraint of assoc.layer, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{'assoc.layer' op expects one entry of 'args' per argument, got 1 and 2}}
assoc.layer @layer_c1_fewer_names args [#assoc.arg<input "x">] outputs ["y"] {
^bb0(%x: f32, %z: f32):
  assoc.yield %x : f32
}

// -----

// expected-error @below {{'assoc.layer' op expects 'S' to be a state exactly when its role is, got input of type '!assoc.state<8, 4, kv, f32, f32>'}}
assoc.layer @layer_c2_state_as_input args [#assoc.arg<input "S">] outputs [] {
^bb0(%S: !assoc.state<8, 4, kv, f32, f32>):
  assoc.yield
}

// -----

// expected-error @below {{'assoc.layer' op expects 'x' to be a state exactly when its role is, got state of type 'f32'}}
assoc.layer @layer_c2_scalar_as_state args [#assoc.arg<state "x">] outputs [] {
^bb0(%x: f32):
  assoc.yield %x : f32
}

// -----

// expected-error @below {{'assoc.layer' op expects 'x' to be a scalar or row of f32, f16 or bf16, got 'vector<2x2xf32>'}}
assoc.layer @layer_c3_matrix_input args [#assoc.arg<input "x">] outputs [] {
^bb0(%x: vector<2x2xf32>):
  assoc.yield
}

// -----

// expected-error @below {{'assoc.layer' op expects 'x' to be a scalar or row of f32, f16 or bf16, got 'f64'}}
assoc.layer @layer_c3_f64_input args [#assoc.arg<param "x">] outputs [] {
^bb0(%x: f64):
  assoc.yield
}

// -----

assoc.layer @layer_c3_integer_output args [#assoc.arg<input "x">] outputs ["y"] {
^bb0(%x: f32):
  %y = arith.fptosi %x : f32 to i32
  // expected-error @below {{'assoc.yield' op expects output 'y' to be a scalar or row of f32, f16 or bf16, got 'i32'}}
  assoc.yield %y : i32
}

// -----

assoc.layer @layer_c4_state_order args [#assoc.arg<state "S">, #assoc.arg<state "z">] outputs [] {
^bb0(%S: !assoc.state<8, 4, kv, f32, f32>, %z: !assoc.state<8, 1, kv, f32, f32>):
  // expected-error @below {{'assoc.yield' op expects state 0 of type '!assoc.state<8, 4, kv, f32, f32>', got '!assoc.state<8, 1, kv, f32, f32>'}}
  assoc.yield %z, %S : !assoc.state<8, 1, kv, f32, f32>, !assoc.state<8, 4, kv, f32, f32>
}

// -----

assoc.layer @layer_c5_missing_output args [#assoc.arg<state "S">] outputs ["o"] {
^bb0(%S: !assoc.state<8, 4, kv, f32, f32>):
  // expected-error @below {{'assoc.yield' op expects 1 outputs and 1 states, got 1 values}}
  assoc.yield %S : !assoc.state<8, 4, kv, f32, f32>
}

// -----

// expected-error @below {{'assoc.layer' op expects distinct names, got 'x' twice}}
assoc.layer @layer_c6_two_inputs args [#assoc.arg<input "x">, #assoc.arg<input "x">] outputs [] {
^bb0(%x: f32, %y: f32):
  assoc.yield
}

// -----

// expected-error @below {{'assoc.layer' op expects distinct names, got 'x' twice}}
assoc.layer @layer_c6_output_like_input args [#assoc.arg<input "x">] outputs ["x"] {
^bb0(%x: f32):
  assoc.yield %x : f32
}

// -----

assoc.layer @layer_c7_two_updates args [#assoc.arg<input "a">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: f32, %S: !assoc.state<8, 4, kv, f32, f32>):
  // expected-note @below {{the first update is here}}
  %S1 = assoc.gate %S by log %a : !assoc.state<8, 4, kv, f32, f32>
  // expected-error @below {{'assoc.gate' op updates a state that is updated already}}
  %S2 = assoc.gate %S by linear %a : !assoc.state<8, 4, kv, f32, f32>
  assoc.yield %S2 : !assoc.state<8, 4, kv, f32, f32>
}

// -----

assoc.layer @layer_c7_middle_of_the_chain args [#assoc.arg<input "a">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: f32, %S: !assoc.state<8, 4, kv, f32, f32>):
  // expected-note @below {{which is made here}}
  %S1 = assoc.gate %S by log %a : !assoc.state<8, 4, kv, f32, f32>
  // expected-error @below {{'assoc.yield' op expects the last state made of 'S' in its place}}
  assoc.yield %S : !assoc.state<8, 4, kv, f32, f32>
}

// -----

assoc.layer @layer_c7_exchanged args [#assoc.arg<state "S">, #assoc.arg<state "R">] outputs [] {
// expected-note @below {{which is made here}}
^bb0(%S: !assoc.state<8, 4, kv, f32, f32>, %R: !assoc.state<8, 4, kv, f32, f32>):
  // expected-error @below {{'assoc.yield' op expects the last state made of 'S' in its place}}
  assoc.yield %R, %S : !assoc.state<8, 4, kv, f32, f32>, !assoc.state<8, 4, kv, f32, f32>
}

// -----

%a = arith.constant 1.0 : f32
// expected-note @below {{required by region isolation constraints}}
assoc.layer @layer_isolated args [] outputs ["y"] {
  // expected-error @below {{using value defined outside the region}}
  assoc.yield %a : f32
}

// -----

func.func @yield_parent() {
  // expected-error @below {{'assoc.yield' op expects parent op to be one of 'assoc.layer, assoc.map'}}
  assoc.yield
}
