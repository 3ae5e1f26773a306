//! The address of a page blob that is a disk.

/// A page blob by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageBlob<'a> {
    /// The address as it was spelled.
    pub(super) uri: &'a str,
    account: &'a str,
}

/// How the names of the accounts begin that the in-tree provisioner made for disks of the kind `Shared` (source:
/// Kubernetes 1.10, azure_blobDiskController.go).
const SHARED_ACCOUNT_PREFIX: &str = "ds";

impl<'a> PageBlob<'a> {
    /// Reads an address: `https://ACCOUNT.blob.SUFFIX/CONTAINER/NAME`. The scheme is spelled as Kubernetes' validation
    /// insists on.
    pub(super) fn parse(uri: &'a str) -> Option<Self> {
        let (host, path) = uri.strip_prefix("https://")?.split_once('/')?;
        let (account, service) = host.split_once('.')?;
        let (container, name) = path.split_once('/')?;
        let is_blob = service.starts_with("blob.") && service.len() > "blob.".len();
        // Anything else in an authority or behind a path would make it another address.
        let is_plain = uri.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#@\\%".contains(&byte));
        let is_whole = !account.is_empty() && !container.is_empty() && !name.is_empty();
        (is_blob && is_plain && is_whole).then_some(Self { uri, account })
    }

    /// Kubernetes' word for how the account is used. The address does not tell for certain, and no reader of a volume
    /// depends on it: only the provisioner chose accounts by it.
    pub(super) fn kind(self) -> &'static str {
        if self.account.starts_with(SHARED_ACCOUNT_PREFIX) { "Shared" } else { "Dedicated" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_page_blob_has_an_account_a_container_and_a_name() {
        for (uri, kind) in [
            ("https://ds0a1b.blob.core.windows.net/vhds/pvc-1.vhd", "Shared"),
            ("https://dd0a1b.blob.core.windows.net/vhds/pvc-1.vhd", "Dedicated"),
            ("https://azuretestx.blob.core.chinacloudapi.cn/vhds/folder/pvc-1.vhd", "Dedicated"),
        ] {
            let blob = PageBlob::parse(uri).unwrap();
            assert_eq!((blob.uri, blob.kind()), (uri, kind));
        }
        for uri in [
            "",
            "http://a.blob.core.windows.net/vhds/d.vhd",
            "HTTPS://a.blob.core.windows.net/vhds/d.vhd",
            "https://a.blob.core.windows.net/vhds",
            "https://a.blob.core.windows.net/vhds/",
            "https://a.blob.core.windows.net//d.vhd",
            "https://.blob.core.windows.net/vhds/d.vhd",
            "https://a.file.core.windows.net/vhds/d.vhd",
            "https://a.blob./vhds/d.vhd",
            "https://a.blob.core.windows.net/vhds/d.vhd?snapshot=1",
            "https://user@a.blob.core.windows.net/vhds/d.vhd",
            "https://a.blob.core.windows.net/vhds/d e.vhd",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d",
        ] {
            assert_eq!(PageBlob::parse(uri), None, "{uri}");
        }
    }
}
