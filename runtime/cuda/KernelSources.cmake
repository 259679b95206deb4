# The files of runtime/cuda/kernels that hold kernels, for the runtime, which has
# them as PTX, and for their tests, which compile them for the CPU.
set(PLUM_KERNEL_SOURCES Append Conv Elementwise Experts Gather Mixture Norms
  Pack Plan Products Router Skinny)
# Those that use Warpgroup.h: for sm_90a and nothing else.
set(PLUM_HOPPER_SOURCES WideExperts)
