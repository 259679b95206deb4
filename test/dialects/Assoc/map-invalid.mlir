// Each numbered constraint of assoc.map, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

!S = !assoc.state<8, 4, kv, f32, f32>
!R = !assoc.state<6, 4, kv, f32, f32>
func.func @map_c1_key_dim_mismatch(%S: !S, %R: !R) {
  // expected-error @below {{'assoc.map' op expects states of one key dim, got 8 and 6}}
  %S1 = assoc.map %S, (%R : !R) columns() {
  ^bb0(%row: vector<4xf32>):
    assoc.yield %row : vector<4xf32>
  } : !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @map_c2_column_length_mismatch(%S: !S, %w: vector<4xf32>) {
  // expected-error @below {{'assoc.map' op expects columns of type 'vector<8xf32>', got 'vector<4xf32>'}}
  %S1 = assoc.map %S, (%S : !S) columns(%w : vector<4xf32>) {
  ^bb0(%row: vector<4xf32>, %c: f32):
    assoc.yield %row : vector<4xf32>
  } : !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @map_c3_argument_types(%S: !S) {
  // expected-error @below {{'assoc.map' op expects region arguments of types 'vector<4xf32>', got 'vector<8xf32>'}}
  %S1 = assoc.map %S, (%S : !S) columns() {
  ^bb0(%row: vector<8xf32>):
    %half = vector.extract_strided_slice %row {offsets = [0], sizes = [4], strides = [1]}
        : vector<8xf32> to vector<4xf32>
    assoc.yield %half : vector<4xf32>
  } : !S
  return
}

// -----

!S = !assoc.state<8, 4, kv, f32, f32>
func.func @map_c4_yields_two_rows(%S: !S) {
  // expected-error @below {{'assoc.map' op expects to yield one row of type 'vector<4xf32>'}}
  %S1 = assoc.map %S, (%S : !S) columns() {
  ^bb0(%row: vector<4xf32>):
    assoc.yield %row, %row : vector<4xf32>, vector<4xf32>
  } : !S
  return
}
