//! Services: parsed as the cloud controllers would parse a new one.

use lazuli_services::{
    network::settings::Settings,
    service::{Existing, ServiceObject, annotation::misspelt, parse},
};

use super::{Judged, Page, Subject, Verdict};

/// What becomes of a Service. Without `settings` only the names of its annotations are looked at: the configuration does not
/// have what Services need, which another check says.
pub fn service(service: &ServiceObject, settings: Option<&Settings>) -> Judged {
    let parsed = settings.map(|settings| parse(service, settings, &Existing::default()));
    let verdict = match parsed {
        Some(Err(mistakes)) => {
            let mistakes: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            // The Go manager may have taken it; what Azure has of it stays.
            Verdict::Refused(format!("{}; what Azure has of it stays until it is corrected", mistakes.join("; ")))
        }
        Some(Ok(ask)) => {
            let warnings: Vec<String> = ask.warnings.iter().map(|warning| warning.message.clone()).collect();
            if warnings.is_empty() { Verdict::Equal } else { Verdict::Differs(warnings.join("; ")) }
        }
        None => {
            let unknown: Vec<String> = service.annotations.keys().filter_map(|key| unknown(key)).collect();
            if unknown.is_empty() { Verdict::Equal } else { Verdict::Differs(unknown.join("; ")) }
        }
    };
    Judged { subject: Subject::Service, name: service.key.to_string(), verdict, page: Page::Services }
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
            service(&annotated(annotations), known.then_some(&settings)).verdict
        };
        assert_eq!(judged(&[("azure-load-balancer-internal", "true")], true), Verdict::Equal);
        let refused = judged(&[("azure-load-balancer-tcp-idle-timeout", "soon")], true);
        assert!(matches!(&refused, Verdict::Refused(why) if why.contains("soon")), "{refused:?}");
        for known in [true, false] {
            let odd = judged(&[("azure-load-balancer-internl", "true")], known);
            assert!(matches!(&odd, Verdict::Differs(why) if why.contains("azure-load-balancer-internal")), "{odd:?}");
        }
    }
}
