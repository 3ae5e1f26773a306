//! Log lines on stderr; stdout belongs to results.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::{EnvFilter, fmt};

use super::panics::log_place;

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people: one line of text, coloured on a terminal.
    #[default]
    Text,
    /// For collectors: one JSON object a line, with the fields at its top level.
    Json,
}

/// Why a word is not a log format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown log format {0:?}, expected text or json")]
pub struct FormatError(String);

impl std::str::FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(FormatError(text.to_owned())),
        }
    }
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not of the form `info,lazuli_disk=debug`.
    #[error("the log filter {filter:?} cannot be read")]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// A subscriber is installed already.
    #[error("logging is already set up")]
    AlreadySet(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Sends the process's log lines to stderr, those of panics too. Once per process.
///
/// # Errors
/// [`LogError`].
pub fn init(format: Format, filter: &str) -> Result<(), LogError> {
    let already_set = LogError::AlreadySet;
    match format {
        Format::Text => fmt()
            .with_env_filter(parse(filter)?)
            .with_ansi(io::stderr().is_terminal() && wants_colour(std::env::var_os("NO_COLOR").as_deref()))
            .with_writer(|| OneLine(io::stderr()))
            .try_init()
            .map_err(already_set)?,
        Format::Json => json(filter, io::stderr)?.try_init().map_err(already_set)?,
    }
    std::panic::set_hook(Box::new(log_place));
    Ok(())
}

/// Whether a person who sets `NO_COLOR` so wants colours. Source: no-color.org; an empty value counts as none.
fn wants_colour(no_color: Option<&std::ffi::OsStr>) -> bool {
    no_color.is_none_or(std::ffi::OsStr::is_empty)
}

/// Writes each log line as one line. The formatter writes a line with all its fields at once; a field may hold text of
/// others, such as what Azure answered, and a line break in it would look like a line of this program.
struct OneLine<W>(W);

impl<W: io::Write> io::Write for OneLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (text, end) = match line.split_last() {
            Some((b'\n', text)) => (text, &b"\n"[..]),
            _ => (line, &b""[..]),
        };
        let mut escaped = Vec::with_capacity(line.len());
        for byte in text {
            match byte {
                b'\n' => escaped.extend(b"\\n"),
                b'\r' => escaped.extend(b"\\r"),
                byte => escaped.push(*byte),
            }
        }
        escaped.extend(end);
        self.0.write_all(&escaped)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// What the Kubernetes client logs as an error whenever the API server does not answer, without its address. Who makes the
/// call logs what follows from it, with the address. A filter that names this target shows it again.
const REPEATED: &str = "kube_client::client::builder=off";

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::try_new(format!("{REPEATED},{filter}"))
        .map_err(|source| LogError::Filter { filter: filter.to_owned(), source })
}

type JsonBuilder<W> =
    fmt::SubscriberBuilder<fmt::format::JsonFields, fmt::format::Format<fmt::format::Json>, EnvFilter, W>;

fn json<W>(filter: &str, writer: W) -> Result<JsonBuilder<W>, LogError>
where
    W: for<'w> MakeWriter<'w> + 'static,
{
    // A collector indexes fields by name: `volume`, not `fields.volume`.
    Ok(fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_env_filter(parse(filter)?)
        .with_writer(writer))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_wants_no_colour_gets_none() {
        let wants = |value: Option<&str>| wants_colour(value.map(std::ffi::OsStr::new));
        assert!(wants(None) && wants(Some("")) && !wants(Some("1")));
    }

    #[test]
    fn lines_of_the_kubernetes_client_that_name_no_server_are_left_out_unless_they_are_asked_for() {
        let logged = |filter: &str| {
            let lines = Lines::default();
            let writer = lines.clone();
            let subscriber = json(filter, move || writer.clone()).unwrap().finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::error!(target: "kube_client::client::builder", "failed with error client error (Connect)");
                tracing::error!("ours");
            });
            let bytes = lines.0.lock().unwrap().clone();
            String::from_utf8(bytes).unwrap().lines().count()
        };
        assert_eq!((logged("info"), logged("debug")), (1, 1));
        assert_eq!(logged("info,kube_client::client::builder=error"), 2);
    }

    #[test]
    fn a_json_line_has_its_fields_at_the_top_and_the_filter_holds() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = json("info", move || writer.clone()).expect("the filter is valid").finish();
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("attach", volume = "pv-1").entered();
            tracing::debug!("hidden");
            tracing::info!(lun = 3, "attached");
        });
        let bytes = lines.0.lock().expect("not poisoned").clone();
        let text = String::from_utf8(bytes).expect("is text");
        let line: serde_json::Value = serde_json::from_str(text.trim()).expect("is one JSON line");
        assert_eq!(line["lun"], 3);
        assert_eq!(line["message"], "attached");
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["span"]["volume"], "pv-1");
    }

    #[test]
    fn text_of_others_breaks_no_line() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = fmt().with_ansi(false).with_writer(move || OneLine(writer.clone())).finish();
        tracing::subscriber::with_default(subscriber, || {
            let error = "InvalidName: bad\n2026-01-01T00:00:00Z  INFO lazuli: all is well\r";
            tracing::warn!(%error, "Azure refused a write");
            tracing::info!("next");
        });
        let bytes = lines.0.lock().expect("not poisoned").clone();
        let text = String::from_utf8(bytes).expect("is text");
        let all: Vec<&str> = text.lines().collect();
        let [refused, next] = &all[..] else { panic!("{text}") };
        assert!(refused.contains("bad\\n2026") && refused.ends_with("well\\r"), "{refused}");
        assert!(next.ends_with("next"), "{next}");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_an_error_naming_it() {
        let error = init(Format::Text, "lazuli=chatty").expect_err("no such level");
        assert_eq!(error.to_string(), "the log filter \"lazuli=chatty\" cannot be read");
        assert_eq!("json".parse(), Ok(Format::Json));
        assert!("xml".parse::<Format>().is_err());
    }
}
