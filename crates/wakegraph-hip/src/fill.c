// Repeats a pattern over memory, a byte at a time.
KERNEL(wakegraph_fill, (SLICE(u8, memory), SLICE(const u8, pattern))) {
    for (u64 i = GLOBAL_ID(0); i < LEN(memory); i += GLOBAL_SIZE(0))
        memory[i] = pattern[i % LEN(pattern)];
}
