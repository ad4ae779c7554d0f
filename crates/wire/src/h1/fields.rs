//! Where the fields of a head are, and which of them have names that we know. Not what their values mean.

use super::limits::Limits;

macro_rules! known {
    ($($variant:ident $name:literal,)*) => {
        /// Fields that are recognised while a head is parsed, so that looking them up costs nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the names are the fields")]
        pub enum Known { $($variant,)* }

        impl Known {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The field's name as it is usually written.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

known! {
    Accept "Accept",
    AcceptEncoding "Accept-Encoding",
    AcceptLanguage "Accept-Language",
    Authorization "Authorization",
    CacheControl "Cache-Control",
    Connection "Connection",
    ContentEncoding "Content-Encoding",
    ContentLength "Content-Length",
    ContentType "Content-Type",
    Cookie "Cookie",
    Date "Date",
    Expect "Expect",
    Host "Host",
    IfModifiedSince "If-Modified-Since",
    IfNoneMatch "If-None-Match",
    KeepAlive "Keep-Alive",
    Location "Location",
    Origin "Origin",
    Range "Range",
    Referer "Referer",
    Server "Server",
    SetCookie "Set-Cookie",
    Te "TE",
    Trailer "Trailer",
    TransferEncoding "Transfer-Encoding",
    Upgrade "Upgrade",
    UserAgent "User-Agent",
    Via "Via",
    XForwardedFor "X-Forwarded-For",
    XRequestId "X-Request-Id",
}

const KNOWN: usize = Known::ALL.len();
/// A known name as it is compared: its first eight bytes and its last eight in lower case, zeroes behind a shorter
/// one.
#[derive(Clone, Copy)]
struct Candidate {
    head: Word,
    tail: Word,
    length: usize,
    known: Option<Known>,
}

/// Eight bytes of a name as a little-endian number.
#[derive(Clone, Copy)]
struct Word {
    lower: u64,
    /// The case bit of each letter; of nothing else, or CR would equal a hyphen.
    case: u64,
}

impl Word {
    /// Of the bytes of `name` from `from` on.
    const fn of(name: &[u8], from: usize) -> Self {
        let mut word = Self { lower: 0, case: 0 };
        let mut at = 0;
        while from + at < name.len() && at < 8 {
            let byte = name[from + at];
            word.lower |= (byte.to_ascii_lowercase() as u64) << (8 * at);
            if byte.is_ascii_alphabetic() {
                word.case |= 0x20 << (8 * at);
            }
            at += 1;
        }
        word
    }

    #[inline]
    const fn equals(self, other: u64) -> bool {
        self.lower == other | self.case
    }
}

const PLACES: usize = 64;

/// Where a name would stand in the table: a hash of its length, its first and its last letter that is perfect
/// for the known names. A new name may need other factors; then this does not compile.
#[inline]
const fn place(name: &[u8]) -> usize {
    match name {
        [] => 0,
        [first, .., last] => (name.len() * 17 + (*first & 31) as usize + (*last & 31) as usize * 60) % PLACES,
        [only] => *only as usize % PLACES,
    }
}

static PLACED: [Candidate; PLACES] = placed();

const fn placed() -> [Candidate; PLACES] {
    let nothing = Word { lower: 0, case: 0 };
    let nobody = Candidate {
        head: nothing,
        tail: nothing,
        length: 0,
        known: None,
    };
    let mut table = [nobody; PLACES];
    let mut index = 0;
    while index < KNOWN {
        let known = Known::ALL[index];
        let name = known.name().as_bytes();
        let candidate = &mut table[place(name)];
        assert!(
            candidate.known.is_none(),
            "two known names at one place: choose other factors"
        );
        *candidate = Candidate {
            head: Word::of(name, 0),
            tail: Word::of(name, name.len().saturating_sub(8)),
            length: name.len(),
            known: Some(known),
        };
        index += 1;
    }
    table
}

impl Known {
    /// The known field that `name` names, in any case.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        let known = PLACED[place(name)].known?;
        known
            .name()
            .as_bytes()
            .eq_ignore_ascii_case(name)
            .then_some(known)
    }

    /// As [`of`](Self::of), for the name in `input` from `at` to `end`, by words instead of bytes.
    #[inline]
    pub(super) fn at(input: &[u8], at: usize, end: usize) -> Option<Self> {
        let name = &input[at..end];
        let Some(first) = input[at..].first_chunk::<8>() else {
            return Self::of(name);
        };
        let first = u64::from_le_bytes(*first);
        let candidate = &PLACED[place(name)];
        let same = name.len() == candidate.length
            && match name.last_chunk::<8>() {
                // Up to sixteen bytes the two words leave none out.
                Some(last) if name.len() <= 16 => {
                    candidate.head.equals(first) && candidate.tail.equals(u64::from_le_bytes(*last))
                }
                Some(_) => return Self::of(name),
                None => {
                    let unused = 64 - 8 * name.len().max(1);
                    candidate.head.equals(first << unused >> unused)
                }
            };
        if same { candidate.known } else { None }
    }
}

/// One field line: offsets into the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) name_at: u32,
    pub(crate) name_end: u32,
    pub(crate) value_at: u32,
    pub(crate) value_end: u32,
    pub(crate) known: Option<Known>,
}

impl Record {
    pub(super) fn name<'a>(&self, input: &'a [u8]) -> &'a [u8] {
        &input[self.name_at as usize..self.name_end as usize]
    }

    pub(super) fn value<'a>(&self, input: &'a [u8]) -> &'a [u8] {
        &input[self.value_at as usize..self.value_end as usize]
    }
}

const NOWHERE: u16 = u16::MAX;

/// Where the fields of the head last parsed are. One table serves any number of connections, one head at a
/// time; it never grows after [`new`](Self::new).
#[derive(Debug)]
pub struct FieldTable {
    records: Vec<Record>,
    /// The first record of each known field.
    first: [u16; KNOWN],
    /// A bit for each known field that there is more than once.
    repeated: u32,
}

const _: () = assert!(KNOWN <= 32, "`repeated` has a bit for each known field");

impl FieldTable {
    /// A table with room for what `limits` allow: 20 bytes a field.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            records: Vec::with_capacity(usize::from(limits.fields)),
            first: [NOWHERE; KNOWN],
            repeated: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.first = [NOWHERE; KNOWN];
        self.repeated = 0;
    }

    #[inline]
    pub(crate) fn push(&mut self, record: Record) {
        if let Some(known) = record.known {
            let first = &mut self.first[known as usize];
            if *first == NOWHERE {
                *first = self.records.len() as u16;
            } else {
                self.repeated |= 1 << known as u32;
            }
        }
        self.records.push(record);
    }

    /// Replaces the value of the first field of a known name by the bytes from `at` to `end`.
    pub(crate) fn set_value(&mut self, known: Known, at: u32, end: u32) {
        let first = usize::from(self.first[known as usize]);
        if let Some(record) = self.records.get_mut(first) {
            record.value_at = at;
            record.value_end = end;
        }
    }

    pub(crate) fn fields<'a>(&'a self, input: &'a [u8]) -> Fields<'a> {
        Fields { input, table: self }
    }
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name as the peer wrote it: a token, hence ASCII.
    pub name: &'a [u8],
    /// Its value without the whitespace around it. Never CR, LF, NUL or another control character but tab;
    /// may have bytes above 0x7F.
    pub value: &'a [u8],
}

/// The fields of a head, in the order of their lines.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    input: &'a [u8],
    table: &'a FieldTable,
}

impl<'a> Fields<'a> {
    /// The value of the first field with a known name. Constant time.
    #[must_use]
    #[inline]
    pub fn known(&self, known: Known) -> Option<&'a [u8]> {
        self.record(known).map(|record| record.value(self.input))
    }

    /// The values of all fields with a known name.
    pub fn all_known(&self, known: Known) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let input = self.input;
        let records = self
            .table
            .records
            .iter()
            .filter(move |record| record.known == Some(known));
        records.map(move |record| record.value(input))
    }

    /// Whether a field with a known name stands there more than once.
    #[must_use]
    #[inline]
    pub fn is_repeated(&self, known: Known) -> bool {
        self.table.repeated & (1 << known as u32) != 0
    }

    /// The value of the first field of that name, in any case. Linear in the number of fields.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// The values of all fields of that name, in any case.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|field| field.value)
    }

    /// All fields.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Field<'a>> + use<'a> {
        let input = self.input;
        self.table.records.iter().map(move |record| Field {
            name: record.name(input),
            value: record.value(input),
        })
    }

    /// All fields, each with the known field that it is: for those who sort them.
    pub fn iter_known(&self) -> impl ExactSizeIterator<Item = (Option<Known>, Field<'a>)> + use<'a> {
        let input = self.input;
        self.table.records.iter().map(move |record| {
            let field = Field {
                name: record.name(input),
                value: record.value(input),
            };
            (record.known, field)
        })
    }

    /// How many field lines there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.records.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.records.is_empty()
    }

    #[inline]
    pub(super) fn record(&self, known: Known) -> Option<&'a Record> {
        // `NOWHERE` is beyond any table.
        self.table
            .records
            .get(usize::from(self.table.first[known as usize]))
    }

    /// Where the value of the last field with that name begins: the one too many.
    pub(super) fn last_at(&self, known: Known) -> usize {
        let records = self.table.records.iter();
        records
            .rev()
            .find(|record| record.known == Some(known))
            .map_or(0, |record| record.value_at as usize)
    }
}

impl std::fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs = self.iter().map(|field| {
            (
                field.name.escape_ascii().to_string(),
                field.value.escape_ascii().to_string(),
            )
        });
        f.debug_map().entries(pairs).finish()
    }
}
