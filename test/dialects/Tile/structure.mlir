// Kernels, their loops and what comes after; names come from what is loaded.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: tile.kernel @prepare "prepare" chunk 64 warps 4
// CHECK-SAME: arguments [#tile.arg<"k" : bf16>, #tile.arg<"b" : f32>] blob 8192 attributes {note = "kept"} {
// CHECK: %k = tile.alloc : <64, 64, bf16>
// CHECK: %tile = tile.alloc at 8192 : <64, 20, f32>
// CHECK: tile.fetch "k" to %k : <64, 64, bf16>
// CHECK: tile.arrived
// CHECK: tile.barrier
tile.kernel @prepare "prepare" chunk 64 warps 4 arguments [#tile.arg<"k" : bf16>, #tile.arg<"b" : f32>] blob 8192
    attributes {note = "kept"} {
  %0 = tile.alloc : <64, 64, bf16>
  %1 = tile.alloc at 8192 : <64, 20, f32>
  tile.fetch "k" to %0 : <64, 64, bf16>
  tile.arrived
  tile.barrier

  // CHECK: %[[CST:.*]] = arith.constant
  // CHECK: %{{.*}}:2 = tile.strips 4 init(%[[CST]] : tensor<64x16xbf16>) {
  // CHECK-NEXT: ^bb0(%strip: index, %{{.*}}: tensor<64x16xbf16>):
  // CHECK-NEXT: %k_{{[0-9]+}} = tile.load %k strip %strip : <64, 64, bf16> -> tensor<64x16xbf16>
  // CHECK: tile.yield %{{.*}}, %k_{{[0-9]+}} : tensor<64x16xbf16>, tensor<64x16xbf16>
  // CHECK-NEXT: } : tensor<64x16xbf16>, tensor<64x64xbf16>
  %zero = arith.constant dense<0.0> : tensor<64x16xbf16>
  %sum, %whole = tile.strips 4 init(%zero : tensor<64x16xbf16>) {
  ^bb0(%s: index, %carried: tensor<64x16xbf16>):
    %x = tile.load %0 strip %s : <64, 64, bf16> -> tensor<64x16xbf16>
    tile.yield %carried, %x : tensor<64x16xbf16>, tensor<64x16xbf16>
  } : tensor<64x16xbf16>, tensor<64x64xbf16>
  // CHECK: tile.export_matrix %{{.*}}#1 to 0 : tensor<64x64xbf16>
  tile.export_matrix %whole to 0 : tensor<64x64xbf16>
}

// Without anything to carry or to give.
// CHECK-LABEL: func @nothing
// CHECK: tile.strips 1 {
// CHECK: tile.yield
func.func @nothing() {
  tile.strips 1 {
  ^bb0(%s: index):
    tile.yield
  }
  return
}

// CHECK-LABEL: tile.kernel @scan "scan" chunk 16 warps 4 arguments [{{.*}}] blob 4096 slice 64 of 2 {
tile.kernel @scan "scan" chunk 16 warps 4 arguments [#tile.arg<"v" : bf16>, #tile.arg<"S" : f32>,
    #tile.arg<"S.final" : f32>, #tile.arg<"o" : bf16>] blob 4096 slice 64 of 2 {
  // CHECK: %ring = tile.ring 2 [#tile.part<type = <16, 128, bf16>, blob = 0>, #tile.part<type = <16, 64, bf16>, rows = "v", sliced = true>] : !tile.ring
  // CHECK: %S = tile.load_state "S" : tensor<64x128xf32>
  // CHECK: tile.chunks init(%S, %{{.*}} : tensor<64x128xf32>, tensor<64x16xbf16>) {
  // CHECK-NEXT: ^bb0(%S_{{[0-9]+}}: tensor<64x128xf32>, %{{.*}}: tensor<64x16xbf16>):
  // CHECK-NEXT: %at0, %v = tile.acquire %ring : !tile.ring -> !tile.shared<16, 128, bf16>, !tile.shared<16, 64, bf16>
  // CHECK-NEXT: %at0_{{[0-9]+}}, %v_{{[0-9]+}} = tile.previous %ring :
  // CHECK: tile.release %ring previous : !tile.ring
  // CHECK: tile.release %ring : !tile.ring
  // CHECK: tile.tail {
  // CHECK: tile.write_rows %{{.*}} through %tile to "o" previous : tensor<64x16xbf16>, <16, 64, bf16>
  // CHECK: tile.store_state %{{.*}}#0 to "S" : tensor<64x128xf32>
  %ring = tile.ring 2 [#tile.part<type = <16, 128, bf16>, blob = 0>,
                       #tile.part<type = <16, 64, bf16>, rows = "v", sliced = true>] : !tile.ring
  %panel = tile.alloc : <16, 64, bf16>
  %rows = arith.constant dense<0.0> : tensor<64x16xbf16>
  %state = tile.load_state "S" : tensor<64x128xf32>
  %end, %last = tile.chunks init(%state, %rows : tensor<64x128xf32>, tensor<64x16xbf16>) {
  ^bb0(%s: tensor<64x128xf32>, %before: tensor<64x16xbf16>):
    %part, %values = tile.acquire %ring : !tile.ring -> !tile.shared<16, 128, bf16>, !tile.shared<16, 64, bf16>
    %old, %older = tile.previous %ring : !tile.ring -> !tile.shared<16, 128, bf16>, !tile.shared<16, 64, bf16>
    %x = tile.load %values transposed : <16, 64, bf16> -> tensor<64x16xbf16>
    tile.release %ring previous : !tile.ring
    tile.release %ring : !tile.ring
    tile.yield %s, %x : tensor<64x128xf32>, tensor<64x16xbf16>
  } : tensor<64x128xf32>, tensor<64x16xbf16>
  tile.tail {
    tile.write_rows %last through %panel to "o" previous : tensor<64x16xbf16>, <16, 64, bf16>
  }
  tile.store_state %end to "S" : tensor<64x128xf32>
}

// CHECK-LABEL: tile.kernel @summary "summary"
// CHECK: %S = tile.load_state "S" summary : tensor<16x32xf32>
// CHECK: tile.values %{{.*}} : tensor<16x32xf32>
// CHECK: tile.store_state %{{.*}} to "S" summary : tensor<16x32xf32>
tile.kernel @summary "summary" chunk 16 warps 1 arguments [#tile.arg<"S" : f32>] blob 0 slice 16 of 3 {
  %S = tile.load_state "S" summary : tensor<16x32xf32>
  %v = tile.values %S : tensor<16x32xf32>
  tile.store_state %v to "S" summary : tensor<16x32xf32>
}
