//! Which objects of Azure a Service may own, and which resource groups are listed to find them.
//!
//! A process that starts anew knows nothing of what the process before has made. It finds that by
//!
//! - the annotations of the Service: the names that they give its public IPs and its private link service;
//! - the tags of public IPs and private link services, in every resource group that a Service, the configuration or a
//!   public IP prefix names;
//! - the load balancers, and the public IPs, of frontends that bear the Service's name.
//!
//! Clusters may have the same name, and Services of one name. So in a resource group that the Service itself does not name,
//! a tag is not enough: the name of the object, or of its frontend, must have the Service's uid.
//!
//! A Service is gone only when every group that it names has been read ([`Owned::unread`]). Groups that other Services name
//! hold up nothing. A list counts if it was sent since this process leads, for an earlier one may lack what the leader before
//! has made. What a list has shown is kept for [`KEPT`] and, where it may be a Service's, for as long as the Service exists: the
//! object is read alone before anything rests on it. What no Service names any more is forgotten.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    time::Duration,
};

use lazuli_model::{ArmId, ServiceKey};
use lazuli_services::{
    ask::{
        AddressAsk, Ask,
        names::{self, BaseName},
    },
    network::{Settings, load_balancer::LoadBalancer, private_link::PrivateLink, public_ip::PublicIp},
    service::{ServiceObject, annotation::key, wants},
};

use super::Key;

/// For so long what a list has shown is known although later lists lack it: no list lags longer.
pub const KEPT: Duration = Duration::from_secs(3_600);

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Public IPs.
    PublicIp,
    /// Private link services.
    PrivateLink,
}

/// One kind of objects in one resource group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// What is listed.
    pub kind: Kind,
    /// The resource group, in lower case.
    pub group: String,
}

impl Place {
    fn new(kind: Kind, group: &str) -> Self {
        Self { kind, group: group.to_lowercase() }
    }

    /// The place of an object; `None` of one that is where the configuration says.
    pub fn of(key: &Key) -> Option<Self> {
        match key {
            Key::PublicIp(id) => Some(Self::new(Kind::PublicIp, id.resource_group())),
            Key::PrivateLink(id) => Some(Self::new(Kind::PrivateLink, id.resource_group())),
            Key::LoadBalancer(_) | Key::SecurityGroup(_) | Key::Subnet(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::PublicIp => "public IPs",
            Kind::PrivateLink => "private link services",
        };
        write!(f, "the {kind} of resource group {}", self.group)
    }
}

/// What is expected of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is served.
    Served,
    /// It names an address, and no public IP with that address is known.
    LacksAddress,
    /// It bears our finalizer, and everything of it is to go.
    Going,
}

/// What a Service may own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owned {
    /// The objects.
    pub keys: BTreeSet<Key>,
    /// The places that the Service names and that have not been read, each with the reason. While there are some, a Service
    /// that goes may own more.
    pub unread: Vec<String>,
}

/// The places that a Service names, by its annotations or, where it has none, by the configuration.
pub fn named(object: &ServiceObject, settings: &Settings) -> BTreeSet<Place> {
    let place = |kind, key: &str, configured: &str| {
        let text = object.annotations.get(key).map(|text| text.trim()).filter(|text| !text.is_empty());
        // No group has a name that Azure does not allow.
        let group = text.filter(|text| names::is_resource_group_name(text)).unwrap_or(configured);
        Place::new(kind, group)
    };
    [
        place(Kind::PublicIp, key::RESOURCE_GROUP, &settings.resource_group),
        place(Kind::PrivateLink, key::PLS_RESOURCE_GROUP, &settings.private_link_resource_group),
    ]
    .into()
}

/// The places that the configuration names.
pub fn configured(settings: &Settings) -> [Place; 2] {
    [
        Place::new(Kind::PublicIp, &settings.resource_group),
        Place::new(Kind::PrivateLink, &settings.private_link_resource_group),
    ]
}

/// The places of the public IP prefixes that a Service names, in the subscription of the load balancers.
fn of_prefixes(object: &ServiceObject, settings: &Settings) -> impl Iterator<Item = Place> {
    let ids = [key::PIP_PREFIX, key::PIP_PREFIX_IPV6].into_iter().filter_map(|key| object.annotations.get(key));
    let ids = ids.filter_map(|text| text.trim().parse::<ArmId>().ok());
    let here = ids.filter(|id| id.subscription().eq_ignore_ascii_case(&settings.subscription));
    here.map(|id| Place::new(Kind::PublicIp, id.resource_group())).collect::<Vec<_>>().into_iter()
}

/// A public IP as a list has shown it.
#[derive(Debug, Clone)]
struct Seen {
    group: String,
    address: Option<IpAddr>,
    /// When the last list that showed it was sent.
    shown_at: Duration,
}

/// A private link service as a list has shown it.
#[derive(Debug, Clone)]
struct SeenLink {
    link: PrivateLink,
    /// When the last list that showed it was sent.
    shown_at: Duration,
}

/// What lists have shown.
#[derive(Debug, Clone, Default)]
pub struct Discovered {
    /// When the last list of a place was sent, or why it could not be read.
    places: BTreeMap<Place, Result<Duration, String>>,
    public_ips: BTreeMap<ArmId, Seen>,
    /// Public IPs by the Services in their tags, as `namespace/name` in lower case.
    tagged: BTreeMap<String, BTreeSet<ArmId>>,
    /// The load balancers and the public IPs of frontends, by the base name in the name of a frontend or rule, in lower case.
    of_names: BTreeMap<String, BTreeSet<Key>>,
    private_links: BTreeMap<ArmId, SeenLink>,
}

impl Discovered {
    /// The places that are to be listed now for these Services. For one that goes they are tried until a list has shown
    /// them that was sent no earlier than `not_before`.
    pub fn due<'s>(
        &self,
        services: impl IntoIterator<Item = (&'s ServiceObject, Standing)>,
        not_before: Duration,
        settings: &Settings,
    ) -> BTreeSet<Place> {
        let is_new = |place: &Place| !self.places.contains_key(place);
        let mut due: BTreeSet<Place> = configured(settings).into_iter().filter(is_new).collect();
        for (object, standing) in services {
            due.extend(of_prefixes(object, settings).filter(is_new));
            due.extend(named(object, settings).into_iter().filter(|place| match standing {
                Standing::Served => is_new(place),
                Standing::LacksAddress => is_new(place) || place.kind == Kind::PublicIp,
                Standing::Going => !self.is_read(place, not_before),
            }));
        }
        due
    }

    /// Whether a list of a place was sent no earlier than this.
    fn is_read(&self, place: &Place, not_before: Duration) -> bool {
        matches!(self.places.get(place), Some(Ok(sent_at)) if *sent_at >= not_before)
    }

    /// A list of a place, sent at this time, has shown these public IPs. Returns the Services in their tags, as `namespace/name` in lower case.
    pub fn public_ips_listed(
        &mut self,
        place: &Place,
        sent_at: Duration,
        all: impl IntoIterator<Item = PublicIp>,
        settings: &Settings,
    ) -> BTreeSet<String> {
        let mut concerned = BTreeSet::new();
        for ip in all {
            // Clusters that share a resource group may have Services of one name.
            let is_ours = !ip.is_of_another_cluster(&settings.cluster_name);
            for service in ip.services().into_iter().filter(|_| is_ours).map(str::to_lowercase) {
                concerned.insert(service.clone());
                self.tagged.entry(service).or_default().insert(ip.id.clone());
            }
            let group = ip.id.resource_group().to_lowercase();
            self.public_ips.insert(ip.id.clone(), Seen { group, address: ip.address, shown_at: sent_at });
        }
        self.public_ips.retain(|_, seen| seen.group != place.group || seen.shown_at + KEPT >= sent_at);
        self.places.insert(place.clone(), Ok(sent_at));
        concerned
    }

    /// The same of private link services. Returns the Services that own one.
    pub fn private_links_listed(
        &mut self,
        place: &Place,
        sent_at: Duration,
        all: impl IntoIterator<Item = PrivateLink>,
        settings: &Settings,
    ) -> BTreeSet<String> {
        let mut concerned = BTreeSet::new();
        for link in all.into_iter().filter(|link| link.is_of_cluster(&settings.cluster_name)) {
            concerned.extend(link.owner().map(str::to_lowercase));
            self.private_links.insert(link.id.clone(), SeenLink { link, shown_at: sent_at });
        }
        self.places.insert(place.clone(), Ok(sent_at));
        concerned
    }

    /// A place could not be read. What an earlier list of it has shown is kept.
    pub fn not_listed(&mut self, place: &Place, why: String) {
        self.places.insert(place.clone(), Err(why));
    }

    /// A list has shown this load balancer.
    pub fn load_balancer_listed(&mut self, balancer: &LoadBalancer) {
        let mut note = |name: &str, key: Key| {
            if let Some(base) = names::base_in(name) {
                self.of_names.entry(base.to_lowercase()).or_default().insert(key);
            }
        };
        for frontend in &balancer.frontends {
            note(&frontend.name, Key::LoadBalancer(balancer.id.clone()));
            if let Some(public_ip) = &frontend.public_ip {
                note(&frontend.name, Key::PublicIp(public_ip.clone()));
            }
        }
        balancer.rules.iter().for_each(|rule| note(&rule.name, Key::LoadBalancer(balancer.id.clone())));
    }

    /// The private link services of this cluster.
    pub fn private_links(&self) -> impl Iterator<Item = &PrivateLink> {
        self.private_links.values().map(|seen| &seen.link)
    }

    /// Forgets what none of these Services names: those are all that exist. What bears the tag of a Service is known for as
    /// long as the Service exists, wherever it is.
    pub fn forget_unnamed<'s>(&mut self, services: impl IntoIterator<Item = &'s ServiceObject>, settings: &Settings) {
        let mut places: BTreeSet<Place> = configured(settings).into();
        let mut owners = BTreeSet::new();
        for object in services {
            places.extend(named(object, settings).into_iter().chain(of_prefixes(object, settings)));
            owners.insert(object.key.tag_name().to_lowercase());
        }
        self.places.retain(|place, _| places.contains(place));
        let is_named = |kind: Kind, id: &ArmId| places.contains(&Place::new(kind, id.resource_group()));
        self.public_ips.retain(|id, _| is_named(Kind::PublicIp, id));
        let public_ips = &self.public_ips;
        self.tagged.retain(|owner, ids| {
            owners.contains(owner) || {
                ids.retain(|id| public_ips.contains_key(id));
                !ids.is_empty()
            }
        });
        let last_lists = &self.places;
        self.private_links.retain(|id, seen| {
            let is_lacking = match last_lists.get(&Place::new(Kind::PrivateLink, id.resource_group())) {
                Some(Ok(sent_at)) => seen.shown_at + KEPT < *sent_at,
                Some(Err(_)) => false,
                None => true,
            };
            !is_lacking || seen.link.owner().is_some_and(|owner| owners.contains(&owner.to_lowercase()))
        });
    }

    /// How many of each kind are known.
    pub fn sizes(&self) -> [(&'static str, usize); 4] {
        let tagged = self.tagged.values().map(BTreeSet::len).sum();
        [
            ("places", self.places.len()),
            ("public IPs", self.public_ips.len()),
            ("tagged public IPs", tagged),
            ("private link services", self.private_links.len()),
        ]
    }

    /// The public IP with an address in a resource group.
    pub fn with_address(&self, address: IpAddr, resource_group: &str) -> Option<&ArmId> {
        let is_it = |seen: &Seen| seen.address == Some(address) && seen.group.eq_ignore_ascii_case(resource_group);
        self.public_ips.iter().find(|(_, seen)| is_it(seen)).map(|(id, _)| id)
    }

    /// How many Services the tags name.
    pub fn services(&self) -> usize {
        self.tagged.len()
    }

    /// What a Service may own. `ask` is what its specification says, where that is valid. A list that was sent before
    /// `not_before` may lack what the leader before has made.
    pub fn owned(
        &self,
        object: &ServiceObject,
        ask: Option<&Ask>,
        standing: Standing,
        not_before: Duration,
        settings: &Settings,
    ) -> Owned {
        let named = named(object, settings);
        let base = BaseName::of(&object.key);
        let tag = object.key.tag_name().to_lowercase();
        let is_named = |kind: Kind, id: &ArmId| named.iter().any(|one| one.kind == kind && is_in(id, &one.group));
        let mut owned = Owned::default();
        let tagged = self.tagged.get(&tag).into_iter().flatten();
        let shown = || self.of_names.get(&base.as_str().to_lowercase()).into_iter().flatten();
        let of_frontends = shown().filter_map(|key| if let Key::PublicIp(id) = key { Some(id) } else { None });
        let ips = tagged.chain(of_frontends).filter(|id| is_named(Kind::PublicIp, id) || base.is_in(id.name()));
        owned.keys.extend(ips.cloned().map(Key::PublicIp));
        if standing != Standing::Going {
            return owned;
        }
        // That of an availability set may have no Node any more, and then nothing else names it.
        owned.keys.extend(shown().filter(|key| matches!(key, Key::LoadBalancer(_))).cloned());
        owned.keys.extend(ask.into_iter().flat_map(|ask| by_name(ask, settings)));
        // One that its Service asks for no more, with the annotation gone, stays until the Service goes.
        let owns = |link: &&PrivateLink| {
            let bears_uid =
                || base.is_in(link.id.name()) || link.frontends.iter().any(|frontend| base.owns(frontend.name()));
            link.owner().is_some_and(|owner| owner.eq_ignore_ascii_case(&tag))
                && (is_named(Kind::PrivateLink, &link.id) || bears_uid())
        };
        owned.keys.extend(self.private_links().filter(owns).map(|link| Key::PrivateLink(link.id.clone())));
        let unread = named.iter().filter(|place| !self.is_read(place, not_before));
        owned.unread.extend(unread.map(|place| match self.places.get(place) {
            Some(Err(why)) => format!("{place} cannot be read: {why}"),
            Some(Ok(_)) | None => format!("{place} are not read yet"),
        }));
        owned
    }
}

fn is_in(id: &ArmId, group: &str) -> bool {
    id.resource_group().eq_ignore_ascii_case(group)
}

/// The objects whose names a specification gives. A list may lag behind their creation.
fn by_name(ask: &Ask, settings: &Settings) -> impl Iterator<Item = Key> {
    let public_ips = ask.families.iter().filter_map(|family| match &family.address {
        AddressAsk::Public(public) => wants::public_ip_id(public, settings).ok().flatten().map(Key::PublicIp),
        AddressAsk::Private { .. } => None,
    });
    let link = ask.private_link.as_ref().zip(ask.families.first()).and_then(|(link, family)| {
        let name = link.name.clone().unwrap_or_else(|| names::private_link(&family.frontend));
        settings.private_link_id(&link.resource_group, &name).ok().map(Key::PrivateLink)
    });
    public_ips.chain(link).collect::<Vec<_>>().into_iter()
}

/// Whether the Service is one of those that a list concerns.
pub fn is_concerned(service: &ServiceKey, concerned: &BTreeSet<String>) -> bool {
    concerned.contains(&service.tag_name().to_lowercase())
}

#[cfg(test)]
mod tests;
