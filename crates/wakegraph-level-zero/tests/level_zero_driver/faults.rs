//! Calls that fail because a test says so, and devices that are lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Outcome;
use crate::types::*;

#[derive(Default, Debug)]
pub(crate) struct Faults {
    /// For a function, which call from now on fails, and with which code; 0 for all of them.
    planned: HashMap<String, (u64, ze_result_t)>,
}

/// Whether any call has ever been planned to fail, or a device been lost.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether calls have to be checked. Until then, some need no lock.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// Has calls checked from now on.
pub(crate) fn begin() {
    ANY.store(true, Ordering::Release);
}

impl Faults {
    pub(crate) fn from_environment() -> Self {
        let mut faults = Self::default();
        for plan in
            std::env::var("WAKEGRAPH_LZ_FAIL").unwrap_or_default().split(',').filter(|p| !p.is_empty())
        {
            let words: Vec<&str> = plan.split(':').collect();
            assert!(faults.plan(&words), "WAKEGRAPH_LZ_FAIL: '{plan}' is not NAME:NUMBER:CODE");
        }
        faults
    }

    /// From name, number and code; whether they are these.
    pub(crate) fn plan(&mut self, words: &[&str]) -> bool {
        let &[name, number, code] = words else { return false };
        let (Ok(number), Some(code)) = (number.parse(), hexadecimal(code)) else { return false };
        begin();
        self.planned.insert(name.to_owned(), (number, code));
        true
    }

    /// Fails if this call is one that has to.
    pub(crate) fn check(&mut self, call: &str) -> Outcome {
        let Some((number, code)) = self.planned.get_mut(call) else { return Ok(()) };
        if *number == 0 {
            return Err(*code);
        }
        *number -= 1;
        if *number > 0 {
            return Ok(());
        }
        let code = *code;
        self.planned.remove(call);
        Err(code)
    }
}

pub(crate) fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}
