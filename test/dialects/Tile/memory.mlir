// Shared and global memory, before layouts are assigned and after.
// RUN: plum-opt %s | plum-opt | FileCheck %s
// RUN: plum-opt --mlir-print-op-generic %s | plum-opt | FileCheck %s

// CHECK-LABEL: tile.kernel @plain
tile.kernel @plain "prepare" chunk 64 warps 4 arguments [#tile.arg<"k" : bf16>, #tile.arg<"beta" : f32>,
    #tile.arg<"bias" : f32>] blob 17024 {
  %k = tile.alloc : <64, 64, bf16>
  %table = tile.alloc : <4, 64, f32>
  tile.fetch "k" to %k : <64, 64, bf16>
  tile.arrived
  // CHECK: %tile_{{[0-9]+}} = tile.reuse %tile_{{[0-9]+}} plus 1024 : <16, 64, f32> to <1, 20, f32>
  %old = tile.alloc : <16, 64, f32>
  %new = tile.reuse %old plus 1024 : <16, 64, f32> to <1, 20, f32>
  // CHECK: %beta = tile.column "beta" : tensor<64xf32>
  // CHECK: %bias = tile.param "bias" : tensor<64xf32>
  // CHECK: %bias_{{[0-9]+}} = tile.param "bias" : f32
  %beta = tile.column "beta" : tensor<64xf32>
  %bias = tile.param "bias" : tensor<64xf32>
  %number = tile.param "bias" : f32
  // CHECK: tile.load %k : <64, 64, bf16> -> tensor<64x64xbf16>
  // CHECK: tile.load %k transposed : <64, 64, bf16> -> tensor<64x64xbf16>
  // CHECK: tile.load %{{.*}} row 3 : <4, 64, f32> -> tensor<64xf32>
  // CHECK: tile.load %{{.*}} : <4, 64, f32> -> tensor<64xf32>
  // CHECK: tile.load %{{.*}} blocks : <4, 64, f32> -> tensor<64x64xf32>
  // CHECK: %e = tile.element %{{.*}}[3, 63] : <4, 64, f32>
  %a = tile.load %k : <64, 64, bf16> -> tensor<64x64xbf16>
  %b = tile.load %k transposed : <64, 64, bf16> -> tensor<64x64xbf16>
  %c = tile.load %table row 3 : <4, 64, f32> -> tensor<64xf32>
  %d = tile.load %table : <4, 64, f32> -> tensor<64xf32>
  %e = tile.load %table blocks : <4, 64, f32> -> tensor<64x64xf32>
  %f = tile.element %table[3, 63] : <4, 64, f32>
  // CHECK: tile.store %{{.*}} to %k : tensor<64x64xbf16>, <64, 64, bf16>
  // CHECK: tile.store %{{.*}} to %k transposed : tensor<64x64xbf16>, <64, 64, bf16>
  // CHECK: tile.store %{{.*}} to %{{.*}} row 2 : tensor<64xf32>, <4, 64, f32>
  tile.store %a to %k : tensor<64x64xbf16>, <64, 64, bf16>
  tile.store %a to %k transposed : tensor<64x64xbf16>, <64, 64, bf16>
  // CHECK: tile.store %beta to %{{.*}} row 1 tokens : tensor<64xf32>, <4, 64, f32>
  tile.store %c to %table row 2 : tensor<64xf32>, <4, 64, f32>
  tile.store %beta to %table row 1 tokens : tensor<64xf32>, <4, 64, f32>
  // CHECK: tile.strips 4
  tile.strips 4 {
  ^bb0(%s: index):
    // CHECK: tile.load %k strip %strip : <64, 64, bf16> -> tensor<64x16xbf16>
    // CHECK: tile.load %{{.*}} strip %strip blocks : <4, 64, f32> -> tensor<64x16xf32>
    // CHECK: tile.param "bias" strip %strip : tensor<16xf32>
    // CHECK: tile.store %{{.*}} to %k strip %strip : tensor<64x16xbf16>, <64, 64, bf16>
    %x = tile.load %k strip %s : <64, 64, bf16> -> tensor<64x16xbf16>
    %y = tile.load %table strip %s blocks : <4, 64, f32> -> tensor<64x16xf32>
    %z = tile.param "bias" strip %s : tensor<16xf32>
    tile.store %x to %k strip %s : tensor<64x16xbf16>, <64, 64, bf16>
    tile.yield
  }
  // CHECK: tile.export %k to 0 : <64, 64, bf16>
  // CHECK: tile.export_matrix %{{.*}} to 8192 : tensor<64x64xbf16>
  // CHECK: tile.export_vector %beta tokens to 16384 : tensor<64xf32>
  // CHECK: tile.export_vector %{{.*}} to 16640 : tensor<64xf32>
  tile.export %k to 0 : <64, 64, bf16>
  tile.export_matrix %a to 8192 : tensor<64x64xbf16>
  tile.export_vector %beta tokens to 16384 : tensor<64xf32>
  tile.export_vector %c to 16640 : tensor<64xf32>
}

// CHECK-LABEL: tile.kernel @laid_out
tile.kernel @laid_out "prepare" chunk 64 warps 4 arguments [#tile.arg<"beta" : f32>] blob 8704 {
  %k = tile.alloc : <64, 64, bf16>
  %table = tile.alloc : <4, 64, f32>
  // CHECK: tile.load %{{.*}} : <64, 64, bf16> -> tensor<64x64xbf16, #tile.layout<acc>>
  // CHECK: tile.load %{{.*}} : <64, 64, bf16> -> tensor<64x64xbf16, #tile.layout<opb>>
  // CHECK: tile.load %{{.*}} transposed : <64, 64, bf16> -> tensor<64x64xbf16, #tile.layout<acc>>
  // CHECK: tile.load %{{.*}} blocks : <4, 64, f32> -> tensor<64x64xf32, #tile.layout<acc>>
  %a = tile.load %k : <64, 64, bf16> -> tensor<64x64xbf16, #tile.layout<acc>>
  %b = tile.load %k : <64, 64, bf16> -> tensor<64x64xbf16, #tile.layout<opb>>
  %c = tile.load %k transposed : <64, 64, bf16> -> tensor<64x64xbf16, #tile.layout<acc>>
  %d = tile.load %table blocks : <4, 64, f32> -> tensor<64x64xf32, #tile.layout<acc>>
  // CHECK: tensor<64xf32, #tile.layout<linear>>
  // CHECK: tensor<64xf32, #tile.layout<acc_row>>
  // CHECK: tensor<64xf32, #tile.layout<opb_col>>
  %e = tile.load %table row 1 : <4, 64, f32> -> tensor<64xf32, #tile.layout<linear>>
  %f = tile.load %table row 1 : <4, 64, f32> -> tensor<64xf32, #tile.layout<acc_row>>
  %g = tile.load %table row 1 : <4, 64, f32> -> tensor<64xf32, #tile.layout<opb_col>>
  %h = tile.column "beta" : tensor<64xf32, #tile.layout<acc_col>>
  tile.store %a to %k : tensor<64x64xbf16, #tile.layout<acc>>, <64, 64, bf16>
  tile.store %e to %table : tensor<64xf32, #tile.layout<linear>>, <4, 64, f32>
  tile.store %h to %table tokens : tensor<64xf32, #tile.layout<acc_col>>, <4, 64, f32>
  tile.export_matrix %a to 0 : tensor<64x64xbf16, #tile.layout<acc>>
  tile.export_vector %h tokens to 8192 : tensor<64xf32, #tile.layout<acc_col>>
  tile.export_vector %e to 8448 : tensor<64xf32, #tile.layout<linear>>
}
