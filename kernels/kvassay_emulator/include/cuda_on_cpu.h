// Runs the text of CUDA kernels on a CPU, for tests: every CUDA thread is a fiber, the warps of a block take turns, and
// blocks follow one another. It plays the thread model and not the time. What it knows, and what a kernel may use:
//
//   threadIdx, blockIdx, blockDim, gridDim; __syncthreads, __syncwarp; __shfl_sync and its kin, __ballot_sync, __any_sync;
//   atomicAdd, atomicMax, atomicMin on integers; SHARED and DYNAMIC_SHARED of common.cuh; uint2, uint4, int2, float4;
//   the conversions of half and bfloat16; a few intrinsics of arithmetic.
//
// A launch fails, with a message, where a barrier is not reached by all threads of a block, where lanes of one mask never
// meet or meet in different functions, where a lane calls with a mask without itself or names one that has returned, and
// where arguments do not have the kernel's sizes. Shared memory is NaN until it is written, and every array of it is a heap
// block of its own, so that AddressSanitizer sees its ends. Under ThreadSanitizer each CUDA thread is a TSan fiber; barriers
// order memory there and shuffles do not, as in CUDA.
#pragma once

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <math.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

#if defined(__SANITIZE_THREAD__)
extern "C" {
void* __tsan_create_fiber(unsigned);
void* __tsan_get_current_fiber();
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#define UNSEEN __attribute__((noinline, no_sanitize("thread")))
#else
#define UNSEEN __attribute__((noinline))
#endif

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
struct __align__(8) uint2 {
    unsigned x, y;
};
struct __align__(8) int2 {
    int x, y;
};
struct __align__(16) uint4 {
    unsigned x, y, z, w;
};
struct __align__(16) float4 {
    float x, y, z, w;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulator {

constexpr int LANES = 32;
constexpr size_t STACK_BYTES = 64 << 10;
constexpr size_t STATIC_SHARED_BYTES = 48 << 10;  // what a kernel may declare

enum class At : uint8_t { Ready, Warp, Block, End };
enum class Op : uint8_t { Shuffle, Vote, Barrier };

struct Fiber {
    jmp_buf registers;
    ucontext_t context;
    char* stack = nullptr;
    void* sanitizer = nullptr;
    uint3 index;
    At at;
    Op op;
    bool started;
    int lane, warp;
    unsigned mask;
    uint64_t given;  // to the function of the warp in which the lane waits
};

struct Warp {
    uint64_t taken[LANES];  // what the lanes of the last meeting gave
    char order;             // ThreadSanitizer's handle of __syncwarp
};

struct Array {
    int site;
    void* memory;
    size_t bytes;
};

inline Fiber* now = nullptr;  // the fiber that runs
inline std::vector<Fiber> fibers;
inline std::vector<Warp> warps;
inline std::vector<Array> arrays;  // shared memory of the block that runs
inline void* dynamic_memory = nullptr;
inline dim3 grid, block;
inline uint3 block_index;
inline int threads, schedule;
inline jmp_buf scheduler_registers;
inline ucontext_t scheduler_context;
inline void* scheduler_sanitizer = nullptr;
inline char order_of_ends, order_of_barriers, order_of_arrays;
inline const char* fault = nullptr;
inline void (*body)(void*);
inline void* body_argument;

#if defined(__SANITIZE_THREAD__)
inline void acquire(void* handle) { __tsan_acquire(handle); }
inline void release(void* handle) { __tsan_release(handle); }
#else
inline void acquire(void*) {}
inline void release(void*) {}
#endif

// --- fibers: with jumps, or with contexts where a sanitizer has to follow ------------------------------------------------

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
UNSEEN void to_scheduler() {
    Fiber* self = now;
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(scheduler_sanitizer, 1);  // 1: no order between the two
#endif
    swapcontext(&self->context, &scheduler_context);
}
UNSEEN void to_fiber(Fiber* fiber) {
#if defined(__SANITIZE_THREAD__)
    scheduler_sanitizer = __tsan_get_current_fiber();
    if (!fiber->sanitizer) fiber->sanitizer = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(fiber->sanitizer, 1);
#endif
    swapcontext(&scheduler_context, &fiber->context);
}
#else
UNSEEN void to_scheduler() {
    if (!_setjmp(now->registers)) _longjmp(scheduler_registers, 1);
}
UNSEEN void to_fiber(Fiber* fiber) {
    if (_setjmp(scheduler_registers)) return;
    if (fiber->started) _longjmp(fiber->registers, 1);
    fiber->started = true;
    setcontext(&fiber->context);
}
#endif

UNSEEN void begin() {
    acquire(&order_of_ends);
    body(body_argument);
    release(&order_of_ends);
    now->at = At::End;
    to_scheduler();
}

UNSEEN void fail(const char* message) {  // never returns to the fiber that calls it
    if (!fault) fault = message;
    now->at = At::End;
    to_scheduler();
}

UNSEEN void prepare(Fiber& fiber, int i) {
    if (!fiber.stack) {
        void* fresh = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fiber.stack = static_cast<char*>(fresh);
    }
    fiber.at = At::Ready;
    fiber.started = false;
    fiber.lane = i % LANES;
    fiber.warp = i / LANES;
    fiber.index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = STACK_BYTES - (i % 60) * 64;  // so that stacks do not share the sets of a cache
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, begin, 0);
}

// --- the order of a block ------------------------------------------------------------------------------------------------

UNSEEN int turn(int k, int n) {  // whose turn is the k-th: forward, backward, or by strides
    if (schedule == 0) return k;
    if (schedule == 1) return n - 1 - k;
    return n % 7 ? (k * 7 + schedule) % n : (k + schedule) % n;
}

UNSEEN void run_fiber(Fiber* fiber) {
    now = fiber;
    to_fiber(fiber);
}

// Lets the lanes of one mask go that have all come to the same function; whether any lane may run.
UNSEEN bool meet(Fiber* lanes, int count, Warp& warp) {
    bool free = false;
    for (int i = 0; i < count; ++i) {
        if (lanes[i].at != At::Warp) continue;
        const unsigned mask = lanes[i].mask;
        bool all = true;
        for (int j = 0; j < LANES; ++j) {
            if (!(mask >> j & 1)) continue;
            if (j >= count || lanes[j].at == At::End) {
                fault = "a warp function names a lane that has returned or does not exist";
                return false;
            }
            all = all && lanes[j].at == At::Warp && lanes[j].mask == mask;
        }
        if (!all) continue;
        for (int j = 0; j < count; ++j) {
            if (!(mask >> j & 1)) continue;
            if (lanes[j].op != lanes[i].op) {
                fault = "lanes of one mask meet in different warp functions";
                return false;
            }
        }
        for (int j = 0; j < count; ++j) {
            if (!(mask >> j & 1)) continue;
            warp.taken[j] = lanes[j].given;
            lanes[j].at = At::Ready;
        }
        free = true;
    }
    return free;
}

UNSEEN void run_warp(int w) {  // until every lane waits for the block or has returned
    Fiber* lanes = &fibers[w * LANES];
    const int count = threads - w * LANES < LANES ? threads - w * LANES : LANES;
    for (;;) {
        for (int k = 0; k < count; ++k) {
            Fiber* fiber = &lanes[turn(k, count)];
            if (fiber->at == At::Ready) run_fiber(fiber);
            if (fault) return;
        }
        bool waiting = false;
        for (int i = 0; i < count; ++i) waiting = waiting || lanes[i].at == At::Warp;
        if (!waiting) return;
        if (!meet(lanes, count, warps[w])) {
            if (!fault) fault = "lanes of a mask never meet";
            return;
        }
    }
}

UNSEEN void run_block() {
    release(&order_of_ends);
    for (int i = 0; i < threads; ++i) prepare(fibers[i], i);
    const int count = (threads + LANES - 1) / LANES;
    while (!fault) {
        for (int k = 0; k < count && !fault; ++k) run_warp(turn(k, count));
        int waiting = 0;
        for (int i = 0; i < threads; ++i) waiting += fibers[i].at == At::Block;
        if (!waiting) break;
        if (waiting < threads && !fault) fault = "__syncthreads is not reached by every thread of the block";
        for (int i = 0; i < threads; ++i) fibers[i].at = At::Ready;
    }
    acquire(&order_of_ends);
    for (Array& array : arrays) free(array.memory);
    arrays.clear();
}

UNSEEN void* allocate(size_t bytes) {  // every bit set: not a number as a float, and no legal index
    void* memory = aligned_alloc(16, bytes + 15 & ~size_t(15));
    memset(memory, 0xff, bytes);
    return memory;
}

UNSEEN void* shared(int site, size_t bytes) {
    acquire(&order_of_arrays);
    for (Array& array : arrays) {
        if (array.site == site) return array.memory;
    }
    size_t total = bytes;
    for (Array& array : arrays) total += array.bytes;
    if (total > STATIC_SHARED_BYTES) fail("a block declares more than 48 KiB of shared memory");
    void* memory = allocate(bytes);
    arrays.push_back({site, memory, bytes});
    release(&order_of_arrays);
    return memory;
}

// --- what kernels call ---------------------------------------------------------------------------------------------------

UNSEEN void wait_for_warp(unsigned mask, Op op, uint64_t given) {
    if (!(mask >> now->lane & 1)) fail("a lane calls with a mask that does not hold it");
    now->mask = mask;
    now->op = op;
    now->given = given;
    now->at = At::Warp;
    to_scheduler();
}

template <class T>
UNSEEN T exchange(unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "shuffles take up to eight bytes");
    uint64_t given = 0;
    __builtin_memcpy(&given, &value, sizeof(T));
    wait_for_warp(mask, Op::Shuffle, given);
    __builtin_memcpy(&value, &warps[now->warp].taken[source], sizeof(T));
    return value;
}

template <class... A>
struct Call {
    void (*kernel)(A...);
    void** arguments;
};

template <class... A, size_t... I>
void call(const Call<A...>* what, std::index_sequence<I...>) {
    what->kernel(*static_cast<std::remove_cv_t<A>*>(what->arguments[I])...);
}

template <class... A>
void call_any(void* what) {
    call(static_cast<const Call<A...>*>(what), std::index_sequence_for<A...>{});
}

template <class... A>
const char* launch(void (*kernel)(A...), const unsigned* shape, size_t dynamic_bytes, void** arguments,
                   const size_t* sizes, int count, int order) {
    constexpr size_t wanted[] = {sizeof(A)...};
    static char message[96];
    fault = nullptr;
    if (count != int(sizeof...(A))) {
        snprintf(message, sizeof message, "%d arguments, the kernel takes %d", count, int(sizeof...(A)));
        return message;
    }
    for (int i = 0; i < count; ++i) {
        if (sizes[i] == wanted[i]) continue;
        snprintf(message, sizeof message, "argument %d has %zu bytes, the kernel takes %zu", i, sizes[i], wanted[i]);
        return message;
    }
    grid = {shape[0], shape[1], shape[2]};
    block = {shape[3], shape[4], shape[5]};
    threads = block.x * block.y * block.z;
    schedule = order;
    if (threads < 1 || threads > 1024) return "a block has 1 to 1024 threads";
    if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535) return "no legal grid";
    Call<A...> what{kernel, arguments};
    body = call_any<A...>;
    body_argument = &what;
    fibers.resize(threads > int(fibers.size()) ? threads : fibers.size());
    warps.resize((fibers.size() + LANES - 1) / LANES);
    for (unsigned z = 0; z < grid.z; ++z) {
        for (unsigned y = 0; y < grid.y; ++y) {
            for (unsigned x = 0; x < grid.x && !fault; ++x) {
                block_index = {x, y, z};
                dynamic_memory = dynamic_bytes ? allocate(dynamic_bytes) : nullptr;
                run_block();
                free(dynamic_memory);
            }
        }
    }
    if (fault) {  // stacks of fibers that never ended hold what sanitizers marked
        for (Fiber& fiber : fibers) {
            if (fiber.stack) munmap(fiber.stack, STACK_BYTES);
            fiber.stack = nullptr;
        }
    }
    return fault;
}

}  // namespace emulator

#define threadIdx (emulator::now->index)
#define blockIdx (emulator::block_index)
#define blockDim (emulator::block)
#define gridDim (emulator::grid)

#define SHARED(type, name, count) \
    type* const name = static_cast<type*>(emulator::shared(__COUNTER__, sizeof(type) * (count)))
#define DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(emulator::dynamic_memory)

#define EMULATED_KERNEL(NAME)                                                                                      \
    extern "C" __attribute__((visibility("default"))) const char* NAME##__launch(const unsigned* shape, size_t dynamic_bytes, void** arguments,           \
                                          const size_t* sizes, int count, int order) {                             \
        return emulator::launch(&NAME, shape, dynamic_bytes, arguments, sizes, count, order);                      \
    }

inline void __syncthreads() {
    emulator::release(&emulator::order_of_barriers);
    emulator::now->at = emulator::At::Block;
    emulator::to_scheduler();
    emulator::acquire(&emulator::order_of_barriers);
}
inline void __syncwarp(unsigned mask = ~0u) {
    void* handle = &emulator::warps[emulator::now->warp].order;
    emulator::release(handle);
    emulator::wait_for_warp(mask, emulator::Op::Barrier, 0);
    emulator::acquire(handle);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    const int lane = emulator::now->lane;
    return emulator::exchange(mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32) {
    const int lane = emulator::now->lane, source = lane ^ other;
    return emulator::exchange(mask, value, source / width > lane / width ? lane : source);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int by, int width = 32) {
    const int lane = emulator::now->lane;
    return emulator::exchange(mask, value, lane % width >= by ? lane - by : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int by, int width = 32) {
    const int lane = emulator::now->lane;
    return emulator::exchange(mask, value, lane % width + by < width ? lane + by : lane);
}
UNSEEN inline unsigned __ballot_sync(unsigned mask, int vote) {
    emulator::wait_for_warp(mask, emulator::Op::Vote, vote != 0);
    unsigned votes = 0;
    for (int i = 0; i < emulator::LANES; ++i) {
        if (mask >> i & 1) votes |= unsigned(emulator::warps[emulator::now->warp].taken[i] & 1) << i;
    }
    return votes;
}
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) == mask; }

template <class T>
T __ldg(const T* from) {
    return *from;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
template <class To, class From>
To emulated_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits of equal number");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
inline float __uint_as_float(unsigned x) { return emulated_cast<float>(x); }
inline float __int_as_float(int x) { return emulated_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return emulated_cast<unsigned>(x); }
inline float __expf(float x) { return std::exp(x); }

// Blocks follow one another, so an atomic operation need not be one; a sanitizer is told that it is.
#define EMULATED_ATOMIC(NAME, NEXT)                                                                 \
    template <class T>                                                                              \
    T NAME(T* at, T value) {                                                                        \
        T old = __atomic_load_n(at, __ATOMIC_RELAXED);                                              \
        while (!__atomic_compare_exchange_n(at, &old, T(NEXT), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
        }                                                                                           \
        return old;                                                                                 \
    }
EMULATED_ATOMIC(atomicAdd, old + value)
EMULATED_ATOMIC(atomicMax, old > value ? old : value)
EMULATED_ATOMIC(atomicMin, old < value ? old : value)
