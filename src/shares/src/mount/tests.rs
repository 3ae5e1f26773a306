use lazuli_model::{AccessMode, fault::Code};
use proptest::prelude::*;

use super::*;
use crate::secret::SecretRef;

const DEFAULTS: Defaults<'_> =
    Defaults { storage_endpoint_suffix: "core.windows.net", own_connections: true, closes_at_once: false };

fn request(id: &str, context: &[(&str, &str)], flags: &[&str]) -> Request {
    Request {
        volume_id: id.into(),
        context: context.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..Request::default()
    }
}

fn planned(id: &str, context: &[(&str, &str)], flags: &[&str]) -> MountPlan {
    plan(&request(id, context, flags), &DEFAULTS).unwrap()
}

#[track_caller]
fn refused(id: &str, context: &[(&str, &str)], flags: &[&str], key: &str, says: &str) -> ParameterError {
    let error = plan(&request(id, context, flags), &DEFAULTS).unwrap_err();
    assert_eq!((error.parameter.as_str(), error.code()), (key, Code::InvalidArgument), "{error}");
    assert!(error.to_string().contains(says), "{error}");
    error
}

const ID: &str = "g#f1#pvc-1###ns";

#[test]
fn a_provisioned_volume_is_mounted_with_the_go_drivers_defaults() {
    let plan = planned(ID, &[("secretnamespace", "ns")], &[]);
    assert_eq!(plan.source(), "//f1.file.core.windows.net/pvc-1");
    assert_eq!(plan.options, ["file_mode=0777", "dir_mode=0777", "actimeo=30", "mfsymlinks", "nosharesock"]);
    assert!(!plan.is_read_only && !plan.creates_folder);
    let secret = SecretRef { namespace: "ns".into(), name: "azure-storage-account-f1-secret".into() };
    assert_eq!(plan.key.secret, Some(secret));
    assert_eq!(plan.warnings, Vec::<String>::new());
    assert!(!plan.options.iter().any(|option| option.starts_with("vers")));
}

#[test]
fn the_users_options_win_and_come_first() {
    for (flags, expected) in [
        (&["dir_mode=0755", "file_mode=0644"][..], "dir_mode=0755,file_mode=0644,actimeo=30,mfsymlinks,nosharesock"),
        (&["file_mode=0640,uid=1000"], "file_mode=0640,uid=1000,dir_mode=0777,actimeo=30,mfsymlinks,nosharesock"),
        (&["acregmax=5"], "acregmax=5,file_mode=0777,dir_mode=0777,mfsymlinks,nosharesock"),
        (&["acdirmax=5"], "acdirmax=5,file_mode=0777,dir_mode=0777,mfsymlinks,nosharesock"),
        (&["actimeo=1"], "actimeo=1,file_mode=0777,dir_mode=0777,mfsymlinks,nosharesock"),
        (&["nomfsymlinks"], "nomfsymlinks,file_mode=0777,dir_mode=0777,actimeo=30,nosharesock"),
        (&["nosharesock", "nosharesock"], "nosharesock,file_mode=0777,dir_mode=0777,actimeo=30,mfsymlinks"),
        (
            &["vers=3.0", "sec=ntlmssp"],
            "vers=3.0,sec=ntlmssp,file_mode=0777,dir_mode=0777,actimeo=30,mfsymlinks,nosharesock",
        ),
        (
            &["cache=strict, ,serverino"],
            "cache=strict,serverino,file_mode=0777,dir_mode=0777,actimeo=30,mfsymlinks,nosharesock",
        ),
    ] {
        assert_eq!(planned(ID, &[], flags).options.join(","), expected, "{flags:?}");
    }
    let other = Defaults { own_connections: false, closes_at_once: true, ..DEFAULTS };
    let plan = plan(&request(ID, &[], &["closetimeo=5"]), &other).unwrap();
    assert_eq!(plan.options.join(","), "closetimeo=5,file_mode=0777,dir_mode=0777,actimeo=30,mfsymlinks");
    let plan = super::plan(&request(ID, &[], &[]), &other).unwrap();
    assert_eq!(plan.options.last().unwrap(), "closetimeo=0");
}

#[test]
fn the_group_of_a_volume_is_an_option_unless_the_user_names_one() {
    let with = |flags: &[&str], group: &str| {
        let request = Request { mount_group: group.into(), ..request(ID, &[], flags) };
        plan(&request, &DEFAULTS).map(|plan| plan.options)
    };
    assert!(with(&[], "1000").unwrap().contains(&"gid=1000".to_owned()));
    let own = with(&["gid=5"], "1000").unwrap();
    assert!(own.contains(&"gid=5".to_owned()) && !own.contains(&"gid=1000".to_owned()));
    for group in ["x", "-1", "+1", "1,uid=0", "4294967296", "1 "] {
        assert_eq!(with(&[], group).unwrap_err().parameter, "volume_mount_group", "{group}");
    }
}

#[test]
fn no_option_holds_a_credential_and_none_is_shown() {
    let flags = [
        "username=me,password=hunter2",
        "pass=hunter2",
        "PASSWORD2=hunter2",
        "credentials=/etc/hunter2",
        "cred=/etc/hunter2",
        "passphrase=hunter2",
        "user=hunter2",
        "guest",
    ];
    let plan = planned(ID, &[], &flags);
    assert_eq!(plan.options, planned(ID, &[], &[]).options);
    assert_eq!(plan.warnings.len(), 9);
    assert!(!format!("{plan:?}").contains("hunter2"));
    let error = refused(ID, &[], &["password=hun\nter2"], "mountOptions", "control characters");
    assert!(!error.to_string().contains("ter2"), "{error}");
    let long = format!("some_password={}", "h".repeat(256));
    let error = refused(ID, &[], &[&long], "mountOptions", "255 bytes");
    assert!(!error.to_string().contains("hhh"), "{error}");
}

#[test]
fn options_that_mount_something_else_are_refused() {
    for flag in ["bind", "rbind", "remount", "loop", "unc=//evil/x", "source=//evil/x", "prefixpath=a", "Bind"] {
        refused(ID, &[], &[flag], "mountOptions", "something else");
    }
    for flag in ["sec=krb5", "sec=KRB5i", "upcall_target=mount"] {
        refused(ID, &[], &[flag], "mountOptions", "Kerberos");
    }
    refused(ID, &[], &["vers=1.0"], "mountOptions", "SMB 1");
    for flag in ["vers", "vers=2.1", &format!("netbiosname={}", "n".repeat(255))] {
        assert!(planned(ID, &[], &[flag]).options.contains(&flag.to_owned()), "{flag}");
    }
    refused(ID, &[], &["uid=1,bind"], "mountOptions", "something else");
}

#[test]
fn a_volume_is_read_only_by_its_access_mode_or_its_options() {
    let read_only = |flags: &[&str], mode: bool| {
        let request = Request { is_read_only: mode, ..request(ID, &[], flags) };
        plan(&request, &DEFAULTS).unwrap()
    };
    for (flags, mode, expected) in [
        (&[][..], false, false),
        (&[], true, true),
        (&["ro"], false, true),
        (&["ro,rw"], false, false),
        (&["rw"], true, true),
    ] {
        let plan = read_only(flags, mode);
        assert_eq!(plan.is_read_only, expected, "{flags:?} {mode}");
        assert!(!plan.options.iter().any(|option| option == "ro" || option == "rw"));
    }
    assert!(publish(true, AccessMode::SingleNodeWriter).is_read_only);
    assert!(publish(false, AccessMode::MultiNodeReaderOnly).is_read_only);
    assert!(!publish(false, AccessMode::MultiNodeMultiWriter).is_read_only);
}

#[test]
fn a_persons_volume_says_what_it_is_in_its_attributes() {
    let plan = planned("vol1", &[("shareName", "Data"), ("storageAccount", "acct"), ("folderName", "/a/b/")], &[]);
    assert_eq!(plan.source(), "//acct.file.core.windows.net/Data/a/b");
    let plan = planned("vol1", &[("shareName", "data$"), ("server", "10.0.0.4"), ("secretName", "mine")], &[]);
    assert_eq!(plan.source(), "//10.0.0.4/data$");
    assert_eq!(plan.key.account, None);
    let plan = planned("g#f1#config/x/y#", &[("foldername", "z"), ("createFolderIfNotExist", "true")], &[]);
    assert_eq!(plan.source(), "//f1.file.core.windows.net/config/x/y/z");
    assert!(plan.creates_folder);
    for context in [&[("folderName", "z")][..], &[("folderName", "z"), ("createFolderIfNotExist", "false")]] {
        assert!(!planned(ID, context, &[]).creates_folder, "{context:?}");
    }
    let plan = planned(ID, &[("storageEndpointSuffix", "core.chinacloudapi.cn"), ("server", " ")], &[]);
    assert_eq!(plan.source(), "//f1.file.core.chinacloudapi.cn/pvc-1");
    // An in-tree volume, translated.
    let plan =
        planned("g#acct#data#pv#ns", &[("sharename", "data"), ("secretname", "s"), ("secretnamespace", "ns")], &[]);
    assert_eq!(plan.source(), "//acct.file.core.windows.net/data");
}

#[test]
fn the_account_of_a_pods_own_volume_stands_in_its_secret() {
    // Kubernetes puts the Secret's name into the id, unless that says which account it is of.
    for (id, account) in [("#azure-secret#data#azure#db", "first"), ("#mysecret#data#azure#db", "first")] {
        let known = Request { account: Some(account.to_owned()), ..request(id, &[("shareName", "data")], &[]) };
        assert_eq!(plan(&known, &DEFAULTS).unwrap().source(), "//first.file.core.windows.net/data", "{id}");
        // A publish brings no secrets.
        let unknown = planned(id, &[("shareName", "data")], &[]);
        assert!(matches!(unknown.server, Server::OfSecret(_)), "{id}");
    }
    let key = planned("#azure-secret#data#azure#db", &[], &[]).key;
    let secret = SecretRef { namespace: "db".to_owned(), name: "azure-secret".to_owned() };
    assert_eq!((key.account, key.secret, key.may_ask_azure), (None, Some(secret), false));
    // What the volume says of itself counts more than a Secret.
    let own = [("storageAccount", "own")];
    let known = Request { account: Some("first".to_owned()), ..request("#mysecret#data#azure#db", &own, &[]) };
    assert_eq!(plan(&known, &DEFAULTS).unwrap().source(), "//own.file.core.windows.net/data");
    let known = Request { account: Some("first".to_owned()), ..request("g#own#data#", &[], &[]) };
    assert_eq!(plan(&known, &DEFAULTS).unwrap().source(), "//own.file.core.windows.net/data");
}

#[test]
fn the_share_of_a_class_is_the_one_that_the_volume_id_names() {
    let context = [("shareName", "${pvc.metadata.namespace}-Data"), ("csi.storage.k8s.io/pvc/namespace", "db--1")];
    // The class's name had to be made fit: filled in once more it would be another one.
    assert_eq!(planned("g#f1#db-1-data##pvc-1#ns", &context, &[]).share, "db-1-data");
    // A volume of a person with a template.
    assert_eq!(planned("vol1", &[&context[..], &[("server", "nas")]].concat(), &[]).share, "db--1-Data");
    refused("vol1", &[("shareName", "${pv.metadata.name}"), ("server", "nas")], &[], "shareName", "unknown");
    // Attributes that external-provisioner did not add are not needed where the id says what was made.
    assert_eq!(planned("g#f1#data##pvc-1#ns", &[("shareName", "${pvc.metadata.name}")], &[]).share, "data");
    assert_eq!(planned("g#f1#data##pvc-1#ns", &[("shareName", "Data")], &[]).share, "data");
    refused("g#f1#data#", &[("shareName", "${pvc.metadata.name}")], &[], "shareName", "unknown");
    // As with the Go driver, the attribute of a person's volume counts where it names another share than the id.
    assert_eq!(planned("g#f1#data##uniq#ns", &[("shareName", "other")], &[]).share, "other");
    assert_eq!(planned("g#f1#data#", &[("shareName", "other")], &[]).share, "other");
}

#[test]
fn folders_are_filled_in_and_cannot_climb() {
    let context = [("folderName", "${pvc.metadata.name}"), ("csi.storage.k8s.io/pvc/name", "data")];
    assert_eq!(planned(ID, &context, &[]).folder.as_deref(), Some("data"));
    refused(ID, &[("folderName", "a/../../b")], &[], "folderName", "..");
    refused(ID, &[("folderName", "${pvc.metadata.name}")], &[], "folderName", "unknown");
    refused("vol1", &[("shareName", "a/../b"), ("server", "nas")], &[], "shareName", "..");
}

#[test]
fn what_cannot_be_mounted_says_why() {
    for (context, key, says) in [
        (("protocol", "nfs"), "protocol", "NFS"),
        (("fsType", "nfs"), "fsType", "NFS"),
        (("fsType", "ext4"), "fsType", "VHD"),
        (("diskName", "d.vhd"), "diskName", "VHD"),
        (("mountWithManagedIdentity", "true"), "mountWithManagedIdentity", "Kerberos"),
        (("mountWithWorkloadIdentityToken", "true"), "mountWithWorkloadIdentityToken", "Kerberos"),
        (("clientID", "c"), "clientID", "identity"),
        (("csi.storage.k8s.io/ephemeral", "true"), "csi.storage.k8s.io/ephemeral", "PersistentVolumeClaim"),
        (("server", "a/b"), "server", "server"),
        (("storageAccount", "a/b"), "storageAccount", "server"),
    ] {
        refused(ID, &[context], &[], key, says);
    }
    for context in
        [("diskName", "pv-1"), ("fsType", "cifs"), ("csi.storage.k8s.io/ephemeral", "false"), ("protocol", "smb")]
    {
        assert!(plan(&request(ID, &[context], &[]), &DEFAULTS).is_ok(), "{context:?}");
    }
    refused("vol1", &[("server", "nas")], &[], "volume_id", "names no share");
    refused("g#f1##", &[], &[], "volume_id", "names no share");
    refused("g#f1#s#d.vhd#", &[], &[], "volume_id", "VHD");
    refused("g#f1#s#../x#", &[], &[], "volume_id", "..");
    assert_eq!(planned("vol1", &[("shareName", &"s".repeat(255)), ("server", "nas")], &[]).share.len(), 255);
    for share in [&"s".repeat(256)[..], "a,b", "a\\b", "a\nb", "..", "a:b"] {
        refused("vol1", &[("shareName", share), ("server", "nas")], &[], "shareName", "name of a share");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_request_breaks_the_plan_and_no_plan_leaves_its_share(
        id in "(g#f1#pvc-1#|[a-z#/.]{0,20}|\\PC{0,20})", share in "(data|[a-zA-Z./ ,\\\\]{0,10}|\\PC{0,10})",
        folder in "(a/b|[a-z./\\\\]{0,10})", server in "(nas|\\PC{0,10})",
        flags in proptest::collection::vec("(ro|uid=1|password=x|[a-z,=]{0,12}|\\PC{0,8})", 0..4), group in "[0-9x]{0,5}",
    ) {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let context = [("shareName", share.as_str()), ("folderName", folder.as_str()), ("server", server.as_str())];
        let request = Request { mount_group: group, ..request(&id, &context, &flags) };
        if let Ok(plan) = plan(&request, &DEFAULTS) {
            prop_assert!(!plan.source().split('/').any(|part| part == ".."), "{}", plan.source());
            prop_assert!(!plan.source().chars().any(char::is_control));
            for option in &plan.options {
                prop_assert!(!option.contains(',') && !option.is_empty());
                prop_assert_eq!(without_credentials(option), option.as_str());
            }
            for default in ["file_mode", "dir_mode"] {
                let count = plan.options.iter().filter(|option| option.split('=').next() == Some(default)).count();
                prop_assert!(count >= 1);
            }
        }
    }
}

#[test]
fn an_account_that_stands_beside_its_key_alone_names_the_server() {
    let by_secret = request("data-of-mine", &[("shareName", "data"), ("secretName", "mine")], &[]);
    let secret = SecretRef { namespace: "default".into(), name: "mine".into() };
    let unknown = plan(&by_secret, &DEFAULTS).unwrap();
    assert_eq!((&unknown.server, unknown.share.as_str()), (&Server::OfSecret(secret), "data"));
    assert_eq!(unknown.source(), "//(the account in Secret default/mine)/data");
    let known = Request { account: Some("f9".into()), ..by_secret.clone() };
    assert_eq!(plan(&known, &DEFAULTS).unwrap().source(), "//f9.file.core.windows.net/data");
    let own = Request { account: Some("f9".into()), ..request(ID, &[], &[]) };
    assert_eq!(plan(&own, &DEFAULTS).unwrap().source(), "//f1.file.core.windows.net/pvc-1", "the volume's counts");
    let with_server = request("any", &[("shareName", "d"), ("secretName", "s"), ("server", "h")], &[]);
    assert_eq!(plan(&with_server, &DEFAULTS).unwrap().server, Server::Named("h".into()));
}

#[test]
fn a_volume_that_names_no_account_can_be_compared_and_not_mounted() {
    let request = request("unique-volumeid", &[("shareName", "d")], &[]);
    let unknown = plan(&request, &DEFAULTS).unwrap();
    assert_eq!((&unknown.server, unknown.share.as_str(), &unknown.key.secret), (&Server::OfRequest, "d", &None));
    let error = unknown.to_mount("unique-volumeid").unwrap_err();
    assert!(error.parameter == "volume_id" && error.to_string().contains("no storage account"), "{error}");
    let staged = plan(&Request { account: Some("f9".into()), ..request }, &DEFAULTS).unwrap();
    assert_eq!(staged.to_mount("unique-volumeid").unwrap().source(), "//f9.file.core.windows.net/d");
}

#[test]
fn what_cannot_be_mounted_is_refused_before_the_account_is_known() {
    let inline = ("csi.storage.k8s.io/ephemeral", "true");
    for (more, says) in
        [(inline, "PersistentVolumeClaim"), (("folderName", "../up"), ".."), (("protocol", "nfs"), "nfs")]
    {
        let error =
            plan(&request("any", &[("shareName", "d"), ("secretName", "s"), more], &[]), &DEFAULTS).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}
