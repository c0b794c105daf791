use super::*;
use crate::{Advice, Body, Pitch, Rect};

const ARGUMENT: ErrorKind = ErrorKind::InvalidArgument;
const SIZE: ErrorKind = ErrorKind::InvalidSize;

/// 2 rows of 4 bytes in 2 slices; its end under `PITCH` is 0 + 16 + 8 + 4 = 28.
const RECT: Rect = Rect { width: 4, height: 2, depth: 2 };
const PITCH: Pitch = Pitch { offset: 0, row: 8, slice: 16 };

fn valid_commands(this: &Fixture) -> Vec<Command> {
    let (device, other, host) = (this.memory(64), this.memory(64), this.host_memory(64));
    let (src, dst, rect) = (device.clone(), other.clone(), RECT);
    let pattern: smallvec::SmallVec<[u8; 16]> = [1, 2, 3, 4].as_slice().into();
    vec![
        Command::Kernel(Arc::new(this.saxpy())),
        Command::UsmCopy { src: usm(64, 8), dst: usm(72, 16), len: 8 },
        Command::UsmFill { dst: usm(64, 8), pattern: pattern.clone() },
        Command::BufferCopy { src: part(&device, 0, 32), dst: part(&device, 32, 32) },
        Command::BufferCopyRect { src: src.clone(), dst, rect, src_pitch: PITCH, dst_pitch: PITCH },
        Command::BufferRead { src: src.clone(), host: host.clone() },
        Command::BufferReadRect { src, host: host.clone(), rect, src_pitch: PITCH, host_pitch: PITCH },
        Command::BufferWrite { host: host.clone(), dst: device.clone() },
        Command::BufferWriteRect { host, dst: device, rect, host_pitch: PITCH, dst_pitch: PITCH },
        Command::BufferFill { dst: other, pattern },
        Command::UsmPrefetch { memory: usm(64, 8) },
        Command::UsmAdvise { memory: usm(64, 8), advice: Advice::ReadMostly },
        Command::Empty,
    ]
}

#[test]
fn valid_commands_reach_the_backend_unchanged() {
    let this = Fixture::new();
    let mut buffer = this.buffer();
    for command in &valid_commands(&this) {
        buffer.append(command, &[]).unwrap();
        assert_eq!(this.heard(), [format!("append {command:?} after []")]);
        enqueue(&this.queue(), command, &[], &this.event()).unwrap();
        assert_eq!(this.heard(), [format!("queue {command:?} after 0 events, token None")]);
    }
}

#[test]
fn views_are_those_of_the_operands() {
    let this = Fixture::new();
    let mut commands = valid_commands(&this);
    let body = Arc::new(Body::new());
    commands.push(Command::While { condition: this.memory(4), body });
    let counts: Vec<usize> = commands.iter().map(|command| command.views().count()).collect();
    assert_eq!(counts, [2, 0, 0, 2, 2, 2, 2, 2, 2, 1, 0, 0, 0, 1]);
    let place = |view: &MemoryView| (view.memory().resource(), view.offset());
    for command in &mut commands {
        let places: Vec<_> = command.views().map(place).collect();
        assert_eq!(command.views_mut().map(|view| place(view)).collect::<Vec<_>>(), places, "{command:?}");
    }
}

#[test]
fn memory_lives_on_the_side_that_the_operand_names() {
    let this = Fixture::new();
    let (device, host) = (this.memory(64), this.host_memory(64));
    let (d, h) = (|| device.clone(), || host.clone());
    let (rect, src_pitch, dst_pitch, host_pitch) = (RECT, PITCH, PITCH, PITCH);
    let pattern = || [0].as_slice().into();
    let not_device = |what: &str, name: &str| {
        format!("{what}: '{name}' (bytes 0..64 of 64) is host memory, not device memory")
    };
    let not_host = |what: &str, name: &str| {
        format!("{what}: '{name}' (bytes 0..64 of 64) is device memory, not host memory")
    };
    let read_rect = |src, host| Command::BufferReadRect { src, host, rect, src_pitch, host_pitch };
    let write_rect = |host, dst| Command::BufferWriteRect { host, dst, rect, host_pitch, dst_pitch };
    let copy_rect = |src, dst| Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch };
    for (command, message) in [
        (Command::BufferCopy { src: h(), dst: d() }, not_device("buffer copy", "src")),
        (Command::BufferCopy { src: d(), dst: h() }, not_device("buffer copy", "dst")),
        (copy_rect(h(), d()), not_device("rectangular buffer copy", "src")),
        (copy_rect(d(), h()), not_device("rectangular buffer copy", "dst")),
        (Command::BufferRead { src: h(), host: h() }, not_device("buffer read", "src")),
        (Command::BufferRead { src: d(), host: d() }, not_host("buffer read", "host")),
        (read_rect(h(), h()), not_device("rectangular buffer read", "src")),
        (read_rect(d(), d()), not_host("rectangular buffer read", "host")),
        (Command::BufferWrite { host: d(), dst: d() }, not_host("buffer write", "host")),
        (Command::BufferWrite { host: h(), dst: h() }, not_device("buffer write", "dst")),
        (write_rect(d(), d()), not_host("rectangular buffer write", "host")),
        (write_rect(h(), h()), not_device("rectangular buffer write", "dst")),
        (Command::BufferFill { dst: h(), pattern: pattern() }, not_device("buffer fill", "dst")),
    ] {
        this.refuses(&command, ARGUMENT, &message);
    }
}

#[test]
fn memory_is_accessible_from_the_device() {
    let (this, other) = (Fixture::new(), Fixture::new());
    let foreign = part(&other.memory(64), 8, 32);
    let ours = &this.device.info().selector;
    let command = Command::BufferCopy { src: this.memory(32), dst: foreign.clone() };
    let message = format!(
        "buffer copy: 'dst' (bytes 8..40 of 64) is memory of another device, and cannot be accessed from {ours}"
    );
    this.refuses(&command, ARGUMENT, &message);
    let help = this.run(&command).unwrap_err().to_string();
    assert!(help.ends_with("allocate it on this device, or copy it there through host memory"), "{help}");

    let mut launch = this.saxpy();
    launch.args[1] = KernelArg::Memory(foreign);
    let message = format!(
        "kernel 'saxpy': 'x' (bytes 8..40 of 64) is memory of another device, and cannot be accessed from {ours}"
    );
    this.refuses_launch(launch, ARGUMENT, &message);
}

#[test]
fn lengths_match() {
    let this = Fixture::new();
    let (src, host) = (this.memory(64), this.host_memory(32));
    let dst = this.memory(32);
    for (command, message) in [
        (Command::BufferCopy { src: src.clone(), dst }, "buffer copy: 'src' has 64 bytes, 'dst' has 32"),
        (
            Command::BufferRead { src: src.clone(), host: host.clone() },
            "buffer read: 'src' has 64 bytes, 'host' has 32",
        ),
        (Command::BufferWrite { host, dst: src }, "buffer write: 'host' has 32 bytes, 'dst' has 64"),
    ] {
        this.refuses(&command, SIZE, message);
    }
}

#[test]
fn copies_do_not_overlap() {
    let this = Fixture::new();
    let memory = this.memory(64);
    let copy = |from, to| Command::BufferCopy { src: part(&memory, from, 16), dst: part(&memory, to, 16) };
    let message =
        "buffer copy: 'src' and 'dst' overlap: bytes 8..24 of an allocation and bytes 0..16 of an allocation";
    this.refuses(&copy(8, 0), ARGUMENT, message);
    this.run(&copy(0, 16)).unwrap();

    let copy = |from, to, len| Command::UsmCopy { src: usm(from, 32), dst: usm(to, 32), len };
    let message = "USM copy: 'src' and 'dst' overlap: addresses 0x100..0x110 and addresses 0x10f..0x11f";
    this.refuses(&copy(0x100, 0x10f, 16), ARGUMENT, message);
    this.run(&copy(0x100, 0x110, 16)).unwrap();
}

#[test]
fn pointers_hold_what_is_asked_of_them() {
    let this = Fixture::new();
    let copy = |src, dst, len| Command::UsmCopy { src, dst, len };
    let fill = |dst| Command::UsmFill { dst, pattern: [0].as_slice().into() };
    let beyond = usm(usize::MAX - 3, 8);
    let beyond_message =
        format!("USM fill: 'dst': 8 bytes at {:#x} end beyond the address space", usize::MAX - 3);
    for (command, kind, message) in [
        (copy(usm(64, 8), usm(128, 8), 0), SIZE, "USM copy: 0 bytes to copy"),
        (copy(usm(64, 8), usm(128, 9), 9), SIZE, "USM copy: 9 bytes to copy, 'src' has 8"),
        (copy(usm(64, 9), usm(128, 8), 9), SIZE, "USM copy: 9 bytes to copy, 'dst' has 8"),
        (copy(usm(0, 8), usm(128, 8), 8), ARGUMENT, "USM copy: 'src' is a null pointer"),
        (copy(usm(64, 8), usm(0, 8), 8), ARGUMENT, "USM copy: 'dst' is a null pointer"),
        (fill(usm(64, 0)), SIZE, "USM fill: 'dst' has 0 bytes"),
        (fill(usm(0, 8)), ARGUMENT, "USM fill: 'dst' is a null pointer"),
        (fill(beyond), SIZE, &*beyond_message),
        (Command::UsmPrefetch { memory: usm(64, 0) }, SIZE, "prefetch: 'memory' has 0 bytes"),
        (
            Command::UsmAdvise { memory: usm(0, 8), advice: Advice::Default },
            ARGUMENT,
            "memory advice: 'memory' is a null pointer",
        ),
    ] {
        this.refuses(&command, kind, message);
    }
}

#[test]
fn patterns_divide_what_they_fill() {
    let this = Fixture::new();
    let memory = this.memory(64);
    let buffer = |pattern: &[u8]| Command::BufferFill { dst: part(&memory, 0, 20), pattern: pattern.into() };
    let pointer = |pattern: &[u8]| Command::UsmFill { dst: usm(64, 20), pattern: pattern.into() };
    for (command, what) in [(&buffer as &dyn Fn(&[u8]) -> Command, "buffer fill"), (&pointer, "USM fill")] {
        this.refuses(&command(&[]), SIZE, &format!("{what}: 'pattern' has 0 bytes"));
        for size in [3, 21, 40] {
            let message = format!("{what}: 'pattern' of {size} bytes does not divide 'dst' of 20 bytes");
            this.refuses(&command(&vec![0; size]), SIZE, &message);
        }
        for size in [1, 4, 5, 20] {
            this.run(&command(&vec![0; size])).unwrap();
        }
    }
}

#[test]
fn rectangles_fit_their_views() {
    let this = Fixture::new();
    let (device, host) = (this.memory(64), this.host_memory(64));
    let short = part(&device, 8, 27);
    for (rect, pitch, why) in [
        (RECT, PITCH, "the rectangle ends at byte 28 of 27, 1 too far"),
        (RECT, Pitch { row: 3, ..PITCH }, "the row pitch of 3 bytes is less than a row's 4"),
        (RECT, Pitch { slice: 11, ..PITCH }, "the slice pitch of 11 bytes is less than a slice's 12"),
        (
            RECT,
            Pitch { row: 5, slice: 11, ..PITCH },
            "the slice pitch of 11 bytes is not a multiple of the row pitch of 5",
        ),
        (RECT, Pitch { offset: usize::MAX, ..PITCH }, "the rectangle's end does not fit into usize"),
        (Rect { height: 0, ..RECT }, PITCH, "the rectangle has a dimension of size 0"),
    ] {
        let why = format!("{why}: {rect}, {pitch}");
        let (src, dst) = (|| short.clone(), || short.clone());
        let (small, large) = (Rect { width: 1, height: 1, depth: 1 }, PITCH);
        let read = |rect, src_pitch, host_pitch| Command::BufferReadRect {
            src: src(),
            host: host.clone(),
            rect,
            src_pitch,
            host_pitch,
        };
        let message = format!("rectangular buffer read: 'src': {why}");
        this.refuses(&read(rect, pitch, PITCH), SIZE, &message);
        this.run(&read(small, large, large)).unwrap();

        let message = format!("rectangular buffer copy: 'src': {why}");
        let copy =
            Command::BufferCopyRect { src: src(), dst: dst(), rect, src_pitch: pitch, dst_pitch: PITCH };
        this.refuses(&copy, SIZE, &message);

        let message = format!("rectangular buffer write: 'host': {why}");
        let short = part(&host, 8, 27);
        let dst = device.clone();
        let write = Command::BufferWriteRect { host: short, dst, rect, host_pitch: pitch, dst_pitch: PITCH };
        this.refuses(&write, SIZE, &message);
    }
}

#[test]
fn the_second_rectangle_is_checked_like_the_first() {
    let this = Fixture::new();
    let (device, host) = (this.memory(64), this.host_memory(64));
    let (rect, far) = (RECT, Pitch { offset: 40, ..PITCH });
    let why = format!("the rectangle ends at byte 68 of 64, 4 too far: {RECT}, {far}");
    let (src, dst) = (device.clone(), this.memory(64));
    let copy = Command::BufferCopyRect { src, dst, rect, src_pitch: PITCH, dst_pitch: far };
    this.refuses(&copy, SIZE, &format!("rectangular buffer copy: 'dst': {why}"));
    let (src, to) = (device.clone(), host.clone());
    let read = Command::BufferReadRect { src, host: to, rect, src_pitch: PITCH, host_pitch: far };
    this.refuses(&read, SIZE, &format!("rectangular buffer read: 'host': {why}"));
    let write = Command::BufferWriteRect { host, dst: device, rect, host_pitch: PITCH, dst_pitch: far };
    this.refuses(&write, SIZE, &format!("rectangular buffer write: 'dst': {why}"));
}

#[test]
fn rectangles_of_one_memory_do_not_overlap() {
    let this = Fixture::new();
    let memory = this.memory(64);
    let copy = |dst: MemoryView, offset| Command::BufferCopyRect {
        src: memory.clone(),
        dst,
        rect: RECT,
        src_pitch: PITCH,
        dst_pitch: Pitch { offset, ..PITCH },
    };
    let message = "rectangular buffer copy: the rectangles of 'src' and 'dst' overlap: \
                   bytes 0..28, a row every 8, a slice every 16 and \
                   bytes 5..33, a row every 8, a slice every 16 of the same memory";
    // The view starts 2 bytes into the memory, the rectangle 3 bytes into the view.
    this.refuses(&copy(part(&memory, 2, 62), 3), ARGUMENT, message);
    // Rows of 4 bytes every 8 leave room for the other rectangle's.
    this.run(&copy(memory.clone(), 4)).unwrap();
    this.run(&copy(this.memory(64), 3)).unwrap();
}
