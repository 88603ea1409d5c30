// Small device helpers that every kernel starts with: types, conversions, loads that bypass the first-level cache, copies
// in the background, tensor-core instructions and the two instructions of programmatic dependent launch.
// This text is put in front of each kernel file by the compiler module.
// Options: ELEMENT_F16 (1: elements, the 16-bit type of weights, keys, values and inputs of products, are IEEE half, else bf16).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef u16 element;

#ifndef ELEMENT_F16
#define ELEMENT_F16 0
#endif

static __device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

static __device__ __forceinline__ float to_float(element x) {
#if ELEMENT_F16
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
#else
    return __uint_as_float((u32)x << 16);
#endif
}

// Rounds to nearest, ties to even.
static __device__ __forceinline__ element to_element(float x) {
    element y;
#if ELEMENT_F16
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
#else
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
#endif
    return y;
}

// Two elements, `low` in the lower half.
static __device__ __forceinline__ u32 pack_elements(float low, float high) {
    u32 y;
#if ELEMENT_F16
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
#else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
#endif
    return y;
}

// Lets the next kernel of the stream start; it still has to wait for this one's results.
static __device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernels before this one have ended and their results can be seen.
static __device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// What another kernel wrote while this one's block was already there must not come from the first-level cache.
static __device__ __forceinline__ float load_fresh(const float* p) {
    float x;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ u32 load_fresh(const u32* p) {
    u32 x;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ float4 load_fresh(const float4* p) {
    float4 x;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ u64 load_fresh(const u64* p) {
    u64 x;
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    return x;
}

static __device__ __forceinline__ uint4 load_shared_16(u32 address) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(address) : "memory");
    return x;
}

// Copies 16 bytes into shared memory in the background; zeros where not `valid`.
static __device__ __forceinline__ void copy_async_16(u32 destination, const void* source, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(destination), "l"(source), "r"(valid ? 16 : 0) : "memory");
}

// The same for what is read once: it is the first to leave the second-level cache.
static __device__ __forceinline__ void copy_async_16_once(u32 destination, const void* source, bool valid, u64 policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;"
                 :: "r"(destination), "l"(source), "r"(valid ? 16 : 0), "l"(policy) : "memory");
}

static __device__ __forceinline__ u64 evict_first_policy() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

static __device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most PENDING of this thread's groups are still under way.
template <int PENDING>
static __device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}

// sums (16, 8) += a (16, 16) * b (16, 8).
static __device__ __forceinline__ void multiply_accumulate(
    float (&sums)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if ELEMENT_F16
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

static __device__ __forceinline__ float2 unpack_elements(u32 packed) {
    return make_float2(to_float((element)packed), to_float((element)(packed >> 16)));
}

// Loads four 8x8 matrices of elements; lane l gives the address of row l % 8 of matrix l / 8.
static __device__ __forceinline__ void load_matrices(u32 (&out)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(address) : "memory");
}

// The same, each matrix transposed.
static __device__ __forceinline__ void load_matrices_transposed(u32 (&out)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(address) : "memory");
}

static __device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// The order of logits as the order of numbers: larger for larger logits; 0 for NaN.
static __device__ __forceinline__ u32 ordered_bits(float x) {
    u32 bits = __float_as_uint(x);
    return x == x ? (bits >> 31 ? ~bits : bits | 0x80000000u) : 0u;
}

// 2 to the power of x; 0 for minus infinity.
static __device__ __forceinline__ float exponential2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
