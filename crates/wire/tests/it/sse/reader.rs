//! The reader of WHATWG HTML §9.2.5 and §9.2.6, step by step, for what `sse` writes. Slow and plain.

/// What a page's listener is called with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dispatched {
    pub(crate) name: String,
    pub(crate) data: String,
    pub(crate) id: String,
}

impl Dispatched {
    pub(crate) fn message(data: &str) -> Self {
        Self {
            name: "message".into(),
            data: data.into(),
            id: String::new(),
        }
    }
}

/// A stream being read.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) dispatched: Vec<Dispatched>,
    pub(crate) last_id: String,
    pub(crate) retry: Option<u64>,
    started: bool,
    after_cr: bool,
    line: Vec<u8>,
    name: String,
    data: String,
    id: String,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\r' | b'\n' => self.end_line(),
                _ => self.line.push(byte),
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        // "UTF-8 decode" strips one byte order mark at the start of the stream.
        let line = if self.started {
            &*line
        } else {
            line.strip_prefix('\u{feff}').unwrap_or(&line)
        };
        self.started = true;
        if line.is_empty() {
            self.dispatch();
            return;
        }
        match line.split_once(':') {
            Some(("", _comment)) => {}
            Some((field, value)) => self.field(field, value.strip_prefix(' ').unwrap_or(value)),
            None => self.field(line, ""),
        }
    }

    fn field(&mut self, field: &str, value: &str) {
        match field {
            "event" => self.name = value.into(),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => self.id = value.into(),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok();
            }
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        self.last_id.clone_from(&self.id);
        let name = std::mem::take(&mut self.name);
        let mut data = std::mem::take(&mut self.data);
        if data.is_empty() {
            return;
        }
        data.pop();
        self.dispatched.push(Dispatched {
            name: if name.is_empty() { "message".into() } else { name },
            data,
            id: self.last_id.clone(),
        });
    }
}
