// The chunkwise form of layers whose writes join their erases, and of layers
// that erase nothing.
// RUN: plum-opt %s --assoc-to-chunk=chunks=16 --cse | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>
!z = !assoc.state<8, 1, kv, f32, f32>

// DeltaNet: no decay, so no G; one system for the corrected values U.
// CHECK-LABEL: func.func @deltanet_chunk16(
// CHECK-SAME: %[[T:[a-zA-Z0-9_]+]]: index {plum.role = "tokens"}, %[[K:[a-zA-Z0-9_]+]]: tensor<?x8xf32> {plum.name = "k", plum.role = "input"}
// CHECK-SAME: %[[S:[a-zA-Z0-9_]+]]: tensor<8x4xf32> {plum.name = "S", plum.role = "state"}, %[[O:[a-zA-Z0-9_]+]]: tensor<?x4xf32> {plum.name = "o", plum.role = "output"})
// CHECK-SAME: -> (tensor<8x4xf32>, tensor<?x4xf32>) attributes {plum.chunk = 16 : i64, plum.layer = @deltanet}
// CHECK: scf.for %[[I:[a-zA-Z0-9_]+]] = %c0 to %[[T]] step %c16 iter_args(%[[S0:[a-zA-Z0-9_]+]] = %[[S]], %[[O0:[a-zA-Z0-9_]+]] = %[[O]])
// CHECK: %[[ROWS:[a-zA-Z0-9_]+]], %[[C:[a-zA-Z0-9_]+]], %[[U0:[a-zA-Z0-9_]+]] = chunk.map 16 at %[[I]] of %[[T]](%{{.*}}) per_token [1, 1, 1] fill [0.0{{.*}}, 0.0{{.*}}, 0.0{{.*}}]
// CHECK-NOT: chunk.cumsum
// CHECK: %[[M:[a-zA-Z0-9_]+]] = chunk.scores %[[ROWS]] [#chunk.at<0, before>], %[[ROWS]] [#chunk.at<0, after>] steps 1 :
// CHECK: %[[TI:[a-zA-Z0-9_]+]] = chunk.inverse %[[M]] scaled(%[[C]] : tensor<16xf32>)
// CHECK: %[[R:[a-zA-Z0-9_]+]] = chunk.read %[[S0]] at %[[ROWS]] [#chunk.at<0, before>] steps 1
// CHECK: %[[W:[a-zA-Z0-9_]+]] = chunk.scale %[[R]] by %[[C]]
// CHECK: %[[W1:[a-zA-Z0-9_]+]] = arith.addf %[[U0]], %[[W]]
// CHECK: %[[U:[a-zA-Z0-9_]+]] = chunk.matmul %[[TI]], %[[W1]]
// CHECK: %[[OS:[a-zA-Z0-9_]+]] = chunk.read %[[S0]] at %[[ROWS]] [#chunk.at<0, after>] steps 1
// CHECK: %[[MQ:[a-zA-Z0-9_]+]] = chunk.scores %[[ROWS]] [#chunk.at<0, after>], %[[ROWS]] [#chunk.at<0, after>] steps 1
// CHECK: %[[OU:[a-zA-Z0-9_]+]] = chunk.matmul %[[MQ]], %[[U]] onto(%[[OS]] : tensor<16x4xf32>)
// CHECK: %[[S1:[a-zA-Z0-9_]+]] = chunk.carry %[[S0]] keys(%[[ROWS]] : tensor<16x8xf32>) rows {{\[\[}}#chunk.at<0, after>]] values(%[[U]] : tensor<16x4xf32>) steps 1
// CHECK: %[[O1:[a-zA-Z0-9_]+]] = chunk.output 16 at %[[I]] of %[[T]](%[[OU]] : tensor<16x4xf32>) into(%[[O0]] : tensor<?x4xf32>)
// CHECK: scf.yield %[[S1]], %[[O1]]
assoc.layer @deltanet args [#assoc.arg<input "k">, #assoc.arg<input "u">,
    #assoc.arg<input "c">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%k: vector<8xf32>, %u: vector<4xf32>, %c: f32, %S: !S):
  %S1 = assoc.step %S erase along(%k) by(%c) at(%k) of(%S) decayed [false] write keys(%k) values(%u) : !S
  %o = assoc.read %S1 at %k : !S
  assoc.yield %o, %S1 : vector<4xf32>, !S
}

// Gated DeltaNet: G has one number a token, and reads come after the decay.
// CHECK-LABEL: func.func @gated_chunk16(
// CHECK: %[[G:[a-zA-Z0-9_]+]] = chunk.cumsum log %{{.*}} in <-2.0{{0*}}e+00, 0.0{{0*}}e+00> : tensor<16xf32>
// CHECK: chunk.scores %{{.*}} [#chunk.at<0, decayed>], %{{.*}} [#chunk.at<0, after>] decay(%[[G]] : tensor<16xf32>) steps 1
// CHECK: chunk.inverse
// CHECK: chunk.carry {{.*}} decay(%[[G]] : tensor<16xf32>)
assoc.layer @gated args [#assoc.arg<input "a">, #assoc.arg<input "k">, #assoc.arg<input "u">,
    #assoc.arg<input "c">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: f32, %k: vector<8xf32>, %u: vector<4xf32>, %c: f32, %S: !S):
  %S1 = assoc.step %S decay log(%a : f32) in <-2.0, 0.0>
      erase along(%k) by(%c) at(%k) of(%S) decayed [true] write keys(%k) values(%u) : !S
  assoc.yield %S1 : !S
}

// KDA: the same with one number a channel.
// CHECK-LABEL: func.func @kda_chunk16(
// CHECK: %[[G:[a-zA-Z0-9_]+]] = chunk.cumsum log %{{.*}} in <-5.0{{0*}}e+00, 0.0{{0*}}e+00> : tensor<16x8xf32>
// CHECK: chunk.scores %{{.*}} [#chunk.at<0, decayed>], %{{.*}} [#chunk.at<0, after>] decay(%[[G]] : tensor<16x8xf32>) steps 1
// CHECK: chunk.inverse
// CHECK: chunk.carry {{.*}} decay(%[[G]] : tensor<16x8xf32>)
assoc.layer @kda args [#assoc.arg<input "a">, #assoc.arg<input "k">, #assoc.arg<input "u">,
    #assoc.arg<input "c">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: vector<8xf32>, %k: vector<8xf32>, %u: vector<4xf32>, %c: f32, %S: !S):
  %S1 = assoc.step %S decay log(%a : vector<8xf32>) in <-5.0, 0.0>
      erase along(%k) by(%c) at(%k) of(%S) decayed [true] write keys(%k) values(%u) : !S
  assoc.yield %S1 : !S
}

// Nothing to erase: nothing to solve. A factor given itself is padded with 1.
// CHECK-LABEL: func.func @retnet_chunk16(
// CHECK: chunk.map {{.*}} fill [1.0{{0*}}e+00, 0.0{{.*}}] names ["a",
// CHECK: %[[G:[a-zA-Z0-9_]+]] = chunk.cumsum linear %{{.*}} : tensor<16xf32>
// CHECK-NOT: chunk.inverse
// CHECK: chunk.carry {{.*}} decay(%[[G]]
assoc.layer @retnet args [#assoc.arg<input "a">, #assoc.arg<input "k">, #assoc.arg<input "v">,
    #assoc.arg<state "S">] outputs ["o"] {
^bb0(%a: f32, %k: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  %S1 = assoc.step %S decay linear(%a : f32) write keys(%k) values(%v) : !S
  %o = assoc.read %S1 at %k : !S
  assoc.yield %o, %S1 : vector<4xf32>, !S
}

// The normaliser of linear attention is a state of its own; the scores of one
// pair of rows are shared.
// CHECK-LABEL: func.func @linear_attention_chunk16(
// CHECK-NOT: chunk.inverse
// CHECK: %[[M:[a-zA-Z0-9_]+]] = chunk.scores
// CHECK-NOT: chunk.scores
// CHECK-DAG: chunk.carry {{.*}} : tensor<8x4xf32>
// CHECK-DAG: chunk.matmul %[[M]], %{{.*}} : tensor<16x16xf32>, tensor<16x1xf32> -> tensor<16x1xf32>
// CHECK-DAG: chunk.carry {{.*}} : tensor<8x1xf32>
assoc.layer @linear_attention args [#assoc.arg<input "k">, #assoc.arg<input "v">,
    #assoc.arg<state "S">, #assoc.arg<state "z">] outputs ["o", "n"] {
^bb0(%k: vector<8xf32>, %v: vector<4xf32>, %S: !S, %z: !z):
  %one = arith.constant dense<1.0> : vector<1xf32>
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  %z1 = assoc.step %z write keys(%k) values(%one) : !z
  %o = assoc.read %S1 at %k : !S
  %n = assoc.read %z1 at %k : !z
  assoc.yield %o, %n, %S1, %z1 : vector<4xf32>, vector<1xf32>, !S, !z
}

// A state that only decays is carried without keys.
// CHECK-LABEL: func.func @fade_chunk16(
// CHECK: chunk.carry %{{.*}} keys() rows [] values() decay(
assoc.layer @fade args [#assoc.arg<input "a">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: f32, %S: !S):
  %S1 = assoc.step %S decay log(%a : f32) : !S
  assoc.yield %S1 : !S
}
