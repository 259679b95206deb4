// Each numbered constraint of lists, append and attend, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{expects rows of at least 1, got 0}}
func.func @list_c1_empty(%L: !assoc.list<0, f32>)

// -----

// expected-error @below {{expects storage f32, f16 or bf16, got 'f64'}}
func.func @list_c2_f64(%L: !assoc.list<8, f64>)

// -----

func.func @append_c1_width(%L: !assoc.list<8, f32>, %x: vector<4xf32>) {
  // expected-error @below {{'assoc.append' op failed to verify that 'row' is a row of the list}}
  %L1 = "assoc.append"(%L, %x) : (!assoc.list<8, f32>, vector<4xf32>) -> !assoc.list<8, f32>
  return
}

// -----

func.func @attend_c1_missing_query(%K: !assoc.list<8, f32>, %V: !assoc.list<4, f32>) {
  // expected-error @below {{'assoc.attend' op expects a query for each of the keys, got 0 and 1}}
  %o = "assoc.attend"(%K, %V) <{operandSegmentSizes = array<i32: 0, 1, 1>}> : (!assoc.list<8, f32>, !assoc.list<4, f32>) -> vector<4xf32>
  return
}

// -----

func.func @attend_c2_width(%q: vector<4xf32>, %K: !assoc.list<8, f32>, %V: !assoc.list<4, f32>) {
  // expected-error @below {{'assoc.attend' op expects query 0 of type 'vector<8xf32>', got 'vector<4xf32>'}}
  %o = assoc.attend(%q) keys(%K : !assoc.list<8, f32>) values(%V : !assoc.list<4, f32>) : vector<4xf32>
  return
}

// -----

func.func @attend_c4_result(%q: vector<8xf32>, %K: !assoc.list<8, f32>, %V: !assoc.list<4, f32>) {
  // expected-error @below {{'assoc.attend' op inferred type(s) 'vector<4xf32>' are incompatible with return type(s) of operation 'vector<8xf32>'}}
  // expected-error @below {{'assoc.attend' op failed to infer returned types}}
  %o = "assoc.attend"(%q, %K, %V) <{operandSegmentSizes = array<i32: 1, 1, 1>}> : (vector<8xf32>, !assoc.list<8, f32>, !assoc.list<4, f32>) -> vector<8xf32>
  return
}

// -----

func.func @attend_c3_lengths(%q: vector<8xf32>, %K: !assoc.list<8, f32>, %V: !assoc.list<8, f32>) {
  %K1 = assoc.append %K, %q : !assoc.list<8, f32>
  // expected-error @below {{'assoc.attend' op expects lists of one length, got keys 0 with this token's row and values without it}}
  %o = assoc.attend(%q) keys(%K1 : !assoc.list<8, f32>) values(%V : !assoc.list<8, f32>) : vector<8xf32>
  return
}

// -----

// expected-error @below {{'assoc.layer' op expects one append to list 'L', got 0}}
assoc.layer @layer_c8_never args [#assoc.arg<state "L">] outputs [] {
^bb0(%L: !assoc.list<8, f32>):
  assoc.yield %L : !assoc.list<8, f32>
}

// -----

// expected-error @below {{'assoc.layer' op expects one append to list 'L', got 2}}
assoc.layer @layer_c8_twice args [#assoc.arg<input "x">, #assoc.arg<state "L">] outputs [] {
^bb0(%x: vector<8xf32>, %L: !assoc.list<8, f32>):
  %L1 = assoc.append %L, %x : !assoc.list<8, f32>
  %L2 = assoc.append %L1, %x : !assoc.list<8, f32>
  assoc.yield %L2 : !assoc.list<8, f32>
}
