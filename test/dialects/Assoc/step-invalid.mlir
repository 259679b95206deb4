// Each numbered constraint of assoc.step, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @step_c1_fewer_factors(%S: !S, %e: vector<8xf32>) {
  // expected-error @below {{'assoc.step' op expects 'along', 'by', 'at', 'of' and 'decayed' of equal length, got 1, 0, 1, 1 and 1}}
  %S1 = assoc.step %S erase along(%e) by() at(%e) of(%S) decayed [true] : !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @step_c1_fewer_decayed(%S: !S, %e: vector<8xf32>, %c: f32) {
  // expected-error @below {{of equal length, got 1, 1, 1, 1 and 0}}
  %S1 = assoc.step %S erase along(%e) by(%c) at(%e) of(%S) decayed [] : !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @step_c2_more_keys(%S: !S, %k: vector<8xf32>, %u: vector<4xf32>) {
  // expected-error @below {{'assoc.step' op expects as many 'keys' as 'values', got 2 and 1}}
  %S1 = assoc.step %S write keys(%k, %k) values(%u) : !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @step_c3_key_length_mismatch(%S: !S, %k: vector<6xf32>, %u: vector<4xf32>) {
  // expected-error @below {{'assoc.step' op expects key rows of type 'vector<8xf32>', got 'vector<6xf32>'}}
  %S1 = "assoc.step"(%S, %k, %u) <{decayed = array<i1>,
      operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 1, 1>}>
      : (!S, vector<6xf32>, vector<4xf32>) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @step_c3_value_length_mismatch(%S: !S, %k: vector<8xf32>, %u: vector<3xf32>) {
  // expected-error @below {{'assoc.step' op expects value rows of type 'vector<4xf32>', got 'vector<3xf32>'}}
  %S1 = "assoc.step"(%S, %k, %u) <{decayed = array<i1>,
      operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 1, 1>}>
      : (!S, vector<8xf32>, vector<3xf32>) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @step_c4_decay_of_values(%S: !S, %a: vector<4xf32>) {
  // expected-error @below {{'assoc.step' op expects a decay of type f32 or 'vector<8xf32>', got 'vector<4xf32>'}}
  %S1 = assoc.step %S decay log(%a : vector<4xf32>) : !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @step_c4_decay_without_domain(%S: !S, %a: f32) {
  // expected-error @below {{'assoc.step' op expects the domain of its decay}}
  %S1 = "assoc.step"(%S, %a) <{decayed = array<i1>,
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0>}> : (!S, f32) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
!P = !assoc.state<8, 2, kv, f32, f32>
func.func @step_c5_other_state_type(%S: !S, %P: !P, %e: vector<8xf32>, %c: f32) {
  // expected-error @below {{'assoc.step' op expects to read states of type '!assoc.state<8, 4, kv, f32, f32>', got '!assoc.state<8, 2, kv, f32, f32>'}}
  %S1 = "assoc.step"(%S, %e, %c, %e, %P) <{decayed = array<i1: false>,
      operandSegmentSizes = array<i32: 1, 0, 1, 1, 1, 1, 0, 0>}>
      : (!S, vector<8xf32>, f32, vector<8xf32>, !P) -> !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @step_syntax_domain(%S: !S, %a: f32) {
  // expected-error @below {{expects 'log' or 'linear', got 'cubic'}}
  %S1 = assoc.step %S decay cubic(%a : f32) : !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @step_syntax_decayed(%S: !S, %e: vector<8xf32>, %c: f32) {
  // expected-error @below {{expects 'true' or 'false', got 'maybe'}}
  %S1 = assoc.step %S erase along(%e) by(%c) at(%e) of(%S) decayed [maybe] : !S
  return
}
