//! What a SPIR-V module says of its kernels: their names, and what each parameter takes. The OpenCL runtime
//! does not tell.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::misuse::misuse;

/// What an argument of a kernel is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parameter {
    /// The address of memory.
    Pointer,
    /// Memory of the group.
    Local,
    Value {
        size: usize,
    },
}

enum Type {
    Scalar(usize),
    Vector(u32, usize),
    Array(u32, u32),
    Struct(Vec<u32>),
    Pointer(u32, u32),
}

#[derive(Default)]
struct Types {
    all: HashMap<u32, Type>,
    constants: HashMap<u32, usize>,
    packed: HashSet<u32>,
    by_value: HashSet<u32>,
}

const MAGIC: u32 = 0x0723_0203;
const HEADER: usize = 5;

// Storage classes.
const UNIFORM_CONSTANT: u32 = 0;
const WORKGROUP: u32 = 4;
const CROSS_WORKGROUP: u32 = 5;
const FUNCTION_CLASS: u32 = 7;

/// The kernels of a module. There are none in one that has been cut off, as Intel's compiler has it; one that
/// it does not survive ends the process.
pub(crate) fn kernels(module: &[u8]) -> BTreeMap<String, Vec<Parameter>> {
    let words: Vec<u32> = module.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
    if words.len() < HEADER || words[0] != MAGIC {
        misuse!("the module does not begin as SPIR-V does");
    }
    let mut types = Types::default();
    let mut entries = Vec::<(u32, String)>::new();
    let mut functions = HashMap::<u32, Vec<(u32, u32)>>::new();
    let (mut function, mut is_open) = (0, false);
    let mut at = HEADER;
    while at < words.len() {
        let (count, opcode) = (words[at] as usize >> 16, words[at] & 0xffff);
        let Some(operands) = words.get(at + 1..at + count).filter(|_| count > 0) else {
            misuse!("an instruction of the module reaches behind its end")
        };
        at += count;
        match (opcode, operands) {
            (15, [_, function, name @ ..]) => entries.push((*function, text(name))),
            (20, [id]) => drop(types.all.insert(*id, Type::Scalar(1))),
            (21 | 22, [id, bits, ..]) => drop(types.all.insert(*id, Type::Scalar(*bits as usize / 8))),
            (23, [id, of, count]) => drop(types.all.insert(*id, Type::Vector(*of, *count as usize))),
            (28, [id, of, count]) => drop(types.all.insert(*id, Type::Array(*of, *count))),
            (30, [id, members @ ..]) => drop(types.all.insert(*id, Type::Struct(members.to_vec()))),
            (32, [id, class, of]) => drop(types.all.insert(*id, Type::Pointer(*class, *of))),
            (43, [_, id, value, ..]) => drop(types.constants.insert(*id, *value as usize)),
            (54, [_, id, ..]) => {
                (function, is_open) = (*id, true);
                functions.insert(function, Vec::new());
            }
            (55, [of, id]) => functions.get_mut(&function).unwrap().push((*of, *id)),
            (56, []) => is_open = false,
            (71, [id, 10]) => drop(types.packed.insert(*id)),
            (71, [id, 38, 2]) => drop(types.by_value.insert(*id)),
            _ => {}
        }
    }
    if is_open {
        return BTreeMap::new();
    }
    let kernel = |(function, name): (u32, String)| {
        let parameters = functions.get(&function)?.iter();
        Some((name, parameters.map(|(of, id)| types.parameter(*of, *id)).collect()))
    };
    entries.into_iter().filter_map(kernel).collect()
}

/// Text with a NUL behind it, in words.
fn text(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

impl Types {
    fn parameter(&self, of: u32, id: u32) -> Parameter {
        match self.all.get(&of) {
            Some(Type::Pointer(WORKGROUP, _)) => Parameter::Local,
            Some(Type::Pointer(FUNCTION_CLASS, to)) if self.by_value.contains(&id) => {
                Parameter::Value { size: self.layout(*to).0 }
            }
            Some(Type::Pointer(CROSS_WORKGROUP | UNIFORM_CONSTANT, _)) => Parameter::Pointer,
            _ => Parameter::Value { size: self.layout(of).0 },
        }
    }

    /// Size and alignment.
    fn layout(&self, of: u32) -> (usize, usize) {
        match self.all.get(&of) {
            Some(Type::Scalar(size)) => (*size, *size),
            Some(Type::Vector(of, count)) => {
                let size = self.layout(*of).0 * count.next_power_of_two();
                (size, size)
            }
            Some(Type::Array(of, count)) => {
                let (size, alignment) = self.layout(*of);
                (size * self.constants.get(count).copied().unwrap_or(0), alignment)
            }
            Some(Type::Struct(members)) => {
                let is_packed = self.packed.contains(&of);
                let (mut size, mut alignment) = (0usize, 1);
                for member in members {
                    let (member, wants) = self.layout(*member);
                    let wants = if is_packed { 1 } else { wants };
                    (size, alignment) = (size.next_multiple_of(wants) + member, alignment.max(wants));
                }
                (size.next_multiple_of(alignment), alignment)
            }
            Some(Type::Pointer(..)) => (8, 8),
            None => misuse!("a parameter has a type that this driver does not know"),
        }
    }
}
