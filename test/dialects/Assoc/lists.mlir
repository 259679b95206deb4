// Lists: their type, append and attend, in their own syntax and in the generic one.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: func @append
// CHECK: %[[L:.*]] = assoc.append %{{.*}}, %{{.*}} : !assoc.list<8, bf16>
func.func @append(%L: !assoc.list<8, bf16>, %x: vector<8xf32>) -> !assoc.list<8, bf16> {
  %L1 = assoc.append %L, %x : !assoc.list<8, bf16>
  return %L1 : !assoc.list<8, bf16>
}

// CHECK-LABEL: func @attend
// CHECK: assoc.attend(%{{.*}}) keys(%{{.*}} : !assoc.list<8, f32>) values(%{{.*}} : !assoc.list<4, f32>) : vector<8xf32>
func.func @attend(%q: vector<8xf32>, %K: !assoc.list<8, f32>, %V: !assoc.list<4, f32>) -> vector<4xf32> {
  %o = assoc.attend(%q) keys(%K : !assoc.list<8, f32>) values(%V : !assoc.list<4, f32>) : vector<8xf32>
  return %o : vector<4xf32>
}

// Multi-head latent attention: the latent is key and value, a second key is shared.
// CHECK-LABEL: func @latent
// CHECK: assoc.attend(%{{.*}}, %{{.*}}) keys(%[[C:.*]], %{{.*}} : !assoc.list<8, f32>, !assoc.list<2, f32>) values(%[[C]] : !assoc.list<8, f32>) : vector<8xf32>, vector<2xf32>
func.func @latent(%q: vector<8xf32>, %p: vector<2xf32>, %C: !assoc.list<8, f32>, %P: !assoc.list<2, f32>) -> vector<8xf32> {
  %o = assoc.attend(%q, %p) keys(%C, %P : !assoc.list<8, f32>, !assoc.list<2, f32>) values(%C : !assoc.list<8, f32>) : vector<8xf32>, vector<2xf32>
  return %o : vector<8xf32>
}

// The values have a width of their own beside two keys.
// CHECK-LABEL: func @parts
// CHECK: %[[O:.*]] = assoc.attend(%{{.*}}, %{{.*}}) keys(%{{.*}}, %{{.*}} : !assoc.list<8, f32>, !assoc.list<2, f32>) values(%{{.*}} : !assoc.list<4, f32>) : vector<8xf32>, vector<2xf32>
// CHECK: return %[[O]] : vector<4xf32>
func.func @parts(%q: vector<8xf32>, %p: vector<2xf32>, %K: !assoc.list<8, f32>, %P: !assoc.list<2, f32>, %V: !assoc.list<4, f32>) -> vector<4xf32> {
  %o = assoc.attend(%q, %p) keys(%K, %P : !assoc.list<8, f32>, !assoc.list<2, f32>) values(%V : !assoc.list<4, f32>) : vector<8xf32>, vector<2xf32>
  return %o : vector<4xf32>
}

// CHECK-LABEL: assoc.layer @attention
// CHECK: assoc.yield %{{.*}}, %{{.*}} : vector<8xf32>, !assoc.list<8, f32>
assoc.layer @attention args [#assoc.arg<input "x">, #assoc.arg<state "L">] outputs ["o"] {
^bb0(%x: vector<8xf32>, %L: !assoc.list<8, f32>):
  %L1 = assoc.append %L, %x : !assoc.list<8, f32>
  %o = assoc.attend(%x) keys(%L1 : !assoc.list<8, f32>) values(%L1 : !assoc.list<8, f32>) : vector<8xf32>
  assoc.yield %o, %L1 : vector<8xf32>, !assoc.list<8, f32>
}
