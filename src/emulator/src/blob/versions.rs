//! The versions of the blob service (`x-ms-version`).
//!
//! Documented (rest/api/storageservices/previous-azure-storage-service-versions): a request names one of those that have been
//! published. The emulator behaves alike in all of them, but for what a signature covers.

use super::error::BlobError;

/// Those that have been published, the oldest first. Older ones have no page blobs.
const PUBLISHED: [&str; 50] = [
    "2009-09-19",
    "2011-08-18",
    "2012-02-12",
    "2012-09-19",
    "2013-08-15",
    "2014-02-14",
    "2015-02-21",
    "2015-04-05",
    "2015-07-08",
    "2015-12-11",
    "2016-05-31",
    "2017-04-17",
    "2017-07-29",
    "2017-11-09",
    "2018-03-28",
    "2018-06-17",
    "2018-11-09",
    "2019-02-02",
    "2019-07-07",
    "2019-10-10",
    "2019-12-12",
    "2020-02-10",
    "2020-04-08",
    "2020-06-12",
    "2020-08-04",
    "2020-10-02",
    "2020-12-06",
    "2021-02-12",
    "2021-04-10",
    "2021-06-08",
    "2021-08-06",
    "2021-10-04",
    "2021-12-02",
    "2022-11-02",
    "2023-01-03",
    "2023-05-03",
    "2023-08-03",
    "2023-11-03",
    "2024-02-04",
    "2024-05-04",
    "2024-08-04",
    "2024-11-04",
    "2025-01-05",
    "2025-05-05",
    "2025-07-05",
    "2025-11-05",
    "2026-02-06",
    "2026-04-06",
    "2026-06-06",
    "2026-10-06",
];

/// From this version on a signature covers no length of 0.
pub(super) const LENGTH_ZERO_IS_EMPTY: &str = "2015-02-21";

/// The last that Azure Stack Hub has (documented: azure-stack-acs-differences).
const LAST_OF_2017: &str = "2017-11-09";

/// The version of a request. Documented: a request that is signed names one.
pub(super) fn of(given: Option<&str>, only_to_2017: bool) -> Result<&'static str, BlobError> {
    let given = given.ok_or_else(|| BlobError::header_missing("x-ms-version"))?;
    let mut served = PUBLISHED.into_iter().take_while(|version| !only_to_2017 || *version <= LAST_OF_2017);
    let found = served.find(|version| *version == given);
    found.ok_or_else(|| BlobError::header("x-ms-version", given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one_that_has_been_published() {
        assert!(PUBLISHED.is_sorted());
        let now = |given| of(given, false);
        assert_eq!(now(Some("2017-11-09")), Ok("2017-11-09"));
        assert_eq!(of(Some("2017-11-09"), true), Ok("2017-11-09"));
        for later in ["2018-03-28", "2026-04-06"] {
            assert!(now(Some(later)).is_ok());
            assert_eq!(of(Some(later), true).map_err(|error| error.code), Err("InvalidHeaderValue".to_owned()));
        }
        for (given, code) in [
            (None, "MissingRequiredHeader"),
            (Some("2017-11-10"), "InvalidHeaderValue"),
            (Some("2008-10-27"), "InvalidHeaderValue"),
            (Some("2099-01-01"), "InvalidHeaderValue"),
        ] {
            assert_eq!(now(given).map_err(|error| error.code), Err(code.to_owned()), "{given:?}");
        }
    }
}
