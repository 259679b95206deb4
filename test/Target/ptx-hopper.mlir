// A kernel with the instructions of sm_90a, as Ptx.h spells them.
// RUN: plum-opt --emit-ptx=sm_90a %s | FileCheck %s

// CHECK: .target sm_90a
// CHECK: .reqntid 128
// CHECK: .maxnreg 168
// CHECK: mbarrier.init.shared.b64 {{\[}}[[SHARED:%r[0-9]+]]+64], 1;
// CHECK: fence.mbarrier_init.release.cluster;
// CHECK: bar.sync {{%r[0-9]+}}, 128;
// CHECK: mbarrier.arrive.expect_tx.shared::cta.b64 _, {{\[}}[[SHARED]]+64],
// CHECK: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes {{\[}}[[SHARED]]+1024], [{{%rd[0-9]+}}], 2048, {{\[}}[[SHARED]]+64];
// CHECK: setmaxnreg.inc.sync.aligned.u32 168;
// CHECK: PLUM_WAIT_0: mbarrier.try_wait.parity.shared::cta.b64
// CHECK: wgmma.fence.sync.aligned;
// Nothing is moved between the products and their wait.
// CHECK: wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {[[D:.*]]}, {{{.*}}}, {{%rd[0-9]+}}, 1, 1, 1, 0;
// CHECK-NOT: mov
// CHECK: wgmma.commit_group.sync.aligned;
// CHECK-NOT: mov
// CHECK: wgmma.wait_group.sync.aligned 0;
// CHECK: st.global.v4.b32 [{{%rd[0-9]+}}], {[[D]]};
llvm.mlir.global external @plum_shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
llvm.func @hopper(%arg0: !llvm.ptr {llvm.align = 16 : i64, llvm.byval = !llvm.array<1872 x i8>, nvvm.grid_constant}) attributes {nvvm.kernel, nvvm.maxnreg = 168 : i32, nvvm.reqntid = array<i32: 128>, passthrough = [["denormal-fp-math-f32", "preserve-sign,preserve-sign"]], plum.shared_bytes = 4096 : i64} {
  %0 = nvvm.read.ptx.sreg.tid.x : i32
  %1 = llvm.getelementptr %arg0[80] : (!llvm.ptr) -> !llvm.ptr, i8
  %2 = llvm.load %1 invariant {alignment = 8 : i64} : !llvm.ptr -> i64
  %3 = llvm.inttoptr %2 : i64 to !llvm.ptr<1>
  %4 = llvm.mlir.addressof @plum_shared : !llvm.ptr<3>
  %5 = llvm.getelementptr %4[64] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
  %c0_i32 = arith.constant 0 : i32
  %6 = arith.cmpi eq, %0, %c0_i32 : i32
  scf.if %6 {
    %31 = llvm.ptrtoint %4 : !llvm.ptr<3> to i32
    llvm.inline_asm has_side_effects asm_dialect = att "mbarrier.init.shared.b64 [$0+64], 1;", "r,~{memory}" %31 : (i32) -> ()
    llvm.inline_asm has_side_effects asm_dialect = att "fence.mbarrier_init.release.cluster;", "~{memory}"  : () -> ()
  }
  %c0_i32_0 = arith.constant 0 : i32
  llvm.inline_asm has_side_effects asm_dialect = att "bar.sync $0, 128;", "r,~{memory}" %c0_i32_0 : (i32) -> ()
  %c0_i32_1 = arith.constant 0 : i32
  %7 = arith.cmpi eq, %0, %c0_i32_1 : i32
  scf.if %7 {
    %c2048_i32 = arith.constant 2048 : i32
    %31 = llvm.ptrtoint %4 : !llvm.ptr<3> to i32
    llvm.inline_asm has_side_effects asm_dialect = att "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0+64], $1;", "r,r,~{memory}" %31, %c2048_i32 : (i32, i32) -> ()
    %32 = llvm.mlir.addressof @plum_shared : !llvm.ptr<3>
    %33 = llvm.getelementptr %32[1024] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
    %34 = llvm.ptrtoint %32 : !llvm.ptr<3> to i32
    %35 = llvm.ptrtoint %4 : !llvm.ptr<3> to i32
    %36 = llvm.ptrtoint %3 : !llvm.ptr<1> to i64
    llvm.inline_asm has_side_effects asm_dialect = att "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0+1024], [$1], 2048, [$2+64];", "r,l,r,~{memory}" %34, %36, %35 : (i32, i64, i32) -> ()
  }
  llvm.inline_asm has_side_effects asm_dialect = att "setmaxnreg.inc.sync.aligned.u32 168;", "~{memory}"  : () -> ()
  %cst = arith.constant 1.000000e+00 : f32
  %c0_i32_2 = arith.constant 0 : i32
  %8 = llvm.ptrtoint %4 : !llvm.ptr<3> to i32
  llvm.inline_asm has_side_effects asm_dialect = att "{ .reg .pred p, q; .reg .u32 n; mov.u32 n, 0; PLUM_WAIT_${:uid}: mbarrier.try_wait.parity.shared::cta.b64 p, [$0+64], $1; @p bra PLUM_DONE_${:uid}; add.u32 n, n, 1; setp.lt.u32 q, n, 1000000; @q bra PLUM_WAIT_${:uid}; PLUM_DONE_${:uid}: }", "r,r,~{memory}" %8, %c0_i32_2 : (i32, i32) -> ()
  %9 = llvm.inline_asm has_side_effects asm_dialect = att "wgmma.fence.sync.aligned;", "=f,=f,=f,=f,0,1,2,3,~{memory}" %cst, %cst, %cst, %cst : (f32, f32, f32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
  %10 = llvm.extractvalue %9[0] : !llvm.struct<(f32, f32, f32, f32)> 
  %11 = llvm.extractvalue %9[1] : !llvm.struct<(f32, f32, f32, f32)> 
  %12 = llvm.extractvalue %9[2] : !llvm.struct<(f32, f32, f32, f32)> 
  %13 = llvm.extractvalue %9[3] : !llvm.struct<(f32, f32, f32, f32)> 
  %c4611686018427387968_i64 = arith.constant 4611686018427387968 : i64
  %14 = llvm.inline_asm has_side_effects asm_dialect = att "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, {$4, $5, $6, $7}, $8, 1, 1, 1, 0;", "=f,=f,=f,=f,r,r,r,r,l,0,1,2,3" %0, %0, %0, %0, %c4611686018427387968_i64, %10, %11, %12, %13 : (i32, i32, i32, i32, i64, f32, f32, f32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
  %15 = llvm.extractvalue %14[0] : !llvm.struct<(f32, f32, f32, f32)> 
  %16 = llvm.extractvalue %14[1] : !llvm.struct<(f32, f32, f32, f32)> 
  %17 = llvm.extractvalue %14[2] : !llvm.struct<(f32, f32, f32, f32)> 
  %18 = llvm.extractvalue %14[3] : !llvm.struct<(f32, f32, f32, f32)> 
  llvm.inline_asm has_side_effects asm_dialect = att "wgmma.commit_group.sync.aligned;", "~{memory}"  : () -> ()
  %19 = llvm.inline_asm has_side_effects asm_dialect = att "wgmma.wait_group.sync.aligned 0;", "=f,=f,=f,=f,0,1,2,3,~{memory}" %15, %16, %17, %18 : (f32, f32, f32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
  %20 = llvm.extractvalue %19[0] : !llvm.struct<(f32, f32, f32, f32)> 
  %21 = llvm.extractvalue %19[1] : !llvm.struct<(f32, f32, f32, f32)> 
  %22 = llvm.extractvalue %19[2] : !llvm.struct<(f32, f32, f32, f32)> 
  %23 = llvm.extractvalue %19[3] : !llvm.struct<(f32, f32, f32, f32)> 
  %24 = llvm.mlir.undef : vector<4xf32>
  %c0_i32_3 = arith.constant 0 : i32
  %25 = llvm.insertelement %20, %24[%c0_i32_3 : i32] : vector<4xf32>
  %c1_i32 = arith.constant 1 : i32
  %26 = llvm.insertelement %21, %25[%c1_i32 : i32] : vector<4xf32>
  %c2_i32 = arith.constant 2 : i32
  %27 = llvm.insertelement %22, %26[%c2_i32 : i32] : vector<4xf32>
  %c3_i32 = arith.constant 3 : i32
  %28 = llvm.insertelement %23, %27[%c3_i32 : i32] : vector<4xf32>
  %c16_i32 = arith.constant 16 : i32
  %29 = arith.muli %0, %c16_i32 : i32
  %30 = llvm.getelementptr %3[%29] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
  llvm.store %28, %30 {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
  llvm.return
}
