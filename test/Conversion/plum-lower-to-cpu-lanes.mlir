// Vectors have the machine's lanes; what is left of a row takes smaller ones.
// RUN: plum-opt %s --phase-chunk=chunks=16 --phase-plan --plum-lower-to-cpu='lanes=8 registers=16' | FileCheck %s --check-prefix=LANES8
// RUN: plum-opt %s --phase-chunk=chunks=16 --phase-plan --plum-lower-to-cpu='lanes=16 registers=32' | FileCheck %s --check-prefix=LANES16

// V = 20: two vectors of 8 and one of 4, or one of 16 and one of 4.
// LANES8: func.func @plum_add_chunk16
// LANES8-DAG: math.fma {{.*}} : vector<8xf32>
// LANES8-DAG: math.fma {{.*}} : vector<4xf32>
// LANES8-NOT: math.fma {{.*}} : vector<16xf32>

// LANES16: func.func @plum_add_chunk16
// LANES16-DAG: math.fma {{.*}} : vector<16xf32>
// LANES16-DAG: math.fma {{.*}} : vector<4xf32>
// LANES16-NOT: math.fma {{.*}} : vector<8xf32>
!S = !assoc.state<3, 20, kv, f32, f32>
assoc.layer @add args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%k: vector<3xf32>, %v: vector<20xf32>, %S: !S):
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  %o = assoc.read %S1 at %k : !S
  assoc.yield %o, %S1 : vector<20xf32>, !S
}
