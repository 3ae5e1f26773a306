//! Where the processes of `lazuli up` answer /metrics: at ports that follow one another.

use std::net::SocketAddr;

use super::{loopback, machines};

/// The processes besides the node plugins.
const CONTROLLERS: [&str; 2] = ["csi-controller", "cloud-controllers"];

/// The last port that leaves one for each of the most processes.
fn last_port() -> u16 {
    let behind = CONTROLLERS.len() + usize::from(machines::MOST) - 1;
    u16::try_from(behind).map_or(0, |behind| u16::MAX - behind)
}

/// Parses the address of the first process.
///
/// # Errors
/// What is allowed instead.
pub(super) fn first(text: &str) -> Result<SocketAddr, String> {
    let last = last_port();
    let allowed = || {
        format!(
            "allowed: a loopback address and a port from 1 to {last}, such as 127.0.0.1:9600; each further process answers \
             at the port behind it"
        )
    };
    loopback(text).filter(|at| (1..=last).contains(&at.port())).ok_or_else(allowed)
}

/// Where a process answers /metrics.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    process: String,
    at: SocketAddr,
}

impl Place {
    /// The row of what `lazuli up` prints at its start.
    pub(super) fn row(&self) -> (String, String) {
        (format!("metrics of {}", self.process), format!("http://{}/metrics", self.at))
    }
}

/// Where each process answers, when the first one does so there. The node plugins come last.
pub(super) fn places(first: SocketAddr, nodes: u8) -> Vec<Place> {
    let controllers = CONTROLLERS.into_iter().map(str::to_owned);
    let plugins = (0..nodes).map(|at| format!("csi-node {}", machines::name(at)));
    let place = |(process, port)| Place { process, at: SocketAddr::new(first.ip(), port) };
    controllers.chain(plugins).zip(first.port()..=u16::MAX).map(place).collect()
}

/// The arguments by which a process answers: none where it does not.
pub(super) fn arguments_of(places: &[Place], process: &str) -> Vec<String> {
    let place = places.iter().find(|place| place.process == process);
    // Every process of this machine may read them, as it may read everything else here.
    place
        .map(|place| vec![format!("--metrics-endpoint={}", place.at), "--metrics-authentication=none".to_owned()])
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_answers_at_the_port_behind_the_one_before() {
        let places = places("127.0.0.1:9600".parse().unwrap(), 2);
        let rows: Vec<(String, String)> = places.iter().map(Place::row).collect();
        let row = |name: &str, port: u16| (format!("metrics of {name}"), format!("http://127.0.0.1:{port}/metrics"));
        assert_eq!(
            rows,
            [
                row("csi-controller", 9600),
                row("cloud-controllers", 9601),
                row("csi-node node-0", 9602),
                row("csi-node node-1", 9603)
            ]
        );
        assert_eq!(
            arguments_of(&places, "csi-node node-1"),
            ["--metrics-endpoint=127.0.0.1:9603", "--metrics-authentication=none"]
        );
        assert_eq!(arguments_of(&places, "csi-node node-2"), [""; 0]);
    }

    #[test]
    fn the_most_processes_have_a_port_each_and_none_is_open_to_other_machines() {
        let last = first(&format!("127.0.0.1:{}", last_port())).unwrap();
        let places = places(last, machines::MOST);
        assert_eq!(places.len(), usize::from(machines::MOST) + CONTROLLERS.len());
        assert_eq!(places.last().unwrap().at.port(), u16::MAX);
        for refused in ["127.0.0.1:65535", "127.0.0.1:0", "0.0.0.0:9600", "9600", ""] {
            assert!(first(refused).unwrap_err().contains("such as 127.0.0.1:9600"), "{refused}");
        }
        assert!(first("[::1]:9600").is_ok());
    }
}
