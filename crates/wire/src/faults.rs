//! What all tables of faults have in common: a kind for each rule, with the number that answers it, what was expected and
//! where that stands. Knows no protocol.

/// Defines the enum of a table of faults: its doc comment and name, then a row for each kind.
macro_rules! faults {
    (
        $(#[$about:meta])* enum $name:ident;
        $($(#[$doc:meta])* $kind:ident $answer:literal $expected:literal $section:literal,)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $kind,)* }

        impl $name {
            /// All of them, in the order of the table: for references and metrics.
            pub const ALL: &[$name] = &[$(Self::$kind),*];

            const fn row(self) -> (u16, &'static str, &'static str) {
                match self { $(Self::$kind => ($answer, $expected, $section),)* }
            }

            /// What would have been right.
            #[must_use]
            pub const fn expected(self) -> &'static str {
                self.row().1
            }

            /// Where the rule stands.
            #[must_use]
            pub const fn section(self) -> &'static str {
                self.row().2
            }
        }
    };
}

pub(crate) use faults;
