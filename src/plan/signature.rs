//! Pass 5, first half: computes the signature of every node.
//!
//! A *cut node* is a host task, a stream task, or a node whose result crosses to another device. With `p`
//! over the predecessors of `n`,
//!
//! ```text
//!   S(n) = union of S(p), and of {p} where the edge p -> n is cut
//! ```
//!
//! An edge is cut when `p` is a host task or a stream task, or when both are commands of devices and these
//! differ. (Into a host task or stream task only such tasks count: each is a partition of its own whatever
//! its signature says.)
//!
//! # Sets that need not be built
//!
//! A signature that contains a cut node `c` contains `S(c)` too. So the smallest one with `c` in it
//! is `S(c) + {c}`, and in a chain there is no other. It is named by `c` alone, and its
//! [set](super::hash_consed_sets) is made only when a union with something else needs it. Names stay exact: a
//! union that equals `S(c) + {c}` has `c` in one operand, that operand then is `S(c) + {c}`
//! already, and a union that equals an operand is given that operand's name.
//!
//! # Cost
//!
//! A union costs what its operands do not share, in blocks of 64 cut nodes. Chains, fans, diamonds
//! and graphs with local edges share nearly everything, and graphs with few cut nodes have small
//! sets. What is left are graphs with edges between any two ends *and* cuts nearly everywhere:
//! there the signatures themselves grow with about the square root of the graph, and so does the
//! time for each. [`Fewest`](super::PartitionPolicy::Fewest) has no sets at all.

use super::csr::Csr;
use super::hash_consed_sets::{EMPTY_SET, HashConsedSets, SetId};
use super::placement::{HOST, device_place, is_alone};

/// A signature. Equal if and only if the sets are: either a set's id, or [`PRINCIPAL`] and a cut
/// node's number.
type Signature = u32;

const PRINCIPAL: u32 = 1 << 31;
const NONE: u32 = u32::MAX;

/// The signature of every device node as a small number below `bound`.
pub(super) struct Signatures {
    /// The signature of each position; meaningless for host tasks and stream tasks.
    pub(super) of: Vec<u32>,
    pub(super) bound: usize,
}

/// The signatures `S(n)` of all positions: the cut nodes before each.
pub(super) fn ancestors(preds: &Csr, places: &[u32]) -> Signatures {
    let mut cuts = Cuts::new();
    // The signature that a position passes on along edges that a change of device does not cut.
    let mut out: Vec<Signature> = Vec::with_capacity(places.len());
    // Other cut nodes than those tasks get their numbers when the first edge out of them turns out to be cut.
    let several_devices = places.iter().any(|&place| device_place(place) > 1);
    let mut numbers = if several_devices { vec![NONE; places.len()] } else { Vec::new() };
    for (position, preds) in preds.iter().enumerate() {
        let place = places[position];
        let mut signature = EMPTY_SET;
        for &pred in preds {
            let mut part = out[pred as usize];
            if several_devices && is_device_change(places[pred as usize], place) {
                let number = &mut numbers[pred as usize];
                if *number == NONE {
                    *number = cuts.add(part);
                }
                part = PRINCIPAL | *number;
            }
            signature = cuts.union(signature, part);
        }
        out.push(if is_alone(place) { PRINCIPAL | cuts.add(signature) } else { signature });
    }
    cuts.into_dense(out)
}

/// The mirror image for host tasks only: the host tasks after every position.
pub(super) fn descendants(preds: &Csr, places: &[u32]) -> Signatures {
    let mut cuts = Cuts::new();
    let mut signatures = vec![EMPTY_SET; places.len()];
    for (position, preds) in preds.iter().enumerate().rev() {
        let mut part = signatures[position];
        if places[position] == HOST {
            part = PRINCIPAL | cuts.add(part);
        }
        for &pred in preds {
            let signature = &mut signatures[pred as usize];
            *signature = cuts.union(*signature, part);
        }
    }
    cuts.into_dense(signatures)
}

/// Whether an edge between these places, neither of a host task nor of a stream task, leads from one device
/// to another.
pub(super) fn is_device_change(from: u32, to: u32) -> bool {
    from != to && !is_alone(from) && !is_alone(to)
}

/// The cut nodes and their signatures.
struct Cuts {
    sets: HashConsedSets,
    nodes: Vec<Cut>,
    pending: Vec<u32>,
}

/// A cut node.
struct Cut {
    /// `S(c)`.
    below: Signature,
    /// The set `S(c) + {c}`, or `NONE`.
    made: SetId,
}

impl Cuts {
    fn new() -> Self {
        Self { sets: HashConsedSets::new(), nodes: Vec::new(), pending: Vec::new() }
    }

    /// Numbers a cut node with this signature.
    fn add(&mut self, signature: Signature) -> u32 {
        self.nodes.push(Cut { below: signature, made: NONE });
        self.nodes.len() as u32 - 1
    }

    /// Names principal signatures by numbers after those of all sets.
    fn into_dense(self, mut signatures: Vec<Signature>) -> Signatures {
        let sets = self.sets.id_bound();
        for signature in &mut signatures {
            if *signature & PRINCIPAL != 0 {
                *signature = sets as u32 + (*signature & !PRINCIPAL);
            }
        }
        Signatures { of: signatures, bound: sets + self.nodes.len() }
    }

    fn union(&mut self, a: Signature, b: Signature) -> Signature {
        if a == b || b == EMPTY_SET || self.is_close_below(b, a) {
            return a;
        }
        if a == EMPTY_SET || self.is_close_below(a, b) {
            return b;
        }
        let (x, y) = (self.set(a), self.set(b));
        match self.sets.union(x, y) {
            same if same == x => a,
            same if same == y => b,
            larger => larger,
        }
    }

    /// Whether `b` is `a` and few cut nodes more, each on top of the last: a shortcut past the next
    /// few of a chain.
    fn is_close_below(&self, a: Signature, b: Signature) -> bool {
        const STEPS: usize = 3;
        let mut at = b;
        for _ in 0..STEPS {
            if at & PRINCIPAL == 0 {
                return false;
            }
            at = self.nodes[(at & !PRINCIPAL) as usize].below;
            if at == a {
                return true;
            }
        }
        false
    }

    /// The signature as a set. Each cut node's is made once, so a chain of them costs no more than
    /// one by one.
    fn set(&mut self, signature: Signature) -> SetId {
        let mut at = signature;
        let mut set = loop {
            if at & PRINCIPAL == 0 {
                break at;
            }
            let number = at & !PRINCIPAL;
            let cut = &self.nodes[number as usize];
            if cut.made != NONE {
                break cut.made;
            }
            self.pending.push(number);
            at = cut.below;
        };
        while let Some(cut) = self.pending.pop() {
            let one = self.sets.singleton(cut);
            set = self.sets.union(set, one);
            self.nodes[cut as usize].made = set;
        }
        set
    }
}
