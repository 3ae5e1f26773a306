//! What people read: tables or JSON.

/// How to print a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// JSON, for programs.
    Json,
}

impl Format {
    /// Prints an object: a line a field for people, one line of JSON for programs.
    #[cfg(feature = "emulator")]
    pub(super) fn print_object(self, object: &serde_json::Value) {
        match self {
            Self::Json => println!("{object}"),
            Self::Text => {
                for (key, value) in object.as_object().into_iter().flatten() {
                    println!("{key:<28} {value}");
                }
            }
        }
    }
}
