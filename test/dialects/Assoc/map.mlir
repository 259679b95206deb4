// Row-by-row updates, which only the step form can run.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>
!R = !assoc.state<8, 2, kv, f32, f32>

// CHECK-LABEL: func @squash
// CHECK-SAME: (%[[S:.*]]: !assoc.state
// CHECK: assoc.map %[[S]], (%[[S]] : !assoc.state<8, 4, kv, f32, f32>) columns() {
// CHECK-NEXT: ^bb0(%[[ROW:.*]]: vector<4xf32>):
// CHECK-NEXT: %[[T:.*]] = math.tanh %[[ROW]] : vector<4xf32>
// CHECK-NEXT: assoc.yield %[[T]] : vector<4xf32>
// CHECK-NEXT: } : !assoc.state
func.func @squash(%S: !S) -> !S {
  %S1 = assoc.map %S, (%S : !S) columns() {
  ^bb0(%row: vector<4xf32>):
    %t = math.tanh %row : vector<4xf32>
    assoc.yield %t : vector<4xf32>
  } : !S
  return %S1 : !S
}

// The rows of several states, then one number for each of the columns.
// CHECK-LABEL: func @sources_and_columns
// CHECK: assoc.map %{{.*}}, (%{{.*}}, %{{.*}} : !assoc.state<8, 4, kv, f32, f32>, !assoc.state<8, 2, kv, f32, f32>) columns(%{{.*}} : vector<8xf32>)
// CHECK-NEXT: ^bb0(%{{.*}}: vector<4xf32>, %{{.*}}: vector<2xf32>, %{{.*}}: f32):
func.func @sources_and_columns(%S: !S, %R: !R, %w: vector<8xf32>) -> !S {
  %S1 = assoc.map %S, (%S, %R : !S, !R) columns(%w : vector<8xf32>) {
  ^bb0(%s: vector<4xf32>, %r: vector<2xf32>, %c: f32):
    %wide = vector.broadcast %c : f32 to vector<4xf32>
    %x = arith.mulf %s, %wide : vector<4xf32>
    assoc.yield %x : vector<4xf32>
  } : !S
  return %S1 : !S
}

// CHECK-LABEL: func @constant_rows
// CHECK: assoc.map %{{.*}}, () columns() {
func.func @constant_rows(%S: !S, %row: vector<4xf32>) -> !S {
  %S1 = assoc.map %S, () columns() {
    assoc.yield %row : vector<4xf32>
  } : !S
  return %S1 : !S
}
