//! Services: parsed as the cloud controllers would parse a new one. One that Azure may serve is read by the controllers beside what
//! Azure shows of it, which is not looked at here.

use lazuli_services::{
    network::settings::Settings,
    service::{Existing, ServiceObject, annotation::misspelt, parse},
};

use super::{Judged, Page, Subject, Verdict};

/// What becomes of a Service. Without `settings` only the names of its annotations are looked at: the configuration does not
/// have what Services need, which another check says.
pub fn service(service: &ServiceObject, settings: Option<&Settings>) -> Judged {
    let verdict = match settings.map(|settings| as_new(service, settings)) {
        None => by_names(service),
        Some(as_new) if service.ingress.is_empty() && !service.has_finalizer => as_new,
        // What a new Service is refused for, or gets, may be otherwise where Azure has something of it.
        Some(as_new) => {
            let read = match as_new {
                Verdict::Differs(why) => format!("a new Service like it differs: {why}"),
                Verdict::Refused(why) => format!("a new Service like it is refused: {why}"),
                Verdict::Equal | Verdict::Unseen(_) => "a new Service like it is served equally".to_owned(),
            };
            Verdict::Unseen(format!(
                "what Azure has of it is not compared: lazuli cloud-controllers --dry-run says what would change; {read}"
            ))
        }
    };
    Judged { subject: Subject::Service, name: service.key.to_string(), verdict, page: Page::Services }
}

fn as_new(service: &ServiceObject, settings: &Settings) -> Verdict {
    match parse(service, settings, &Existing::default()) {
        Ok(ask) => Verdict::with(ask.warnings.iter().map(|warning| warning.message.clone()).collect()),
        Err(mistakes) => {
            let mistakes: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            Verdict::Refused(mistakes.join("; "))
        }
    }
}

fn by_names(service: &ServiceObject) -> Verdict {
    let unknown: Vec<String> = service.annotations.keys().filter_map(|key| unknown(key)).collect();
    if unknown.is_empty() {
        let why = "the configuration lacks what Services need, so that only the names of its annotations are known";
        return Verdict::Unseen(why.to_owned());
    }
    Verdict::with(unknown)
}

fn unknown(key: &str) -> Option<String> {
    misspelt(key).map(|nearest| match nearest {
        Some(nearest) => format!("no program reads annotation {key} (the nearest that exists is {nearest})"),
        None => format!("no program reads annotation {key}"),
    })
}

#[cfg(test)]
mod tests {
    use lazuli_services::service::fixtures::{annotated, settings};

    use super::*;

    #[test]
    fn services_are_judged_by_the_reader_of_the_cloud_controllers() {
        let settings = settings();
        let judged = |annotations: &[(&str, &str)], known: bool| {
            let new = ServiceObject { has_finalizer: false, ..annotated(annotations) };
            service(&new, known.then_some(&settings)).verdict
        };
        assert_eq!(judged(&[("azure-load-balancer-internal", "true")], true), Verdict::Equal);
        let refused = judged(&[("azure-load-balancer-tcp-idle-timeout", "soon")], true);
        assert!(matches!(&refused, Verdict::Refused(why) if why.contains("soon")), "{refused:?}");
        for known in [true, false] {
            let odd = judged(&[("azure-load-balancer-internl", "true")], known);
            assert!(matches!(&odd, Verdict::Differs(why) if why.contains("azure-load-balancer-internal")), "{odd:?}");
        }
        assert!(matches!(judged(&[("azure-load-balancer-internal", "true")], false), Verdict::Unseen(_)));
    }

    /// A new Service with such a value is internal, and a live one stays public with a warning.
    #[test]
    fn a_service_that_azure_serves_is_not_called_equal() {
        let settings = settings();
        for (value, word) in [("True", "served equally"), ("soon", "--dry-run")] {
            let live = annotated(&[("azure-load-balancer-internal", value)]);
            assert!(live.has_finalizer && live.ingress.is_empty());
            let verdict = service(&live, Some(&settings)).verdict;
            assert!(matches!(&verdict, Verdict::Unseen(why) if why.contains(word)), "{verdict:?}");
            let shown = ServiceObject { ingress: vec!["20.0.0.1".parse().unwrap()], has_finalizer: false, ..live };
            assert_eq!(service(&shown, Some(&settings)).verdict, verdict);
        }
    }
}
