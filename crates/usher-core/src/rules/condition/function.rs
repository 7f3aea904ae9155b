//! The functions of the language. What each takes is said where calls are checked.

macro_rules! functions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// A function of the rules language.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Function {
            $($(#[$doc])* $variant,)*
        }

        impl Function {
            /// Every function.
            pub const ALL: &[Function] = &[$(Function::$variant,)*];

            /// The name in an expression.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Function::$variant => $name,)* }
            }
        }
    };
}

functions! {
    /// Whether a comparison holds for at least one element.
    Any = "any";
    /// Whether a comparison holds for every element; true of none.
    All = "all";
    /// ASCII lower case.
    Lower = "lower";
    /// ASCII upper case.
    Upper = "upper";
    /// Bytes of a string, elements of an array.
    Len = "len";
    /// Whether the first string starts with the second.
    StartsWith = "starts_with";
    /// Whether the first string ends with the second.
    EndsWith = "ends_with";
    /// One string of several values.
    Concat = "concat";
    /// `substring(text, from[, to])` in bytes; a negative number counts from the end.
    Substring = "substring";
    /// An integer, a boolean or an address as text.
    ToString = "to_string";
    /// `%XX` and `+` decoded; options `"r"`: until nothing is left to decode, `"u"`: `%uXXXX` too.
    UrlDecode = "url_decode";
    /// The first string without any byte of the second.
    RemoveBytes = "remove_bytes";
    /// A string inside JSON, by keys and places.
    LookupJsonString = "lookup_json_string";
    /// An integer inside JSON, by keys and places.
    LookupJsonInteger = "lookup_json_integer";
    /// `cidr(ip, bits of IPv4, bits of IPv6)`: the network of an address.
    Cidr = "cidr";
}

impl Function {
    /// The function with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Function> {
        Function::ALL
            .iter()
            .copied()
            .find(|function| function.name() == name)
    }
}
