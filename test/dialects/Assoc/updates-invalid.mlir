// Each numbered constraint of the updates and reads, broken once. The generic
// form is used because the custom one infers the types of rows.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @decay_c1_length_mismatch(%S: !S, %a: vector<7xf32>) {
  // expected-error @below {{'assoc.decay' op failed to verify that 'decay' is a row of the state's key dim K}}
  %S1 = "assoc.decay"(%S, %a) <{domain = #assoc.domain<log>}> : (!S, vector<7xf32>) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @decay_c1_bf16(%S: !S, %a: vector<8xbf16>) {
  // expected-error @below {{op operand #1 must be}}
  %S1 = "assoc.decay"(%S, %a) <{domain = #assoc.domain<log>}> : (!S, vector<8xbf16>) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @gate_type_vector(%S: !S, %a: vector<8xf32>) {
  // expected-error @below {{op operand #1 must be 32-bit float, but got 'vector<8xf32>'}}
  %S1 = "assoc.gate"(%S, %a) <{domain = #assoc.domain<log>}> : (!S, vector<8xf32>) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
!R = !assoc.state<8, 4, vk, f32, f32>
func.func @gate_type_layout_changes(%S: !S, %a: f32) {
  // expected-error @below {{failed to verify that all of {state, result} have same type}}
  %S1 = "assoc.gate"(%S, %a) <{domain = #assoc.domain<log>}> : (!S, f32) -> !R
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @add_c1_key_length_mismatch(%S: !S, %k: vector<4xf32>, %v: vector<4xf32>) {
  // expected-error @below {{'assoc.add' op failed to verify that 'key' is a row of the state's key dim K}}
  %S1 = "assoc.add"(%S, %k, %v) : (!S, vector<4xf32>, vector<4xf32>) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @add_c2_value_length_mismatch(%S: !S, %k: vector<8xf32>, %v: vector<8xf32>) {
  // expected-error @below {{'assoc.add' op failed to verify that 'value' is a row of the state's value dim V}}
  %S1 = "assoc.add"(%S, %k, %v) : (!S, vector<8xf32>, vector<8xf32>) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @delta_c1_key_length_mismatch(%S: !S, %k: vector<4xf32>, %v: vector<4xf32>, %b: f32) {
  // expected-error @below {{'assoc.delta' op failed to verify that 'key' is a row of the state's key dim K}}
  %S1 = "assoc.delta"(%S, %k, %v, %b) : (!S, vector<4xf32>, vector<4xf32>, f32) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @delta_c2_value_length_mismatch(%S: !S, %k: vector<8xf32>, %v: vector<5xf32>, %b: f32) {
  // expected-error @below {{'assoc.delta' op failed to verify that 'value' is a row of the state's value dim V}}
  %S1 = "assoc.delta"(%S, %k, %v, %b) : (!S, vector<8xf32>, vector<5xf32>, f32) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @erase_c1_along_length_mismatch(%S: !S, %e: vector<4xf32>, %f: vector<8xf32>, %c: f32) {
  // expected-error @below {{'assoc.erase' op failed to verify that 'along' is a row of the state's key dim K}}
  %S1 = "assoc.erase"(%S, %e, %c, %f, %S) : (!S, vector<4xf32>, f32, vector<8xf32>, !S) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @erase_c2_at_length_mismatch(%S: !S, %e: vector<8xf32>, %f: vector<4xf32>, %c: f32) {
  // expected-error @below {{'assoc.erase' op failed to verify that 'at' is a row of the state's key dim K}}
  %S1 = "assoc.erase"(%S, %e, %c, %f, %S) : (!S, vector<8xf32>, f32, vector<4xf32>, !S) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
!P = !assoc.state<8, 2, kv, f32, f32>
func.func @erase_c3_other_state_type(%S: !S, %P: !P, %e: vector<8xf32>, %c: f32) {
  // expected-error @below {{'assoc.erase' op failed to verify that all of {state, of} have same type}}
  %S1 = "assoc.erase"(%S, %e, %c, %e, %P) : (!S, vector<8xf32>, f32, vector<8xf32>, !P) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @read_c1_key_length_mismatch(%S: !S, %q: vector<4xf32>) {
  // expected-error @below {{'assoc.read' op failed to verify that 'key' is a row of the state's key dim K}}
  %o = "assoc.read"(%S, %q) : (!S, vector<4xf32>) -> vector<4xf32>
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @read_c2_result_length_mismatch(%S: !S, %q: vector<8xf32>) {
  // expected-error @below {{'assoc.read' op failed to verify that 'result' is a row of the state's value dim V}}
  %o = "assoc.read"(%S, %q) : (!S, vector<8xf32>) -> vector<8xf32>
  return
}

// -----

func.func @whole_c1_matrix_state(%S: !assoc.state<8, 4, kv, f32, f32>) {
  // expected-error @below {{'assoc.whole' op expects a vector state (value dim 1), got value dim 4}}
  %o = assoc.whole %S : !assoc.state<8, 4, kv, f32, f32>
  return
}

// -----

func.func @whole_c2_result_length_mismatch(%S: !assoc.state<8, 1, kv, f32, f32>) {
  // expected-error @below {{'assoc.whole' op failed to verify that 'result' is a row of the state's key dim K}}
  %o = "assoc.whole"(%S) : (!assoc.state<8, 1, kv, f32, f32>) -> vector<4xf32>
  return
}

// -----

// The custom form names the type it infers.
!S = !assoc.state<8, 4, kv, f32, f32>
// expected-note @below {{prior use here}}
func.func @add_c1_in_custom_form(%S: !S, %k: vector<7xf32>, %v: vector<4xf32>) {
  // expected-error @below {{use of value '%k' expects different type than prior uses: 'vector<8xf32>' vs 'vector<7xf32>'}}
  %S1 = assoc.add %S, %k, %v : !S
  return
}
