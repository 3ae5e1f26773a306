//! `mount.cifs`, for kernels without the mount API.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use super::{Login, Share, SmbError, error, settings};
use crate::child::{self, Call};
use crate::options::Options;
use crate::{Deadline, Host};

/// Runs it. The password is neither an argument nor in the environment.
pub(super) async fn mount(
    host: &Host,
    share: &Share,
    login: &Login,
    address: Option<IpAddr>,
    target: &Path,
    deadline: Deadline,
) -> Result<(), SmbError> {
    let source = share.source();
    let options = Options::parse(&share.options).map_err(SmbError::Option)?;
    // The same checks of lengths.
    settings::settings(share, login, &options, address, &source)?;
    let mut words = share.options.clone();
    words.extend(share.is_read_only.then(|| "ro".to_owned()));
    words.extend(address.map(|address| format!("ip={address}")));
    words.push(format!("username={}", login.user));
    let target = target.to_string_lossy();
    let args = [&*source, &*target, "-o", &words.join(",")];
    let call = Call::new("mount.cifs", &args).that_mounts().with_password(&login.password);
    let output = child::run(host, call, deadline).await.map_err(SmbError::Program)?;
    if output.success() {
        return Ok(());
    }
    match number(&output.stderr).or_else(|| number(&output.stdout)) {
        Some(number) => {
            let error = io::Error::from_raw_os_error(number);
            Err(error::of_errno("mount", &source, &share.server, &login.user, error, String::new()))
        }
        None => {
            let said = output.describe().replace(login.password.expose(), lazuli_model::REDACTED);
            Err(SmbError::ProgramFailed { source_name: source, said })
        }
    }
}

/// The error number in `mount error(13): Permission denied`.
pub(super) fn number(said: &str) -> Option<i32> {
    let (_, rest) = said.split_once("mount error(")?;
    rest.split_once(')')?.0.parse().ok()
}
