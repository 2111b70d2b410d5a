// A kernel with one NVFP4 product where the target has it, and a shell of the same name where it has not.
#include <cuda_runtime.h>
extern "C" __global__ void nvfp4_gemm(float* out, const unsigned* in) {
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) || defined(__CUDA_ARCH_SPECIFIC__)
    float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    asm volatile(
        "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0,0}, {%11}, {0,0};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(in[0]), "r"(in[1]), "r"(in[2]), "r"(in[3]), "r"(in[4]), "r"(in[5]), "r"(in[6]), "r"(in[7]));
    out[threadIdx.x] = c0 + c1 + c2 + c3;
#else
    out[threadIdx.x] = (float)in[0];
#endif
}
void launch_nvfp4(float* out, const unsigned* in) { nvfp4_gemm<<<1, 32>>>(out, in); }
