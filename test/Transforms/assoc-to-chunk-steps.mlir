// Erases that read elsewhere, writes of their own, several steps a token.
// RUN: plum-opt %s --assoc-to-chunk=chunks=16 --cse | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>

// GDN-2: read at f, write along k; the write still joins its erase.
// CHECK-LABEL: func.func @gdn2_chunk16(
// CHECK: %[[G:.*]] = chunk.cumsum
// CHECK: chunk.scores %[[F:.*]] [#chunk.at<0, decayed>], %[[K:.*]] [#chunk.at<0, after>] decay(%[[G]]
// CHECK: %[[T:.*]] = chunk.inverse
// CHECK: chunk.read %{{.*}} at %[[F]] [#chunk.at<0, decayed>]
// CHECK: %[[W:.*]] = arith.addf
// CHECK: %[[U:.*]] = chunk.matmul %[[T]], %[[W]]
// CHECK: chunk.carry %{{.*}} keys(%[[K]] : tensor<16x8xf32>) {{.*}} values(%[[U]] :
assoc.layer @gdn2 args [#assoc.arg<input "a">, #assoc.arg<input "k">, #assoc.arg<input "f">,
    #assoc.arg<input "u">, #assoc.arg<input "c">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: vector<8xf32>, %k: vector<8xf32>, %f: vector<8xf32>, %u: vector<4xf32>, %c: f32, %S: !S):
  %S1 = assoc.step %S decay log(%a : vector<8xf32>)
      erase along(%k) by(%c) at(%f) of(%S) decayed [true] write keys(%k) values(%u) : !S
  assoc.yield %S1 : !S
}

// RWKV-7: the erase reads before the decay and writes along another key than
// the write does, so the write has scores and a product of its own.
// CHECK-LABEL: func.func @rwkv7_chunk16(
// CHECK: %[[G:.*]] = chunk.cumsum
// CHECK: chunk.scores %[[F:.*]] [#chunk.at<0, before>], %[[E:.*]] [#chunk.at<0, after>] decay(%[[G]]
// CHECK: %[[T:.*]] = chunk.inverse
// CHECK: %[[R:.*]] = chunk.read %{{.*}} at %[[F]] [#chunk.at<0, before>]
// CHECK: %[[M:.*]] = chunk.scores %[[F]] [#chunk.at<0, before>], %[[K:.*]] [#chunk.at<0, after>]
// CHECK: %[[R1:.*]] = chunk.matmul %[[M]], %[[V:.*]] onto(%[[R]]
// CHECK: %[[W:.*]] = chunk.scale %[[R1]]
// CHECK: %[[U:.*]] = chunk.matmul %[[T]], %[[W]]
// CHECK: chunk.carry %{{.*}} keys(%[[E]], %[[K]] : {{.*}}) {{.*}} values(%[[U]], %[[V]] :
assoc.layer @rwkv7 args [#assoc.arg<input "a">, #assoc.arg<input "k">, #assoc.arg<input "e">,
    #assoc.arg<input "f">, #assoc.arg<input "v">, #assoc.arg<input "c">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: vector<8xf32>, %k: vector<8xf32>, %e: vector<8xf32>, %f: vector<8xf32>,
     %v: vector<4xf32>, %c: f32, %S: !S):
  %S1 = assoc.step %S decay log(%a : vector<8xf32>)
      erase along(%e) by(%c) at(%f) of(%S) decayed [false] write keys(%k) values(%v) : !S
  assoc.yield %S1 : !S
}

// DeltaProduct: 32 rows for 16 tokens, one system. The decay of the second
// step is neutral; its erase reads what the first step left.
// CHECK-LABEL: func.func @deltaproduct_chunk16(
// CHECK: chunk.map {{.*}} per_token [{{.*}}2, 2, 2, 2, 2{{.*}}] {{.*}} names [{{.*}}"a", "E", "F", "c", "U0"
// CHECK: %[[ZERO:.*]] = arith.constant 0.0
// CHECK: chunk.yield {{.*}}%[[ZERO]],
// CHECK: chunk.cumsum log %a : tensor<32xf32>
// CHECK: chunk.scores %{{.*}} [#chunk.at<0, decayed>, #chunk.at<0, after>], %{{.*}} [#chunk.at<0, after>, #chunk.at<1, after>] decay(%{{.*}} : tensor<32xf32>) steps 2 : {{.*}} -> tensor<32x32xf32>
// CHECK: chunk.inverse %{{.*}} : tensor<32x32xf32>
// CHECK: chunk.read %{{.*}} at %{{.*}} [#chunk.at<1, after>] decay(%{{.*}} : tensor<32xf32>) steps 2 : {{.*}} -> tensor<16x4xf32>
// CHECK: chunk.scores %{{.*}} [#chunk.at<1, after>], %{{.*}} [#chunk.at<0, after>, #chunk.at<1, after>] {{.*}} -> tensor<16x32xf32>
// CHECK: chunk.carry {{.*}} rows {{\[\[}}#chunk.at<0, after>, #chunk.at<1, after>]]
assoc.layer @deltaproduct args [#assoc.arg<input "a">, #assoc.arg<input "k">, #assoc.arg<input "l">,
    #assoc.arg<input "u">, #assoc.arg<input "c">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%a: f32, %k: vector<8xf32>, %l: vector<8xf32>, %u: vector<4xf32>, %c: f32, %S: !S):
  %S1 = assoc.step %S decay log(%a : f32)
      erase along(%k) by(%c) at(%k) of(%S) decayed [true] write keys(%k) values(%u) : !S
  %S2 = assoc.step %S1 erase along(%l) by(%c) at(%l) of(%S1) decayed [false] write keys(%l) values(%u) : !S
  %o = assoc.read %S2 at %k : !S
  assoc.yield %o, %S2 : vector<4xf32>, !S
}

// An output that reads before the update sees strictly earlier writes.
// CHECK-LABEL: func.func @read_before_chunk16(
// CHECK: chunk.read %{{.*}} at %[[Q:.*]] [#chunk.at<0, before>]
// CHECK: chunk.scores %[[Q]] [#chunk.at<0, before>], %{{.*}} [#chunk.at<0, after>]
assoc.layer @read_before args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%k: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  %o = assoc.read %S at %k : !S
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  assoc.yield %o, %S1 : vector<4xf32>, !S
}

// Two domains in one token meet in the linear one.
// CHECK-LABEL: func.func @mixed_domains_chunk16(
// CHECK: chunk.map {{.*}} per_token [2] fill [1.0{{0*}}e+00]
// CHECK: math.exp
// CHECK: chunk.cumsum linear %{{.*}} : tensor<32xf32>
assoc.layer @mixed_domains args [#assoc.arg<input "a">, #assoc.arg<input "b">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: f32, %b: f32, %S: !S):
  %S1 = assoc.step %S decay log(%a : f32) : !S
  %S2 = assoc.step %S1 decay linear(%b : f32) : !S
  assoc.yield %S2 : !S
}
