// Helpers that every kernel may use: number types without headers, dependent launch, reductions. This text is put in
// front of each kernel file by the compiler module; nothing here is compiled unless a kernel uses it.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// Compute capability times ten of the architecture compiled for: 80, 90, 120.
#define ARCHITECTURE (__CUDA_ARCH__ / 10)

// Programmatic dependent launch: waits until all that the kernel before wrote can be seen. Before compute capability 9.0
// a kernel starts only then.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start as soon as every block has come here or has ended.
__device__ __forceinline__ void launch_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
