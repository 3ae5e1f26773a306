//! What one public IP needs for all Services that use it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{ArmId, ServiceKey, json::Provisioning, tags as network_tags};

use super::{
    Creation, Env, Gone, Use, Wants,
    edit::{Edit, NewPublicIp},
    model::PublicIp,
    tags,
};
use crate::{
    ask::{
        DnsLabel,
        names::{self, BaseName},
    },
    network::{Found, Plan, Refusal, RefusalReason, Served, Waiting},
};

/// Services with what each asks of the public IP.
type Using<'a> = [(&'a ServiceKey, &'a Use)];

/// Plans one write of the public IP.
pub fn plan(wants: &Wants, actual: Option<&PublicIp>, env: &Env) -> Plan<Edit> {
    match actual {
        None => create(wants, env),
        Some(actual) => change(wants, actual, env),
    }
}

/// The Services that use it, in order, and how.
fn users(wants: &Wants) -> impl Iterator<Item = (&ServiceKey, &Use)> {
    wants.iter().filter_map(|(service, want)| Some((service, want.present.usage.as_ref()?)))
}

fn create(wants: &Wants, env: &Env) -> Plan<Edit> {
    let maker = users(wants).find_map(|(service, usage)| match &usage.creation {
        Creation::Make { prefix } if usage.outside.is_none() => Some((service, usage, prefix)),
        Creation::Make { .. } | Creation::MustExist => None,
    });
    let mut served: BTreeMap<ServiceKey, Served> = BTreeMap::new();
    for (service, want) in wants {
        let state = match (&want.present.usage, maker) {
            (None, _) => Served::Done(Found::default()),
            (Some(_), Some((owner, ..))) if owner == service => Served::Pending,
            (Some(_), Some(_)) => Served::Waiting(Waiting::For(env.id.clone())),
            (Some(usage), None) if usage.outside.is_some() => Served::Refused(is_outside(usage, env)),
            (Some(_), None) => Served::Refused(Refusal::new(
                RefusalReason::NotFound,
                format!(
                    "public IP {} does not exist in resource group {}; create it or name another one",
                    env.id.name(),
                    env.id.resource_group()
                ),
            )),
        };
        served.insert(service.clone(), state);
    }
    let mut edits = Vec::new();
    if let Some((service, usage, prefix)) = maker {
        edits.push(Edit::Create(NewPublicIp { family: usage.family, prefix: prefix.clone() }));
        if let Some(ip_tags) = &usage.settings.ip_tags {
            edits.push(Edit::IpTags(ip_tags.clone()));
        }
        let mut all = BTreeMap::from([
            (tags::SERVICES.to_owned(), service.tag_name()),
            (tags::CLUSTER.to_owned(), env.cluster_name.clone()),
        ]);
        if let DnsLabel::Set(label) = &usage.settings.dns_label {
            edits.push(Edit::DnsLabel(Some(label.clone())));
            all.insert(tags::DNS_OWNER.to_owned(), service.tag_name());
        }
        for (name, value) in wanted_tags(env, [usage]) {
            if network_tags::find(&all, &name).is_none() {
                all.insert(name, value);
            }
        }
        edits.push(Edit::Tags { set: all, remove: vec![] });
    }
    Plan { edits, served, is_partial: false }
}

/// The tags of the configuration and, over them, those of annotations; of two Services the first in order decides.
fn wanted_tags<'a>(env: &Env, usages: impl IntoIterator<Item = &'a Use>) -> BTreeMap<String, String> {
    let mut all = env.tags.set.clone();
    let mut annotated: BTreeMap<String, String> = BTreeMap::new();
    for usage in usages {
        for (name, value) in &usage.settings.tags {
            if network_tags::find(&annotated, name).is_none() {
                annotated.insert(name.clone(), value.clone());
            }
        }
    }
    for (name, value) in annotated {
        let spelled = network_tags::find(&all, &name).map(|(spelled, _)| spelled.clone()).unwrap_or(name);
        all.insert(spelled, value);
    }
    // What names cluster and Services is no business of configuration or annotations.
    all.retain(|name, _| !tags::OWNERSHIP.iter().any(|own| own.eq_ignore_ascii_case(name)));
    all
}

fn change(wants: &Wants, actual: &PublicIp, env: &Env) -> Plan<Edit> {
    let is_users = actual.is_users();
    let foreign_cluster = tags::cluster(&actual.tags).filter(|name| !name.eq_ignore_ascii_case(&env.cluster_name));
    let mut served: BTreeMap<ServiceKey, Served> = BTreeMap::new();

    // Who may use it.
    let mut using: Vec<(&ServiceKey, &Use)> = Vec::new();
    for (service, usage) in users(wants) {
        match refuse(service, usage, &using, wants, actual, foreign_cluster, env) {
            None => using.push((service, usage)),
            Some(refusal) => {
                served.insert(service.clone(), Served::Refused(refusal));
            }
        }
    }

    // The tag that lists Services: those that leave, then those that come.
    let mut names: Vec<String> = tags::services(&actual.tags).iter().map(|name| (*name).to_owned()).collect();
    let mut change = network_tags::TagChange::default();
    let mut releases_dns = false;
    if !is_users && foreign_cluster.is_none() {
        let leaving = |how: Gone| {
            let is_it = move |(_, want): &(&ServiceKey, &super::Want)| {
                gone(want, actual) == how && want.present.usage.is_none()
            };
            wants.iter().filter(is_it).map(|(service, _)| service.tag_name())
        };
        let released = leaving(Gone::Released).chain(leaving(Gone::KeptByFrontend)).map(|name| (name, false));
        for (name, unless_last) in released.chain(leaving(Gone::LeftToOthers).map(|name| (name, true))) {
            let is_it = |there: &String| there.eq_ignore_ascii_case(&name);
            // A Service of the same name that lives now keeps the tag.
            let lives = users(wants).any(|(other, _)| other.tag_name() == name);
            let keeps = lives || (unless_last && names.iter().all(is_it));
            if !keeps {
                names.retain(|there| !is_it(there));
                releases_dns |= tags::dns_owner(&actual.tags).is_some_and(|owner| owner.eq_ignore_ascii_case(&name));
            }
        }
        if actual.is_released() && wants.values().any(|want| want.gone != Gone::Nothing) {
            names.retain(|name| users(wants).any(|(user, _)| user.tag_name().eq_ignore_ascii_case(name)));
        }
        using.retain(|(service, _)| {
            let name = service.tag_name();
            if names.iter().any(|there| there.eq_ignore_ascii_case(&name)) {
                return true;
            }
            let length = names.iter().map(|there| there.len() + 1).sum::<usize>() + name.len();
            if length > tags::LONGEST_VALUE {
                served.insert((*service).clone(), Served::Refused(tag_is_full(names.len(), env)));
                return false;
            }
            names.push(name);
            true
        });
    }

    let is_last_gone = !is_users && names.is_empty() && foreign_cluster.is_none();
    let refused_user = users(wants).map(|(service, _)| service).next();
    let mut edits = Vec::new();
    if is_last_gone && actual.used_by.is_none() && refused_user.is_none() {
        edits.push(Edit::Delete);
    } else if is_last_gone && !actual.is_released() && wants.values().any(|want| want.gone == Gone::KeptByFrontend) {
        let services = tags::services_text(&actual.tags).to_owned();
        edits.push(Edit::Tags { set: [(tags::RELEASED.to_owned(), services)].into(), remove: vec![] });
    } else if !is_last_gone && foreign_cluster.is_none() {
        let own: Vec<(&ServiceKey, &Use)> =
            using.iter().copied().filter(|(service, _)| other_user(service, actual).is_none()).collect();
        if !is_users {
            tag_edits(&names, releases_dns, (&using, &own), actual, env, &mut change);
        }
        let label = label_edit(&own, actual, is_users, &mut change);
        if !change.is_empty() {
            edits.push(Edit::Tags { set: change.set, remove: change.remove });
        }
        edits.extend(label);
        if !is_users && env.may_change_ip_tags {
            let asked = own.iter().find_map(|(_, usage)| usage.settings.ip_tags.as_ref());
            edits.extend(asked.filter(|asked| **asked != actual.ip_tags).map(|asked| Edit::IpTags(asked.clone())));
        }
    }

    for (service, want) in wants {
        if served.contains_key(service) {
            continue;
        }
        let state = match &want.present.usage {
            Some(usage) => judge(service, usage, actual, is_users, &edits, env),
            None if want.gone == Gone::ReleasedUnlessUsed && actual.lists(&service.tag_name()) && is_kept(actual) => {
                Served::Done(Found { notices: vec![stays_in_use(actual)], ..Found::default() })
            }
            None if gone(want, actual) == Gone::Nothing || is_users || foreign_cluster.is_some() => {
                Served::Done(Found::default())
            }
            // It is the last, so that it must be released with the whole address.
            None if want.gone == Gone::LeftToOthers => {
                let name = service.tag_name();
                let lives = users(wants).any(|(other, _)| other.tag_name() == name);
                let leaves = actual.lists(&name) && actual.lists_another(&name) && !lives;
                if leaves { Served::Pending } else { Served::Done(Found::default()) }
            }
            None if is_last_gone && want.gone == Gone::KeptByFrontend && actual.used_by.is_some() => {
                if actual.is_released() { Served::Done(Found::default()) } else { Served::Pending }
            }
            None if is_last_gone => match (refused_user, &actual.used_by) {
                (Some(other), _) => Served::Waiting(Waiting::Refused(other.clone())),
                (None, Some(user)) => Served::Waiting(Waiting::ReferencedBy(user.clone())),
                (None, None) => Served::Pending,
            },
            None if actual.lists(&service.tag_name()) && !names.iter().any(|name| *name == service.tag_name()) => {
                Served::Pending
            }
            None => Served::Done(Found::default()),
        };
        served.insert(service.clone(), state);
    }
    Plan { edits, served, is_partial: false }
}

/// Whether something uses the public IP.
fn is_kept(actual: &PublicIp) -> bool {
    actual.used_by.is_some()
}

/// What a Service has given up, as the public IP was observed.
fn gone(want: &super::Want, actual: &PublicIp) -> Gone {
    match want.gone {
        Gone::ReleasedUnlessUsed if is_kept(actual) => Gone::Nothing,
        Gone::ReleasedUnlessUsed => Gone::Released,
        gone => gone,
    }
}

/// Why a public IP outlives its Service.
fn stays_in_use(actual: &PublicIp) -> Refusal {
    let (name, user) = (actual.id.name(), actual.used_by.as_ref().map(ArmId::as_str).unwrap_or_default());
    let message = format!(
        "public IP {name} stays, because {user} has it and an outbound or NAT rule uses that; remove the rule, the frontend \
         and the public IP if they are not needed"
    );
    Refusal::new(RefusalReason::ForeignOwner, message)
}

/// What else than a Service's own frontend has the public IP: then the Service changes neither its label nor its tags. A
/// frontend of a Service that has left it to this one alone is as good as its own. Where no frontend has it yet, it is the
/// Service's whose uid its name bears, else that of the first in its tag, which lists Services in the order in which they came.
fn other_user(service: &ServiceKey, actual: &PublicIp) -> Option<String> {
    let base = BaseName::of(service);
    let listed = actual.services();
    let is_another = |name: &&str| !name.eq_ignore_ascii_case(&service.tag_name());
    let Some(user) = &actual.used_by else {
        let owner = match names::base_of_maker(&actual.id) {
            _ if base.is_in(actual.id.name()) => None,
            Some(_) => listed.into_iter().find(is_another),
            None => listed.into_iter().next().filter(is_another),
        };
        return owner.map(|name| format!("Service {name}"));
    };
    let is_frontend = user.as_str().to_ascii_lowercase().contains("/loadbalancers/");
    let is_alone = || !listed.is_empty() && !listed.iter().any(is_another);
    let is_own = is_frontend && (base.owns(user.name()) || (names::base_in(user.name()).is_some() && is_alone()));
    (!is_own).then(|| user.to_string())
}

/// The event of a Service whose label and tags a public IP does not get.
fn keeps_label_and_tags(user: &str, env: &Env) -> Refusal {
    let message = format!(
        "public IP {} keeps its DNS label, its tags and its IP tags, because {user} has it, which is not the Service's own",
        env.id.name()
    );
    Refusal::new(RefusalReason::SharedAddress, message)
}

/// Which resource group Services may not name, as the end of a sentence.
fn outside_of_what(usage: &Use) -> String {
    let prefix = match &usage.creation {
        Creation::Make { prefix: Some(prefix) } => {
            format!(", or resource group {} of its prefix,", prefix.resource_group())
        }
        Creation::Make { prefix: None } | Creation::MustExist => String::new(),
    };
    format!("that{prefix} is none of --allowed-service-resource-groups")
}

fn is_outside(usage: &Use, env: &Env) -> Refusal {
    let message = format!(
        "Services may not name public IP {} of resource group {}: {}; name one of an allowed group, or have the operator allow          this one",
        env.id.name(),
        env.id.resource_group(),
        outside_of_what(usage)
    );
    Refusal::new(RefusalReason::ForeignOwner, message)
}

/// The event of a Service that keeps a public IP which it would not get now.
fn is_kept_outside(usage: &Use, env: &Env) -> Refusal {
    let message = format!(
        "the Service keeps public IP {} of resource group {}, though {}: a new Service would not get it",
        env.id.name(),
        env.id.resource_group(),
        outside_of_what(usage)
    );
    Refusal::new(RefusalReason::KeptValue, message)
}

/// Why a Service may not use this public IP.
fn refuse(
    service: &ServiceKey,
    usage: &Use,
    using: &[(&ServiceKey, &Use)],
    wants: &Wants,
    actual: &PublicIp,
    foreign_cluster: Option<&str>,
    env: &Env,
) -> Option<Refusal> {
    let name = actual.id.name();
    let has_it = |status: &BTreeSet<IpAddr>| actual.address.is_some_and(|address| status.contains(&address));
    if usage.outside.as_ref().is_some_and(|status| !actual.lists(&service.tag_name()) && !has_it(status)) {
        return Some(is_outside(usage, env));
    }
    if let Some(cluster) = foreign_cluster.filter(|_| !actual.is_users()) {
        let message = format!("public IP {name} belongs to cluster {cluster}; name another public IP");
        return Some(Refusal::new(RefusalReason::ForeignOwner, message));
    }
    if usage.family != actual.family {
        let message =
            format!("public IP {name} is {}, and the Service needs {}; name another one", actual.family, usage.family);
        return Some(Refusal::new(RefusalReason::Mismatch, message));
    }
    if actual.sku != env.sku {
        let message = format!(
            "public IP {name} has SKU {}, and load balancers have {}; use a public IP of that SKU",
            actual.sku.as_str(),
            env.sku.as_str()
        );
        return Some(Refusal::new(RefusalReason::Mismatch, message));
    }
    if usage.settings.dns_label == DnsLabel::Untouched {
        return None;
    }
    let is_leaving = |name: &str| {
        let mut named = wants.iter().filter(|(other, _)| other.tag_name().eq_ignore_ascii_case(name)).peekable();
        named.peek().is_some() && named.all(|(_, want)| want.gone != Gone::Nothing)
    };
    let tagged = tags::dns_owner(&actual.tags)
        .filter(|owner| !owner.eq_ignore_ascii_case(&service.tag_name()) && !is_leaving(owner));
    let earlier = using.iter().find(|(_, other)| {
        other.settings.dns_label != DnsLabel::Untouched && other.settings.dns_label != usage.settings.dns_label
    });
    let owner = tagged.map(str::to_owned).or_else(|| earlier.map(|(other, _)| other.tag_name()))?;
    let message = format!(
        "the DNS label of public IP {name} belongs to Service {owner}; remove annotation \
         service.beta.kubernetes.io/azure-dns-label-name from one of the two Services"
    );
    Some(Refusal::new(RefusalReason::ForeignOwner, message))
}

fn tag_is_full(services: usize, env: &Env) -> Refusal {
    Refusal::new(
        RefusalReason::LimitExceeded,
        format!(
            "public IP {} is shared by {services} Services, and its tag {} has no room for another name: Azure allows {} \
             characters. Use another public IP",
            env.id.name(),
            tags::SERVICES,
            tags::LONGEST_VALUE
        ),
    )
}

/// The change of the tags of a public IP that this provider made. `own` are those of the Services `using` it whose tags it
/// gets.
fn tag_edits(
    names: &[String],
    releases_dns: bool,
    (using, own): (&Using, &Using),
    actual: &PublicIp,
    env: &Env,
    change: &mut network_tags::TagChange,
) {
    let there = tags::services(&actual.tags);
    let is_same = names.len() == there.len() && names.iter().zip(&there).all(|(one, other)| one == other);
    // A Service that is listed and has not told what it asks for may ask for tags of its own.
    let is_known = |name: &String| using.iter().any(|(service, _)| service.tag_name().eq_ignore_ascii_case(name));
    let is_read = using.iter().all(|(_, usage)| !usage.settings.tags_stay);
    if is_read && names.iter().all(is_known) && !own.is_empty() {
        let wanted = wanted_tags(env, own.iter().map(|(_, usage)| *usage));
        *change = of_configuration(&wanted, actual, env);
    }
    if !is_same {
        let spelled = network_tags::find(&actual.tags, tags::SERVICES).map_or(tags::SERVICES, |(spelled, _)| spelled);
        change.set.insert(spelled.to_owned(), names.join(","));
    }
    if let Some((spelled, _)) = network_tags::find(&actual.tags, tags::RELEASED).filter(|_| !using.is_empty()) {
        change.remove.push(spelled.clone());
    }
    if releases_dns {
        change.remove.extend(dns_owner_tags(actual));
    }
}

/// The change of the tags that configuration and annotations ask for.
fn of_configuration(wanted: &BTreeMap<String, String>, actual: &PublicIp, env: &Env) -> network_tags::TagChange {
    let mut keep = env.tags.keep_prefixes.clone();
    if !keep.is_empty() {
        keep.extend(tags::OWNERSHIP.iter().map(|name| (*name).to_owned()));
    }
    network_tags::change(&actual.tags, wanted, &keep)
}

fn dns_owner_tags(actual: &PublicIp) -> impl Iterator<Item = String> {
    let is_owner =
        |name: &&String| name.eq_ignore_ascii_case(tags::DNS_OWNER) || name.eq_ignore_ascii_case(tags::OLD_DNS_OWNER);
    actual.tags.keys().filter(is_owner).cloned()
}

/// The change of the DNS label; its owner is noted in a tag unless the public IP is the user's.
fn label_edit(
    using: &[(&ServiceKey, &Use)],
    actual: &PublicIp,
    is_users: bool,
    change: &mut network_tags::TagChange,
) -> Option<Edit> {
    let (service, usage) = using.iter().find(|(_, usage)| usage.settings.dns_label != DnsLabel::Untouched)?;
    match &usage.settings.dns_label {
        DnsLabel::Untouched => None,
        DnsLabel::Removed => {
            actual.dns_label.as_ref()?;
            if !is_users {
                change.remove.extend(dns_owner_tags(actual));
            }
            Some(Edit::DnsLabel(None))
        }
        DnsLabel::Set(label) => {
            let owner = tags::dns_owner(&actual.tags);
            if !is_users && !owner.is_some_and(|owner| owner.eq_ignore_ascii_case(&service.tag_name())) {
                change.set.insert(tags::DNS_OWNER.to_owned(), service.tag_name());
            }
            let is_there = actual.dns_label.as_ref().is_some_and(|there| there.eq_ignore_ascii_case(label));
            (!is_there).then(|| Edit::DnsLabel(Some(label.clone())))
        }
    }
}

/// How far the public IP serves a Service, as it was observed.
fn judge(service: &ServiceKey, usage: &Use, actual: &PublicIp, is_users: bool, edits: &[Edit], env: &Env) -> Served {
    let is_listed = is_users || (actual.lists(&service.tag_name()) && !actual.is_released());
    let has_label = match &usage.settings.dns_label {
        DnsLabel::Untouched => true,
        DnsLabel::Removed => actual.dns_label.is_none(),
        DnsLabel::Set(label) => actual.dns_label.as_ref().is_some_and(|there| there.eq_ignore_ascii_case(label)),
    };
    let by_others = other_user(service, actual);
    let has_tags = is_users || usage.settings.tags.keys().all(|name| network_tags::find(&actual.tags, name).is_some());
    let has_ip_tags = !edits.iter().any(|edit| matches!(edit, Edit::IpTags(_)));
    let is_labelled = by_others.is_some() || (has_label && has_tags);
    if !is_listed || !is_labelled || !has_ip_tags {
        return Served::Pending;
    }
    let Some(address) = actual.address else { return Served::Waiting(Waiting::Address) };
    if actual.provisioning != Provisioning::Succeeded {
        return Served::Waiting(Waiting::For(actual.id.clone()));
    }
    let mut found = Found { host_name: actual.host_name.clone(), ..Found::default() };
    found.addresses.insert(actual.family, address);
    let asked = usage.settings.ip_tags.as_ref().filter(|asked| **asked != actual.ip_tags && !is_users);
    let has_all = has_label && has_tags && (asked.is_none() || !env.may_change_ip_tags);
    found.notices.extend(usage.outside.is_some().then(|| is_kept_outside(usage, env)));
    found.notices.extend(by_others.filter(|_| !has_all).map(|user| keeps_label_and_tags(&user, env)));
    if asked.is_some() && !env.may_change_ip_tags {
        found.notices.push(Refusal::new(
            RefusalReason::WouldReplaceAddress,
            format!(
                "the IP tags of public IP {} differ from annotation service.beta.kubernetes.io/azure-pip-ip-tags and stay: \
                 a change would replace the address. Make a new Service, or set enableIPTagMutationForExistingPublicIP",
                env.id.name()
            ),
        ));
    }
    Served::Done(found)
}
