//! `lazuli version`: which program this is.

use clap::Args;
use lazuli_telemetry::BuildInfo;
use serde_json::{Value, json};

use super::{Outcome, csi_controller::BUILD, output::Format};

/// Options of the version.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
}

pub(super) fn run(options: &Options) -> Outcome {
    print!("{}", printed(options.output));
    Ok(())
}

fn printed(output: Format) -> String {
    let object = object();
    output.of_programs(&object).unwrap_or_else(|| {
        let line = |(name, value): (&String, &Value)| format!("{name:<9} {}\n", value.as_str().unwrap_or_default());
        object.as_object().into_iter().flatten().map(line).collect()
    })
}

fn object() -> Value {
    let BuildInfo { version, revision } = BUILD;
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let parts: Vec<&str> = [("emulator", cfg!(feature = "emulator")), ("pages", cfg!(feature = "pages"))]
        .into_iter()
        .filter_map(|(name, is_in)| is_in.then_some(name))
        .collect();
    json!({"version": version, "revision": revision, "platform": platform, "features": parts.join(" ")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_in_a_repository_knows_its_revision() {
        let text = printed(Format::Text);
        assert!(text.starts_with(&format!("version   {}\nrevision  ", env!("CARGO_PKG_VERSION"))), "{text}");
        let is_repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".git").exists();
        assert_eq!(BUILD.revision != "unknown", is_repository, "{text}");
    }
}
