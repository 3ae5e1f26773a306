//! What the controller would write, without a write: for `--dry-run`, and to know at a take-over whether something of a
//! Service would be removed or replaced.
//!
//! [`preview`] asks the planners again and again, and does to the models what they plan, until nothing is left. The order of
//! writes is the Service step's and not shown. What Azure chooses, such as the address of a new public IP, stands as an
//! address of the ranges for documentation (RFC 5737, RFC 3849).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use lazuli_engine::{
    object::{Object, Plan, Served},
    service::{self, Level, Seen, Service as _},
};
use lazuli_model::{ArmId, ServiceKey, address::Family};
use lazuli_services::{
    ask::WarningReason,
    network::{
        RefusalReason,
        load_balancer::{self, LoadBalancer},
        private_link::{self, PrivateLink},
        public_ip::{self, PublicIp},
        security_group::{self, SecurityGroup},
    },
};

use super::{
    Admission, Balanced, Inputs, Key, LoadBalancers, PrivateLinks, PublicIps, Report, SecurityGroups, Spec, Want,
    describe,
};

/// How often the planners are asked. A change of side, the longest, takes five times.
const ROUNDS: usize = 12;

/// What Azure holds.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The load balancers.
    pub load_balancers: BTreeMap<ArmId, LoadBalancer>,
    /// The public IPs.
    pub public_ips: BTreeMap<ArmId, PublicIp>,
    /// The security groups.
    pub security_groups: BTreeMap<ArmId, SecurityGroup>,
    /// The private link services.
    pub private_links: BTreeMap<ArmId, PrivateLink>,
}

/// A Service and what it asks for.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Which Service.
    pub key: ServiceKey,
    /// What it asks for; `None` when everything of it is to go.
    pub spec: Option<Spec>,
    /// The objects that may hold parts of it.
    pub found: BTreeSet<Key>,
    /// Its status.
    pub status: Option<Vec<IpAddr>>,
    /// Whether it bears the finalizer.
    pub finalizer: bool,
}

/// What no process has seen leave.
static NOTHING: service::Reports<Balanced> = BTreeMap::new();
/// What no process has told the security group.
static UNTOLD: Admission = BTreeMap::new();

impl Subject {
    fn seen<'a>(&'a self, reports: &'a service::Reports<Balanced>) -> Seen<'a, Balanced> {
        let is_complete = self.found.iter().all(|key| reports.contains_key(key));
        let status = self.status.as_ref();
        Seen { reports, left: &NOTHING, told: &UNTOLD, status, has_changed: false, is_complete }
    }
}

/// What the planners need to know of each object.
pub trait Environment {
    /// Of a load balancer.
    fn load_balancer(&self, id: &ArmId) -> Arc<load_balancer::Env>;
    /// Of a public IP.
    fn public_ip(&self, id: &ArmId) -> Arc<public_ip::Env>;
    /// Of a security group.
    fn security_group(&self, id: &ArmId) -> Arc<security_group::Env>;
    /// Of a private link service.
    fn private_link(&self, id: &ArmId) -> Arc<private_link::Env>;
}

/// The changes of one object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Planned {
    /// What is changed, such as `load balancer kubernetes`.
    pub object: String,
    /// Each change, as a sentence without a subject.
    pub changes: Vec<String>,
    /// What stays of a Service although a new one would not get it: each as a sentence.
    pub kept: Vec<String>,
    /// What a Service does or does not at the addresses of others: each as a sentence.
    pub notes: Vec<String>,
    /// What a Service says that is not understood, or not used because it is wrong: each as a sentence.
    pub warnings: Vec<String>,
    /// Whether something that exists is removed or replaced, or more sources are let in to what is reached already.
    pub replaces: bool,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}:", self.object, if self.replaces { " (removes, replaces or opens)" } else { "" })?;
        self.changes.iter().try_for_each(|change| write!(f, "\n  {change}"))?;
        self.kept.iter().try_for_each(|kept| write!(f, "\n  leave as it is: {kept}"))?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  note: {note}"))?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\n  warning: {warning}"))
    }
}

/// What is said of a Service whose specification is wrong. `has_status`: it was served before, and keeps what it has.
pub fn not_served(service: &ServiceKey, has_status: bool, mistakes: &[String]) -> Planned {
    let how = if has_status { "not changed" } else { "not served" };
    let changes = mistakes.iter().map(|mistake| format!("{how}: {mistake}")).collect();
    Planned { object: format!("Service {service}"), changes, ..Planned::default() }
}

/// The wants of all Services, by object.
#[derive(Default)]
struct Wants {
    load_balancers: BTreeMap<ArmId, load_balancer::Wants>,
    public_ips: BTreeMap<ArmId, public_ip::Wants>,
    security_groups: BTreeMap<ArmId, security_group::Wants>,
    private_links: BTreeMap<ArmId, private_link::Wants>,
}

impl Wants {
    fn add(&mut self, key: &Key, service: &ServiceKey, want: Want) {
        let (id, service) = (key.id().clone(), service.clone());
        match want {
            Want::LoadBalancer(want) => _ = self.load_balancers.entry(id).or_default().insert(service, want),
            Want::PublicIp(want) => _ = self.public_ips.entry(id).or_default().insert(service, want),
            Want::SecurityGroup(want) => _ = self.security_groups.entry(id).or_default().insert(service, want),
            Want::PrivateLink(want) => _ = self.private_links.entry(id).or_default().insert(service, want),
            // Whether a subnet lets private link services in is seen when one is made.
            Want::Subnet(_) => {}
        }
    }
}

/// Why Services are not served, as the planners say.
type Refused = BTreeMap<ServiceKey, BTreeSet<String>>;

/// What stands for an address that Azure has not given yet.
const CHOSEN: &str = "an address that Azure chooses";

/// What each object has shown of each Service.
type Reports = BTreeMap<ServiceKey, service::Reports<Balanced>>;

/// All changes that these Services ask for, in the order in which the planners found them.
pub fn preview(
    mut observed: Observed,
    subjects: &[Subject],
    inputs: &Inputs,
    environment: &impl Environment,
) -> Vec<Planned> {
    let mut reports: Reports = BTreeMap::new();
    let mut planned: Vec<Planned> = Vec::new();
    let mut given = 0;
    let mut refused = Refused::new();
    for round in 0..ROUNDS {
        // What an object gives, such as a private address, is known to the others in the next round. Nothing is given up
        // before.
        let level = match round {
            0 => Level::Look,
            1 | 2 => Level::Make,
            _ => Level::Clean,
        };
        let wants = wants(subjects, &reports, inputs, level);
        let before = (planned.clone(), reports.clone());
        refused.clear();
        let mut note = Notes { reports: &mut reports, planned: &mut planned, refused: &mut refused };
        for (id, wants) in wants.public_ips {
            let (key, env) = (Key::PublicIp(id.clone()), environment.public_ip(&id));
            let actual = observed.public_ips.remove(&id);
            let edits = note.plan(&key, PublicIps::plan(&wants, actual.as_ref(), &env), describe::public_ip);
            if let Some(mut after) = public_ip::apply(actual, &edits, &env) {
                after.address.get_or_insert_with(|| placeholder(after.family, &mut given));
                observed.public_ips.insert(id, after);
            }
        }
        for (id, wants) in wants.load_balancers {
            let (key, env) = (Key::LoadBalancer(id.clone()), environment.load_balancer(&id));
            let actual = observed.load_balancers.remove(&id);
            let edits = note.plan(&key, LoadBalancers::plan(&wants, actual.as_ref(), &env), describe::load_balancer);
            if let Some(mut after) = load_balancer::apply(actual, &edits, &env) {
                for frontend in after.frontends.iter_mut().filter(|one| one.public_ip.is_none()) {
                    frontend.private_address.get_or_insert_with(|| placeholder(frontend.family, &mut given));
                }
                observed.load_balancers.insert(id, after);
            }
        }
        for ip in observed.public_ips.values_mut() {
            let user = observed.load_balancers.values().find_map(|balancer| {
                let frontend = balancer.frontends.iter().find(|one| one.public_ip.as_ref() == Some(&ip.id))?;
                Some(LoadBalancer::frontend_id(&balancer.id, &frontend.name))
            });
            let was_ours =
                ip.used_by.as_ref().is_none_or(|user| user.as_str().to_lowercase().contains("/loadbalancers/"));
            if was_ours {
                ip.used_by = user;
            }
        }
        for (id, wants) in wants.security_groups {
            let (key, env) = (Key::SecurityGroup(id.clone()), environment.security_group(&id));
            let actual = observed.security_groups.remove(&id);
            let edits = note.plan(&key, SecurityGroups::plan(&wants, actual.as_ref(), &env), describe::security_group);
            observed.security_groups.extend(security_group::apply(actual, &edits, &env).map(|after| (id, after)));
        }
        for (id, wants) in wants.private_links {
            let (key, env) = (Key::PrivateLink(id.clone()), environment.private_link(&id));
            let actual = observed.private_links.remove(&id);
            let edits = note.plan(&key, PrivateLinks::plan(&wants, actual.as_ref(), &env), describe::private_link);
            observed.private_links.extend(private_link::apply(actual, &edits, &env).map(|after| (id, after)));
        }
        if level == Level::Clean && before == (planned.clone(), reports.clone()) {
            break;
        }
    }
    planned.extend(subjects.iter().filter_map(|subject| of_service(subject, &reports, &refused, inputs)));
    for one in &mut planned {
        let said = one.changes.iter_mut().chain(&mut one.kept).chain(&mut one.notes);
        said.for_each(|text| *text = without_placeholders(text));
    }
    planned
}

/// A change in which the placeholders of addresses are named as what they are.
fn without_placeholders(change: &str) -> String {
    let named = |word: &str| match word.trim_end_matches(',').parse() {
        Ok(address) if is_placeholder(address) => {
            format!("{CHOSEN}{}", if word.ends_with(',') { "," } else { "" })
        }
        _ => word.to_owned(),
    };
    change.split(' ').map(named).collect::<Vec<_>>().join(" ")
}

/// What the Service itself would get.
fn of_service(subject: &Subject, reports: &Reports, refused: &Refused, inputs: &Inputs) -> Option<Planned> {
    let none = BTreeMap::new();
    let reports = reports.get(&subject.key).unwrap_or(&none);
    let seen = subject.seen(reports);
    let mut planned = Planned { object: format!("Service {}", subject.key), ..Planned::default() };
    let Planned { changes, kept, notes, warnings, .. } = &mut planned;
    match &subject.spec {
        Some(spec) => {
            if !subject.finalizer {
                changes.push("add the finalizer".to_owned());
            }
            let is_there = |status: &Vec<IpAddr>| {
                subject.status.as_ref().is_some_and(|there| Balanced::is_same_status(there, status))
            };
            let status = Balanced::status(&subject.key, spec, &seen, inputs);
            let refused = refused.get(&subject.key);
            if let Some(status) = status.filter(|status| refused.is_none() && !is_there(status)) {
                let all: Vec<String> = status.iter().map(IpAddr::to_string).collect();
                changes.push(format!("set the status to {}", all.join(", ")));
            }
            changes.extend(refused.into_iter().flatten().map(|why| format!("not served: {why}")));
            for warning in &spec.ask.warnings {
                match warning.reason {
                    WarningReason::KeptValue => kept.push(warning.message.clone()),
                    WarningReason::UnknownAnnotation | WarningReason::IgnoredValue => {
                        warnings.push(warning.message.clone());
                    }
                    // Whoever takes over has these since long ago; the events say them.
                    WarningReason::NoEffect | WarningReason::ConflictConfiguration => {}
                }
            }
            let of_reason = |reason: RefusalReason| -> BTreeSet<String> {
                let all = reports.values().flat_map(|report| &report.found.notices);
                all.filter(|notice| notice.reason == reason).map(ToString::to_string).collect()
            };
            kept.extend(of_reason(RefusalReason::KeptValue));
            notes.extend(of_reason(RefusalReason::SharedAddress));
        }
        None if subject.finalizer => changes.push("clear the status and remove the finalizer".to_owned()),
        None => {}
    }
    let says_nothing = [changes, kept, notes, warnings].into_iter().all(|said| said.is_empty());
    (!says_nothing).then_some(planned)
}

fn wants(subjects: &[Subject], reports: &Reports, inputs: &Inputs, level: Level) -> Wants {
    let (mut wants, none) = (Wants::default(), BTreeMap::new());
    for subject in subjects.iter().filter(|subject| subject.spec.is_some() || subject.finalizer) {
        let reports = reports.get(&subject.key).unwrap_or(&none);
        let mut keys = subject.found.clone();
        keys.extend(reports.keys().cloned());
        if let Some(spec) = &subject.spec {
            keys.extend(Balanced::keys(&subject.key, spec, inputs));
        }
        let seen = subject.seen(reports);
        for key in keys {
            let want = Balanced::want(&subject.key, subject.spec.as_ref(), &key, level, &seen, inputs);
            wants.add(&key, &subject.key, want);
        }
    }
    wants
}

struct Notes<'a> {
    reports: &'a mut Reports,
    planned: &'a mut Vec<Planned>,
    refused: &'a mut Refused,
}

impl Notes<'_> {
    /// Notes what a plan says, and returns its edits.
    fn plan<O, E>(&mut self, key: &Key, plan: Plan<O>, describe: fn(&E) -> String) -> Vec<E>
    where
        O: Object<Requester = ServiceKey, Report = Report, Op = Vec<E>>,
    {
        for (service, served) in plan.served {
            match served {
                Served::Met(report) => {
                    self.reports.entry(service).or_default().insert(key.clone(), Box::new(report));
                }
                Served::Refused(why) => _ = self.refused.entry(service).or_default().insert(why.message),
                Served::Pending | Served::Waiting(_) => {}
            }
        }
        let Some(write) = plan.write else { return vec![] };
        let changes = write.op.iter().map(describe);
        let object = key.to_string();
        match self.planned.iter_mut().find(|planned| planned.object == object) {
            Some(planned) => {
                let news: Vec<String> = changes.filter(|change| !planned.changes.contains(change)).collect();
                planned.changes.extend(news);
                planned.replaces |= write.replaces;
            }
            None => {
                let (changes, replaces) = (changes.collect(), write.replaces);
                self.planned.push(Planned { object, changes, replaces, ..Planned::default() });
            }
        }
        write.op
    }
}

/// Whether an address is of the ranges that [`placeholder`] takes from.
fn is_placeholder(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets().starts_with(&[192, 0, 2]),
        IpAddr::V6(address) => address.segments().starts_with(&[0x2001, 0xdb8]),
    }
}

fn placeholder(family: Family, given: &mut u16) -> IpAddr {
    *given = given.wrapping_add(1);
    match family {
        Family::V4 => {
            let [_, low] = given.to_be_bytes();
            Ipv4Addr::new(192, 0, 2, low).into()
        }
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, *given).into(),
    }
}
