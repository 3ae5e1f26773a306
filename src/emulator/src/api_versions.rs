//! Which api-versions a type has, and what an emulator makes of others.
//!
//! The lists are documented: the published specifications, and refusals of real Azure in public trackers that
//! print them (azure-cli#28496, azure-cli#28038, migAz#246). Versions come faster than emulators, so a version
//! that is newer than the newest of a list is taken for one that has been published since, if its day has come.

use jiff::{Timestamp, civil::Date, tz::Offset};

/// What becomes of an api-version that is in no list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiVersions {
    /// It is refused when it is no date, older than the type, or in the future; others are taken. Several types
    /// of a provider have versions of their own: a client with one for all gets through.
    #[default]
    Dated,
    /// It is refused as Azure does, unless it is newer than the list and its day has come.
    Published,
    /// Any date is taken, also one that no calendar has.
    Any,
}

const GATEWAY: &str = "2014-04 2014-02-26 2013-03-01 2014-01-01 2014-04-01 2014-04-01-preview 2015-01-01 2015-11-01 2016-02-01 2016-06-01 2016-07-01 2016-09-01 2017-03-01 2017-05-01 2017-05-10 2017-06-01 2017-08-01 2017-12-01 2018-01-01 2018-02-01 2018-05-01 2018-06-01 2018-07-01 2018-08-01 2018-09-01 2018-11-01 2019-03-01 2019-05-01 2019-05-10 2019-06-01 2019-07-01 2019-08-01 2019-09-01 2019-10-01 2019-11-01 2020-01-01 2020-05-01 2020-06-01 2020-07-01 2020-08-01 2020-09-01 2020-10-01 2021-01-01 2021-04-01 2022-01-01 2022-03-01-preview 2022-05-01 2022-06-01 2022-09-01 2022-11-01-preview 2022-12-01 2023-03-01-preview 2023-07-01 2023-07-01-preview 2024-03-01 2024-07-01 2024-11-01 2025-04-01";

const AUTHORIZATION: &str = "2015-07-01 2018-01-01-preview 2018-07-01 2022-04-01 2022-05-01-preview";

const COMPUTE: &str = "2015-05-01-preview 2015-06-15 2016-03-30 2016-04-30-preview 2016-08-30 2017-03-30 2017-12-01 2018-04-01 2018-06-01 2018-10-01 2019-03-01 2019-07-01 2019-12-01 2020-06-01 2020-12-01 2021-03-01 2021-04-01 2021-07-01 2021-11-01 2022-03-01 2022-08-01 2022-11-01 2023-03-01 2023-07-01 2023-09-01 2024-03-01 2024-07-01 2024-11-01 2025-04-01 2025-11-01 2026-03-01";

const DISKS: &str = "2016-04-30-preview 2017-03-30 2018-04-01 2018-06-01 2018-09-30 2019-03-01 2019-07-01 2019-11-01 2020-05-01 2020-06-30 2020-09-30 2020-12-01 2021-04-01 2021-08-01 2021-12-01 2022-03-02 2022-07-02 2023-01-02 2023-04-02 2023-10-02 2024-03-02 2025-01-02 2026-03-02";

const SKUS: &str = "2016-03-30 2017-03-30 2017-09-01 2019-04-01 2021-07-01";

const NETWORK: &str = "2014-12-01-preview 2015-05-01-preview 2015-06-15 2016-03-30 2016-06-01 2016-07-01 2016-08-01 2016-09-01 2016-10-01 2016-11-01 2016-12-01 2017-03-01 2017-04-01 2017-06-01 2017-08-01 2017-09-01 2017-10-01 2017-11-01 2018-01-01 2018-02-01 2018-03-01 2018-04-01 2018-05-01 2018-06-01 2018-07-01 2018-08-01 2018-10-01 2018-11-01 2018-12-01 2019-02-01 2019-04-01 2019-06-01 2019-07-01 2019-08-01 2019-09-01 2019-11-01 2019-12-01 2020-01-01 2020-03-01 2020-04-01 2020-05-01 2020-06-01 2020-07-01 2020-08-01 2020-11-01 2021-01-01 2021-02-01 2021-03-01 2021-04-01 2021-05-01 2021-06-01 2021-08-01 2021-12-01 2022-01-01 2022-05-01 2022-07-01 2022-09-01 2022-11-01 2023-02-01 2023-04-01 2023-05-01 2023-06-01 2023-09-01 2023-11-01 2024-01-01 2024-03-01 2024-05-01 2024-07-01 2024-10-01 2025-01-01 2025-03-01 2025-05-01 2025-07-01";

const STORAGE: &str = "2015-05-01-preview 2015-06-15 2016-01-01 2016-05-01 2016-12-01 2017-06-01 2017-10-01 2018-02-01 2018-03-01-preview 2018-07-01 2018-11-01 2019-04-01 2019-06-01 2020-08-01-preview 2021-01-01 2021-02-01 2021-04-01 2021-05-01 2021-06-01 2021-08-01 2021-09-01 2022-05-01 2022-09-01 2023-01-01 2023-04-01 2023-05-01 2024-01-01 2025-01-01 2025-06-01 2025-08-01 2026-04-01 2026-09-01";

/// The versions of a type, oldest first. `kind` is the path after the provider without names, in lower case;
/// without provider the gateway's own.
pub(crate) fn of(provider: Option<&str>, kind: &str) -> Vec<&'static str> {
    let compute = |kind: &str| match kind {
        "skus" => SKUS,
        "locations/diskoperations" => DISKS,
        kind if kind.starts_with("disks") || kind.starts_with("snapshots") => DISKS,
        // The network provider answers below the compute provider's path.
        kind if kind.starts_with("virtualmachinescalesets/") && kind.contains("/networkinterfaces") => NETWORK,
        "virtualmachinescalesets/networkinterfaces" | "virtualmachinescalesets/publicipaddresses" => NETWORK,
        _ => COMPUTE,
    };
    let list = match provider.map(str::to_ascii_lowercase).as_deref() {
        _ if kind.ends_with("permissions") => AUTHORIZATION,
        Some("microsoft.compute") => compute(kind),
        Some("microsoft.network") => NETWORK,
        Some("microsoft.storage") => STORAGE,
        _ => GATEWAY,
    };
    list.split(' ').collect()
}

/// The day in an api-version, if it is one.
fn day(version: &str) -> Option<Date> {
    let date = version.split_once("-preview").map_or(version, |(date, _)| date);
    let mut parts = date.split('-');
    let mut number = |digits: usize| -> Option<i16> {
        let part = parts.next().filter(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()))?;
        part.parse().ok()
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

/// Whether a version that is well-formed is one of a type.
pub(crate) fn known(versions: &[&str], version: &str, rule: ApiVersions, now: Timestamp) -> bool {
    if rule == ApiVersions::Any || versions.iter().any(|known| known.eq_ignore_ascii_case(version)) {
        return true;
    }
    let Some(asked) = day(version) else {
        return false;
    };
    let today = Offset::UTC.to_datetime(now).date();
    let days = || versions.iter().filter_map(|version| day(version));
    let newest = days().max();
    match rule {
        ApiVersions::Published => newest.is_some_and(|newest| asked > newest) && asked <= today,
        _ => days().min().is_some_and(|oldest| asked >= oldest) && newest.is_some_and(|n| asked <= n.max(today)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-06-01T00:00:00Z.
    const NOW: Timestamp = Timestamp::constant(1_780_272_000, 0);

    #[test]
    fn every_list_is_in_order_and_of_dates() {
        for (provider, kind) in [
            (None, ""),
            (Some("Microsoft.Compute"), "virtualmachines"),
            (Some("Microsoft.Compute"), "disks/begingetaccess"),
            (Some("Microsoft.Compute"), "skus"),
            (Some("Microsoft.Network"), "virtualnetworks"),
            (Some("Microsoft.Storage"), "storageaccounts"),
        ] {
            let list = of(provider, kind);
            let dated: Vec<Date> = list.iter().filter_map(|version| day(version)).collect();
            // `2014-04` is a version of the gateway, and no day.
            assert_eq!(list.len() - dated.len(), usize::from(provider.is_none()), "{provider:?}");
            if provider.is_some() {
                assert!(dated.is_sorted(), "{provider:?} {kind}");
            }
        }
    }

    #[test]
    fn what_is_no_day_older_than_the_type_or_in_the_future_is_no_version() {
        let disks = of(Some("microsoft.compute"), "disks");
        let takes = |version: &str, rule| known(&disks, version, rule, NOW);
        for version in ["2025-13-45", "2023-02-30", "2015-06-15", "2099-01-01", "2026-06-02"] {
            assert!(!takes(version, ApiVersions::Dated), "{version}");
            assert!(!takes(version, ApiVersions::Published), "{version}");
            assert!(takes(version, ApiVersions::Any), "{version}");
        }
        for version in ["2025-01-02", "2016-04-30-preview", "2026-05-31"] {
            assert!(takes(version, ApiVersions::Dated), "{version}");
            assert!(takes(version, ApiVersions::Published), "{version}");
        }
        // A version of machines, which disks do not have.
        assert!(takes("2024-07-01", ApiVersions::Dated));
        assert!(!takes("2024-07-01", ApiVersions::Published));
    }
}
