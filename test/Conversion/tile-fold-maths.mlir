// Constants and numbers of the head meet outside of the strips.
// RUN: plum-opt %s --pass-pipeline='builtin.module(tile.kernel(tile-fold-maths))' | FileCheck %s

// c sigmoid(A (f + b)), c and log2 e in one column: an fma, exp2, a sum, a
// reciprocal and a product of each element.
// CHECK-LABEL: tile.kernel @gate
// CHECK-DAG: %[[MINUS:.*]] = arith.constant -1.44269502 : f32
// CHECK-DAG: %[[FIVE:.*]] = arith.constant dense<-5.000000e+00> : tensor<16xf32>
// CHECK: %[[C:.*]] = arith.mulf %{{.*}}, %[[FIVE]] : tensor<16xf32>
// CHECK: %[[A:.*]] = tile.param "A"
// CHECK: %[[N:.*]] = arith.mulf %[[A]], %[[MINUS]] : f32
// CHECK: tile.strips
// CHECK: %[[X:.*]] = arith.extf
// CHECK: %[[B:.*]] = tile.param "b"
// CHECK-DAG: %[[NS:.*]] = tile.broadcast %[[N]] : f32 -> tensor<16x16xf32>
// CHECK-DAG: %[[NR:.*]] = tile.broadcast %[[N]] : f32 -> tensor<16xf32>
// CHECK: %[[BN:.*]] = arith.mulf %[[B]], %[[NR]] : tensor<16xf32>
// CHECK: %[[ROWS:.*]] = tile.broadcast %[[BN]] rows
// CHECK: %[[XN:.*]] = arith.mulf %[[X]], %[[NS]] : tensor<16x16xf32>
// CHECK: %[[SUM:.*]] = arith.addf %[[XN]], %[[ROWS]] : tensor<16x16xf32>
// CHECK-NEXT: %[[E:.*]] = math.exp2 %[[SUM]]
// CHECK-NEXT: %[[D:.*]] = arith.addf %[[E]], %{{.*}}
// CHECK-NEXT: %[[S:.*]] = arith.divf %{{.*}}, %[[D]]
// CHECK-NEXT: %[[CS:.*]] = tile.broadcast %[[C]] : tensor<16xf32> -> tensor<16x16xf32>
// CHECK-NEXT: %[[R:.*]] = arith.mulf %[[S]], %[[CS]]
// CHECK-NEXT: tile.block_sum %[[R]]
tile.kernel @gate "prepare" chunk 16 warps 1 arguments [#tile.arg<"f" : bf16>, #tile.arg<"A" : f32>, #tile.arg<"b" : f32>] blob 2048 {
  %f = tile.alloc : <16, 16, bf16>
  %sums = tile.alloc : <1, 16, f32>
  tile.fetch "f" to %f : <16, 16, bf16>
  %log2e = arith.constant dense<1.44269504> : tensor<16xf32>
  %inside = tile.valid %log2e else 0.0 : tensor<16xf32> -> tensor<16xf32>
  tile.arrived
  %A = tile.param "A" : f32
  tile.strips 1 {
  ^bb0(%strip: index):
    %one = arith.constant dense<1.0> : tensor<16x16xf32>
    %c = arith.constant dense<-5.0> : tensor<16x16xf32>
    %h = tile.load %f strip %strip : <16, 16, bf16> -> tensor<16x16xbf16>
    %x = arith.extf %h : tensor<16x16xbf16> to tensor<16x16xf32>
    %b = tile.param "b" strip %strip : tensor<16xf32>
    %br = tile.broadcast %b rows : tensor<16xf32> -> tensor<16x16xf32>
    %0 = arith.addf %x, %br : tensor<16x16xf32>
    %As = tile.broadcast %A : f32 -> tensor<16x16xf32>
    %1 = arith.mulf %As, %0 : tensor<16x16xf32>
    %2 = arith.negf %1 : tensor<16x16xf32>
    %3 = math.exp %2 : tensor<16x16xf32>
    %4 = arith.addf %3, %one : tensor<16x16xf32>
    %5 = arith.divf %one, %4 : tensor<16x16xf32>
    %6 = arith.mulf %5, %c : tensor<16x16xf32>
    %in = tile.broadcast %inside : tensor<16xf32> -> tensor<16x16xf32>
    %7 = arith.mulf %6, %in : tensor<16x16xf32>
    tile.block_sum %7 to %sums strip %strip : tensor<16x16xf32>, <1, 16, f32>
    tile.yield
  }
}

// What is used twice stays: nothing would be saved.
// CHECK-LABEL: tile.kernel @shared
// CHECK: %[[S:.*]] = arith.addf
// CHECK: arith.mulf %{{.*}}, %[[S]]
// CHECK: arith.addf %{{.*}}, %[[S]]
tile.kernel @shared "prepare" chunk 16 warps 1 arguments [#tile.arg<"f" : bf16>, #tile.arg<"A" : f32>, #tile.arg<"b" : f32>] blob 2048 {
  %f = tile.alloc : <16, 16, bf16>
  tile.fetch "f" to %f : <16, 16, bf16>
  tile.arrived
  %A = tile.param "A" : f32
  %b = tile.param "b" : tensor<16xf32>
  %h = tile.load %f : <16, 16, bf16> -> tensor<16x16xbf16>
  %x = arith.extf %h : tensor<16x16xbf16> to tensor<16x16xf32>
  %br = tile.broadcast %b rows : tensor<16xf32> -> tensor<16x16xf32>
  %As = tile.broadcast %A : f32 -> tensor<16x16xf32>
  %s = arith.addf %x, %br : tensor<16x16xf32>
  %y = arith.mulf %As, %s : tensor<16x16xf32>
  %z = arith.addf %y, %s : tensor<16x16xf32>
  %n = arith.truncf %z : tensor<16x16xf32> to tensor<16x16xbf16>
  tile.export_matrix %n to 0 : tensor<16x16xbf16>
}
