//! Reads MessagePack, in which code objects describe their kernels.

#[derive(Debug)]
pub(crate) enum Value {
    Number(u64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Other,
}

impl Value {
    /// The value of a key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn number(&self) -> Option<u64> {
        if let Value::Number(number) = self { Some(*number) } else { None }
    }

    pub(crate) fn list(&self) -> &[Value] {
        if let Value::List(list) = self { list } else { &[] }
    }
}

/// Takes one value off the front of the bytes; `None` where they end too early.
pub(crate) fn read(bytes: &mut &[u8]) -> Option<Value> {
    let first = take(bytes, 1)?[0];
    Some(match first {
        0x00..=0x7f => Value::Number(u64::from(first)),
        0x80..=0x8f => map(bytes, usize::from(first & 0xf))?,
        0x90..=0x9f => list(bytes, usize::from(first & 0xf))?,
        0xa0..=0xbf => text(bytes, usize::from(first & 0x1f))?,
        // Nothing, booleans, negative numbers.
        0xc0..=0xc3 | 0xe0..=0xff => Value::Other,
        0xcc..=0xcf => Value::Number(number(bytes, 1 << (first - 0xcc))?),
        0xd0..=0xd3 => Value::Number(number(bytes, 1 << (first - 0xd0))?),
        0xd9..=0xdb => {
            let length = number(bytes, 1 << (first - 0xd9))?;
            text(bytes, length as usize)?
        }
        0xdc | 0xdd => {
            let length = number(bytes, 2 << (first - 0xdc))?;
            list(bytes, length as usize)?
        }
        0xde | 0xdf => {
            let length = number(bytes, 2 << (first - 0xde))?;
            map(bytes, length as usize)?
        }
        _ => return None,
    })
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn number(bytes: &mut &[u8], size: usize) -> Option<u64> {
    Some(take(bytes, size)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

fn text(bytes: &mut &[u8], length: usize) -> Option<Value> {
    Some(Value::Text(String::from_utf8_lossy(take(bytes, length)?).into_owned()))
}

fn list(bytes: &mut &[u8], length: usize) -> Option<Value> {
    (0..length).map(|_| read(bytes)).collect::<Option<_>>().map(Value::List)
}

fn map(bytes: &mut &[u8], length: usize) -> Option<Value> {
    (0..length).map(|_| Some((read(bytes)?, read(bytes)?))).collect::<Option<_>>().map(Value::Map)
}
