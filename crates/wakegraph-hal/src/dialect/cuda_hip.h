// wakegraph's portable C dialect, for CUDA C++ and HIP.
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

// Launches of CUDA and HIP have no offset, and their work-groups are always whole: so each is told its range.
struct wg_launch {
    // What most kernels read comes first: words further back are in another line of the cache.
    u64 flags;
    u64 offset[3];
    u64 size[3];
};

// The kernel may be started while the one before it still runs. CUDA only.
#define WG_OVERLAPS 1
// Some work-items are beyond the range.
#define WG_PARTIAL 2
// The range has an offset.
#define WG_OFFSET 4

// A kernel's body is a function of its own. Its entry point, generated from the declared parameters, calls it for the
// work-items inside the range.
#define KERNEL(name, params) static __device__ __forceinline__ void wg_body_##name WG_PARAMS params
#define WG_PARAMS(...) (const wg_launch &wg_this, ##__VA_ARGS__)
#define FUNCTION static __device__
#define GLOBAL
#define LOCAL
#define LOCAL_ARRAY __shared__
#define CONSTANT static __constant__

#define WG_AS_BITS(x) __float_as_uint(x)
#define WG_AS_FLOAT(x) __uint_as_float(x)

// A slice: its address, and its length in elements in a parameter of its own.
#define SLICE(type, name) type *name, u64 wg_len_##name
#define LOCAL_SLICE(type, name) type *name, u64 wg_len_##name
#define LEN(name) (wg_len_##name)

#define GLOBAL_ID(d) (wg_index(d) + GLOBAL_OFFSET(d))
#define GLOBAL_SIZE(d) (wg_this.size[d])
#define GLOBAL_OFFSET(d) (wg_this.flags & WG_OFFSET ? wg_this.offset[d] : 0)
#define LOCAL_ID(d) wg_dimension(threadIdx, d)
#define LOCAL_SIZE(d) wg_dimension(blockDim, d)
#define GROUP_ID(d) wg_dimension(blockIdx, d)

#define BARRIER() __syncthreads()
#define ATOMIC_ADD(pointer, value) atomicAdd(pointer, value)

template <class V>
static __device__ __forceinline__ u64 wg_dimension(const V &v, int d) {
    return d == 0 ? (unsigned)v.x : d == 1 ? (unsigned)v.y : (unsigned)v.z;
}

static __device__ __forceinline__ u64 wg_index(int d) {
    return wg_dimension(blockIdx, d) * wg_dimension(blockDim, d) + wg_dimension(threadIdx, d);
}

// Lets the kernel behind this one be started, and waits for the end of the one before.
static __device__ __forceinline__ void wg_begin(const wg_launch &launch) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (launch.flags & WG_OVERLAPS) asm volatile("griddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ bool wg_inside(const wg_launch &launch) {
    return !(launch.flags & WG_PARTIAL) ||
           (wg_index(0) < launch.size[0] && wg_index(1) < launch.size[1] && wg_index(2) < launch.size[2]);
}

// The type of a function's parameter `I`. The entry point uses names that no macro of a source has.
template <int I, class F>
struct wg_param;
template <class A, class... B>
struct wg_param<0, void(A, B...)> {
    typedef A wg_type;
};
template <int I, class A, class... B>
struct wg_param<I, void(A, B...)> : wg_param<I - 1, void(B...)> {};

// How many parameters a function has.
template <class F>
struct wg_count;
template <class... A>
struct wg_count<void(A...)> {
    static const int wg_value = sizeof...(A);
};

// The elements of a slice: the bytes of each, and whether they can be written. Other parameters have none.
template <class P>
struct wg_elements {
    static const u64 wg_bytes = 0;
    static const bool wg_writable = false;
};
template <class E>
struct wg_elements<E *> {
    static const u64 wg_bytes = sizeof(E);
    static const bool wg_writable = true;
};
template <class E>
struct wg_elements<const E *> {
    static const u64 wg_bytes = sizeof(E);
    static const bool wg_writable = false;
};

// Where the local memory of a work-group begins.
extern __shared__ __align__(16) unsigned char wg_shared[];
