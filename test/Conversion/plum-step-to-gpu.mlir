// A step becomes one kernel: four barriers for a gated delta rule.
// RUN: plum-opt %s --plum-step-to-gpu | FileCheck %s

// CHECK: llvm.mlir.global external @plum_shared()
// CHECK-NOT: assoc.
// CHECK-LABEL: llvm.func @plum_delta_step(
// CHECK-SAME: plum.chunk = 1 : i64
// CHECK-SAME: plum.form = "step"
// CHECK-SAME: plum.grid = "sequences"
// CHECK-SAME: plum.role = "step"
// CHECK-SAME: plum.shared_bytes = {{[0-9]+}} : i64
// CHECK-SAME: plum.slices = 2 : i64
// CHECK-SAME: plum.threads = 64 : i64

// The state, f32 and contiguous: 4 rows of a thread, 16 bytes of each, asked
// for before any input.
// CHECK-COUNT-4: llvm.load {{.*}} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: scf.for
// CHECK: llvm.load {{.*}} : !llvm.ptr<1> -> i16

// |k|^2, which the CTA sums; k and the decay, which every thread needs; k S;
// q S.
// CHECK: nvvm.shfl.sync
// CHECK: "bar.sync $0, 64;"
// CHECK: rsqrt.approx.ftz.f32
// CHECK: "bar.sync $0, 64;"
// CHECK: "bar.sync $0, 64;"
// CHECK: "bar.sync $0, 64;"
// CHECK-NOT: bar.sync
// CHECK: scf.yield
// CHECK-COUNT-4: llvm.store {{.*}} : vector<4xf32>, !llvm.ptr<1>
!S = !assoc.state<64, 64, kv, f32, f32>
assoc.layer @delta args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">,
    #assoc.arg<input "a">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<64xf32>, %k: vector<64xbf16>, %v: vector<64xf32>, %a: vector<64xf32>, %S: !S):
  %one = arith.constant 1.0 : f32
  %minus = arith.constant -1.0 : f32
  %wide = arith.extf %k : vector<64xbf16> to vector<64xf32>
  %squares = arith.mulf %wide, %wide : vector<64xf32>
  %sum = vector.reduction <add>, %squares : vector<64xf32> into f32
  %more = arith.addf %sum, %one : f32
  %norm = math.rsqrt %more : f32
  %row = vector.broadcast %norm : f32 to vector<64xf32>
  %kn = arith.mulf %wide, %row : vector<64xf32>
  %S1 = assoc.step %S decay log(%a : vector<64xf32>) erase along(%kn) by(%minus) at(%kn) of(%S) decayed [true]
      write keys(%kn) values(%v) : !S
  %o = assoc.read %S1 at %q : !S
  assoc.yield %o, %S1 : vector<64xf32>, !S
}

// A row of V that is reduced is needed whole: no slices.
// CHECK-LABEL: llvm.func @plum_whole_step(
// CHECK-SAME: plum.slices = 1 : i64
assoc.layer @whole args [#assoc.arg<input "q">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<64xf32>, %S: !S):
  %x = assoc.read %S at %q : !S
  %o = vector.reduction <add>, %x : vector<64xf32> into f32
  assoc.yield %o, %S : f32, !S
}

// Neither are there for a vector state, which every slice would update.
// CHECK-LABEL: llvm.func @plum_counted_step(
// CHECK-SAME: plum.slices = 1 : i64
!z = !assoc.state<64, 1, kv, f32, f32>
assoc.layer @counted args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">,
    #assoc.arg<state "z">] outputs ["o"] {
^bb0(%k: vector<64xf32>, %v: vector<64xf32>, %S: !S, %z: !z):
  %one = arith.constant dense<1.0> : vector<1xf32>
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  %z1 = assoc.step %z write keys(%k) values(%one) : !z
  %x = assoc.read %S1 at %k : !S
  %n = assoc.read %z1 at %k : !z
  %n0 = vector.extract %n[0] : f32 from vector<1xf32>
  %count = vector.broadcast %n0 : f32 to vector<64xf32>
  %o = arith.divf %x, %count : vector<64xf32>
  assoc.yield %o, %S1, %z1 : vector<64xf32>, !S, !z
}
