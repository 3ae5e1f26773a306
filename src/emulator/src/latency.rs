//! How long an operation takes.
//!
//! A [`Profile`] turns an [`OperationKind`] and a seeded random generator into a duration. It never
//! sleeps and never reads a clock: the operation engine schedules with what it is told here, so the
//! same seed gives the same durations on real and on paused time.
//!
//! | profile | meaning |
//! |---|---|
//! | `none` | zero for everything; operations are still asynchronous |
//! | `typical` | the published medians, as constants |
//! | `azure` | random around the same medians, with the published tail of attach |
//! | `bad-day` | random, slower and with a much heavier tail |
//! | a file | a YAML file: one shape per kind over a built-in base |
//!
//! # Medians
//!
//! Documented (measurements published in azuredisk#473): disk create 2.5 s, disk delete 5 s, snapshot
//! create 2.5 s, snapshot delete 6 s, attach 10 s, detach 16 s; 6 minutes for the background copy of a snapshot of
//! 100 GiB (azuredisk#1953). Of instances of scale sets: 31 of them, one after the other and polled every 10 s, joined a
//! backend pool in 11 min 30 s, so each operation took between 10 and 20 s (kubernetes#88699); attach and detach are close
//! to a machine's, 9.5 s and 13.7 s on average (metrics of azuredisk). The name of a deleted file share is free after
//! 30 s at the earliest. Every other median is unverified: no measurement was found, and the number stands for an
//! order of magnitude.
//!
//! # The tail of `azure`
//!
//! Documented (aks-engine#2888): 5.54 % of attaches take over 60 s and 0.79 % over 120 s. One
//! log-normal through these two points has its median at 15.6 s, not at the published 10 s, so two
//! are mixed, an ordinary one and a slow one of weight `w = 0.10`:
//!
//! * slow: `P(X > 60) = 0.0554 / w = 0.554` and `P(X > 120) = 0.0079 / w = 0.079`. The standard
//!   normal quantiles are -0.1358 and 1.4118, so `sigma = ln(120/60) / (1.4118 + 0.1358) = 0.4479`
//!   and `mu = ln 60 + 0.1358 sigma = 4.1551`: a median of 63.8 s.
//! * ordinary: `sigma = 0.3` (unverified). The median of the whole is 10 s when the ordinary part has
//!   `P(X < 10) = 0.5 / 0.9 = 0.5556`, quantile 0.1397: `mu = ln 10 - 0.1397 * 0.3`, a median of
//!   9.589 s. Its share above 60 s is below one in a million.
//!
//! Other kinds take the same form scaled to their own median (unverified: only attach was measured).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

/// No sample is longer than this: a profile file with a wild sigma must not stop the emulator.
const LONGEST: Duration = Duration::from_secs(6 * 60 * 60);

/// Weight of the slow part in the `azure` mixture (see the module documentation).
const AZURE_SLOW_WEIGHT: f64 = 0.10;
/// Median of the ordinary part as a share of the median of the whole.
const AZURE_ORDINARY_MEDIAN: f64 = 0.958_96;
const AZURE_ORDINARY_SIGMA: f64 = 0.3;
/// Median of the slow part as a share of the median of the whole: 63.76 s for a median of 10 s.
const AZURE_SLOW_MEDIAN: f64 = 6.376;
const AZURE_SLOW_SIGMA: f64 = 0.4479;

/// `bad-day`, ordinary part: attach 35.6 s, as in a log of 2019 quoted in an azuredisk issue.
const BAD_DAY_ORDINARY_MEDIAN: f64 = 3.56;
const BAD_DAY_ORDINARY_SIGMA: f64 = 0.5;
/// `bad-day`, slow part: 2 min 25 s, as reported for a loaded region in AKS#477.
const BAD_DAY_SLOW_MEDIAN: f64 = 14.5;
const BAD_DAY_SLOW_SIGMA: f64 = 0.6;
/// Weight of the slow part of `bad-day`: unverified.
const BAD_DAY_SLOW_WEIGHT: f64 = 0.20;

/// What an operation does, as far as its duration is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationKind {
    /// A managed disk is created.
    DiskCreate,
    /// A managed disk is resized or changed.
    DiskUpdate,
    /// A managed disk is deleted.
    DiskDelete,
    /// A SAS is granted for, or revoked from, a disk or a snapshot.
    DiskGrantAccess,
    /// A virtual machine is created.
    VmCreate,
    /// A virtual machine is written without a change to its data disks.
    VmUpdate,
    /// A write of a virtual machine that attaches at least one disk and detaches none.
    VmAttach,
    /// A write of a virtual machine that detaches at least one disk.
    VmDetach,
    /// A virtual machine is deleted.
    VmDelete,
    /// A virtual machine is started, stopped, deallocated or restarted.
    VmPower,
    /// The model of a scale set is written, and no instance comes or goes.
    ScaleSetUpdate,
    /// An instance of a scale set is written without a change to its data disks, or gets the model of its set.
    InstanceUpdate,
    /// A write or delete of a network resource that has no kind of its own.
    Network,
    /// A write or delete of a load balancer, or of a part of one.
    LoadBalancer,
    /// A write or delete of a public IP address.
    PublicIpAddress,
    /// A write or delete of a network security group, or of a rule of one.
    SecurityGroup,
    /// A resource group is deleted with all that is in it.
    ResourceGroupDelete,
    /// A snapshot is created or changed.
    Snapshot,
    /// A snapshot is deleted.
    SnapshotDelete,
    /// The content of a snapshot or disk is copied or converted in the background, after its operation has ended.
    SnapshotCopy,
    /// A storage account is created.
    StorageAccount,
    /// The name of a deleted share becomes free; the deletion itself is done at once.
    ShareRemoval,
    /// A template is deployed: what it takes at least. It lasts until its last resource has ended.
    Deployment,
}

impl OperationKind {
    /// Every kind, in order.
    pub const ALL: [Self; 23] = [
        Self::DiskCreate,
        Self::DiskUpdate,
        Self::DiskDelete,
        Self::DiskGrantAccess,
        Self::VmCreate,
        Self::VmUpdate,
        Self::VmAttach,
        Self::VmDetach,
        Self::VmDelete,
        Self::VmPower,
        Self::ScaleSetUpdate,
        Self::InstanceUpdate,
        Self::Network,
        Self::LoadBalancer,
        Self::PublicIpAddress,
        Self::SecurityGroup,
        Self::ResourceGroupDelete,
        Self::Snapshot,
        Self::SnapshotDelete,
        Self::SnapshotCopy,
        Self::StorageAccount,
        Self::ShareRemoval,
        Self::Deployment,
    ];

    /// The median in milliseconds; the module documentation says which are documented.
    #[must_use]
    pub const fn median_ms(self) -> u64 {
        match self {
            Self::DiskCreate | Self::Snapshot | Self::DiskUpdate => 2_500,
            Self::DiskDelete => 5_000,
            Self::SnapshotDelete => 6_000,
            Self::VmAttach => 10_000,
            Self::VmDetach => 16_000,
            Self::DiskGrantAccess => 1_000,
            Self::VmCreate => 45_000,
            Self::VmUpdate | Self::ScaleSetUpdate => 5_000,
            // The middle of what a client that polls every 10 s sees as 22 s.
            Self::InstanceUpdate => 15_000,
            Self::VmDelete | Self::VmPower | Self::ResourceGroupDelete | Self::ShareRemoval => 30_000,
            // Between the 2 s and the 10 s that users report; recordings show no wait at all.
            Self::LoadBalancer => 4_000,
            Self::Network | Self::PublicIpAddress | Self::SecurityGroup => 3_000,
            // The only figure found is a Retry-After of 17.
            Self::StorageAccount => 20_000,
            Self::SnapshotCopy => 360_000,
            // A figure of the emulator's own.
            Self::Deployment => 1_000,
        }
    }
}

/// How the durations of one kind are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Constant {
        ms: f64,
    },
    LogNormal {
        median_ms: f64,
        sigma: f64,
    },
    /// An ordinary and a slow log-normal; `slow_weight` is the probability of the slow one.
    Mixture {
        ordinary_median_ms: f64,
        ordinary_sigma: f64,
        slow_median_ms: f64,
        slow_sigma: f64,
        slow_weight: f64,
    },
}

impl Shape {
    fn sample(&self, rng: &mut StdRng) -> Duration {
        let ms = match *self {
            Self::Constant { ms } => ms,
            Self::LogNormal { median_ms, sigma } => median_ms * (sigma * normal(rng)).exp(),
            Self::Mixture { ordinary_median_ms, ordinary_sigma, slow_median_ms, slow_sigma, slow_weight } => {
                // The choice is drawn before the value, so that every sample costs three draws.
                if rng.random::<f64>() < slow_weight {
                    slow_median_ms * (slow_sigma * normal(rng)).exp()
                } else {
                    ordinary_median_ms * (ordinary_sigma * normal(rng)).exp()
                }
            }
        };
        let seconds = (ms / 1_000.0).clamp(0.0, LONGEST.as_secs_f64());
        Duration::from_secs_f64(seconds)
    }
}

/// A standard normal number by Box and Muller's method; the second of the pair is thrown away, which
/// keeps the generator the only state.
fn normal(rng: &mut StdRng) -> f64 {
    // 1 - u lies in (0, 1], where the logarithm is finite.
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

/// Durations of all kinds of operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    name: String,
    shapes: BTreeMap<OperationKind, Shape>,
}

/// A profile could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither a built-in name nor a readable file.
    #[error("latency profile {given:?} is none of none, typical, azure, bad-day, and no file that can be read")]
    Unreadable {
        /// What the caller gave.
        given: String,
        /// Why the file could not be read.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a profile.
    #[error("latency profile {}: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why, in one line.
        why: String,
    },
    /// The file parses but says something impossible.
    #[error("latency profile {}: {what}", path.display())]
    Impossible {
        /// The file.
        path: PathBuf,
        /// What is wrong, naming the key.
        what: String,
    },
}

/// The file form: `base: typical` and `operations: {vmAttach: {median_ms: 10000, sigma: 0.4}}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    /// A built-in profile for the kinds that the file does not name.
    #[serde(default = "typical_name")]
    base: String,
    #[serde(default)]
    operations: BTreeMap<OperationKind, ShapeFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeFile {
    constant_ms: Option<f64>,
    median_ms: Option<f64>,
    sigma: Option<f64>,
}

fn typical_name() -> String {
    "typical".to_owned()
}

impl Profile {
    /// Zero for everything.
    #[must_use]
    pub fn none() -> Self {
        Self::built("none", |_| Shape::Constant { ms: 0.0 })
    }

    /// The medians as constants.
    #[must_use]
    pub fn typical() -> Self {
        Self::built("typical", |median| Shape::Constant { ms: median })
    }

    /// Random around the medians, with the published tail.
    #[must_use]
    pub fn azure() -> Self {
        Self::built("azure", |median| Shape::Mixture {
            ordinary_median_ms: median * AZURE_ORDINARY_MEDIAN,
            ordinary_sigma: AZURE_ORDINARY_SIGMA,
            slow_median_ms: median * AZURE_SLOW_MEDIAN,
            slow_sigma: AZURE_SLOW_SIGMA,
            slow_weight: AZURE_SLOW_WEIGHT,
        })
    }

    /// Random, slow, with a heavy tail.
    #[must_use]
    pub fn bad_day() -> Self {
        Self::built("bad-day", |median| Shape::Mixture {
            ordinary_median_ms: median * BAD_DAY_ORDINARY_MEDIAN,
            ordinary_sigma: BAD_DAY_ORDINARY_SIGMA,
            slow_median_ms: median * BAD_DAY_SLOW_MEDIAN,
            slow_sigma: BAD_DAY_SLOW_SIGMA,
            slow_weight: BAD_DAY_SLOW_WEIGHT,
        })
    }

    fn built(name: &str, shape: impl Fn(f64) -> Shape) -> Self {
        let shapes = OperationKind::ALL
            .into_iter()
            .map(|kind| {
                let median = Duration::from_millis(kind.median_ms()).as_secs_f64() * 1_000.0;
                (kind, shape(median))
            })
            .collect();
        Self { name: name.to_owned(), shapes }
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::none()),
            "typical" => Some(Self::typical()),
            "azure" => Some(Self::azure()),
            "bad-day" => Some(Self::bad_day()),
            _ => None,
        }
    }

    /// A built-in profile by name, or a YAML file by path.
    ///
    /// # Errors
    /// When `given` is no built-in name and the file cannot be read or is not a profile.
    pub fn parse(given: &str) -> Result<Self, ProfileError> {
        if let Some(profile) = Self::named(given) {
            return Ok(profile);
        }
        let path = PathBuf::from(given);
        let text = std::fs::read_to_string(&path)
            .map_err(|source| ProfileError::Unreadable { given: given.to_owned(), source })?;
        Self::from_yaml(&text, &path)
    }

    fn from_yaml(text: &str, path: &std::path::Path) -> Result<Self, ProfileError> {
        let impossible = |what: String| ProfileError::Impossible { path: path.to_owned(), what };
        let file: ProfileFile = serde_saphyr::from_str(text).map_err(|error| ProfileError::Malformed {
            path: path.to_owned(),
            why: crate::scenario::one_line(&error),
        })?;
        let mut profile = Self::named(&file.base)
            .ok_or_else(|| impossible(format!("base: {:?} is none of none, typical, azure, bad-day", file.base)))?;
        for (kind, shape) in file.operations {
            let positive = |value: f64| value.is_finite() && value >= 0.0;
            let shape = match (shape.constant_ms, shape.median_ms, shape.sigma) {
                (Some(ms), None, None) if positive(ms) => Shape::Constant { ms },
                (None, Some(median_ms), sigma) if positive(median_ms) && positive(sigma.unwrap_or(0.0)) => {
                    Shape::LogNormal { median_ms, sigma: sigma.unwrap_or(0.0) }
                }
                _ => {
                    return Err(impossible(format!(
                        "operations: {kind:?} needs either constant_ms, or median_ms and sigma, none of them negative"
                    )));
                }
            };
            profile.shapes.insert(kind, shape);
        }
        profile.name = path.display().to_string();
        Ok(profile)
    }

    /// The name it was asked for by: a built-in name or the file's path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long the next operation of this kind takes.
    pub fn sample(&self, kind: OperationKind, rng: &mut StdRng) -> Duration {
        self.shapes.get(&kind).map_or(Duration::ZERO, |shape| shape.sample(rng))
    }
}

impl Default for Profile {
    /// `typical`.
    fn default() -> Self {
        Self::typical()
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(given: &str) -> Result<Self, Self::Err> {
        Self::parse(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::path::Path;

    fn samples(profile: &Profile, kind: OperationKind, count: usize) -> Vec<f64> {
        let mut rng = StdRng::seed_from_u64(7);
        (0..count).map(|_| profile.sample(kind, &mut rng).as_secs_f64()).collect()
    }

    fn share_over(samples: &[f64], seconds: f64) -> f64 {
        let over = samples.iter().filter(|s| **s > seconds).count();
        over as f64 / samples.len() as f64
    }

    fn median(mut samples: Vec<f64>) -> f64 {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    }

    #[test]
    fn typical_is_the_published_medians() {
        let profile = Profile::typical();
        let mut rng = StdRng::seed_from_u64(0);
        let seconds = |kind, rng: &mut StdRng| profile.sample(kind, rng).as_secs_f64();
        assert_eq!(seconds(OperationKind::DiskCreate, &mut rng), 2.5);
        assert_eq!(seconds(OperationKind::DiskDelete, &mut rng), 5.0);
        assert_eq!(seconds(OperationKind::Snapshot, &mut rng), 2.5);
        assert_eq!(seconds(OperationKind::SnapshotDelete, &mut rng), 6.0);
        assert_eq!(seconds(OperationKind::VmAttach, &mut rng), 10.0);
        assert_eq!(seconds(OperationKind::VmDetach, &mut rng), 16.0);
    }

    #[test]
    fn the_sampled_tail_of_an_azure_attach_is_the_published_one() {
        let seconds = samples(&Profile::azure(), OperationKind::VmAttach, 400_000);
        let over_60 = share_over(&seconds, 60.0);
        let over_120 = share_over(&seconds, 120.0);
        assert!((over_60 - 0.0554).abs() < 0.002, "{over_60}");
        assert!((over_120 - 0.0079).abs() < 0.0008, "{over_120}");
        let middle = median(seconds);
        assert!((middle - 10.0).abs() < 0.1, "{middle}");
    }

    #[test]
    fn every_kind_of_azure_keeps_its_median() {
        for kind in OperationKind::ALL {
            let expected = kind.median_ms() as f64 / 1_000.0;
            let middle = median(samples(&Profile::azure(), kind, 20_001));
            assert!((middle / expected - 1.0).abs() < 0.03, "{kind:?} {middle}");
        }
    }

    #[test]
    fn a_bad_day_has_a_heavier_tail_than_azure() {
        let azure = samples(&Profile::azure(), OperationKind::VmAttach, 50_000);
        let bad = samples(&Profile::bad_day(), OperationKind::VmAttach, 50_000);
        assert!(share_over(&bad, 120.0) > 10.0 * share_over(&azure, 120.0));
        assert!(median(bad) > 3.0 * median(azure));
    }

    #[test]
    fn the_same_seed_gives_the_same_durations() {
        let profile = Profile::azure();
        assert_eq!(samples(&profile, OperationKind::VmDetach, 100), samples(&profile, OperationKind::VmDetach, 100));
    }

    #[test]
    fn none_takes_no_time_for_any_kind() {
        let mut rng = StdRng::seed_from_u64(1);
        for kind in OperationKind::ALL {
            assert_eq!(Profile::none().sample(kind, &mut rng), Duration::ZERO);
        }
    }

    #[test]
    fn a_file_changes_the_kinds_it_names_and_keeps_its_base() {
        let profile = Profile::from_yaml(
            "base: none\noperations:\n  vmAttach: {median_ms: 1000, sigma: 0.5}\n  diskCreate: {constant_ms: 20}\n",
            Path::new("p.yaml"),
        )
        .unwrap();
        let mut rng = StdRng::seed_from_u64(1);
        assert_eq!(profile.sample(OperationKind::DiskCreate, &mut rng), Duration::from_millis(20));
        assert_eq!(profile.sample(OperationKind::VmDetach, &mut rng), Duration::ZERO);
        let middle = median(samples(&profile, OperationKind::VmAttach, 20_001));
        assert!((middle - 1.0).abs() < 0.03, "{middle}");
        assert_eq!(profile.name(), "p.yaml");
    }

    #[test]
    fn a_wild_sigma_is_cut_off() {
        let profile =
            Profile::from_yaml("operations: {vmAttach: {median_ms: 1e12, sigma: 50}}", Path::new("p.yaml")).unwrap();
        let all = samples(&profile, OperationKind::VmAttach, 1_000);
        assert!(all.iter().all(|s| *s <= LONGEST.as_secs_f64()));
    }

    #[test]
    fn a_wrong_file_is_refused_with_the_key_it_is_wrong_in() {
        let error = |text: &str| {
            let error = Profile::from_yaml(text, Path::new("p.yaml")).unwrap_err();
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{error} {source}")
        };
        assert!(error("operations: {vmAttach: {median_ms: -1}}").contains("VmAttach"));
        assert!(error("operations: {vmAttach: {median: 1}}").contains("median"));
        assert!(error("operations: {vmFly: {constant_ms: 1}}").contains("vmFly"));
        assert!(error("base: fast").contains("fast"));
        let missing = Profile::parse("/does/not/exist.yaml").unwrap_err();
        assert!(missing.to_string().contains("/does/not/exist.yaml"));
    }

    #[test]
    fn a_file_that_is_no_profile_is_refused_with_the_reason_and_its_place() {
        let refused = Profile::from_yaml("operations: {vmAttach: {median: 3}}", Path::new("l.yaml")).unwrap_err();
        let told = refused.to_string();
        assert!(
            told.starts_with("latency profile l.yaml: line 1 ") && told.contains("unknown field `median`"),
            "{told}"
        );
    }
}
