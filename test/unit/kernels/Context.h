//===- Context.h - Switching from one stack to another ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What swapcontext does, without its system calls: a model's pass switches some
// ten million times. On other machines than x86-64 it is swapcontext.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_KERNELS_CONTEXT_H
#define PLUM_TEST_UNIT_KERNELS_CONTEXT_H

#include <cstddef>
#include <cstdint>

#ifdef __x86_64__

namespace plum::kernels {

/// Where a stack was left: all that is needed lies on it.
struct Context {
  void *stack = nullptr;
};

/// The registers that a callee keeps, then the stack, then theirs.
[[gnu::naked, gnu::noinline]] inline void switchTo(Context &from, Context &to) {
  asm("pushq %rbp\n"
      "pushq %rbx\n"
      "pushq %r12\n"
      "pushq %r13\n"
      "pushq %r14\n"
      "pushq %r15\n"
      "movq %rsp, (%rdi)\n"
      "movq (%rsi), %rsp\n"
      "popq %r15\n"
      "popq %r14\n"
      "popq %r13\n"
      "popq %r12\n"
      "popq %rbx\n"
      "popq %rbp\n"
      "ret\n");
}

/// `entry`, which does not return, begins when this is switched to.
inline void prepare(Context &context, char *stack, size_t bytes,
                    void (*entry)()) {
  auto top = reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t(15);
  auto *words = reinterpret_cast<uintptr_t *>(top);
  *--words = 0; // Where `entry` would return to; aligns it as a call does.
  *--words = reinterpret_cast<uintptr_t>(entry);
  for (int i = 0; i < 6; ++i)
    *--words = 0;
  context.stack = words;
}

} // namespace plum::kernels

#else

#include <ucontext.h>

namespace plum::kernels {

using Context = ucontext_t;

inline void switchTo(Context &from, Context &to) { swapcontext(&from, &to); }

inline void prepare(Context &context, char *stack, size_t bytes,
                    void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}

} // namespace plum::kernels

#endif

#endif // PLUM_TEST_UNIT_KERNELS_CONTEXT_H
