// Layouts go backwards from the ops that fix them. What has none of its own is
// made once for each layout in which it is wanted.
// RUN: plum-opt %s --pass-pipeline='builtin.module(tile.kernel(tile-assign-layouts))' | FileCheck %s

// A gate is stored (acc) and cumulated (opb): two loads, two chains, no
// conversion.
// CHECK-LABEL: tile.kernel @twice
// CHECK-DAG: tile.load %f : <16, 16, bf16> -> tensor<16x16xbf16, #tile.layout<acc>>
// CHECK-DAG: tile.load %f : <16, 16, bf16> -> tensor<16x16xbf16, #tile.layout<opb>>
// CHECK-DAG: arith.extf {{.*}} to tensor<16x16xf32, #tile.layout<acc>>
// CHECK-DAG: arith.extf {{.*}} to tensor<16x16xf32, #tile.layout<opb>>
// CHECK-DAG: tile.param "scale" : tensor<16xf32, #tile.layout<acc_row>>
// CHECK-DAG: tile.param "scale" : tensor<16xf32, #tile.layout<opb_row>>
// CHECK-DAG: tile.broadcast {{.*}} rows : tensor<16xf32, #tile.layout<acc_row>> -> tensor<16x16xf32, #tile.layout<acc>>
// CHECK-DAG: tile.broadcast {{.*}} rows : tensor<16xf32, #tile.layout<opb_row>> -> tensor<16x16xf32, #tile.layout<opb>>
// CHECK-DAG: %[[A:.*]] = arith.mulf {{.*}} : tensor<16x16xf32, #tile.layout<acc>>
// CHECK-DAG: %[[B:.*]] = arith.mulf {{.*}} : tensor<16x16xf32, #tile.layout<opb>>
// CHECK: tile.cumsum %[[B]] : tensor<16x16xf32, #tile.layout<opb>> -> tensor<16x16xf32, #tile.layout<acc>>
// CHECK: arith.addf %{{.*}}, %[[A]] : tensor<16x16xf32, #tile.layout<acc>>
tile.kernel @twice "prepare" chunk 16 warps 1 arguments [#tile.arg<"f" : bf16>, #tile.arg<"scale" : f32>] blob 2048 {
  %f = tile.alloc : <16, 16, bf16>
  tile.fetch "f" to %f : <16, 16, bf16>
  tile.arrived
  %x = tile.load %f : <16, 16, bf16> -> tensor<16x16xbf16>
  %w = arith.extf %x : tensor<16x16xbf16> to tensor<16x16xf32>
  %s = tile.param "scale" : tensor<16xf32>
  %r = tile.broadcast %s rows : tensor<16xf32> -> tensor<16x16xf32>
  %a = arith.mulf %w, %r : tensor<16x16xf32>
  %c = tile.cumsum %a : tensor<16x16xf32> -> tensor<16x16xf32>
  %y = arith.addf %c, %a : tensor<16x16xf32>
  %h = arith.truncf %y : tensor<16x16xf32> to tensor<16x16xbf16>
  tile.export_matrix %h to 0 : tensor<16x16xbf16>
}

// A column is acc_col beside a matrix, linear where it is cumulated over the
// chunk; a number fits anywhere.
// CHECK-LABEL: tile.kernel @columns
// CHECK-DAG: tile.column "b" : tensor<16xf32, #tile.layout<linear>>
// CHECK-DAG: tile.column "b" : tensor<16xf32, #tile.layout<acc_col>>
// CHECK-DAG: tile.broadcast %cst : f32 -> tensor<16xf32, #tile.layout<linear>>
// CHECK: tile.cumulate %{{.*}} to %tile : tensor<16xf32, #tile.layout<linear>>
// CHECK: tile.export_matrix %{{.*}} : tensor<16x16xbf16, #tile.layout<acc>>
tile.kernel @columns "prepare" chunk 16 warps 1 arguments [#tile.arg<"b" : f32>] blob 2048 {
  %two = arith.constant 2.0 : f32
  %G = tile.alloc : <1, 16, f32>
  %b = tile.column "b" : tensor<16xf32>
  %t = tile.broadcast %two : f32 -> tensor<16xf32>
  %d = arith.mulf %b, %t : tensor<16xf32>
  tile.cumulate %d to %G : tensor<16xf32>, <1, 16, f32>
  %m = tile.broadcast %b : tensor<16xf32> -> tensor<16x16xf32>
  %h = arith.truncf %m : tensor<16x16xf32> to tensor<16x16xbf16>
  tile.export_matrix %h to 0 : tensor<16x16xbf16>
}

// Carried values and joined pieces have the layout that the uses of the result
// want. Constants change their type with their layout.
// CHECK-LABEL: tile.kernel @loops
// CHECK: arith.constant dense<0.000000e+00> : tensor<16x16xf32, #tile.layout<acc>>
// CHECK: tile.strips 2 init(%{{.*}} : tensor<16x16xf32, #tile.layout<acc>>)
// CHECK-NEXT: ^bb0(%strip: index, %{{.*}}: tensor<16x16xf32, #tile.layout<acc>>)
// CHECK: } : tensor<16x16xf32, #tile.layout<acc>>, tensor<16x32xf32, #tile.layout<opb>>
// CHECK: tile.reduce %{{.*}} : tensor<16x16xf32, #tile.layout<acc>> -> tensor<16xf32, #tile.layout<acc_col>>
// CHECK: tile.block_sum %{{.*}} : tensor<16x32xf32, #tile.layout<opb>>
tile.kernel @loops "prepare" chunk 16 warps 1 arguments [#tile.arg<"k" : bf16>] blob 2048 {
  %k = tile.alloc : <16, 32, bf16>
  %F = tile.alloc : <1, 32, f32>
  %zero = arith.constant dense<0.0> : tensor<16x16xf32>
  %sum, %wide = tile.strips 2 init(%zero : tensor<16x16xf32>) {
  ^bb0(%s: index, %c: tensor<16x16xf32>):
    %x = tile.load %k strip %s : <16, 32, bf16> -> tensor<16x16xbf16>
    %w = arith.extf %x : tensor<16x16xbf16> to tensor<16x16xf32>
    %n = arith.addf %c, %w : tensor<16x16xf32>
    tile.yield %n, %w : tensor<16x16xf32>, tensor<16x16xf32>
  } : tensor<16x16xf32>, tensor<16x32xf32>
  %r = tile.reduce %sum : tensor<16x16xf32> -> tensor<16xf32>
  %m = tile.broadcast %r : tensor<16xf32> -> tensor<16x16xf32>
  %h = arith.truncf %m : tensor<16x16xf32> to tensor<16x16xbf16>
  tile.export_matrix %h to 0 : tensor<16x16xbf16>
  tile.block_sum %wide to %F : tensor<16x32xf32>, <1, 32, f32>
}

// What nobody wants goes, reads as well.
// CHECK-LABEL: tile.kernel @dead
// CHECK-NEXT: tile.alloc
// CHECK-NEXT: }
tile.kernel @dead "prepare" chunk 16 warps 1 arguments [#tile.arg<"b" : f32>] blob 0 {
  %t = tile.alloc : <16, 16, bf16>
  %x = tile.load %t : <16, 16, bf16> -> tensor<16x16xbf16>
  %w = arith.extf %x : tensor<16x16xbf16> to tensor<16x16xf32>
  %b = tile.column "b" : tensor<16xf32>
}

// What waits in shared memory has the layout of the registers that it was and
// will be in: f32 as what is cumulated, bf16 as a left operand.
// CHECK-LABEL: tile.kernel @waits
// CHECK: tile.stash %{{.*}} in %{{.*}} strip %{{.*}} : tensor<16x16xf32, #tile.layout<opb>>, <16, 16, f32>
// CHECK: tile.unstash %{{.*}} : <16, 16, f32> -> tensor<16x16xf32, #tile.layout<opb>>
// CHECK: tile.stash %{{.*}} second : tensor<16x16xbf16, #tile.layout<acc>>, <16, 16, f32>
// CHECK: tile.unstash %{{.*}} second : <16, 16, f32> -> tensor<16x16xbf16, #tile.layout<acc>>
// CHECK: tile.dot_diag %{{.*}} : tensor<16x16xbf16, #tile.layout<acc>>
// CHECK: tile.diagonal %{{.*}} : tensor<16x16xf32, #tile.layout<acc>> -> tensor<16xf32, #tile.layout<acc_col>>
tile.kernel @waits "prepare" chunk 16 warps 1 arguments [#tile.arg<"f" : bf16>] blob 64 {
  %f = tile.alloc : <16, 16, bf16>
  %kept = tile.alloc : <16, 16, f32>
  tile.fetch "f" to %f : <16, 16, bf16>
  tile.arrived
  %zero = arith.constant dense<0.0> : tensor<16x16xf32>
  %sum = tile.strips 1 init(%zero : tensor<16x16xf32>) {
  ^bb0(%strip: index, %carried: tensor<16x16xf32>):
    %h = tile.load %f strip %strip : <16, 16, bf16> -> tensor<16x16xbf16>
    %x = arith.extf %h : tensor<16x16xbf16> to tensor<16x16xf32>
    tile.stash %x in %kept strip %strip : tensor<16x16xf32>, <16, 16, f32>
    %y = tile.unstash %kept strip %strip : <16, 16, f32> -> tensor<16x16xf32>
    %c = tile.cumsum %y : tensor<16x16xf32> -> tensor<16x16xf32>
    %n = arith.truncf %c : tensor<16x16xf32> to tensor<16x16xbf16>
    tile.stash %n in %kept strip %strip second : tensor<16x16xbf16>, <16, 16, f32>
    %m = tile.unstash %kept strip %strip second : <16, 16, f32> -> tensor<16x16xbf16>
    %d = tile.dot_diag %m, %m onto %carried : tensor<16x16xbf16>, tensor<16x16xbf16> -> tensor<16x16xf32>
    tile.yield %d : tensor<16x16xf32>
  } : tensor<16x16xf32>
  %s = tile.diagonal %sum : tensor<16x16xf32> -> tensor<16xf32>
  tile.export_vector %s tokens to 0 : tensor<16xf32>
}
