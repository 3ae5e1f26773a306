//! Tuning of the block device on the node: profiles and single settings.

use std::{collections::BTreeMap, str::FromStr};

use lazuli_model::{
    UnknownName,
    parameter::{Parameter, Parameters},
};

use super::ParameterError;

/// Which tuning a volume asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PerfProfile {
    /// None: the default.
    #[default]
    None,
    /// What the driver computes from the disk's type and size.
    Basic,
    /// The settings given as `device-setting/…`.
    Advanced,
}

impl FromStr for PerfProfile {
    type Err = UnknownName;

    /// In any case of letters, as in the Go driver.
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text.to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "basic" => Ok(Self::Basic),
            "advanced" => Ok(Self::Advanced),
            _ => Err(UnknownName { value: text.to_owned(), allowed: "none, basic, advanced" }),
        }
    }
}

/// One file below `/sys/block/<device>/` and what is written into it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceSetting {
    /// The path below `/sys/block/<device>/`, without `.` and `..`.
    pub path: String,
    /// What is written.
    pub value: String,
}

/// The settings outside of `queue` (source: the attributes of a SCSI device that set its speed and patience).
const OF_THE_SCSI_DEVICE: [&str; 5] =
    ["device/queue_depth", "device/queue_ramp_up_period", "device/queue_type", "device/timeout", "device/eh_timeout"];

impl DeviceSetting {
    /// Whether a path below `/sys/block/<device>/` is that of a setting of the disk's own speed. The folder is full of
    /// links to other devices and of files that take a device away; this is the one list of what may be written, for
    /// the controller that takes a setting and for the node that writes it.
    pub fn is_allowed(path: &str) -> bool {
        let plain = |part: &str| !matches!(part, "" | "." | "..");
        path.split_once('/').is_some_and(|(head, rest)| head == "queue" && rest.split('/').all(plain))
            || OF_THE_SCSI_DEVICE.contains(&path)
    }

    /// What is allowed, for the reader.
    pub fn allowed() -> String {
        format!("the files below queue/, such as queue/scheduler, and {}", OF_THE_SCSI_DEVICE.join(", "))
    }
}

/// The prefix of parameters that are device settings.
const PREFIX: &str = "device-setting/";

/// The path of a parameter that is a device setting; the prefix in any case, the path exactly, for files have cases.
pub(super) fn setting_path(key: &str) -> Option<&str> {
    let head = key.get(..PREFIX.len())?;
    head.eq_ignore_ascii_case(PREFIX).then(|| &key[PREFIX.len()..])
}

/// The settings among the parameters, by path, and what is wrong with the others.
pub(super) fn device_settings<'a>(
    parameters: impl Iterator<Item = Parameter<'a>>,
) -> (Vec<DeviceSetting>, Vec<ParameterError>) {
    let (mut settings, mut refused) = (Vec::<DeviceSetting>::new(), Vec::new());
    for parameter in parameters {
        let Some(path) = setting_path(parameter.key) else { continue };
        let Some(path) = below_the_device(path).filter(|path| DeviceSetting::is_allowed(path)) else {
            refused.push(parameter.refuse(format!(
                "it is no setting of a disk's speed; allowed under /sys/block/<device>/ are {}",
                DeviceSetting::allowed()
            )));
            continue;
        };
        if parameter.value.chars().any(char::is_control) {
            refused.push(parameter.refuse("allowed is one line without control characters"));
        } else if settings.iter().any(|setting| setting.path == path) {
            refused.push(parameter.refuse(format!("the setting {path} is given twice; allowed is once")));
        } else {
            settings.push(DeviceSetting { path, value: parameter.value.to_owned() });
        }
    }
    settings.sort();
    (settings, refused)
}

/// Refuses what no new volume may ask of its node.
pub(super) fn check(parameters: &Parameters<'_>) -> Result<(), ParameterError> {
    let (settings, refused) = device_settings(parameters.iter().map(|(_, parameter)| parameter));
    if let Some(error) = refused.into_iter().next() {
        return Err(error);
    }
    check_profile(parameters.get("perfprofile"), &settings).map(drop)
}

/// Refuses what no node would do with a new volume of these parameters, whatever its disk is.
///
/// # Errors
/// The first `device-setting/` or profile that cannot be used.
pub fn check_tuning(parameters: &BTreeMap<String, String>) -> Result<(), ParameterError> {
    check(&Parameters::written(parameters)?)
}

/// The path with `.` and `..` resolved, unless they lead out of the device's directory.
fn below_the_device(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ if part.chars().any(char::is_control) => return None,
            _ => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// The profile of a volume.
pub(super) fn profile(parameter: Option<Parameter<'_>>) -> Result<PerfProfile, ParameterError> {
    let Some(parameter) = parameter else { return Ok(PerfProfile::None) };
    parameter.value.parse().map_err(|unknown: UnknownName| parameter.refuse(format!("allowed are {}", unknown.allowed)))
}

/// `advanced` is its settings; without any it asks for nothing and is a mistake.
pub(super) fn check_profile(
    parameter: Option<Parameter<'_>>,
    settings: &[DeviceSetting],
) -> Result<PerfProfile, ParameterError> {
    let profile = profile(parameter)?;
    let Some(parameter) = parameter else { return Ok(profile) };
    if profile == PerfProfile::Advanced && settings.is_empty() {
        return Err(
            parameter.refuse("it needs at least one parameter device-setting/<path under /sys/block/<device>/>")
        );
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(key: &str) -> Result<Vec<DeviceSetting>, ParameterError> {
        let (settings, refused) = device_settings([Parameter { key, value: "x" }].into_iter());
        refused.into_iter().next().map_or(Ok(settings), Err)
    }

    #[test]
    fn a_device_setting_stays_under_its_device() {
        for (key, path) in [
            ("device-setting/queue/scheduler", "queue/scheduler"),
            ("DEVICE-Setting/device/queue_depth", "device/queue_depth"),
            ("device-setting//queue/./nr_requests", "queue/nr_requests"),
            ("device-setting/queue/../queue/iosched", "queue/iosched"),
        ] {
            assert_eq!(setting(key).unwrap()[0].path, path, "{key}");
        }
        for key in [
            "device-setting/",
            "device-setting/..",
            "device-setting/../sdb/queue/scheduler",
            "device-setting/queue/../../x",
            "device-setting/queue/..",
            "device-setting/a\nb",
            // Files that take a device away, and another device's.
            "device-setting/device/delete",
            "device-setting/device/state",
            "device-setting/subsystem/sda/device/delete",
            "device-setting/queue",
            "device-setting/scheduler",
            "device-setting/Queue/scheduler",
        ] {
            let error = setting(key).unwrap_err();
            assert_eq!((error.parameter.as_str(), error.value.as_str()), (key, "x"));
            assert!(error.to_string().contains("queue/scheduler, and device/queue_depth"), "{error}");
        }
    }

    #[test]
    fn a_setting_given_under_two_paths_is_refused() {
        let parameters = ["device-setting/queue/x", "device-setting/queue//x"].map(|key| Parameter { key, value: "1" });
        let (settings, refused) = device_settings(parameters.into_iter());
        assert_eq!(settings.len(), 1);
        assert!(refused[0].to_string().contains("given twice"));
    }

    #[test]
    fn an_advanced_profile_needs_settings() {
        let profile = |value| check_profile(Some(Parameter { key: "perfProfile", value }), &[]);
        assert_eq!(profile("BASIC"), Ok(PerfProfile::Basic));
        assert!(profile("advanced").unwrap_err().to_string().contains("device-setting/"));
        assert!(profile("fast").unwrap_err().to_string().contains("none, basic, advanced"));
        assert_eq!(check_profile(None, &[]), Ok(PerfProfile::None));
    }
}
