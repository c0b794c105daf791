//! The portable C dialect: what makes one kernel source compile as OpenCL C, CUDA C++ and HIP.
//!
//! A backend compiles [`opencl`] or [`hip`], the source with what goes before it, or [`CUDA`] and the
//! source; on CUDA and HIP with the kernel's [`entry_point`] behind it. The kernel is then found under its
//! [`entry_name`]. A source that [is strict](is_strict) is compiled so that no multiplication and addition
//! are contracted.
//! `docs/kernels.md` is the page for those who write kernels.
//!
//! The source declares each slice with `SLICE` or `LOCAL_SLICE`, which make two parameters of it:
//! an address, and the length in elements that `LEN` gives ([`slice_len`]). A launch passes both,
//! for every [`Buffer`](ParamKind::Buffer) and [`Local`](ParamKind::Local) parameter.
//!
//! CUDA and HIP launch whole work-groups and know no offset, so a kernel's entry point has
//! parameters there that the source does not see:
//!
//! - a [`Value`](ParamKind::Value) is passed as it is declared;
//! - a [`Buffer`](ParamKind::Buffer) becomes an address and a `u64`, the length in elements;
//! - a [`Local`](ParamKind::Local) becomes an `unsigned`, its offset in the launch's dynamic shared
//!   memory and a multiple of 16, and a `u64`, the length in elements;
//! - after the last parameter comes a struct of seven `u64`: [flags](LaunchFlags), the global
//!   offset and the global size.
//!
//! If the kernel was started early, the entry point waits for the kernel before it to end. It leaves out
//! the work-items beyond the global size.

use std::fmt::Write;
#[cfg(any(test, feature = "fake"))]
use std::sync::Arc;

use super::{KernelArg, Param, ParamKind};

/// Goes before a source that is compiled as OpenCL C 1.2 or later.
const OPENCL: &str = concat!(include_str!("opencl.h"), include_str!("half.h"), "#line 1\n");

/// Goes before a source that NVRTC compiles, with the [`cuda_options`].
pub const CUDA: &str = concat!(include_str!("cuda_hip.h"), include_str!("half.h"), "#line 1\n");

/// Goes before a source that hipRTC compiles, unless it is strict.
pub const HIP: &str = CUDA;

/// The source with what goes before it, for hipRTC.
pub fn hip(source: &str) -> String {
    let contract = match is_strict(source) {
        true => "#pragma clang fp contract(off)\n",
        false => "",
    };
    [contract, HIP, source].concat()
}

/// The source with what goes before it, as OpenCL C 1.2 or later: for an OpenCL driver or, for Level Zero,
/// Intel's offline compiler.
pub fn opencl(source: &str) -> String {
    let contract = match is_strict(source) {
        true => "#pragma OPENCL FP_CONTRACT OFF\n",
        false => "",
    };
    [contract, OPENCL, source].concat()
}

/// Options for NVRTC, which knows no pragma for it: a strict source has no fused multiply-adds but those
/// that it asks for.
pub fn cuda_options(source: &str) -> &'static [&'static str] {
    if is_strict(source) { &["--fmad=false"] } else { &[] }
}

/// Whether the source asks for the same bits on every device, by C's `#pragma STDC FP_CONTRACT OFF`. It holds
/// for all of the source.
pub fn is_strict(source: &str) -> bool {
    let words = ["pragma", "STDC", "FP_CONTRACT", "OFF"];
    without_comments(source).lines().any(|line| {
        // C allows blanks on both sides of the `#`.
        line.trim_start().strip_prefix('#').is_some_and(|line| line.split_whitespace().eq(words))
    })
}

bitflags::bitflags! {
    /// Properties of a launch on CUDA and HIP that the entry point or the body checks.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct LaunchFlags: u64 {
        /// The kernel may be started while the one before it still runs. CUDA only.
        const OVERLAPS = 1;
        /// Some work-items are beyond the range.
        const PARTIAL = 2;
        /// The range has an offset.
        const OFFSET = 4;
    }
}

/// The name of the kernel `name` of a source in the compiled program: with a prefix,
/// because there are functions of the same name in the languages. What the prelude declares has
/// another prefix.
pub fn entry_name(name: &str) -> String {
    format!("wg_k_{name}")
}

/// The length that a kernel in the dialect gets beside a slice's address, in elements; `None` for a
/// value, which has none.
pub fn slice_len(param: &Param, arg: &KernelArg) -> Option<u64> {
    let (ParamKind::Buffer { element_size, .. } | ParamKind::Local { element_size }) = param.kind else {
        return None;
    };
    let bytes = match arg {
        KernelArg::Value(_) => return None,
        KernelArg::Memory(view) => view.len(),
        KernelArg::Usm(pointer) => pointer.len(),
        KernelArg::Local(bytes) => *bytes,
    };
    Some((bytes / element_size.max(1)) as u64)
}

/// Whether the kernel `name` of a source has a barrier in its own body, so that its range needs
/// work-groups. Not found are barriers in the functions that it calls, and kernels that macros make.
pub fn has_barrier(source: &str, name: &str) -> bool {
    let code = without_comments(source);
    let bodies = code.split("KERNEL(").skip(1).filter_map(|rest| {
        let (kernel, rest) = rest.split_once(',')?;
        (kernel.trim() == name).then(|| body(rest))
    });
    bodies.into_iter().any(|body| body.contains("BARRIER("))
}

/// The text between the first brace and the one that belongs to it.
fn body(code: &str) -> &str {
    let mut depth = 0;
    let start = code.find('{').unwrap_or(code.len());
    let end = code[start..].find(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        depth == 0
    });
    &code[start..end.map_or(code.len(), |end| start + end)]
}

fn without_comments(source: &str) -> String {
    let (mut code, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(start) = rest.find('/') {
        let (before, comment) = rest.split_at(start);
        code += before;
        let end = match comment.as_bytes().get(1) {
            Some(b'/') => comment.find('\n'),
            Some(b'*') => comment[2..].find("*/").map(|end| end + 4),
            _ => {
                code.push('/');
                Some(1)
            }
        };
        rest = &comment[end.unwrap_or(comment.len())..];
    }
    code + rest
}

/// The text that follows a source on CUDA and HIP: the entry point of its kernel `name`, and assertions that
/// the source's parameters are those declared.
pub fn entry_point(name: &str, params: &[Param]) -> String {
    let (mut declared, mut passed, mut checks) = (String::new(), String::new(), String::new());
    // The body's own parameter 0 is the launch.
    let mut position = 1;
    for (index, param) in params.iter().enumerate() {
        let its_type = format!("typename wg_param<{position}, decltype(wg_body_{name})>::wg_type");
        checks += &assertions(name, index, param, &its_type);
        // A `String` takes every write.
        let _ = match param.kind {
            ParamKind::Value { .. } => {
                write!(declared, "{its_type} wg_p{index}, ").and_then(|()| write!(passed, ", wg_p{index}"))
            }
            ParamKind::Buffer { .. } => write!(declared, "{its_type} wg_p{index}, u64 wg_n{index}, ")
                .and_then(|()| write!(passed, ", wg_p{index}, wg_n{index}")),
            ParamKind::Local { .. } => write!(declared, "unsigned wg_p{index}, u64 wg_n{index}, ")
                .and_then(|()| write!(passed, ", ({its_type})(wg_shared + wg_p{index}), wg_n{index}")),
        };
        position += match param.kind {
            ParamKind::Value { .. } => 1,
            ParamKind::Buffer { .. } | ParamKind::Local { .. } => 2,
        };
    }
    let entry = entry_name(name);
    // The first line break may be escaped by the end of the source.
    format!(
        "\n\nstatic_assert(wg_count<decltype(wg_body_{name})>::wg_value == {position}, \
         \"kernel {name} has other parameters than it is declared with; \
         slices are SLICE and LOCAL_SLICE\");\n{checks}\
         extern \"C\" __global__ void {entry}({declared}const wg_launch wg_this) \
         {{ wg_begin(wg_this); if (wg_inside(wg_this)) wg_body_{name}(wg_this{passed}); }}\n"
    )
}

/// Assertions about the type of a parameter in a source for CUDA and HIP.
fn assertions(kernel: &str, index: usize, param: &Param, its_type: &str) -> String {
    // What goes into a string literal there.
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    let of: String = param.name.chars().filter(is_plain).collect();
    let of = format!("kernel {kernel}: parameter {index}, {of}, is declared ");
    let (why, bytes, in_source) = match param.kind {
        ParamKind::Value { size } => {
            (format!("as a value of {size} bytes"), size, format!("sizeof({its_type})"))
        }
        ParamKind::Buffer { element_size, .. } | ParamKind::Local { element_size } => (
            format!("with elements of {element_size} bytes"),
            element_size,
            format!("wg_elements<{its_type}>::wg_bytes"),
        ),
    };
    let help = match bytes {
        // Perhaps they are that in the source.
        16 | 32 => format!("; {VECTORS_OF_THREE}"),
        _ => String::new(),
    };
    // The compiler's error says what the instance's `wg_bytes` is: the bytes that the source has.
    let mut checks = format!(
        "template <u64 wg_bytes> struct wg_c_{kernel}_{index} {{ static_assert(wg_bytes == {bytes}, \
         \"{of}{why}, and has another size in the source{help}\"); }};\n\
         template struct wg_c_{kernel}_{index}<{in_source}>;\n"
    );
    if let ParamKind::Buffer { access, .. } = param.kind
        && !access.writes()
    {
        checks += &format!(
            "static_assert(!wg_elements<{its_type}>::wg_writable, \
             \"{of}read only, and can be written in the source: make it SLICE(const T, ..), or declare it \
             as written\");\n"
        );
    }
    checks
}

/// Advice on vectors of three, whose size differs between devices.
pub const VECTORS_OF_THREE: &str = "vectors of three take the room of four on OpenCL and \
    Level Zero, and of three on CUDA and HIP: use a struct of three numbers, or a slice of three times as many";

/// Tests that a compiler takes the dialect, and that its errors say how the parameters of a source differ
/// from those that are declared. `compile` compiles the kernel `k` of a source, which begins with `prelude`.
///
/// # Panics
/// Where one of this does not hold.
#[cfg(any(test, feature = "fake"))]
pub fn test_compiler(prelude: &str, compile: impl Fn(&str) -> crate::Result<Arc<[u8]>>) {
    use crate::{AccessMode, ErrorKind};
    let param = |name: &'static str, kind| Param { name: name.into(), kind };
    let params = [
        param("tile", ParamKind::Local { element_size: 2 }),
        param("x", ParamKind::Buffer { access: AccessMode::Read, element_size: 4, element_align: 4 }),
        param("a", ParamKind::Value { size: 4 }),
    ];
    let entry = entry_point("k", &params);
    let source = |declared: &str| {
        let body = "{ if (LEN(tile) && x[LEN(x) - 1] > a) tile[0] = 1; }";
        format!("{prelude}KERNEL(k, ({declared})) {body}{entry}")
    };
    let good = source("LOCAL_SLICE(u16, tile), SLICE(const float, x), float a");
    let first = compile(&good).expect("a good source");
    assert!(!first.is_empty());
    assert!(Arc::ptr_eq(&first, &compile(&good).expect("a good source")), "compiled once");
    for (declared, says) in [
        ("u16 *tile, SLICE(const float, x), float a", "slices are SLICE and LOCAL_SLICE"),
        ("LOCAL_SLICE(u32, tile), SLICE(const float, x), float a", "0, tile, is declared with elements of 2"),
        ("LOCAL_SLICE(u16, tile), SLICE(const double, x), float a", "1, x, is declared with elements of 4"),
        ("LOCAL_SLICE(u16, tile), SLICE(float, x), float a", "1, x, is declared read only"),
        ("LOCAL_SLICE(u16, tile), SLICE(const float, x), double a", "2, a, is declared as a value of 4"),
    ] {
        let error = compile(&source(declared)).expect_err("a mistake");
        assert_eq!(error.kind(), ErrorKind::Driver);
        assert!(error.to_string().contains(says), "{error}");
    }
    let error = compile(&good.replace("tile[0] = 1;", "nonsense;")).expect_err("a mistake");
    assert!(error.to_string().contains("nonsense"), "{error}");
    // The names of an entry point are its own, and the end of a source may escape a line break.
    let names = "#define type 1\n#define value 2\n#define p0 3\n#define n0 4\n#define wg 5\n";
    let taken = good.replace(prelude, &format!("{prelude}{names}"));
    assert!(!compile(&taken.replace(&entry, &format!(" // \\{entry}"))).expect("a good source").is_empty());
    assert_eq!(compile("\0").expect_err("a mistake").kind(), ErrorKind::InvalidArgument);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessMode;

    #[test]
    fn entry_points_pass_on_what_the_source_declares() {
        let param = |kind| Param { name: "p".into(), kind };
        let value = param(ParamKind::Value { size: 4 });
        let buffer =
            param(ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 });
        let local = param(ParamKind::Local { element_size: 4 });
        let text = entry_point("f", &[value, local, buffer]);
        assert!(
            text.starts_with("\n\nstatic_assert(wg_count<decltype(wg_body_f)>::wg_value == 6, "),
            "{text}"
        );
        let entry = "extern \"C\" __global__ void wg_k_f(typename wg_param<1, decltype(wg_body_f)>::wg_type \
             wg_p0, unsigned wg_p1, u64 wg_n1, typename wg_param<4, decltype(wg_body_f)>::wg_type wg_p2, u64 wg_n2, \
             const wg_launch wg_this) { wg_begin(wg_this); if (wg_inside(wg_this)) wg_body_f(wg_this, wg_p0, \
             (typename wg_param<2, decltype(wg_body_f)>::wg_type)(wg_shared + wg_p1), wg_n1, wg_p2, \
             wg_n2); }\n";
        assert!(text.ends_with(entry), "{text}");
        let none = entry_point("g", &[]);
        let entry = "extern \"C\" __global__ void wg_k_g(const wg_launch wg_this) \
             { wg_begin(wg_this); if (wg_inside(wg_this)) wg_body_g(wg_this); }\n";
        assert!(none.ends_with(entry), "{none}");
    }

    #[test]
    fn entry_points_assert_sizes_and_constness() {
        let kind = |access| ParamKind::Buffer { access, element_size: 8, element_align: 8 };
        let param = |name: &'static str, kind| Param { name: name.into(), kind };
        let params = [
            param("in\"\\\n", kind(AccessMode::Read)),
            param("out", kind(AccessMode::ReadWrite)),
            param("a", ParamKind::Value { size: 2 }),
        ];
        let text = entry_point("f", &params);
        for part in [
            "wg_bytes == 8, \"kernel f: parameter 0, in, is declared with elements of 8 bytes",
            "wg_bytes == 8, \"kernel f: parameter 1, out, is declared with elements of 8 bytes",
            "wg_bytes == 2, \"kernel f: parameter 2, a, is declared as a value of 2 bytes",
            "template struct wg_c_f_2<sizeof(typename wg_param<5, ",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(text.matches("is declared read only").count(), 1, "{text}");
    }

    #[test]
    fn a_source_says_that_it_is_strict() {
        let strict = "// A comment.\n  #pragma  STDC FP_CONTRACT OFF // for all kernels\nKERNEL(k, ()) { }";
        assert!(is_strict(strict) && !is_strict("// #pragma STDC FP_CONTRACT OFF\n"));
        assert!(!is_strict("#pragma STDC FP_CONTRACT ON\n"));
        assert!(is_strict(" # pragma STDC FP_CONTRACT OFF\r\n"));
        assert_eq!((cuda_options(strict), cuda_options("")), (&["--fmad=false"][..], &[][..]));
        assert!(opencl(strict).starts_with("#pragma OPENCL FP_CONTRACT OFF\n"));
        assert!(hip(strict).starts_with("#pragma clang fp contract(off)\n"));
        let other = "KERNEL(k, ()) { }";
        assert_eq!((opencl(other), hip(other)), ([OPENCL, other].concat(), [HIP, other].concat()));
    }

    #[test]
    fn barriers_are_found_in_the_bodies_of_kernels() {
        let source = "FUNCTION void wait() { BARRIER(); } // KERNEL(none, ()) { BARRIER(); }
            KERNEL(none, (u32 a)) { /* BARRIER(); */ a = 1 / a; // BARRIER(); }
            }
            KERNEL( one , (SLICE(u32, x))) { if (x) { x[0] = 1; } BARRIER(); }
            FUNCTION void wait_too() { BARRIER(); }
            KERNEL(last, (u32 a)) { ";
        let found = ["none", "one", "last", "on", "other"].map(|name| has_barrier(source, name));
        assert_eq!(found, [false, true, false, false, false]);
    }

    #[test]
    fn kernels_may_have_the_names_of_what_the_prelude_declares() {
        let prefix = entry_name("");
        for prelude in [CUDA, HIP] {
            let mut words = prelude.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            assert_eq!(words.find(|word| word.starts_with(&prefix)), None);
        }
    }

    #[test]
    fn lengths_are_in_elements() {
        let param = |kind| Param { name: "p".into(), kind };
        let local = param(ParamKind::Local { element_size: 2 });
        assert_eq!(slice_len(&local, &KernelArg::Local(10)), Some(5));
        let value = param(ParamKind::Value { size: 4 });
        assert_eq!(slice_len(&value, &KernelArg::Value([0; 4][..].into())), None);
    }

    #[test]
    fn sources_keep_their_line_numbers() {
        for prelude in [OPENCL, CUDA, HIP] {
            assert!(prelude.ends_with("\n#line 1\n"));
        }
    }
}
