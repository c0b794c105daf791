//! A SPIR-V module, put together word by word.

/// A module in the making: words behind its header.
#[derive(Default)]
struct Module(Vec<u32>);

/// What names a result in the module.
type Id = u32;

// Opcodes, as in section 3 of the SPIR-V specification.
const MEMORY_MODEL: u32 = 14;
const ENTRY_POINT: u32 = 15;
const CAPABILITY: u32 = 17;
const TYPE_VOID: u32 = 19;
const TYPE_INT: u32 = 21;
const TYPE_VECTOR: u32 = 23;
const TYPE_POINTER: u32 = 32;
const TYPE_FUNCTION: u32 = 33;
const FUNCTION: u32 = 54;
const FUNCTION_PARAMETER: u32 = 55;
const FUNCTION_END: u32 = 56;
const VARIABLE: u32 = 59;
const LOAD: u32 = 61;
const STORE: u32 = 62;
const IN_BOUNDS_PTR_ACCESS_CHAIN: u32 = 70;
const DECORATE: u32 = 71;
const COMPOSITE_EXTRACT: u32 = 81;
const I_ADD: u32 = 128;
const LABEL: u32 = 248;
const RETURN: u32 = 253;

// Operands.
const INPUT: u32 = 1;
const CROSS_WORKGROUP: u32 = 5;
const ALIGNED: u32 = 2;

impl Module {
    fn op(&mut self, opcode: u32, operands: &[u32]) {
        self.0.push((operands.len() as u32 + 1) << 16 | opcode);
        self.0.extend(operands);
    }

    /// The module's bytes; ids are below `bound`.
    fn finish(self, bound: Id) -> Vec<u8> {
        const MAGIC: u32 = 0x0723_0203;
        const VERSION_1_0: u32 = 0x0001_0000;
        let header = [MAGIC, VERSION_1_0, 0, bound, 0];
        header.into_iter().chain(self.0).flat_map(u32::to_le_bytes).collect()
    }
}

/// The text as words, with the NUL that ends it.
fn text(text: &str) -> Vec<u32> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len() / 4 * 4 + 4, 0);
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// `kernel void add(uint n, global uint *x) { x[get_global_id(0)] += n; }` for devices with
/// addresses of 64 bits.
pub(crate) fn add() -> Vec<u8> {
    let [void, u32_type, u64_type, indices_type, indices_pointer, x_type, signature]: [Id; 7] =
        std::array::from_fn(|i| 1 + i as u32);
    let [indices, kernel, n, x, label, all, index, element, before, after]: [Id; 10] =
        std::array::from_fn(|i| 8 + i as u32);
    let mut module = Module::default();
    const ADDRESSES: u32 = 4;
    const KERNEL: u32 = 6;
    const INT64: u32 = 11;
    for capability in [ADDRESSES, KERNEL, INT64] {
        module.op(CAPABILITY, &[capability]);
    }
    let (physical64, opencl) = (2, 2);
    module.op(MEMORY_MODEL, &[physical64, opencl]);
    module.op(ENTRY_POINT, &[&[KERNEL, kernel], &text("add")[..], &[indices]].concat());
    let (built_in, global_invocation_id, constant) = (11, 28, 22);
    module.op(DECORATE, &[indices, built_in, global_invocation_id]);
    module.op(DECORATE, &[indices, constant]);
    module.op(TYPE_VOID, &[void]);
    module.op(TYPE_INT, &[u32_type, 32, 0]);
    module.op(TYPE_INT, &[u64_type, 64, 0]);
    module.op(TYPE_VECTOR, &[indices_type, u64_type, 3]);
    module.op(TYPE_POINTER, &[indices_pointer, INPUT, indices_type]);
    module.op(TYPE_POINTER, &[x_type, CROSS_WORKGROUP, u32_type]);
    module.op(TYPE_FUNCTION, &[signature, void, u32_type, x_type]);
    module.op(VARIABLE, &[indices_pointer, indices, INPUT]);
    let no_control = 0;
    module.op(FUNCTION, &[void, kernel, no_control, signature]);
    module.op(FUNCTION_PARAMETER, &[u32_type, n]);
    module.op(FUNCTION_PARAMETER, &[x_type, x]);
    module.op(LABEL, &[label]);
    module.op(LOAD, &[indices_type, all, indices, ALIGNED, 32]);
    module.op(COMPOSITE_EXTRACT, &[u64_type, index, all, 0]);
    module.op(IN_BOUNDS_PTR_ACCESS_CHAIN, &[x_type, element, x, index]);
    module.op(LOAD, &[u32_type, before, element, ALIGNED, 4]);
    module.op(I_ADD, &[u32_type, after, before, n]);
    module.op(STORE, &[element, after, ALIGNED, 4]);
    module.op(RETURN, &[]);
    module.op(FUNCTION_END, &[]);
    module.finish(after + 1)
}
