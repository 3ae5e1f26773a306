use serde_json::json;

use super::*;

/// Made for these tests; their private halves are thrown away.
const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILjMLhLoHKsdYSfI/EQjr5+ukZSFIjA+IVlAJ7prxufP me@here";
const RSA_2048: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDG8GQzfIZ1EkGzjXwQC62OHaR3I73Okfqv07PP23Nzpod82rkjnqxG1UCE3Z/u\
    Ose7fuXFxoT2PMCaxHVSNRB+9ILRsaIy7OudCJORmDo2fBLVmMOPe9OXG3+VTveZfSWu7DpiIdjv+ZYie85iGNXyrR8CsukAqTiX\
    auQyICOYZQtMBbBUq4qCxNPLl9hY+RexHPWSEVyeHs2aMVGYvfxhBqUW20OuRGt37LsunvvwxWtjBfkm+DK2wiGQ5JfIdmK1WLlh\
    1S9pIBbhMwyOEVNrviwivM3ddF4XdDD+aIUcdvXhmzsbZLF82j2oWaSdntE8sAfiVMCWa71DqmUXkD2z a person";
const RSA_1024: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDJl93q07+vG99FpbZzapY/Ie/paZdQQ9H6PUcBJTBYubmG3oAnD0VnwVtkayl4\
    WyOFfYPeFCrHy+vJRWKyket99JCeUkJ9GjmFgX+2bDD+EOPUcSfk10tgXAUhDBPUkEFYA6j/P2DtgQSsQuo/AlgfNDEznWpdGQD6\
    qIVNT/7zRw== short";
const ECDSA: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBKb12M+08Eoymo1dxxEKgb1p0Vat\
    AEI3EQCtG9MUEmt+GLfE5jf4O2jxi3R4hJ79SYqIY9u/U+GP3D3ciE/rPUg= x";

fn key(text: &str) -> Result<PublicKey, PublicKeyError> {
    text.parse()
}

#[test]
fn one_line_with_a_key_that_azure_takes_is_a_public_key() {
    for line in [ED25519, RSA_2048] {
        let read = key(&format!("  {line}\r\n\n")).unwrap();
        assert_eq!(read.line(), line);
        assert!(line.starts_with(read.kind()) && line.ends_with(read.comment()));
    }
    let (bare, _) = ED25519.rsplit_once(' ').unwrap();
    assert_eq!(key(bare).unwrap().line(), bare);
    assert_eq!(key(RSA_2048).unwrap().comment(), "a person");
}

#[test]
fn what_is_no_single_public_key_is_refused_by_what_it_is() {
    let (kind, rest) = ED25519.split_once(' ').unwrap();
    let swapped = format!("ssh-rsa {rest}");
    let cut = format!("{kind} {}", &rest[..40]);
    for (text, expected) in [
        ("", PublicKeyError::Empty),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", PublicKeyError::Private),
        ("PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n", PublicKeyError::Private),
        (&format!("{ED25519}\n{RSA_2048}"), PublicKeyError::SeveralLines),
        (&format!("command=\"id\" {ED25519}"), PublicKeyError::Type),
        ("ssh-ed25519-cert-v01@openssh.com AAAA", PublicKeyError::Type),
        (ECDSA, PublicKeyError::Type),
        ("AAAA", PublicKeyError::Type),
        (&swapped, PublicKeyError::Data),
        (&cut, PublicKeyError::Data),
        ("ssh-ed25519 %%%%", PublicKeyError::Data),
        (RSA_1024, PublicKeyError::Short { bits: 1_024 }),
        (&format!("{ED25519}\u{7}"), PublicKeyError::Comment),
    ] {
        assert_eq!(key(text), Err(expected), "{text}");
    }
}

#[test]
fn a_private_key_is_in_no_message() {
    let secret = "c2VjcmV0";
    let error = key(&format!("-----BEGIN RSA PRIVATE KEY-----\n{secret}\n")).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(secret));
    assert!(!format!("{:?}", key(ED25519).unwrap()).contains("AAAA"));
}

#[test]
fn a_users_name_is_one_that_linux_takes() {
    for name in ["azureuser", "_svc", "a-b_1", "A"] {
        assert_eq!(name.parse::<User>().unwrap().as_str(), name);
    }
    assert_eq!("root".parse::<User>(), Err(UserError::Root));
    for name in ["", "1a", "-a", "a b", "a;b", "ä", "a\n", &"a".repeat(33)] {
        assert_eq!(name.parse::<User>(), Err(UserError::Name(name.to_owned())), "{name:?}");
    }
}

const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm";
const INSTANCE: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/3";

fn body() -> Value {
    json!({"location": "eu", "properties": {
        "storageProfile": {"osDisk": {"osType": "Linux"}},
        "osProfile": {"allowExtensionOperations": true, "computerName": "Node"},
        "instanceView": {"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/running"}]},
    }})
}

fn with(change: impl FnOnce(&mut Value)) -> Machine {
    let mut body = body();
    change(&mut body);
    Machine::read("node", &VM.parse().unwrap(), &body)
}

fn resource(name: &str, state: &str) -> Value {
    let properties = json!({"publisher": PUBLISHER.to_lowercase(), "type": TYPE, "provisioningState": state});
    json!([{"name": "other", "properties": {"publisher": "Microsoft.Azure", "type": TYPE}},
        {"name": name, "properties": properties}])
}

#[test]
fn each_machine_gets_the_step_that_it_needs() {
    let keep = |machine: &Machine| plan(machine, Foreign::Keep, "S");
    assert_eq!(keep(&with(|_| ())), Step::Add);
    let own = |state: &str| with(|body| body["resources"] = resource(NAME, state));
    assert_eq!(keep(&own("Succeeded")), Step::Update { again: false });
    assert_eq!(keep(&own("Failed")), Step::Update { again: true });
    assert_eq!(keep(&own("Updating")), Step::Skip(Skip::Busy { name: NAME.to_owned() }));
    let name = "enablevmaccess".to_owned();
    let foreign = with(|body| body["resources"] = resource(&name, "Succeeded"));
    assert_eq!(keep(&foreign), Step::Skip(Skip::Foreign { name: name.clone() }));
    assert_eq!(plan(&foreign, Foreign::Replace, "s"), Step::Replace { name: name.clone() });
    let view = json!([{"name": "enablevmaccess", "type": format!("{PUBLISHER}.{TYPE}")}]);
    let viewed = with(|body| body["properties"]["instanceView"]["extensions"] = view);
    assert_eq!(keep(&viewed), Step::Skip(Skip::Foreign { name }));
}

#[test]
fn a_machine_that_only_a_provider_id_gives_to_the_node_gets_no_key() {
    let victim = with(|body| body["properties"]["osProfile"]["computerName"] = "victim".into());
    let left_out = plan(&victim, Foreign::Replace, "s");
    assert_eq!(left_out, Step::Skip(Skip::OtherComputer { name: Some("victim".to_owned()) }));
    assert!(left_out.to_string().contains("\"victim\"") && matches!(left_out, Step::Skip(why) if why.is_shortfall()));
    let nameless = with(|body| body["properties"]["osProfile"] = json!({}));
    assert_eq!(plan(&nameless, Foreign::Replace, "s"), Step::Skip(Skip::OtherComputer { name: None }));
    let elsewhere = plan(&with(|_| ()), Foreign::Replace, "other");
    assert_eq!(elsewhere, Step::Skip(Skip::OtherSubscription { subscription: "s".to_owned() }));
    // An instance is called by its computer alone, a VM also by its own name.
    let instance = |name: &str| Machine::read(name, &INSTANCE.parse().unwrap(), &body());
    assert_eq!(plan(&instance("node"), Foreign::Keep, "s"), Step::Add);
    assert!(matches!(plan(&instance("3"), Foreign::Keep, "s"), Step::Skip(Skip::OtherComputer { .. })));
}

#[test]
fn a_machine_that_cannot_take_the_key_is_left_out_and_says_why() {
    let windows = with(|body| body["properties"]["storageProfile"]["osDisk"]["osType"] = "windows".into());
    let off = with(|body| body["properties"]["instanceView"]["statuses"][1]["code"] = "PowerState/deallocated".into());
    let closed = with(|body| body["properties"]["osProfile"]["allowExtensionOperations"] = false.into());
    let steps = [windows, off, closed].map(|machine| plan(&machine, Foreign::Replace, "s"));
    assert_eq!(steps, [Skip::Windows, Skip::Stopped, Skip::NoExtensions].map(Step::Skip));
    // A Windows machine has no use for the key; the others miss it.
    assert!(!Skip::Windows.is_shortfall() && Skip::Stopped.is_shortfall() && Skip::NoExtensions.is_shortfall());
    // What Azure does not say is left to the write.
    let silent = Machine::read("vm", &VM.parse().unwrap(), &json!({}));
    assert_eq!(plan(&silent, Foreign::Keep, "s"), Step::Add);
}

#[test]
fn the_extension_says_user_and_key_and_nothing_that_removes_keys() {
    let (user, key) = ("me".parse().unwrap(), key(ED25519).unwrap());
    let written = |machine: &Machine, step: &Step| extension(machine, step, &user, &key, "run-1").unwrap();
    let machine = with(|_| ());
    let added = written(&machine, &Step::Add);
    assert_eq!(added.name, NAME);
    assert_eq!(
        added.body,
        json!({"location": "eu", "properties": {
            "publisher": "Microsoft.OSTCExtensions", "type": "VMAccessForLinux", "typeHandlerVersion": "1.5",
            "autoUpgradeMinorVersion": true, "settings": {},
            "protectedSettings": {"username": "me", "ssh_key": ED25519}}})
    );
    // The same key a second time is the same body, so that Azure runs nothing; a failed one must run again.
    assert_eq!(written(&machine, &Step::Update { again: false }).body, added.body);
    assert_eq!(written(&machine, &Step::Update { again: true }).body["properties"]["forceUpdateTag"], "run-1");
    assert_eq!(written(&machine, &Step::Replace { name: "other".to_owned() }).name, "other");
    assert_eq!(extension(&machine, &Step::Skip(Skip::Windows), &user, &key, "run-1"), None);
    let instance = Machine { id: INSTANCE.parse().unwrap(), ..machine };
    assert!(written(&instance, &Step::Add).body.get("location").is_none());
}
