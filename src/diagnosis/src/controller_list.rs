//! Which controllers run: the list of `--controllers`, as in kube-controller-manager and the Go manager.

use std::{fmt, str::FromStr};

/// A controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Initialises Nodes.
    CloudNode,
    /// Taints and deletes Nodes whose VMs are stopped or gone.
    CloudNodeLifecycle,
    /// Load balancers of Services.
    ServiceLb,
    /// Routes of Nodes.
    NodeRoute,
}

impl Controller {
    /// Every controller.
    pub const ALL: [Self; 4] = [Self::CloudNode, Self::CloudNodeLifecycle, Self::ServiceLb, Self::NodeRoute];

    /// Its name, and the one of before 1.27, where there is one. Source: `k8s.io/cloud-provider/names`.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::CloudNode => &["cloud-node-controller", "cloud-node"],
            Self::CloudNodeLifecycle => &["cloud-node-lifecycle-controller", "cloud-node-lifecycle"],
            Self::ServiceLb => &["service-lb-controller", "service-lb", "service"],
            Self::NodeRoute => &["node-route-controller", "node-route", "route"],
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.names().contains(&name))
    }
}

/// An entry of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// `*`: all that no entry names.
    All,
    /// A name: the controller runs.
    On(Controller),
    /// `-` and a name: it does not.
    Off(Controller),
}

/// A text that is no entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct UnknownController(String);

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no controller; there are *", self.0)?;
        Controller::ALL.into_iter().try_for_each(|one| write!(f, ", {}", one.names()[1]))?;
        f.write_str(", and each with a - before it")
    }
}

impl FromStr for Entry {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, UnknownController> {
        let text = text.trim();
        if text == "*" {
            return Ok(Self::All);
        }
        let (name, entry): (&str, fn(Controller) -> Self) = match text.strip_prefix('-') {
            Some(name) => (name, Self::Off),
            None => (text, Self::On),
        };
        Controller::named(name).map(entry).ok_or_else(|| UnknownController(text.to_owned()))
    }
}

/// Whether a controller runs: the first entry that names it decides, else whether there is a `*`.
pub fn runs(list: &[Entry], controller: Controller) -> bool {
    let named = list.iter().find_map(|entry| match entry {
        Entry::On(one) if *one == controller => Some(true),
        Entry::Off(one) if *one == controller => Some(false),
        _ => None,
    });
    named.unwrap_or(list.contains(&Entry::All))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(list: &str) -> Vec<&'static str> {
        let list: Vec<Entry> = list.split(',').map(|text| text.parse().unwrap()).collect();
        Controller::ALL.into_iter().filter(|one| runs(&list, *one)).map(|one| one.names()[1]).collect()
    }

    #[test]
    fn a_list_is_read_as_kube_controller_manager_reads_it() {
        assert_eq!(running("*"), ["cloud-node", "cloud-node-lifecycle", "service-lb", "node-route"]);
        assert_eq!(running("*,-cloud-node"), ["cloud-node-lifecycle", "service-lb", "node-route"]);
        assert_eq!(running("-service,*"), ["cloud-node", "cloud-node-lifecycle", "node-route"]);
        assert_eq!(running("service"), ["service-lb"]);
        assert_eq!(running("route, cloud-node-controller"), ["cloud-node", "node-route"]);
        assert_eq!(running("-route,route,*"), ["cloud-node", "cloud-node-lifecycle", "service-lb"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = "-node-ipam".parse::<Entry>().unwrap_err().to_string();
        assert!(error.contains("-node-ipam") && error.contains("cloud-node-lifecycle"), "{error}");
    }
}
