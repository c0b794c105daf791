//! Checks whether bytes can be a SPIR-V module at all.
//!
//! Intel's runtime ends the process on a truncated module, because it reads beyond the end. So this
//! module checks the frame first: the header, complete instructions, complete functions, existing entry
//! points. The driver checks what is inside.

/// The first word of a module, in the byte order of all others.
const MAGIC: u32 = 0x0723_0203;

/// Words before the first instruction.
const HEADER: usize = 5;

// Opcodes, as in the specification.
const ENTRY_POINT: u32 = 15;
const FUNCTION: u32 = 54;
const FUNCTION_END: u32 = 56;

/// The fault in the frame of the module, if there is one.
pub(super) fn fault(bytes: &[u8]) -> Option<&'static str> {
    let (words, rest) = bytes.as_chunks::<4>();
    let Some((magic, _)) = words.split_first().filter(|_| words.len() >= HEADER && rest.is_empty()) else {
        return Some("its length is not that of a module");
    };
    let read = match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
        (MAGIC, _) => u32::from_le_bytes,
        (_, MAGIC) => u32::from_be_bytes,
        _ => return Some("it does not begin as a module does"),
    };
    let words: Vec<u32> = words.iter().map(|word| read(*word)).collect();
    let (mut entries, mut functions) = (Vec::<u32>::new(), Vec::<u32>::new());
    let mut inside = false;
    let mut rest = &words[HEADER..];
    while let Some(&first) = rest.first() {
        let len = (first >> 16) as usize;
        let Some((instruction, behind)) = rest.split_at_checked(len).filter(|_| len > 0) else {
            return Some("an instruction is cut off");
        };
        match (first & 0xffff, inside) {
            (ENTRY_POINT, _) => entries.extend(instruction.get(2)),
            (FUNCTION, false) => {
                functions.extend(instruction.get(2));
                inside = true;
            }
            (FUNCTION_END, true) => inside = false,
            (FUNCTION, true) | (FUNCTION_END, false) => {
                return Some("its functions do not end where they should");
            }
            _ => {}
        }
        rest = behind;
    }
    match entries.is_empty() {
        _ if inside => Some("a function is cut off"),
        true => Some("it has no entry point"),
        false if entries.iter().any(|entry| !functions.contains(entry)) => {
            Some("the function of an entry point is missing")
        }
        false => None,
    }
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
}
