// Each numbered constraint of kernels and their loops, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{'tile.kernel' op expects the role 'prepare', 'scan' or 'summary', got 'compute'}}
tile.kernel @kernel_c1_role "compute" chunk 16 warps 1 arguments [] blob 0 {}

// -----

// expected-error @below {{'tile.kernel' op expects a chunk of a multiple of 16 tokens, got 24}}
tile.kernel @kernel_c2_chunk "prepare" chunk 24 warps 1 arguments [] blob 0 {}

// -----

// expected-error @below {{'tile.kernel' op expects a warp for every 16 of 64 rows, got 2}}
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

// expected-error @below {{'tile.kernel' op expects a team or more, got 0}}
tile.kernel @kernel_c10_none "prepare" chunk 16 warps 1 teams 0 arguments [] blob 0 {
}

// -----

// expected-error @below {{'tile.kernel' op expects one team, got 2}}
tile.kernel @kernel_c10_scan "scan" chunk 16 warps 1 teams 2 arguments [] blob 0 slice 16 of 1 {
}

// -----

tile.kernel @strip_of_a_team "prepare" chunk 16 warps 1 teams 2 arguments [] blob 0 {
  %k = tile.alloc : <16, 64, bf16>
  // expected-note @below {{the strips}}
  tile.strips 4 {
  ^bb0(%strip: index):
    // expected-error @below {{'tile.load' op expects at most 2 strips of 64 columns, got 4}}
    %0 = tile.load %k strip %strip : <16, 64, bf16> -> tensor<16x16xbf16>
    tile.yield
  }
}

// -----

tile.kernel @team_c1 "prepare" chunk 16 warps 1 teams 2 arguments [] blob 0 {
  // expected-error @below {{'tile.team' op expects one of 2 teams, got 2}}
  tile.team 2 {
  }
}

// -----

tile.kernel @sum_teams_c1 "prepare" chunk 16 warps 1 arguments [] blob 0 {
  %a = tile.alloc : <1, 16, f32>
  %x = arith.constant dense<0.0> : tensor<16xf32>
  // expected-error @below {{'tile.sum_teams' op expects two teams or more, got 1}}
  %y = tile.sum_teams(%x : tensor<16xf32>) through %a : <1, 16, f32> -> tensor<16xf32>
}

// -----

tile.kernel @sum_teams_c2_results "prepare" chunk 16 warps 1 teams 2 arguments [] blob 0 {
  %a = tile.alloc : <2, 16, f32>
  %x = arith.constant dense<0.0> : tensor<16xf32>
  // expected-error @below {{'tile.sum_teams' op expects results of the types of some values, got 'tensor<16xf32>', 'tensor<16xf32>' for 'tensor<16xf32>'}}
  %y, %z = tile.sum_teams(%x : tensor<16xf32>) through %a : <2, 16, f32> -> tensor<16xf32>, tensor<16xf32>
}

// -----

tile.kernel @sum_teams_c2_types "prepare" chunk 16 warps 1 teams 2 arguments [] blob 0 {
  %a = tile.alloc : <4, 16, f32>
  %x = arith.constant dense<0.0> : tensor<16xf32>
  %m = arith.constant dense<0.0> : tensor<16x16xf32>
  // expected-error @below {{'tile.sum_teams' op expects values of one type, got 'tensor<16xf32>', 'tensor<16x16xf32>'}}
  %y, %z = tile.sum_teams(%x, %m : tensor<16xf32>, tensor<16x16xf32>) through %a : <4, 16, f32>
      -> tensor<16xf32>, tensor<16x16xf32>
}

// -----

tile.kernel @sum_teams_c3 "prepare" chunk 16 warps 1 teams 3 arguments [] blob 0 {
  %a = tile.alloc : <16, 16, f32>
  %m = arith.constant dense<0.0> : tensor<16x16xf32>
  // expected-error @below {{'tile.sum_teams' op expects a tile of 32 x 16, got '!tile.shared<16, 16, f32>'}}
  %y = tile.sum_teams(%m : tensor<16x16xf32>) through %a : <16, 16, f32> -> tensor<16x16xf32>
}

// -----

tile.kernel @sum_teams_c4 "prepare" chunk 16 warps 1 teams 2 arguments [] blob 0 {
  %a = tile.alloc : <2, 16, f32>
  %x = arith.constant dense<0.0> : tensor<16xf32, #tile.layout<linear>>
  // expected-error @below {{'tile.sum_teams' op expects a column in layout acc_col, got linear}}
  %y = tile.sum_teams(%x : tensor<16xf32, #tile.layout<linear>>) through %a : <2, 16, f32>
      -> tensor<16xf32, #tile.layout<linear>>
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

// -----

// expected-error @below {{'tile.kernel' op expects 'diagonal' in a kernel that scans}}
tile.kernel @kernel_c9 "prepare" chunk 16 warps 1 arguments [] blob 0 slice 0 of 1 diagonal {
}

// -----

// expected-error @below {{'tile.kernel' op expects a step or more, got 0}}
tile.kernel @kernel_c11 "prepare" chunk 16 steps 0 warps 1 arguments [] blob 0 {
}
