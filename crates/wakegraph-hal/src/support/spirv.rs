//! Reads SPIR-V modules without a compiler: checks whether a module's frame is whole, and finds the
//! parameters of its kernels.
//!
//! Intel's compilers end the process on a broken or truncated module, because they read beyond its
//! end, or accept one that is cut off, with no kernels in it. So this module checks the frame first:
//! the header, complete instructions, complete functions, existing entry points. The driver checks
//! what is inside.

use std::collections::HashMap;

use crate::{Error, ErrorKind};

/// The first word of a module, in the byte order of all others.
const MAGIC: u32 = 0x0723_0203;

/// Words before the first instruction.
const HEADER: usize = 5;

// Opcodes, as in the specification.
const STRING: u32 = 7;
const ENTRY_POINT: u32 = 15;
const TYPE_INT: u32 = 21;
const TYPE_FLOAT: u32 = 22;
const TYPE_VECTOR: u32 = 23;
const TYPE_POINTER: u32 = 32;
const TYPE_FUNCTION: u32 = 33;
const FUNCTION: u32 = 54;
const FUNCTION_END: u32 = 56;

// Storage classes of pointers.
const CONSTANT: u32 = 0;
const LOCAL: u32 = 4;
const GLOBAL: u32 = 5;

/// The words of a module in the host's byte order.
fn words(bytes: &[u8]) -> Result<Vec<u32>, &'static str> {
    let (words, rest) = bytes.as_chunks::<4>();
    let Some((magic, _)) = words.split_first().filter(|_| words.len() >= HEADER && rest.is_empty()) else {
        return Err("its length is not that of a module");
    };
    let read = match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
        (MAGIC, _) => u32::from_le_bytes,
        (_, MAGIC) => u32::from_be_bytes,
        _ => return Err("it does not begin as a module does"),
    };
    Ok(words.iter().map(|word| read(*word)).collect())
}

/// The instructions of a module's words, each with its opcode and its operands. One that is cut off
/// is the last.
fn instructions(words: &[u32]) -> impl Iterator<Item = Result<(u32, &[u32]), &'static str>> {
    let mut rest = words.get(HEADER..).unwrap_or_default();
    std::iter::from_fn(move || {
        let &first = rest.first()?;
        let len = (first >> 16) as usize;
        let Some((instruction, behind)) = rest.split_at_checked(len).filter(|_| len > 0) else {
            rest = &[];
            return Some(Err("an instruction is cut off"));
        };
        rest = behind;
        Some(Ok((first & 0xffff, &instruction[1..])))
    })
}

/// The remedy for a module that a driver refuses.
pub const VALIDATE: &str = "check the module with `spirv-val`; it has to be for OpenCL, in a version \
                                   that the device takes, and to use only what the device has";

/// The error for bytes that are no module for the driver.
pub fn no_module(
    bytes: &[u8],
    kernel: &str,
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    let what = format!("kernel '{kernel}': its {} bytes are no SPIR-V module", bytes.len());
    Error::new(ErrorKind::Driver, what).help(VALIDATE).caused_by(why)
}

/// The fault in the frame of the module, if there is one.
pub fn fault(bytes: &[u8]) -> Option<&'static str> {
    check(bytes).err()
}

fn check(bytes: &[u8]) -> Result<(), &'static str> {
    let words = words(bytes)?;
    let (mut entries, mut functions) = (Vec::<u32>::new(), Vec::<u32>::new());
    let mut inside = false;
    for instruction in instructions(&words) {
        let (opcode, operands) = instruction?;
        match (opcode, inside) {
            (ENTRY_POINT, _) => entries.extend(operands.get(1)),
            (FUNCTION, false) => {
                functions.extend(operands.get(1));
                inside = true;
            }
            (FUNCTION_END, true) => inside = false,
            (FUNCTION, true) | (FUNCTION_END, false) => {
                return Err("its functions do not end where they should");
            }
            _ => {}
        }
    }
    match entries.is_empty() {
        _ if inside => Err("a function is cut off"),
        true => Err("it has no entry point"),
        false if entries.iter().any(|entry| !functions.contains(entry)) => {
            Err("the function of an entry point is missing")
        }
        false => Ok(()),
    }
}

/// A parameter of a kernel in a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpirvParam {
    /// A number or a vector of numbers of this many bytes.
    Value(usize),
    /// A pointer to global or constant memory.
    Buffer,
    /// A pointer to local memory.
    Local,
    /// Something else, such as a structure or an image.
    Other,
}

/// The parameters of the kernel of this name, if the module has it.
pub fn params(bytes: &[u8], kernel: &str) -> Option<Vec<SpirvParam>> {
    let words = words(bytes).ok()?;
    let mut types = HashMap::<u32, SpirvParam>::new();
    let mut signatures = HashMap::<u32, &[u32]>::new();
    let mut entry = None;
    for instruction in instructions(&words) {
        match instruction.ok()? {
            (ENTRY_POINT, [_, function, name @ ..]) if is_text(name, kernel) => entry = Some(*function),
            (TYPE_INT | TYPE_FLOAT, [id, width, ..]) => {
                types.insert(*id, SpirvParam::Value(*width as usize / 8));
            }
            (TYPE_VECTOR, [id, component, count]) => {
                if let Some(SpirvParam::Value(size)) = types.get(component) {
                    // A vector of three takes as much room as one of four.
                    let count = if *count == 3 { 4 } else { *count as usize };
                    types.insert(*id, SpirvParam::Value(size.saturating_mul(count)));
                }
            }
            (TYPE_POINTER, [id, GLOBAL | CONSTANT, ..]) => {
                types.insert(*id, SpirvParam::Buffer);
            }
            (TYPE_POINTER, [id, LOCAL, ..]) => {
                types.insert(*id, SpirvParam::Local);
            }
            (TYPE_FUNCTION, [id, _, params @ ..]) => {
                signatures.insert(*id, params);
            }
            (FUNCTION, [_, id, _, signature]) if Some(*id) == entry => {
                let params = signatures.get(signature)?.iter();
                let known = |param| types.get(param).copied().unwrap_or(SpirvParam::Other);
                return Some(params.map(known).collect());
            }
            _ => {}
        }
    }
    None
}

/// The types of the parameters of the kernel of this name as its source in OpenCL C names them, each with
/// its qualifiers, if the compiler has written them down as texts in the module.
pub fn source_types(bytes: &[u8], kernel: &str) -> Option<Vec<(String, String)>> {
    let words = words(bytes).ok()?;
    let find = |what: &str| {
        let start = format!("{what}.{kernel}.");
        instructions(&words).find_map(|instruction| match instruction.ok()? {
            (STRING, [_, text @ ..]) => text_of(text).strip_prefix(&start).map(str::to_owned),
            _ => None,
        })
    };
    // There is a comma behind each.
    let (types, qualifiers) = (find("kernel_arg_type")?, find("kernel_arg_type_qual")?);
    let (types, qualifiers) = (types.strip_suffix(',')?.split(','), qualifiers.strip_suffix(',')?.split(','));
    let is_complete = types.clone().count() == qualifiers.clone().count();
    let pairs = types.zip(qualifiers).map(|(name, qualifier)| (name.to_owned(), qualifier.to_owned()));
    is_complete.then(|| pairs.collect())
}

/// The text in these words, which ends in NUL.
fn text_of(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    String::from_utf8_lossy(&bytes.take_while(|&byte| byte != 0).collect::<Vec<_>>()).into_owned()
}

/// Whether these words begin with the text, which ends in NUL.
fn is_text(words: &[u32], text: &str) -> bool {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.take_while(|&byte| byte != 0).eq(text.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(instructions: &[&[u32]]) -> Vec<u8> {
        let header = [MAGIC, 0x0001_0000, 0, 10, 0];
        header
            .iter()
            .chain(instructions.iter().copied().flatten())
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    fn op(opcode: u32, len: u32) -> u32 {
        len << 16 | opcode
    }

    #[test]
    fn frames() {
        let entry: &[u32] = &[op(ENTRY_POINT, 4), 6, 7, 0x61];
        let function: &[u32] = &[op(FUNCTION, 5), 1, 7, 0, 2];
        let end: &[u32] = &[op(FUNCTION_END, 1)];
        let whole = bytes(&[entry, function, end]);
        assert_eq!(fault(&whole), None);
        let swapped: Vec<u8> = whole.chunks(4).flat_map(|word| word.iter().rev().copied()).collect();
        assert_eq!(fault(&swapped), None);
        for len in 0..whole.len() {
            assert!(fault(&whole[..len]).is_some(), "cut off after {len} bytes");
        }
        for wrong in [
            bytes(&[&[0], entry, function, end]),
            bytes(&[entry, end, function]),
            bytes(&[entry, function, function, end, end]),
            bytes(&[&[op(ENTRY_POINT, 4), 6, 8, 0x61], function, end]),
            bytes(&[function, end]),
            b"#version 450\nvoid main() {}".to_vec(),
        ] {
            assert!(fault(&wrong).is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn kernels_have_the_parameters_of_their_functions() {
        let module = bytes(&[
            &[op(ENTRY_POINT, 4), 6, 20, u32::from_le_bytes(*b"k12\0")],
            &[op(TYPE_INT, 4), 1, 32, 0],
            &[op(TYPE_FLOAT, 3), 2, 64],
            &[op(TYPE_VECTOR, 4), 3, 1, 3],
            &[op(TYPE_POINTER, 4), 4, GLOBAL, 1],
            &[op(TYPE_POINTER, 4), 5, LOCAL, 1],
            &[op(TYPE_POINTER, 4), 6, 7, 1],
            &[op(TYPE_FUNCTION, 9), 10, 9, 4, 1, 2, 3, 5, 6],
            &[op(FUNCTION, 5), 9, 20, 0, 10],
            &[op(FUNCTION_END, 1)],
        ]);
        let expected = [
            SpirvParam::Buffer,
            SpirvParam::Value(4),
            SpirvParam::Value(8),
            SpirvParam::Value(16),
            SpirvParam::Local,
            SpirvParam::Other,
        ];
        assert_eq!(params(&module, "k12").as_deref(), Some(&expected[..]));
        assert_eq!(params(&module, "k1"), None);
        let vector = |id| [op(TYPE_VECTOR, 4), id, id - 1, u32::MAX];
        let vectors = [vector(2), vector(3), vector(4)];
        let absurd = bytes(&[
            &[op(ENTRY_POINT, 4), 6, 20, u32::from_le_bytes(*b"k12\0")],
            &[op(TYPE_INT, 4), 1, u32::MAX, 0],
            vectors.as_flattened(),
            &[op(TYPE_FUNCTION, 4), 10, 9, 4],
            &[op(FUNCTION, 5), 9, 20, 0, 10],
            &[op(FUNCTION_END, 1)],
        ]);
        assert_eq!(
            params(&absurd, "k12"),
            Some(vec![SpirvParam::Value(usize::MAX)]),
            "no vector is so large"
        );
        assert_eq!(params(&module[..40], "k12"), None);
    }

    #[test]
    fn sources_types_are_read_from_texts() {
        let string = |text: &str| {
            let mut padded = text.as_bytes().to_vec();
            padded.resize(text.len() / 4 * 4 + 4, 0);
            let text: Vec<u32> =
                padded.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            [vec![op(STRING, text.len() as u32 + 2), 9], text].concat()
        };
        let module = bytes(&[
            &string("kernel_arg_type.k1.float*,"),
            &string("kernel_arg_type.k.struct S*,u64,"),
            &string("kernel_arg_type_qual.k.const,,"),
        ]);
        let pair = |name: &str, qualifier: &str| (name.to_owned(), qualifier.to_owned());
        assert_eq!(source_types(&module, "k"), Some(vec![pair("struct S*", "const"), pair("u64", "")]));
        assert_eq!(source_types(&module, "k1"), None, "without qualifiers");
    }
}
