//! Status codes: how a call ended.

/// Defines the codes: a row for each, in the order of their numbers.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident $number:literal $name:literal,)*) => {
        /// How a call ended (the status codes of gRPC).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[$doc])* $code = $number,)* }

        impl Code {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$code,)*];

            /// As specifications write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$code => $name,)* }
            }
        }
    };
}

codes! {
    /// It succeeded.
    Ok 0 "OK",
    /// The client did not want it any more.
    Cancelled 1 "CANCELLED",
    /// Nothing better is known.
    Unknown 2 "UNKNOWN",
    /// What was asked is wrong whatever the state.
    InvalidArgument 3 "INVALID_ARGUMENT",
    /// The time was over before it was done.
    DeadlineExceeded 4 "DEADLINE_EXCEEDED",
    /// There is nothing of that name.
    NotFound 5 "NOT_FOUND",
    /// There is one of that name already.
    AlreadyExists 6 "ALREADY_EXISTS",
    /// Who asks is known and may not.
    PermissionDenied 7 "PERMISSION_DENIED",
    /// A quota, a limit or memory is used up.
    ResourceExhausted 8 "RESOURCE_EXHAUSTED",
    /// The state has to be changed first.
    FailedPrecondition 9 "FAILED_PRECONDITION",
    /// Something came in between: to be tried again from further up.
    Aborted 10 "ABORTED",
    /// Beyond what there is.
    OutOfRange 11 "OUT_OF_RANGE",
    /// There is no such method, or not in this way.
    Unimplemented 12 "UNIMPLEMENTED",
    /// A mistake of the server's, or of what lies between.
    Internal 13 "INTERNAL",
    /// Not now: to be tried again later.
    Unavailable 14 "UNAVAILABLE",
    /// Something is lost.
    DataLoss 15 "DATA_LOSS",
    /// Who asks is not known.
    Unauthenticated 16 "UNAUTHENTICATED",
}

impl Code {
    /// The value of `grpc-status`.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The code of that number; [`Unknown`](Code::Unknown) for one that there is not, as the specification has it.
    #[must_use]
    pub fn of_number(number: u32) -> Code {
        let place = usize::try_from(number).ok();
        place
            .and_then(|place| Code::ALL.get(place).copied())
            .unwrap_or(Code::Unknown)
    }

    /// What a value of `grpc-status` says; [`Unknown`](Code::Unknown) if it is no number of a code.
    #[must_use]
    pub fn parse(value: &[u8]) -> Code {
        let is_number = !value.is_empty() && value.len() <= 10 && value.iter().all(u8::is_ascii_digit);
        let text = str::from_utf8(value).ok().filter(|_| is_number);
        let number = text.and_then(|text| text.parse().ok());
        number.map_or(Code::Unknown, Code::of_number)
    }

    /// What an answer without `grpc-status` is to a client (HTTP to gRPC Status Code Mapping): it comes from something that does not
    /// speak gRPC.
    #[must_use]
    pub const fn of_http(status: u16) -> Code {
        match status {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }
}
