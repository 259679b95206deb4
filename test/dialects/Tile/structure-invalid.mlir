// Each numbered constraint of kernels and their loops, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{'tile.kernel' op expects the role 'prepare', 'scan' or 'summary', got 'compute'}}
tile.kernel @kernel_c1_role "compute" chunk 16 warps 1 arguments [] blob 0 {}

// -----

// expected-error @below {{'tile.kernel' op expects a chunk of a multiple of 16 tokens, got 24}}
tile.kernel @kernel_c2_chunk "prepare" chunk 24 warps 1 arguments [] blob 0 {}

// -----

// expected-error @below {{'tile.kernel' op expects a warp for every 16 of 64 tokens, got 2}}
tile.kernel @kernel_c3_prepare "prepare" chunk 64 warps 2 arguments [] blob 0 {}

// -----

// expected-error @below {{'tile.kernel' op expects a warp for every 16 of 40 columns, got 2}}
tile.kernel @kernel_c3_scan "scan" chunk 64 warps 2 arguments [] blob 0 slice 40 of 1 {}

// -----

// expected-error @below {{'tile.kernel' op expects no slices in 'prepare', got 2 of 64 columns}}
tile.kernel @kernel_c4_prepare "prepare" chunk 64 warps 4 arguments [] blob 0 slice 64 of 2 {}

// -----

// expected-error @below {{'tile.kernel' op expects slices, got 0 of 64 columns}}
tile.kernel @kernel_c4_scan "scan" chunk 64 warps 4 arguments [] blob 0 slice 64 of 0 {}

// -----

// expected-error @below {{'tile.kernel' op expects arguments of different names, got 'k' twice}}
tile.kernel @kernel_c5_names "prepare" chunk 16 warps 1 arguments [#tile.arg<"k" : f32>, #tile.arg<"k" : bf16>] blob 0 {}

// -----

// expected-error @below {{'tile.kernel' op expects a blob of a multiple of 16 bytes, got 100}}
tile.kernel @kernel_c6_blob "prepare" chunk 16 warps 1 arguments [] blob 100 {}

// -----

// expected-note @below {{the kernel has 1 warps}}
tile.kernel @kernel_c7_rows "prepare" chunk 16 warps 1 arguments [] blob 0 {
  // expected-error @below {{'arith.constant' op expects matrices of 16 rows, got 'tensor<32x16xf32>'}}
  %x = arith.constant dense<0.0> : tensor<32x16xf32>
}

// -----

tile.kernel @kernel_c8_layouts "prepare" chunk 16 warps 1 arguments [] blob 0 {
  // expected-note @below {{this one has}}
  %x = arith.constant dense<0.0> : tensor<16x16xf32, #tile.layout<acc>>
  // expected-error @below {{'arith.constant' op expects a layout, as other tensors have one}}
  %y = arith.constant dense<0.0> : tensor<16x16xf32>
}

// -----

func.func @strips_c1_index() {
  // expected-error @below {{'tile.strips' op expects region arguments of types 'index', got 'f32'}}
  tile.strips 1 {
  ^bb0(%s: f32):
    tile.yield
  }
  return
}

// -----

func.func @strips_c1_carried(%x: f32) {
  // expected-error @below {{'tile.strips' op expects region arguments of types 'index', 'f32', got 'index'}}
  %y = tile.strips 1 init(%x : f32) {
  ^bb0(%s: index):
    tile.yield %x : f32
  } : f32
  return
}

// -----

func.func @strips_c2_yield(%x: f32, %z: index) {
  // expected-error @below {{'tile.strips' op expects to yield the types of 'f32', got 'index'}}
  %y = tile.strips 1 init(%x : f32) {
  ^bb0(%s: index, %c: f32):
    tile.yield %z : index
  } : f32
  return
}

// -----

func.func @strips_c2_results(%x: f32) {
  // expected-error @below {{'tile.strips' op expects to have results of the types of 'f32', got }}
  tile.strips 1 init(%x : f32) {
  ^bb0(%s: index, %c: f32):
    tile.yield %c : f32
  }
  return
}

// -----

func.func @strips_c3_count(%x: tensor<16x16xf32>) {
  // expected-error @below {{'tile.strips' op expects to yield 0 values, got 1}}
  tile.strips 1 {
  ^bb0(%s: index):
    tile.yield %x : tensor<16x16xf32>
  }
  return
}

// -----

func.func @strips_c3_piece(%x: tensor<16x16xf32>) {
  // expected-error @below {{'tile.strips' op expects 2 pieces of 16 columns to make 'tensor<16x48xf32>', got 'tensor<16x16xf32>'}}
  %y = tile.strips 2 {
  ^bb0(%s: index):
    tile.yield %x : tensor<16x16xf32>
  } : tensor<16x48xf32>
  return
}

// -----

func.func @strips_c3_layout(%x: tensor<16x16xf32, #tile.layout<opb>>) {
  // expected-error @below {{'tile.strips' op expects 2 pieces of 16 columns to make}}
  %y = tile.strips 2 {
  ^bb0(%s: index):
    tile.yield %x : tensor<16x16xf32, #tile.layout<opb>>
  } : tensor<16x32xf32, #tile.layout<acc>>
  return
}

// -----

func.func @strips_c4_none() {
  // expected-error @below {{'tile.strips' op expects a strip or more, got 0}}
  tile.strips 0 {
  ^bb0(%s: index):
    tile.yield
  }
  return
}
