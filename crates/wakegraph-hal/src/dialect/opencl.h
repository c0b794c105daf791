// wakegraph's portable C dialect, for OpenCL C 1.2 and later, on OpenCL and Level Zero.
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

typedef char i8;
typedef uchar u8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;

// With a prefix, because a kernel may be called as one of the language's own functions.
#define KERNEL(name, params) __kernel void wg_k_##name params
#define FUNCTION static
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_ARRAY __local
#define CONSTANT __constant

#define WG_AS_BITS(x) as_uint(x)
#define WG_AS_FLOAT(x) as_float(x)

// A slice: its address, and its length in elements in a parameter of its own.
#define SLICE(type, name) __global type *name, u64 wg_len_##name
#define LOCAL_SLICE(type, name) __local type *name, u64 wg_len_##name
#define LEN(name) (wg_len_##name)

#define GLOBAL_ID(d) get_global_id(d)
#define GLOBAL_SIZE(d) get_global_size(d)
#define GLOBAL_OFFSET(d) get_global_offset(d)
#define LOCAL_ID(d) get_local_id(d)
#define LOCAL_SIZE(d) get_local_size(d)
#define GROUP_ID(d) get_group_id(d)

#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define ATOMIC_ADD(pointer, value) atomic_add(pointer, value)
