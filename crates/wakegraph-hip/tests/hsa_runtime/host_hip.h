// HIP's words on a CPU: a thread runs one work-group at a time. Its work-items run one after the other, on one stack, until one
// comes to a barrier; from then on each has a stack of its own.
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

struct wakegraph_dim { unsigned x, y, z; };
static thread_local wakegraph_dim threadIdx, blockIdx, blockDim, gridDim;
#define __device__
#define __global__ __attribute__((visibility("default")))
#define __host__
#define __constant__
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

// What a packet says of a launch; the grid is in work-items.
struct wakegraph_launch { unsigned grid[3], group[3], group_bytes; const char *arguments; };

// Saves what a call preserves on the stack, keeps the stack's address, and goes on with another.
extern "C" void wakegraph_switch(void **from, void *to);
asm(".text\n.hidden wakegraph_switch\n.globl wakegraph_switch\nwakegraph_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

// A stack, and the work-item that waits on it.
struct wakegraph_fiber { char *memory; void *stack; bool waits; };

struct wakegraph_group {
    std::vector<wakegraph_fiber *> all;
    wakegraph_fiber *current;
    void *scheduler;
    unsigned next, count;
    void (*call)(const char *);
    const char *arguments;
};
static thread_local wakegraph_group wakegraph_now;

static inline void wakegraph_yield(bool waits) {
    wakegraph_now.current->waits = waits;
    wakegraph_switch(&wakegraph_now.current->stack, wakegraph_now.scheduler);
}

static inline void __syncthreads() {
    wakegraph_dim item = threadIdx;
    wakegraph_yield(true);
    threadIdx = item;
}

// Takes work-items until there are none, for one work-group after the other.
extern "C" __attribute__((visibility("hidden"), used)) inline void wakegraph_work() {
    for (;;) {
        while (wakegraph_now.next < wakegraph_now.count) {
            unsigned item = wakegraph_now.next++;
            threadIdx.x = item % blockDim.x;
            threadIdx.y = item / blockDim.x % blockDim.y;
            threadIdx.z = item / blockDim.x / blockDim.y;
            wakegraph_now.call(wakegraph_now.arguments);
        }
        wakegraph_yield(false);
    }
}

static inline wakegraph_fiber *wakegraph_new_fiber() {
    const size_t bytes = 65536;
    auto *fiber = new wakegraph_fiber{(char *)aligned_alloc(64, bytes), nullptr, false};
    // Six registers, where to go, and room that keeps the stack aligned as after a call.
    void **top = (void **)(fiber->memory + bytes) - 2;
    top[0] = (void *)wakegraph_work;
    top[1] = nullptr;
    fiber->stack = top - 6;
    return fiber;
}

static inline void wakegraph_resume(wakegraph_fiber *fiber) {
    wakegraph_now.current = fiber;
    wakegraph_switch(&wakegraph_now.scheduler, fiber->stack);
}

static inline void wakegraph_run_group() {
    auto &all = wakegraph_now.all;
    size_t used = 0;
    while (wakegraph_now.next < wakegraph_now.count) {
        if (used == all.size()) all.push_back(wakegraph_new_fiber());
        wakegraph_resume(all[used++]);
    }
    for (bool waits = true; waits;) {
        waits = false;
        for (size_t i = 0; i < used; i++)
            if (all[i]->waits) wakegraph_resume(all[i]), waits |= all[i]->waits;
    }
}

static inline void wakegraph_run(const wakegraph_launch *launch, void (*call)(const char *)) {
    const unsigned *grid = launch->grid, *group = launch->group;
    gridDim = {(grid[0] + group[0] - 1) / group[0], (grid[1] + group[1] - 1) / group[1], (grid[2] + group[2] - 1) / group[2]};
    blockDim = {group[0], group[1], group[2]};
    wakegraph_now.call = call;
    wakegraph_now.arguments = launch->arguments;
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = {x, y, z};
                wakegraph_now.next = 0;
                wakegraph_now.count = group[0] * group[1] * group[2];
                wakegraph_run_group();
            }
}

// A kernel's arguments, out of the segment: each at the next multiple of its alignment.
template <class T>
static inline std::remove_const_t<T> wakegraph_take(const char *segment, size_t &at) {
    at = (at + alignof(T) - 1) & ~(alignof(T) - 1);
    std::remove_const_t<T> value;
    std::memcpy((void *)&value, segment + at, sizeof value);
    at += sizeof value;
    return value;
}
template <class... A>
static inline void wakegraph_call(void (*kernel)(A...), const char *segment) {
    size_t at = 0;
    std::tuple<std::remove_const_t<A>...> all{wakegraph_take<A>(segment, at)...};
    std::apply(kernel, all);
}
#define WAKEGRAPH_KERNEL(run, kernel) \
    extern "C" __attribute__((visibility("default"))) void run(const wakegraph_launch *launch) { \
        wakegraph_run(launch, [](const char *segment) { wakegraph_call(kernel, segment); }); \
    }

template <class T, class V>
static inline T atomicAdd(T *p, V v) {
    if constexpr (std::is_integral_v<T>) return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
    T old, sum;
    __atomic_load(p, &old, __ATOMIC_SEQ_CST);
    do sum = old + v;
    while (!__atomic_compare_exchange(p, &old, &sum, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
template <class T, class V>
static inline T atomicAdd_system(T *p, V v) { return atomicAdd(p, v); }
static inline unsigned __float_as_uint(float x) { unsigned y; std::memcpy(&y, &x, sizeof y); return y; }
static inline float __uint_as_float(unsigned x) { float y; std::memcpy(&y, &x, sizeof y); return y; }
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
// The clock of the GPU, in nanoseconds, as the runtime says of its frequency.
#include <ctime>
static inline long long wall_clock64() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }
